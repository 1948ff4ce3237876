"""The gate before any null: could anything be learned at all?

A training that taught nothing says something about its method only where there was something to
learn from: the untrained model is right for some of its samples, so that groups differ, and right
answers, shown to it, teach it more than one constant answer would earn.
"""

from typing import Any

from casebook.case import load_case
from casebook.records.figures import difference_of, figures_at, pooled
from casebook.records.record import committed
from casebook.stats import mean_interval, unpack_bits

PROFILE = "smol"
PASS_RATE = (0.1, 0.7)
MOST_SILENT = 0.6  # of groups of as many samples as a record has of a question for pass@k


def gate(case: str, arm: str, untrained: str = "") -> dict[str, Any]:
    """What the real model's records of an arm with supervised fine-tuning say of its task.

    Args:
        untrained: the arm whose untrained model is read, where it is sampled otherwise.

    Returns:
        `pass_rate` (of samples of the untrained model), `silent` (the share of questions whose
        samples are all right or all wrong) and `taught` (greedy accuracy after the fine-tuning),
        each a figure; the share that the best `constant` answer gets right; whether it `passes`.

    Raises:
        IndexError: the arm has no record. KeyError: one has no samples for pass@k.
    """
    runs = committed(case, PROFILE, arm)
    bits = committed(case, PROFILE, untrained or arm)[0]["before"]["bits"]["pass_at_k"]
    right = unpack_bits(bits["strict"], bits["rows"])
    found = {"pass_rate": mean_interval(right.mean(axis=1))}
    found["silent"] = mean_interval(right.all(axis=1) | ~right.any(axis=1))
    config = runs[0]["config"]
    rows = load_case(case).load("test", PROFILE, variant=config["variant"])
    constant = constant_share(rows.take(min(config.get("test_limit") or len(rows), len(rows))))
    taught = figures_at(case, f"{arm}/after/greedy_accuracy", runs, PROFILE)
    bound = dict.fromkeys(("value", "low", "high"), constant)
    clear = difference_of((-1, {0: bound}), (1, taught)).low > 0
    low, high = PASS_RATE
    passes = low <= right.mean() <= high and found["silent"]["value"] < MOST_SILENT and clear
    return found | {"constant": constant, "taught": pooled(taught), "passes": bool(passes)}


def constant_share(rows: Any) -> float:
    """What the best constant answer, or the best constant place among the choices, gets right."""
    answers = rows["answer"][:]
    offered = rows["choices"][:] if "choices" in rows.column_names else [()] * len(rows)
    places = [c.index(a) for a, c in zip(answers, offered, strict=True) if a in c]
    return max(kind.count(one) for kind in (answers, places) for one in kind) / len(answers)
