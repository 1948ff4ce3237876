"""Do two processes learn what one learns, at the same global batch?

    python benchmarks/two_processes.py [--output results/benchmarks/two_processes.json]

Poker's label alone on the embedded model, three seeds, once with one process and once with two
that take half of the batch each (gloo, `torchrun`). A run that is there is not made again, and one
that was stopped goes on. About a minute a run on a machine that does nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from casebook import paths
from casebook.case import CasebookError
from casebook.experiments.arms import read_arms
from casebook.paths import write_json
from casebook.records import pooled, provenance, read_record

ARM, SEEDS, BATCH = "label_trie", (0, 1, 2), 96
LESS = {"also_evaluate": {}, "test_limit": 400, "evaluate_every": 0, "save_steps": 24}
FIGURES = ("greedy_accuracy", "sampled_accuracy")


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Where the runs go.")] = None,
) -> None:
    """Train, and compare what one process and two have learned."""
    folder = runs or paths.runs_dir() / "two_processes"
    arms = {}
    for count in (1, 2):
        records = [trained(folder, count, seed) for seed in SEEDS]
        arms[str(count)] = summary(records)
        print(f"{count} process(es): {arms[str(count)]}")
    if output:
        settings = read_arms("poker")[ARM]["overrides"] | LESS
        content = {"arm": ARM, "settings": settings, "global_batch": BATCH, "seeds": SEEDS}
        write_json(output, content | {"arms": arms, "provenance": provenance()})


def trained(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """The record of one training in so many processes."""
    run = folder / f"{count}_processes_seed{seed}"
    settings = read_arms("poker")[ARM]["overrides"] | LESS
    settings["per_device_train_batch_size"] = BATCH // count
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(count), "-m", "casebook.cli", "train", "--resume"]
    command += ["--config", paths.CONFIGS / "poker" / "nano.yaml", "--output", run]
    for name, value in settings.items():
        command += ["--set", f"{name}={json.dumps(value)}"]  # YAML reads JSON
    done = subprocess.run([*map(str, command), "--seed", str(seed)], cwd=paths.ROOT)
    if done.returncode:
        raise CasebookError(f"{run} ended with {done.returncode}")
    return read_record(run / "record.json")


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Both accuracies before and after over the seeds, and how long each training took."""
    found = {
        when: {name: pooled({r["seed"]: r[when][name] for r in records}) for name in FIGURES}
        for when in ("before", "after")
    }
    return found | {"train_seconds": [record["train_seconds"] for record in records]}


if __name__ == "__main__":
    typer.run(main)
