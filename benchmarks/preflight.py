"""What a preflight predicts, against what the training then takes.

    python benchmarks/preflight.py [--output results/benchmarks/preflight.json]

`casebook preflight --measure` and then `casebook train`: each case on the embedded model, and
poker's `sound` setup on SmolLM2, shortened, where `make smol` fetched it. Times want a machine that
does nothing else; ten minutes.
"""

import json
import subprocess
import sys
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

EMBEDDED = {"max_steps": 40, "evaluate_every": 0, "test_limit": 200}
REAL = {"max_steps": 6, "evaluate_every": 0, "test_limit": 40, "test_samples": 1}


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
    times = [row["ratios"]["training"] for row in found]
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
    """Bytes and seconds of one training, predicted and actual, and the ratios of the two."""
    options = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    config = str(paths.CONFIGS / case / f"{profile}.yaml")
    with TemporaryDirectory() as folder:
        said = called("preflight", config, "--measure", "--json", *options)
        called("train", "--config", config, *options, "--output", f"{folder}/run")
        record = read_record(Path(folder) / "run" / "record.json")
    found = json.loads(said)
    seconds = found["measured"]["seconds"] * settings["max_steps"]
    predicted = {"memory": sum(found["memory"]["parts"].values()), "training": seconds}
    peak, took = record["peak_memory_mb"] * 2**20, record["train_seconds"]
    actual = {"memory": peak, "training": took}
    ratios = {name: round(predicted[name] / actual[name], 3) for name in actual}
    return {"settings": settings, "predicted": predicted, "actual": actual, "ratios": ratios}


def called(*arguments: str) -> str:
    """Run one command of the casebook, and return what it prints.

    A preflight may end with 1: its verdict may be that this would hardly teach.
    """
    command = [sys.executable, "-m", "casebook.cli", *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode > (arguments[0] == "preflight"):
        raise CasebookError(f"casebook {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def _far(ratio: float) -> float:
    return max(ratio, 1 / ratio)


if __name__ == "__main__":
    typer.run(main)
