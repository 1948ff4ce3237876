"""The exercises of the poker notebooks: how they are checked."""

import numpy as np

from casebook.cases.poker.oracle import CATEGORIES, LABELS
from casebook.cases.poker.rewards import CLASS_WEIGHTS
from casebook.exercises import Attempt, Wrong, exercise, same, show
from casebook.rewards import attacks

_PROMPT = "Classify this poker hand.\nHand: 2H 2D 2C 9S 9H\n"


@exercise("11-a")
def _unfooled(reward: Attempt) -> None:
    """A reward that gives the careful completion more than every attack on the list."""
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
            raise Wrong(f"{what}: it chose {show(label)}, but {best} earns more")
        if not same(value, most):
            raise Wrong(f"{what}: always {label!r} gave {show(value)}, expected {most:.4f}")


@exercise("13-a")
def _group_size(group_size: Attempt) -> None:
    """The smallest group size with few silent groups."""
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
