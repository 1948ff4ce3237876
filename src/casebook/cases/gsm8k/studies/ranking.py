"""What a defect of a reward costs: how often it orders two completions the wrong way.

GRPO learns from differences inside a group, so a reward's defects matter as far as they turn an
order around, or leave two completions level that are not. To count that, one has to know which
completion is the better one. So completions were *made*: each worked solution of the real test set
was rendered in the ways of `WAYS`, right and wrong, in the asked form and out of it, and what each
deserves is known by construction and not by another reader's verdict. What every reward paid them
is kept in `results/gsm8k/data/rewards.json`, numbers only.

The ways are as frequent there as we made them; what a model writes is in notebooks 31 and 32.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

PARTS = ("correctness", "soft_correctness", "integer", "strict_format", "soft_format", "xml_count")
SAME = 1e-6  # payments that differ by no more are the same


class Way(NamedTuple):
    """What is true of one way to write a worked solution down."""

    right: bool = True  # the answer is
    plain: bool = True  # the answer block is a number and nothing else
    form: bool = True  # both blocks stand there, each once, and nothing else


WAYS: Mapping[str, Way] = {
    "as asked": Way(),
    "final line break": Way(),
    "commas": Way(),  # between thousands
    "with .00": Way(),
    "unit": Way(plain=False),
    "currency": Way(plain=False),
    "equation": Way(plain=False),  # the last calculator note, which begins with another number
    "text after": Way(form=False),
    "####, no tags": Way(plain=False, form=False),
    "bare number": Way(plain=False, form=False),
    "one too many": Way(right=False),
    "other sign": Way(right=False),
    "and a half": Way(right=False),
    "half of it": Way(right=False, plain=False),  # as 17/2
    "begins right": Way(right=False, plain=False),  # as 17 - 1 = 16
    "does not know": Way(right=False, plain=False),
    "two answers": Way(right=False, form=False),
    "restated": Way(right=False, plain=False, form=False),
}


def wrong_pairs(
    paid: Sequence[float], merit: Sequence[float], groups: Sequence[Any]
) -> dict[str, float]:
    """How a reward orders the pairs of a group of which one deserves more.

    The shares of the `pairs` that are `reversed`, the better one being paid less, and `level`.

    >>> wrong_pairs([1.0, 1.0, 0.0], [1, 0, 1], ["a"] * 3)
    {'pairs': 2, 'reversed': 0.5, 'level': 0.5}
    """
    frame = pd.DataFrame({"paid": paid, "merit": merit, "group": groups})
    gaps = [np.empty(0)]
    for _, group in frame.groupby("group", sort=False):
        pay, worth = group["paid"].to_numpy(float), group["merit"].to_numpy(float)
        better = worth[:, None] > worth[None, :]
        gaps.append((pay[:, None] - pay[None, :])[better])
    gap = np.concatenate(gaps)
    pairs = max(gap.size, 1)
    return {
        "pairs": gap.size,
        "reversed": float((gap < -SAME).sum() / pairs),
        "level": float((np.abs(gap) <= SAME).sum() / pairs),
    }
