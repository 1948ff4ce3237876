"""What a preflight predicts, against what the training then takes.

    python benchmarks/preflight.py [--output results/benchmarks/preflight.json]

`casebook preflight --measure` and `casebook train` into one folder: each case on the embedded
model, and poker's `sound` setup on SmolLM2, shortened, where `make smol` fetched it. The run's own
record compares. Times want a machine that does nothing else; a quarter of an hour.
"""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from casebook import paths, pretrained
from casebook.case import CasebookError, known_cases
from casebook.paths import write_json
from casebook.records import provenance, read_record
from casebook.settings import read_arms

EMBEDDED = {"max_steps": 40, "evaluate_every": 20, "test_limit": 200}
REAL = {"max_steps": 6, "evaluate_every": 0, "test_limit": 40, "test_samples": 1}
NAMES = ("memory", "training", "final test")  # of a comparison's rows


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Predict and train, and compare."""
    runs = [(case, "nano", EMBEDDED) for case in known_cases()]
    if pretrained.MODELS["smollm2"].folder.exists():
        sound = read_arms("poker")["sound"]["overrides"]
        runs.append(("poker", "smol", sound | REAL | {"also_evaluate": {}}))
    else:
        print("without SmolLM2: make smol fetches it")
    found = []
    for case, profile, settings in runs:
        found.append({"case": case, "profile": profile, **compared(case, profile, settings)})
        print(json.dumps(found[-1]["ratios"]))
    times = [row["ratios"][name] for row in found for name in NAMES[1:]]
    content = {
        "runs": found,
        "memory_furthest": max((row["ratios"]["memory"] for row in found), key=_far),
        "median_time_ratio": round(median(times), 3),
        "provenance": provenance(),
    }
    print(f"memory, the furthest ratio: {content['memory_furthest']}")
    print(f"time, median ratio: {content['median_time_ratio']}")
    if output:
        write_json(output, content)


def compared(case: str, profile: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The comparison in the record of one training: predicted, actual and their ratio by name."""
    options = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    config = str(paths.CONFIGS / case / f"{profile}.yaml")
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        measuring = ["preflight", config, "--measure", *options, "--output", str(run)]
        called(*measuring, allowed=(0, 1))  # its verdict may be to change something, or to stop
        called("train", "--config", config, *options, "--output", str(run))
        record = read_record(run / "record.json")
    rows = {row["name"]: row for row in record["predicted"]["rows"]}
    if missing := [name for name in NAMES if name not in rows]:
        raise CasebookError(f"{case}/{profile}: nothing was predicted of {', '.join(missing)}")
    return {
        "settings": settings,
        "predicted": {name: rows[name]["predicted"] for name in NAMES},
        "actual": {name: rows[name]["actual"] for name in NAMES},
        "ratios": {name: rows[name]["ratio"] for name in NAMES},
    }


def called(*arguments: str, allowed: Collection[int] = (0,)) -> None:
    """Run one command of the casebook; what it says goes to the terminal."""
    done = subprocess.run([sys.executable, "-m", "casebook.cli", *arguments], cwd=paths.ROOT)
    if done.returncode not in allowed:
        raise CasebookError(f"casebook {' '.join(arguments)} ended with {done.returncode}")


def _far(ratio: float) -> float:
    return max(ratio, 1 / ratio)


if __name__ == "__main__":
    typer.run(main)
