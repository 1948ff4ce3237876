"""Does the reward dip when a run goes on with a fresh learning-rate schedule? The write-up says so.

The write-up shows its epochs as curves of their own, each begun from the checkpoint before, and
puts a dip of the reward at the start of the second down to the new schedule. Here the same number
of steps is run twice from the same base, once in one piece and once in legs: a leg begins from the
merged model of the one before, with a new warm-up, new optimiser moments and a new reference.
Both follow the write-up's schedule, a cosine with a floor.

    python benchmarks/landuse_legs.py --output results/benchmarks/landuse_legs.json

Prints and records the reward and the completion length of every step, for each seed, and by how
much the reward changes where a leg begins. What is done is kept in `$RUNS_DIR` and not done again.
"""

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from casebook import paths
from casebook.models import load_saved
from casebook.paths import write_json
from casebook.records import provenance
from casebook.training import Run, read_config, train

# Only the curve is asked for, so little is measured before and after.
SETTINGS = {
    "lr_scheduler_type": "cosine_with_min_lr",
    "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
    "warmup_steps": 0.1,
    "evaluate_every": 0,
    "test_limit": 64,
    "test_samples": 1,
}
KEPT = {"reward": "reward", "tokens": "completions/mean_length", "learning_rate": "learning_rate"}
AROUND = 4  # steps on either side of a joint that its change is the difference of


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 3,
    legs: Annotated[int, typer.Option(min=2, help="Legs of the interrupted run.")] = 3,
    steps: Annotated[int, typer.Option(min=8, help="Steps of a leg.")] = 20,
) -> None:
    """Run both kinds with each seed, one after the other."""
    folder = paths.runs_dir() / "benchmarks" / "landuse_legs"
    curves: dict[str, list[dict[str, Any]]] = {"continuous": [], "legs": []}
    for seed in range(seeds):
        for kind, lengths in (("continuous", [legs * steps]), ("legs", [steps] * legs)):
            curve = run_in_legs(folder / kind / f"seed{seed}", lengths, seed)
            curves[kind].append(curve)
            print(f"{kind}, seed {seed}: {described(curve, steps, legs)}", flush=True)
    changes = {
        kind: [joints(curve, steps, legs) for curve in of_kind] for kind, of_kind in curves.items()
    }
    record = {
        "benchmark": "landuse_legs",
        "steps_of_a_leg": steps,
        "mean_reward_change_at_joints": {
            kind: statistics.mean(change for run in of_kind for change in run)
            for kind, of_kind in changes.items()
        },
        "reward_change_at_joints": changes,
        "curves": curves,
        "provenance": provenance(),
    }
    if output is not None:
        write_json(output, record)


def run_in_legs(folder: Path, lengths: list[int], seed: int) -> dict[str, list[float]]:
    """Train leg after leg, each from the merged model of the one before; the curves, joined."""
    curve: dict[str, list[float]] = {name: [] for name in KEPT}
    base: dict[str, Any] = {}
    for leg, steps in enumerate(lengths):
        # Another seed for each leg: the same one would deal it the same prompts again.
        settings = SETTINGS | base | {"max_steps": steps, "seed": 100 * seed + leg}
        run = train(read_config(("landuse", "nano"), settings), folder / f"leg{leg}", resume=True)
        metrics = run.metrics()
        for name, column in KEPT.items():
            curve[name] += metrics[column].round(5).tolist()
        base = {"model_name_or_path": str(merged(run))}
    return curve


def merged(run: Run) -> Path:
    """The run's policy as one model, in a folder of its own, from which a next leg can start."""
    folder = run.path / "merged"
    if not folder.exists():
        model, tokenizer, _ = load_saved(run.adapter)
        model.merge_and_unload().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def joints(curve: dict[str, list[float]], steps: int, legs: int) -> list[float]:
    """By how much the reward differs after each joint from before it, means of AROUND steps."""
    reward = curve["reward"]
    ends = [steps * leg for leg in range(1, legs)]
    return [
        round(
            statistics.mean(reward[end : end + AROUND])
            - statistics.mean(reward[end - AROUND : end]),
            4,
        )
        for end in ends
    ]


def described(curve: dict[str, list[float]], steps: int, legs: int) -> str:
    """One line about a run: where its reward went, and what happened at the joints."""
    reward = curve["reward"]
    changes = ", ".join(f"{change:+.3f}" for change in joints(curve, steps, legs))
    return f"reward {reward[0]:.2f} to {reward[-1]:.2f}, at the joints {changes}"


if __name__ == "__main__":
    typer.run(main)
