"""How many hands a second the poker oracle classifies, beside treys and phevaluator.

All three run in this process on one thread and on the same random hands. treys and phevaluator
are given cards in the form they want them in, so nothing but their evaluation is timed; the
oracle's time includes its checks of the input. It takes arrays and they take one hand at a
time: that is the difference being measured, not a flaw of theirs.

    python benchmarks/oracle_speed.py --output results/benchmarks/oracle_speed.json
"""

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated

import numpy as np
import phevaluator
import treys
import typer

from casebook.cases.poker.oracle import RANKS, SUITS, all_hands, classify_hands
from casebook.paths import write_json
from casebook.records import provenance

REPEATS = 7


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    hands: Annotated[int, typer.Option(min=1, help="Hands in a run of the two others.")] = 50_000,
) -> None:
    """Print hands per second of the three evaluators, median of several runs."""
    rng = np.random.default_rng(0)
    # int64 is what NumPy gives when nothing is said; the oracle is slowest on it
    cards = rng.permuted(rng.permutation(all_hands()).astype(np.int64), axis=1)
    few = cards[:hands].tolist()
    speeds = {
        "oracle": measure(lambda: classify_hands(cards), len(cards)),
        "treys": measure(treys_run(few), hands),
        "phevaluator": measure(phevaluator_run(few), hands),
    }
    ratios = {name: speeds["oracle"] / speeds[name] for name in ("treys", "phevaluator")}
    for name, speed in speeds.items():
        ratio = f"   the oracle is {ratios[name]:.0f} times as fast" if name in ratios else ""
        typer.echo(f"{name:12} {speed:14,.0f} hands/s{ratio}")
    if output is not None:
        record = {
            "benchmark": "oracle_speed",
            "hands_per_second": speeds,
            "oracle_times_as_fast_as": ratios,
            "repeats": REPEATS,
            "provenance": provenance(),
        }
        write_json(output, record)


def measure(run, hands: int) -> float:
    """Hands per second, median of `REPEATS` runs after one that warms caches and tables."""
    run()
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return hands / median(seconds)


def treys_run(hands: list[list[int]]):
    """Evaluates each hand with treys; cards are converted beforehand."""
    number = [treys.Card.new(rank + suit.lower()) for rank in RANKS for suit in SUITS]
    converted = [[number[card] for card in hand] for hand in hands]
    evaluate = treys.Evaluator().evaluate
    return lambda: [evaluate(hand, []) for hand in converted]


def phevaluator_run(hands: list[list[int]]):
    """Evaluates each hand with phevaluator, whose card numbers are the oracle's."""
    evaluate = phevaluator.evaluate_cards
    return lambda: [evaluate(*hand) for hand in hands]


if __name__ == "__main__":
    typer.run(main)
