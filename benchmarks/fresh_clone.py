"""How long a newcomer waits: `make` targets, each in a fresh clone, installation included.

    python benchmarks/fresh_clone.py reports test test-quick [--output FILE]

Prints for each target the seconds until the installation was done, until the first page could be
read (`reports`) and until all was finished, and the memory of the largest process. With
`--output` they are written into that file; what it holds of other targets is kept.
"""

import json
import resource
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from casebook import paths
from casebook.case import CasebookError
from casebook.paths import write_json
from casebook.records import provenance

TARGETS = ["reports", "test", "test-quick"]


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Targets of the Makefile.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Measure each target in a clone of what is committed."""
    results = json.loads(output.read_text()) if output and output.exists() else {}
    for target in targets or TARGETS:
        figures = measure(target)
        for name, value in figures.items():
            print(f"make {target}, {name}: {value:.0f}")
        results[f"make {target}"] = figures | {"provenance": provenance()}
        if output:
            write_json(output, results)


def measure(target: str) -> dict[str, float]:
    """Run one target in a fresh clone: seconds by event, and megabytes of the largest process."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "casebook"
        subprocess.run(["git", "clone", "--quiet", paths.ROOT, clone], check=True)
        watched = {"installed": clone / ".venv" / "installed"}
        if target == "reports":
            watched["first page"] = clone / "reports" / "index.html"
        seconds: dict[str, float] = {}
        started = time.perf_counter()

        def watch() -> None:
            while len(seconds) < len(watched):
                for name, path in watched.items():
                    if name not in seconds and path.exists():
                        seconds[name] = time.perf_counter() - started
                time.sleep(0.2)

        threading.Thread(target=watch, daemon=True).start()
        done = subprocess.run(["make", target], cwd=clone)
        finished = time.perf_counter() - started
        if done.returncode:
            raise CasebookError(f"make {target} ended with {done.returncode}")
    figures = {f"seconds until {name}": round(value, 1) for name, value in seconds.items()}
    # The largest of all children so far: with several targets, of those before, too.
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return figures | {
        "seconds until finished": round(finished, 1),
        "largest process mb": round(largest),
    }


if __name__ == "__main__":
    typer.run(main)
