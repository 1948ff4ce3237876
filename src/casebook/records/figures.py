"""One figure of a record by its path, and figures that are computed from a record.

A path is the name of an arm or a study and the keys that lead to a figure of its record, divided by
slashes: `grpo/after/greedy_accuracy`. In it `answer_entropy` and `label_read` read a histogram,
`labels_recalled` and `discrimination/<label>` a confusion matrix, `class_weighted` the shares by
label, and `curve/kl_in_reward/largest` and `curve/repetition/last` a curve. A list of numbers takes
`mean`, `last`, `smallest` or `largest`; `*` stands for all keys, or for all such arms (`choose_*`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import reduce
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from casebook.case import NO_ANSWER, CasebookError, load_case
from casebook.records import studies
from casebook.records.record import committed
from casebook.stats import Difference, contrast, mean_interval, pass_at_k, pool_seeds, unpack_bits

OF_BITS = {  # figure -> decoding (of two, where there is no other, greedy), and which bits
    "greedy_accuracy": ("greedy", "strict"),
    "sampled_accuracy": ("sample", "strict"),
    "lenient_accuracy": ("sample", "correct"),
    "well_formed": ("sample", "well_formed"),
    "pass_at_k": ("pass_at_k", "strict"),
}
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
        Seed -> figure; a plain number becomes a figure without width. Where the record keeps bits,
        the figure has `rows`, its share of each test row (a series by the row's number).

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


def difference_of(*sides: tuple[float, Figures]) -> Difference:
    """A weighted sum of figures by seed, such as right less left (`stats.contrast`): paired by test
    row, in clusters, where the records keep bits."""
    tables = [(weight, _table(figures)) for weight, figures in sides]
    known = [table for _, table in tables if isinstance(table, pd.DataFrame)]
    if not known or any(table is None for _, table in tables):
        return contrast([(weight, [*figures.values()]) for weight, figures in sides])
    index = reduce(pd.Index.intersection, [table.index for table in known])
    values = [
        (w, table.loc[index].T.to_numpy() if hasattr(table, "loc") else np.full(len(index), table))
        for w, table in tables
    ]
    clusters = index.get_level_values("cluster")
    found = contrast(values, clusters)
    if found.error:
        return found
    # All rows alike: of others as many may differ as Wilson's interval for 0 of these leaves open.
    value, most = found.value, mean_interval(np.zeros(clusters.nunique()))["high"]
    return contrast([(1, [{"value": value, "low": value - most, "high": value + most}])])


def pooled(figures: Figures) -> Mapping[str, float]:
    """Figures by seed as one, with an interval over seeds and rows (`stats.pool_seeds`); where the
    records keep bits, as wide as these and their clusters make it."""
    found, table = pool_seeds([*figures.values()]), _table(figures)
    half = (found["high"] - found["low"]) / 2
    if not isinstance(table, pd.DataFrame) or not half:
        return found
    clusters = table.index.get_level_values("cluster")
    wider = contrast([(1, table.T.to_numpy())], clusters).critical / half
    if not wider:  # all right or all wrong: Wilson's interval still has a width
        return found
    return found | {
        side: found["value"] + wider * (found[side] - found["value"]) for side in ("low", "high")
    }


def _table(figures: Figures) -> pd.DataFrame | float | None:
    """The test rows of a figure by seed; the number, where it is one; else `None`."""
    if all("rows" in figure for figure in figures.values()):
        return pd.DataFrame({seed: figure["rows"] for seed, figure in figures.items()})
    ends = {figure[name] for figure in figures.values() for name in ("value", "low", "high")}
    return ends.pop() if len(ends) == 1 else None


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
        return _with_rows(record, value, step)
    if step == "answer_entropy":
        return answer_entropy(value["label_histogram"])
    if step == "labels_recalled":
        return labels_recalled(value["confusion"])
    if step == "class_weighted":  # the mean reward where a right label earns its weight
        names, found = [*value["per_class"]], pd.DataFrame([*value["per_class"].values()])
        weights = load_case(case).rewards["class_weighted"]()(names, answer=names)
        return float((found["value"] * found["n"]).dot(weights) / found["n"].sum())
    if step == "label_read":  # by the lenient reading, right or wrong
        read = [label != NO_ANSWER for label in value["label_histogram"]]
        return mean_interval(np.repeat(read, [*value["label_histogram"].values()]))
    if step == "repetition":
        return value["rewards/repetition/mean"]
    if step == "kl_in_reward":  # the reward is minus the estimate, in nats per token
        windows = value["rewards/kl_penalty/mean"]
        return {"smallest": -max(windows), "largest": -min(windows)}
    if step == "discrimination":
        table, samples = value["confusion"], record["config"]["test_samples"]
        names = load_case(case).labels
        return {name: discrimination(table, i, samples) for i, name in enumerate(names)}
    raise KeyError(step)


def _with_rows(record: Mapping[str, Any], value: Mapping[str, Any], step: str) -> Any:
    """A figure with what its bits say of each test row; anything else as it is."""
    found, bits = value[step], value.get("bits", {})
    if not bits or step not in OF_BITS:
        return found
    decoding, name = OF_BITS[step]
    kept = bits.get(decoding, bits.get("greedy"))
    solved = unpack_bits(kept[name], kept["rows"])
    number = np.array(kept.get("row", range(kept["rows"])))
    clusters = record.get("inputs", {}).get("clusters")
    cluster = np.array(clusters)[number] if clusters else number
    index = pd.MultiIndex.from_arrays([number, cluster], names=["row", "cluster"])
    if step != "pass_at_k":
        return found | {"rows": pd.Series(solved.mean(axis=1), index)}
    n, right = solved.shape[1], solved.sum(axis=1)
    shares = {k: pd.Series(pass_at_k(n, right, int(k)), index) for k in found}
    return {k: figure | {"rows": shares[k]} for k, figure in found.items()}


def answer_entropy(histogram: Mapping[str, int]) -> float:
    """How evenly the labels are answered, in bits: 0 for one label, 3 for eight equal ones.

    Unlike the share of the most frequent label it changes when rare labels disappear.

    >>> answer_entropy({"flush": 2, "straight": 2, "none": 5})
    1.0
    """
    counts = [n for label, n in histogram.items() if label != NO_ANSWER and n]
    total = sum(counts)
    return sum(n / total * math.log2(total / n) for n in counts)


def labels_recalled(confusion: Sequence[Sequence[float]]) -> int:
    """The number of labels with a recall above zero.

    >>> labels_recalled([[3, 1, 0], [4, 0, 0], [0, 0, 4]])
    2
    """
    return sum(row[label] > 0 for label, row in enumerate(confusion))


def discrimination(
    confusion: Sequence[Sequence[float]], label: int, samples: int
) -> dict[str, float]:
    """How well one label is told from the others: its recall less its false alarms, as a figure.

    Always or never naming it gives 0; recall alone would be 1 for the first.

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
    value, half = shares[0] - shares[1], 1.96 * math.sqrt(error)
    return {"value": value, "low": value - half, "high": value + half, "n": len(confusion)}
