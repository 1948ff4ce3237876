"""What SmolLM2-135M-Instruct does with MATH before any training.

Of 100 problems of MATH-500: how often it ends within 512 tokens, boxes one answer and is right,
and from 8 samples a problem how many groups are expected to be silent (notebook 42's rule).

`casebook study smol_math` makes the committed record, `results/math/data/smol_math.json`, and the
completions beside it, which `regraded` grades again. It takes hours, and can be stopped.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from casebook import untrained
from casebook.cases.math.rewards import REWARDS
from casebook.records import read_rows
from casebook.records.studies import completions_path
from casebook.untrained import Part

NAME, CASE, PROFILE, VARIANT = "smol_math", "math", "smol", "chat-math500"
SETTINGS = {
    "dtype": "bfloat16",
    "attn_implementation": "sdpa_grouped",  # the fastest at writing on a CPU
    "max_completion_length": 512,
    "max_seq_length": 1536,
}
PARTS = (Part(VARIANT, "test", 100), Part(VARIANT, "validation", 50, 8))
COLUMNS = ("well_formed", "answered", "strict", "correct", "boxed", "truncated", "tokens")
LENGTHS = (128, 256, 512)  # tokens within which a completion may have ended


def found(completions: pd.DataFrame, parts: Sequence[Part] = PARTS) -> dict[str, Any]:
    """Part -> its figures.

    For each part `figures`, `ended` (tokens -> the share of completions that end within so many),
    `form and answers` (counts), `by level` (lenient accuracy), and of samples `silent`, the share
    of silent groups to expect if right answers are paid in the form, in the last box, or anywhere.
    """
    table = untrained.graded(CASE, PROFILE, parts, completions)
    table["boxed"] = REWARDS["equivalence"]("box")(table["completion"], table["answer"])
    result: dict[str, Any] = {}
    for part in parts:
        rows = table[table["part"] == part.name]
        ends = {str(n): ~rows["truncated"] & (rows["tokens"] <= n) for n in LENGTHS}
        levels = rows.groupby("level")
        result[part.name] = {
            **part._asdict(),
            "figures": untrained.figures(rows, COLUMNS),
            "ended": untrained.figures(rows.assign(**ends), ends),
            "form and answers": untrained.form_and_answers(rows),
            "by level": {
                str(level): untrained.figures(some, ["correct"])["correct"]
                for level, some in levels
            },
        }
        if part.samples:
            result[part.name]["silent"] = untrained.silent_groups(
                rows, ["strict", "boxed", "correct"]
            )
    return result


def regraded() -> dict[str, Any]:
    """`found` for the committed completions, by the grader as it is now."""
    return found(read_rows(completions_path(NAME)))


def record() -> dict[str, Any]:
    """The figures of all parts, and which model, settings and problems they are of."""
    return untrained.study(NAME, CASE, PROFILE, PARTS, SETTINGS, found)
