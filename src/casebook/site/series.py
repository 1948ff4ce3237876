"""Run the notebooks headless, in order, and keep what succeeded.

The notebooks of a case build on one another and run one after the other; cases do not and may
run at the same time. Papermill executes each in a process of its own. What comes of it:

    reports/executed/13_poker_grpo.ipynb   the executed copy of a notebook that succeeded
    reports/failed/13_poker_grpo.ipynb     the copy of one that failed, up to the failing cell
    reports/execution.json                 for each notebook: status, seconds, parameters, error
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name
from casebook.site.colab import write_install_cells
from casebook.site.normalise import normalise, write_notebook
from casebook.site.notebooks import check_parameters, group_of, select

# Papermill, without a grammar that jsonschema takes longer to load than all the rest. The kernel
# is killed when its last cell is done: with torch it needs up to three seconds to end by itself.
START = """import json, sys; sys.modules["rfc3987_syntax"] = None; import papermill
options = {"kernel_name": "python3", "progress_bar": False, "shutdown_kernel": "immediate"}
papermill.execute_notebook(*sys.argv[1:3], json.loads(sys.argv[3]), cwd=sys.argv[4], **options)"""
DONE, FAILED, SKIPPED, RUNNING, STOPPED = "ok", "failed", "skipped", "running", "stopped"


@dataclass
class Result:
    """What came of one notebook; the entries of `reports/execution.json`.

    Its status is `ok`, `failed`, `skipped` (an earlier one of its case failed), `running` or
    `stopped` (by the user).
    """

    name: str
    status: str = RUNNING
    seconds: float = 0.0
    started: str = ""
    profile: str = ""
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def execute(
    cases: str | Iterable[str] = "all",
    profile: str = "nano",
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    jobs: int = 1,
    start_from: int = 0,
    in_place: bool = False,
    on_done: Callable[[Result], None] = lambda result: None,
    log: Callable[[str], None] = print,
) -> list[Result]:
    """Execute the notebooks of some cases and keep the copies that succeeded.

    Args:
        cases, start_from: which notebooks, as `select` takes them.
        profile, seed, parameters: of the notebooks; each parameter goes to those that know it.
        jobs: how many cases run at the same time.
        in_place: write the normalised copies back into `notebooks/` and the pictures into
            `figures/`; only with the committed parameters, profile `nano` and seed 0.
        on_done: called with each result as it is known, from the thread of its case.
        log: called with each line of progress.

    Returns:
        One result for each notebook, in order.

    Raises:
        CasebookError: before anything runs, for an unknown name, profile or parameter, a value
            of the wrong type, or nothing to run.
    """
    notebooks = select(cases, start_from)
    asked = {"PROFILE": profile, "SEED": seed} | dict(parameters or {})
    check_name("profile", asked["PROFILE"], PROFILES)
    if type(asked["SEED"]) is not int or asked["SEED"] < 0:
        raise CasebookError(f"SEED is {asked['SEED']}, and must be a whole number from 0 on")
    if in_place:
        if asked != {"PROFILE": "nano", "SEED": 0}:
            raise CasebookError(
                "--in-place writes the committed notebooks: profile nano, seed 0, no parameters"
            )
        for path in write_install_cells():
            log(f"{path.name}: install cell written")
    elif "RUNS_DIR" in os.environ:
        asked.setdefault("RUNS_DIR", os.environ["RUNS_DIR"])
    given = check_parameters(notebooks, asked)
    groups = [list(group) for _, group in groupby(notebooks, group_of)]
    busy = f"notebooks are being executed into {paths.REPORTS} already: wait for their end"
    with paths.alone_in(paths.REPORTS, busy):
        return _Series(given, in_place, on_done, log).run_all(groups, jobs)


def read_status(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """What `execution.json` says of each notebook: name -> the fields of `Result`; empty: none."""
    path = (folder or paths.REPORTS) / "execution.json"
    return paths.read_json(path) if path.exists() else {}


class _Series:
    """One call of `execute`: its processes, and the status file they share."""

    def __init__(self, given, in_place, on_done, log):
        self.given, self.in_place, self.on_done, self.log = given, in_place, on_done, log
        self.status = read_status()
        self.running: set[subprocess.Popen] = set()
        self.lock = threading.Lock()  # of the processes and the status file
        self.stopped = False

    def run_all(self, groups: Iterable[list[Path]], jobs: int) -> list[Result]:
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(self.run_case, group) for group in groups]
            try:
                return [result for future in futures for result in future.result()]
            except BaseException:
                with self.lock:
                    self.stopped = True
                    for process in self.running:
                        process.terminate()  # its kernel ends with it
                pool.shutdown(cancel_futures=True)
                raise

    def run_case(self, notebooks: list[Path]) -> list[Result]:
        """Execute the notebooks of one case in order; after a failure the rest is skipped."""
        results: list[Result] = []
        for notebook in notebooks:
            if self.stopped:
                break
            given = self.given[notebook]
            started = datetime.now(UTC).isoformat(timespec="seconds")
            of_it = {"profile": given["PROFILE"], "seed": given["SEED"], "parameters": given}
            result = Result(notebook.stem, started=started, **of_it)
            if failed := [earlier.name for earlier in results if earlier.status == FAILED]:
                result.status, result.error = SKIPPED, f"{failed[0]} failed"
                self.log(f"{result.name}: skipped, {result.error}")
            else:
                self.run(notebook, result)
            self.note(result)
            results.append(result)
            self.on_done(result)
        return results

    def run(self, notebook: Path, result: Result) -> None:
        """Execute one notebook, and keep the copy where it belongs."""
        executed, partial = (paths.REPORTS / d / notebook.name for d in ("executed", "failed"))
        self.note(result)
        self.log(f"{result.name}: started")
        for copy in (executed, partial):
            copy.parent.mkdir(exist_ok=True)
        begun = time.monotonic()
        said = self.papermill(notebook, partial)
        result.seconds = round(time.monotonic() - begun, 1)
        if said is None:
            os.replace(partial, executed)
            result.status = DONE
            self.log(f"{result.name}: done in {result.seconds:.0f} s")
        elif self.stopped:
            result.status, result.error = STOPPED, "stopped by the user"
        else:
            said = re.sub(r"\x1b\[[0-9;]*m", "", said).strip() or "papermill said nothing"
            result.status, result.error = FAILED, said.splitlines()[-1]
            failed = f"failed after {result.seconds:.0f} s: {result.error}"
            self.log(f"{said}\n{result.name}: {failed}\nThe notebook up to there: {partial}")
        if self.in_place and result.status == DONE:
            try:
                write_notebook(notebook, normalise(nbformat.read(executed, as_version=4)))
            except CasebookError as error:
                result.status, result.error = FAILED, f"{notebook.name}: {error}"
                self.log(f"{result.name}: not written back: {error}")

    def papermill(self, notebook: Path, output: Path) -> str | None:
        """Run one notebook in a process of its own; `None`, or what it said where it failed."""
        command = [sys.executable, "-c", START, str(notebook), str(output)]
        command += [json.dumps(self.given[notebook]), str(paths.ROOT)]
        # Kernels run on one thread, in this environment, and without a hub where none is needed.
        environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | dict(os.environ)
        environment["JUPYTER_PATH"] = os.path.join(sys.prefix, "share", "jupyter")
        if PROFILES[self.given[notebook]["PROFILE"]].embedded:
            environment.setdefault("HF_HUB_OFFLINE", "1")
        if self.in_place:
            environment["CASEBOOK_FIGURES_DIR"] = str(paths.ROOT / "figures")
        with self.lock:
            if self.stopped:
                return STOPPED
            # In a session of its own: Ctrl-C reaches the caller alone, who ends the processes.
            pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
            self.running.add(process)
        said = process.communicate()[1]
        with self.lock:
            self.running.discard(process)
        return said if process.returncode else None

    def note(self, result: Result) -> None:
        with self.lock:
            self.status[result.name] = asdict(result)
            paths.write_json(paths.REPORTS / "execution.json", self.status)
