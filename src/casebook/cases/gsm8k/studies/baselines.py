"""What stands beside a model's accuracy on word problems: bounds, constants and one-line rules.

A share of right answers means little alone. How many rows was it measured on? Could a perfect
model reach the maximum that is printed beside it? What does somebody get who never reads the
question? The first two follow from the write-up's own tables and the answers of the test set; for
the third, the rules of `RULES` take a number from the question, or do one thing to all of them,
and the best of them is chosen on the training problems and judged on the test problems.

The same figures of the real problems are kept in `results/gsm8k/data/baseline.json`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import floor, prod
from typing import Any

import numpy as np
import pandas as pd

from casebook.stats import Figure, mean_interval

# The write-up's two tables: metric -> (its value before RL, after 300 steps, its maximum).
TABLE: Mapping[str, tuple[float, float, float]] = {
    "hard correctness": (0.287, 0.785, 1.0),
    "soft correctness": (0.701, 0.789, 1.0),
    "integer": (0.164, 0.469, 0.5),
    "soft format": (0.442, 0.490, 0.5),
    "strict format": (0.421, 0.489, 0.5),
}
# The reward behind each of its metrics.
PARTS = {name: name.removeprefix("hard ").replace(" ", "_") for name in TABLE}
TEST_ROWS = 1319
HALF = TEST_ROWS // 2  # what the write-up measured on

Numbers = Sequence[Decimal]
RULES: Mapping[str, Callable[[Numbers], Decimal]] = {
    "first number": lambda found: found[0],
    "last number": lambda found: found[-1],
    "largest": max,
    "smallest": min,
    "sum": sum,
    "product": prod,
    "product of the first two": lambda found: prod(found[:2]),
    "product of the last two": lambda found: prod(found[-2:]),
    "sum of the first two": lambda found: sum(found[:2]),
    "first less the others": lambda found: found[0] - sum(found[1:]),
    "largest less the others": lambda found: 2 * max(found) - sum(found),
    "largest over smallest": lambda found: max(found) / min(found) if min(found) else found[0],
    "first two multiplied, others added": lambda found: prod(found[:2]) + sum(found[2:]),
}
WORDS = {
    "half": Decimal("0.5"),
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "twelve": 12, "dozen": 12, "once": 1, "twice": 2, "thrice": 3},
    **{"double": 2, "triple": 3},
}
_NUMBER = re.compile(
    r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\b(?:" + "|".join(WORDS) + r")\b",
    re.IGNORECASE,
)


def guess(rule: str, question: str) -> Decimal | None:
    """What a rule of `RULES` answers; `None` where the question has no number.

    >>> [str(guess(r, "Two robes take 1,200.5 g, and half of it.")) for r in ("sum", "last number")]
    ['1203.0', '0.5']
    """
    words = _NUMBER.findall(question)
    found = [Decimal(WORDS.get(word.lower(), word.replace(",", ""))) for word in words]
    return RULES[rule](found) if found else None


def possible_sizes(values: Mapping[str, float], sizes: Iterable[int]) -> list[int]:
    """Numbers of rows, of `sizes`, on which a table's figures can have been measured.

    A metric is a mean over n completions, each of which earns its maximum or nothing, printed
    with three digits. So `value / maximum * n` must be near a whole number, for every metric.

    >>> possible_sizes({"hard correctness": 0.333}, range(1, 7))
    [3, 6]
    """

    def fits(value: float, most: float, n: int) -> bool:
        near = floor(value / most * n)
        return any(abs(most * count / n - value) <= 0.0005 + 1e-9 for count in (near, near + 1))

    return [n for n in sizes if all(fits(v, TABLE[name][2], n) for name, v in values.items())]


def counts(column: int) -> dict[str, int]:
    """The completions of `HALF` that earned each metric, before RL (column 0) or after it (1)."""
    return {name: round(entry[column] / entry[2] * HALF) for name, entry in TABLE.items()}


def majority_at_k(
    answers: Sequence[Sequence[str | None]], right: Sequence[str], k: int
) -> np.ndarray:
    """The chance that a vote among `k` samples is right, for each prompt.

    The most frequent answer wins, of equally frequent ones the earlier; `None` has no vote. The
    samples of a prompt are cut into as many votes of `k` as there are, so none is used twice and
    the estimate is unbiased (self-consistency: Wang et al. 2022, arXiv 2203.11171). Answers are
    normalised as `Grade.answer` is.

    >>> majority_at_k([["12", None, "17", "17"]], ["17"], 4)
    array([1.])
    """

    def wins(vote: Sequence[str | None], answer: str) -> bool:
        votes = Counter(one for one in vote if one is not None)
        return bool(votes) and votes.most_common(1)[0][0] == answer

    return np.array(
        [
            np.mean([wins(own[i : i + k], answer) for i in range(0, len(own) - k + 1, k)])
            for own, answer in zip(answers, right, strict=True)
        ]
    )


def of_rows(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, Any]:
    """The constant answer and every rule, on problems of one source.

    The training problems (`question`, `answer` in digits) decide the constant and which rule is
    best; both are judged on the test problems, which have `steps` too.
    """

    def right(rows: pd.DataFrame, rule: str) -> Figure:
        pairs = zip(rows["question"], rows["answer"], strict=True)
        return mean_interval([guess(rule, asked) == Decimal(answer) for asked, answer in pairs])

    constant = Counter(train["answer"]).most_common(1)[0][0]
    rules = {rule: {"train": right(train, rule), "test": right(test, rule)} for rule in RULES}
    best = max(rules, key=lambda rule: rules[rule]["train"]["value"])
    return {
        "constant": {
            "answer": constant,
            "train": mean_interval(train["answer"] == constant),
            "test": mean_interval(test["answer"] == constant),
        },
        "rules": rules,
        "best": best,
        "best_by_steps": {str(steps): right(rows, best) for steps, rows in test.groupby("steps")},
    }
