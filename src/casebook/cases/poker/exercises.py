"""The exercises of the poker notebooks: how they are checked."""

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from scipy.stats import binom

from casebook.cases.poker.oracle import CATEGORIES, FREQUENCIES, LABELS, RANKS
from casebook.cases.poker.rewards import CLASS_WEIGHTS
from casebook.exercises import MANY, Attempt, Wrong, close, exercise, is_whole, numbers, same, show
from casebook.rewards import attacks

_PROMPT = "Classify this poker hand.\nHand: 2H 2D 2C 9S 9H\n"


@exercise("10-a")
def _straights(is_straight: Attempt) -> None:
    """Five ranks, in any order: do they run?"""
    runs = [{*range(low, low + 5)} for low in range(9)] + [{0, 1, 2, 3, 12}]

    def try_(ranks: Sequence[int]) -> None:
        ranks = list(ranks)
        is_straight.expect(set(ranks) in runs, ranks, note=" ".join(RANKS[rank] for rank in ranks))

    for first in ([3, 4, 5, 6, 7], [0, 1, 2, 3, 12], [12, 1, 0, 3, 2], [0, 1, 10, 11, 12]):
        try_(first)
    for ranks in combinations_with_replacement(range(13), 5):
        if len(set(ranks)) > 1:  # no rank occurs five times
            try_(ranks)
            try_(ranks[::-1])


@exercise("10-b")
def _deals(deals_needed: Attempt) -> None:
    """How many deals, so that at least `wanted` hands of a class turn up with a given chance."""
    quads = FREQUENCIES[CATEGORIES.index("four of a kind")] / sum(FREQUENCIES)
    cases = [(1, 0.5, 0.75), (1, 0.1, 0.95), (3, 0.5, 0.9), (50, quads, 0.5), (300, quads, 0.95)]
    for wanted, share, chance in cases:
        got = deals_needed(wanted, share, chance)
        call = deals_needed.call(wanted, share, chance)
        if not is_whole(got) or got < wanted:
            raise Wrong(f"{call} gave {show(got)}, expected a whole number from {wanted} on")
        got = min(int(got), MANY)  # SciPy counts in floats

        def reached(deals: float, wanted: int = wanted, share: float = share) -> float:
            return binom.sf(wanted - 1, deals, share)

        if reached(got) < chance - 1e-9:
            raise Wrong(
                f"{call} gave {got}: after so many deals there are {wanted} with a chance of "
                f"{reached(got):.4f} only, and {chance} was asked for"
            )
        if reached(got - 1) >= chance + 1e-9:
            raise Wrong(
                f"{call} gave {got}, more than needed: one deal less still has a chance of "
                f"{reached(got - 1):.4f}"
            )


@exercise("11-a")
def _unfooled(reward: Attempt) -> None:
    """A reward that pays the careful completion, and nothing on the attack list as much."""
    for as_messages in (False, True):
        for right in LABELS:
            probes = attacks.attacks(
                right, LABELS, prompt=_PROMPT, reasoning="2 2 2 9 9", lookalikes=CATEGORIES[8:]
            )
            completions = [probes[0].completion, probes[1].completion]
            if as_messages:
                completions = [[{"role": "assistant", "content": c}] for c in completions]
            rows = {"prompts": [_PROMPT] * 2, "completions": completions, "answer": [right] * 2}
            paid = reward(**rows)
            if np.shape(paid) != (2,):
                raise Wrong(f"for two completions it gave {show(paid)}, expected two numbers")
            faults = attacks.unsound(reward.function, probes, as_messages=as_messages)
            for probe in probes:
                if probe.name in faults:
                    form = "as a list of messages, " if as_messages else ""
                    raise Wrong(
                        f"{form}right answer {right!r}, attack {probe.name!r}, completion "
                        f"{show(probe.completion)}: {faults[probe.name]}"
                    )


@exercise("11-b")
def _weights_that_act(weighted_advantages: Attempt) -> None:
    """Class weights that group normalisation does not cancel."""
    rewards = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=float)
    ones, threes = np.ones(4), np.array([3.0, 1.5, 2.0, 2.0])
    plain = np.asarray(numbers(weighted_advantages, rewards, ones, shape=rewards.shape))
    heavy = np.asarray(numbers(weighted_advantages, rewards, threes, shape=rewards.shape))
    if not (np.abs(plain[2:]) < 1e-6).all() or not (np.abs(heavy[2:]) < 1e-6).all():
        raise Wrong("where all rewards of a group are equal, its advantages have to be 0")
    deviation = rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4
    expected = (rewards - rewards.mean(axis=1, keepdims=True)) / deviation
    close(plain, expected, "with weights of one, advantages should be the usual ones")
    if np.allclose(plain, heavy, atol=1e-3):
        raise Wrong("a weight of 3 gives the same advantages as a weight of 1: it cancels")
    close(heavy, expected * threes[:, None], f"with the weights {threes} they should be")


@exercise("12-a")
def _constant(best_constant: Attempt) -> None:
    """The constant answer that earns most on given rows, and what it earns."""
    kept = dict(zip(LABELS, (50, 50, 50, 35, 8, 4, 3, 0), strict=True))
    equal = dict.fromkeys(LABELS, 25)
    for counts, weights, what in (
        (kept, CLASS_WEIGHTS, "rows in the order rejection keeps them"),
        (equal, CLASS_WEIGHTS, "balanced rows"),
        (kept, dict.fromkeys(LABELS, 1.0), "weights of one"),
    ):
        rows = [label for label in LABELS for _ in range(counts[label])]
        earned = {label: counts[label] * weights[label] / len(rows) for label in LABELS}
        most = max(earned.values())
        got = best_constant(rows, dict(weights))
        try:
            label, value = got
            good = earned.get(label) == most
        except (TypeError, ValueError):
            raise Wrong(f"it gave {show(got)}, expected a label and its mean reward") from None
        if not good:
            best = " or ".join(name for name in LABELS if earned[name] == most)
            raise Wrong(f"{what}: it chose {show(label)}, and {best} earns more")
        if not same(value, most):
            raise Wrong(f"{what}: always {label!r} gave {show(value)}, expected {most:.4f}")


@exercise("13-a")
def _group_size(group_size: Attempt) -> None:
    """The smallest group that is seldom without gradient."""
    for p, silent, expected in (
        (0.5, 0.5, 2),
        (0.5, 0.1, 5),
        (0.06, 0.5, 12),
        (0.06, 0.1, 38),
        (0.94, 0.5, 12),
        (0.0, 0.5, None),
        (1.0, 0.2, None),
    ):
        note = "no group size helps" if expected is None else ""
        group_size.expect(expected, p, silent, note=note)
