"""How long the land-use oracle takes for how good a plan, from 100 parcels to the source's 8,724.

Every landscape is the generator's and is solved in a process of its own, on one thread, so that
the memory measured is that landscape's. The largest has 93 x 94 = 8,742 parcels and is given its
full ten minutes: its figure is the gap.

    python benchmarks/landuse_scale.py --output results/benchmarks/landuse_scale.json

The file is written after every landscape; those that are in it are not solved again, so an
interrupted run goes on where it stopped. `--quick` leaves the largest out.
"""

import json
import multiprocessing
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from casebook.cases.landuse.landscape import generate
from casebook.cases.landuse.oracle import solve
from casebook.paths import write_json
from casebook.records import provenance


@dataclass(frozen=True)
class Task:
    """One size, and what is asked of it."""

    rows: int
    cols: int
    gap: float
    time_limit: float
    seeds: int = 3


TASKS = (
    Task(10, 10, gap=1e-2, time_limit=5),
    Task(20, 20, gap=1e-2, time_limit=5),
    Task(20, 20, gap=2e-3, time_limit=30),
    Task(30, 30, gap=1e-3, time_limit=60),
    Task(50, 50, gap=1e-3, time_limit=60),
    # No plan of this size is proven to a millionth: the ten minutes are used up.
    Task(93, 94, gap=1e-6, time_limit=600, seeds=1),
)


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    quick: Annotated[bool, typer.Option(help="Leave out what takes ten minutes.")] = False,
) -> None:
    """Solve landscapes of growing size and print what it took."""
    runs: list[dict[str, Any]] = []
    if output is not None and output.exists():
        runs = json.loads(output.read_text())["runs"]
    known = {key(run) for run in runs}
    for task in TASKS:
        for seed in range(task.seeds):
            asked = asdict(task) | {"seed": seed}
            del asked["seeds"]
            if key(asked) in known or (quick and task.time_limit > 60):
                continue
            name = f"{task.rows} x {task.cols}, seed {seed}, gap {task.gap:g}"
            typer.echo(f"{name}: at most {task.time_limit:g} s ...")
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                run = alone.apply(measure, (asked,))
            runs.append(run)
            typer.echo(
                f"{name}: {run['parcels']:,} parcels, gap {run['reached']:.4%} after "
                f"{run['seconds']:.1f} s, {run['objective']:,.1f} km, {run['memory_mb']:,.0f} MB"
            )
            if output is not None:
                write_json(output, record_of(runs))


def record_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs, and of each size the slowest: what a reader may count on."""
    slowest: dict[str, dict[str, float]] = {}
    for run in sorted(runs, key=lambda run: run["seconds"]):
        name = f"{run['parcels']} parcels to {run['gap']:.4%} at most"
        kept = ("seconds", "memory_mb")
        slowest[name] = {k: run[k] for k in kept} | {"gap_percent": 100 * run["reached"]}
    return {
        "benchmark": "landuse_scale",
        "slowest": slowest,
        "runs": runs,
        "provenance": provenance(),
    }


def key(run: dict[str, Any]) -> tuple:
    return tuple(run[name] for name in ("rows", "cols", "seed", "gap", "time_limit"))


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Solve one landscape; seconds are the solver's, without generating the landscape."""
    landscape = generate(asked["rows"], asked["cols"], seed=asked["seed"])
    start = perf_counter()
    landscape.borders  # noqa: B018  found once, then kept
    neighbours = perf_counter() - start
    before = peak_memory()
    plan = solve(landscape, gap=asked["gap"], time_limit=asked["time_limit"])
    return asked | {
        "parcels": len(landscape),
        "decidable": len(landscape.decidable),
        "seconds": plan.seconds,
        "seconds_neighbours": neighbours,
        "reached": plan.gap,
        "status": plan.status,
        "objective": plan.objective,
        "bound": plan.bound,
        "memory_mb": peak_memory(),
        "memory_mb_before": before,
    }


def peak_memory() -> float:
    """MB this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    typer.run(main)
