"""The process of one notebook, seen from both of its ends.

A notebook has a process of its own, and its kernel another, so that what it held is given back
when it ends and a crash takes nothing else along. A pool of the standard library does not give
that: before Python 3.14 it cannot end its workers, and one that dies breaks the whole pool.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from casebook import paths

HEARTBEAT = 15  # seconds between two lines about a notebook that is running


class NotebookProcess:
    """A notebook that is being executed.

    Args:
        source: the notebook.
        output: where its copy goes, which grows cell by cell.
        parameters: what is injected after its parameters cell.
        environment: of the process and of the kernel.
    """

    def __init__(
        self,
        source: Path,
        output: Path,
        parameters: Mapping[str, Any],
        environment: Mapping[str, str],
    ):
        # Reports have a pipe of their own; whatever else is printed is kept in case of a crash.
        reading, writing = os.pipe()
        job = {"source": str(source), "output": str(output), "parameters": parameters}
        self.printed = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, json.dumps(job | {"reports": writing})],
            stdin=subprocess.PIPE,  # nothing is written: its end is the caller's end
            stdout=self.printed,
            stderr=self.printed,
            env=environment,
            pass_fds=[writing],
            start_new_session=True,  # Ctrl-C reaches the caller alone, who ends the processes
        )
        os.close(writing)
        self.reports = os.fdopen(reading)

    def wait(self, tell: Callable[[str], None]) -> dict[str, Any] | None:
        """Wait for its end and tell now and then which cell it is at.

        Returns:
            `None`, or about its failure `error` and, where known, `source` and `traceback`.
        """
        end: dict[str, Any] = {}
        with self.reports, self.printed, self.process.stdin:
            for line in self.reports:
                with contextlib.suppress(json.JSONDecodeError):  # ended while it was writing
                    report = json.loads(line)
                    if "cell" in report:
                        tell(report["cell"])
                    else:
                        end = report
            code = self.process.wait()
            self.printed.seek(0)
            crash = {
                "error": f"its process ended with code {code}",
                "traceback": self.printed.read().splitlines(),
            }
        return None if "seconds" in end else end or crash

    def end(self) -> None:
        """End it; its kernel ends with it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


_COMMAND = "from casebook.execute import kernel; kernel._main()"


def _main() -> None:
    """Execute the notebook that the last argument names, and report, one JSON a line."""
    job = json.loads(sys.argv[-1])
    import papermill
    from papermill.engines import NBClientEngine, papermill_engines

    reports, one_at_a_time = os.fdopen(job["reports"], "w"), threading.Lock()
    now, begun = {"cell": "starting its kernel"}, time.monotonic()

    def say(**report: Any) -> None:
        with one_at_a_time:
            print(json.dumps(report), file=reports, flush=True)

    def beat() -> None:
        while True:
            time.sleep(HEARTBEAT)
            say(cell=f"{now['cell']}, {time.monotonic() - begun:.0f} s")

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man, kernel_name, **options):
            # A reader of the source counts its code cells, without the one papermill injected.
            code = [
                index
                for index, cell in enumerate(nb_man.nb.cells)
                if cell.cell_type == "code"
                and "injected-parameters" not in cell.metadata.get("tags", [])
            ]
            start = nb_man.cell_start

            def cell_start(cell, cell_index=None, **more):
                if cell_index in code:
                    now["cell"] = f"cell {code.index(cell_index) + 1} of {len(code)}"
                return start(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    def end_with_the_caller() -> None:
        # One that was killed cannot end its processes, and its successor runs the notebook again.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=beat, daemon=True).start()
    threading.Thread(target=end_with_the_caller, daemon=True).start()
    papermill_engines.register("casebook", Engine)
    try:
        papermill.execute_notebook(
            job["source"],
            job["output"],
            job["parameters"],
            engine_name="casebook",
            kernel_name="python3",
            progress_bar=False,
            cwd=str(paths.ROOT),
        )
    except papermill.PapermillExecutionError as error:
        cell = f"{now['cell']}: {error.ename}: {error.evalue}".rstrip(": ")
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()
        say(error=cell, source=error.source, traceback=trace)
    except Exception as error:
        say(error=f"{now['cell']}: {type(error).__name__}: {error}")
    else:
        say(seconds=time.monotonic() - begun)
