"""One figure of a record by its way, and what is computed from a record on that way.

A way is the name of an arm or a study, and then the names on the way to the figure in its record,
with slashes between: `grpo/after/greedy_accuracy`. On the way `answer_entropy` reads a label
histogram, `labels_recalled` and `discrimination/<label>` a confusion matrix, and
`curve/kl_in_reward/largest` a curve. Behind a list of numbers comes `mean`, `last`, `smallest` or
`largest`. A step `*` stands for all that there are, also of arms (`choose_*`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from statistics import mean
from typing import Any

from casebook.case import NO_ANSWER, CasebookError, load_case
from casebook.records import studies
from casebook.records.record import committed

REDUCED = {"mean": mean, "last": lambda values: values[-1], "smallest": min, "largest": max}

Figures = dict[int | None, Mapping[str, float]]  # seed -> figure
Records = Sequence[Mapping[str, Any]]


def figures_at(
    case: str, where: str, runs: Records | None = None, profile: str = "nano"
) -> Figures:
    """One figure of an arm's records, by seed; empty where the arm has none.

    Args:
        where: the way to it, as in `grpo/after/greedy_accuracy`.
        runs: committed records to read it from, if they are read already; those of other arms
            and profiles are passed over.

    Returns:
        Seed -> figure; a plain number becomes a figure without width.

    Raises:
        CasebookError: a record of the arm has no such figure, as one without test rows has none
            of before and after.
    """
    return next(iter(all_figures_at(case, where, runs, profile).values()), {})


def all_figures_at(
    case: str, where: str, runs: Records | None = None, profile: str = "nano"
) -> dict[tuple[str, ...], Figures]:
    """The figures that a way with stars leads to: what stood for the stars -> `figures_at`."""
    name, *steps = where.split("/")
    found: dict[tuple[str, ...], Figures] = {}
    for arm, seed, record in records_at(case, name, runs, profile):
        try:
            for label, value in _walk(case, record, record, steps):
                if not isinstance(value, Mapping):
                    value = dict.fromkeys(("value", "low", "high"), float(value))
                own = (arm, *label) if arm != name else label
                found.setdefault(own, {})[seed] = value
        except (KeyError, IndexError, TypeError, ValueError):
            whose = "the study" if seed is studies.SEED else f"the record of seed {seed}"
            raise CasebookError(f"{whose} has no figure {where!r}") from None
    return found


def records_at(
    case: str, name: str, runs: Records | None = None, profile: str = "nano"
) -> Iterator[tuple[str, int | None, Mapping[str, Any]]]:
    """The records of an arm (`*` of several) or of a study: name, seed, record."""
    if name in studies.STUDIES:
        if studies.path(name).exists():
            yield name, studies.SEED, studies.read(name)
        return
    for record in committed(case, profile, name) if runs is None else runs:
        if record["profile"] == profile and fnmatch(str(record.get("arm")), name):
            yield record["arm"], record["seed"], record


def _walk(case: str, record: Mapping, value: Any, steps: Sequence[str]) -> Iterator[tuple]:
    """What some steps lead to from a value in a record, with the names that stood for stars."""
    if not steps:
        yield (), value
        return
    step, *rest = steps
    if step == "*":
        for name, one in value.items():
            for label, found in _walk(case, record, one, rest):
                yield (name, *label), found
    elif isinstance(value, list):
        yield from _walk(case, record, REDUCED[step](value), rest)
    else:
        yield from _walk(case, record, _step(case, record, value, step), rest)


def _step(case: str, record: Mapping[str, Any], value: Any, step: str) -> Any:
    """One step on the way to a figure: a field, or what is computed from one."""
    if step in value:  # a study keeps its entropies itself
        return value[step]
    if step == "answer_entropy":
        return answer_entropy(value["label_histogram"])
    if step == "labels_recalled":
        return labels_recalled(value["confusion"])
    if step == "kl_in_reward":  # the reward is minus the estimate, in nats per token
        windows = value["rewards/kl_penalty/mean"]
        return {"smallest": -max(windows), "largest": -min(windows)}
    if step == "discrimination":
        table, samples = value["confusion"], record["config"]["test_samples"]
        names = load_case(case).labels
        return {name: discrimination(table, i, samples) for i, name in enumerate(names)}
    raise KeyError(step)


def answer_entropy(histogram: Mapping[str, int]) -> float:
    """How evenly the labels are answered, in bits: 0 for one label, 3 for eight equal ones.

    Unlike the share of the most frequent label it sees labels disappear at the other end.

    >>> answer_entropy({"flush": 2, "straight": 2, "none": 5})
    1.0
    """
    counts = [n for label, n in histogram.items() if label != NO_ANSWER and n]
    total = sum(counts)
    return sum(n / total * math.log2(total / n) for n in counts)


def labels_recalled(confusion: Sequence[Sequence[float]]) -> int:
    """How many labels are ever answered where they are right: their recall is above zero.

    >>> labels_recalled([[3, 1, 0], [4, 0, 0], [0, 0, 4]])
    2
    """
    return sum(row[label] > 0 for label, row in enumerate(confusion))


def discrimination(
    confusion: Sequence[Sequence[float]], label: int, samples: int
) -> dict[str, float]:
    """How well one label is told from the others: its recall less its false alarms, as a figure.

    Naming it always gives 0, as naming it never does; recall alone would pay the first.

    Args:
        confusion: counts, true label by answer, as records keep them.
        label: the label's row and column.
        samples: completions of each prompt, which are not independent.
    """
    shares, error = [], 0.0
    others = [row for i, row in enumerate(confusion) if i != label]
    for part in ([confusion[label]], others):
        named, total = sum(row[label] for row in part), sum(map(sum, part))
        shares.append(named / total)
        error += shares[-1] * (1 - shares[-1]) / (total / samples)
    value = shares[0] - shares[1]
    half = 1.96 * math.sqrt(error)
    return {"value": value, "low": value - half, "high": value + half, "n": len(confusion)}
