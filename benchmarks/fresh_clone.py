"""How long a newcomer waits: `make reports` in a fresh clone, installation included.

    python benchmarks/fresh_clone.py [--output results/benchmarks/fresh_clone.json]

Prints, and writes with `--output`, the seconds until the installation was done, until the first
page could be read and until all was finished, and the memory of the largest process.
"""

import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from casebook import paths
from casebook.case import CasebookError
from casebook.records import provenance, write_json


def main(output: Path | None) -> None:
    """Clone what is committed, run `make reports` there, and say how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "casebook"
        subprocess.run(["git", "clone", "--quiet", paths.ROOT, clone], check=True)
        watched = {
            "installed": clone / ".venv" / "installed",
            "first page": clone / "reports" / "index.html",
        }
        seconds: dict[str, float] = {}
        started = time.perf_counter()

        def watch() -> None:
            while len(seconds) < len(watched):
                for name, path in watched.items():
                    if name not in seconds and path.exists():
                        seconds[name] = time.perf_counter() - started
                time.sleep(0.2)

        threading.Thread(target=watch, daemon=True).start()
        done = subprocess.run(["make", "reports"], cwd=clone)
        seconds["finished"] = time.perf_counter() - started
        if done.returncode:
            raise CasebookError(f"make reports ended with {done.returncode}")
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    result = {
        "command": "python benchmarks/fresh_clone.py",
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "largest_process_mb": round(largest),
        "provenance": provenance(),
    }
    for name, value in result["seconds"].items():
        print(f"{name}: {value:.0f} s")
    print(f"largest process: {largest:.0f} MB")
    if output:
        write_json(output, result)


if __name__ == "__main__":
    main(Path(sys.argv[2]) if sys.argv[1:2] == ["--output"] else None)
