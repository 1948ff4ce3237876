"""What SmolLM2-135M-Instruct does with GSM8K before any training.

The write-up's model kept to the form in more than eight of ten completions before it was trained.
A small model may not do it once, and then every group is silent. So both prompts of the write-up
are measured here with no, one, two and four solved examples in front of the question, and the
question alone, which shows what the model would answer were no form asked for.

    test         the first 200 problems, greedily: form, answers and the six rewards
    validation   16 samples of 24 problems at two temperatures: what decides prompt and temperature
                 of a training, and how many of its groups are expected to be silent

`casebook study smol_gsm8k` makes the committed record, `results/gsm8k/data/smol_gsm8k.json`, and
the completions beside it, which `regraded` grades again. It takes hours, and can be stopped.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from casebook import untrained
from casebook.cases.gsm8k.rewards import CHATS, REWARDS, WHOLE_TAGS
from casebook.records import read_rows
from casebook.records.studies import completions_path
from casebook.untrained import Part

NAME, CASE, PROFILE = "smol_gsm8k", "gsm8k", "smol"
SETTINGS = {
    "dtype": "bfloat16",
    "attn_implementation": "sdpa_grouped",  # the fastest at writing on a CPU
    "max_completion_length": 160,
    "max_seq_length": 1536,
}
TEST_ROWS, VALIDATION_ROWS, SAMPLES = 200, 24, 16
TEMPERATURES = (0.7, 1.0)
SIX = ("xml_count", "soft_format", "strict_format", "integer", "correctness", "soft_correctness")
FORMS = ("fixed", "as_published")
WANTED = (0.1, 0.6)  # the share of well-formed completions that a training can start from
PARTS = (
    *(Part(variant, "test", TEST_ROWS) for variant in (*CHATS, "chat-plain")),
    *(
        Part(variant, "validation", VALIDATION_ROWS, SAMPLES, temperature)
        for variant in CHATS
        if "unsloth" not in variant
        for temperature in TEMPERATURES
    ),
)
COLUMNS = ("well_formed", "any tag", "all tags", "answered", "strict", "correct", "truncated")


def paid(completions: pd.DataFrame) -> pd.DataFrame:
    """Graded completions with their tags, what the six rewards pay in either form, and the sums."""
    texts = completions["completion"]
    new = {
        "any tag": [any(tag in text for tag in WHOLE_TAGS) for text in texts],
        "all tags": [all(text.count(tag) == 1 for tag in WHOLE_TAGS) for text in texts],
    }
    columns = {name: completions[name].tolist() for name in ("answer", "gold")}
    for form in FORMS:
        parts = {name: REWARDS[name](form=form)(texts, **columns) for name in SIX}
        new |= {f"{form} {name}": values for name, values in parts.items()}
        new[form] = [sum(values) for values in zip(*parts.values(), strict=True)]
    return completions.assign(**new)


def found(completions: pd.DataFrame, parts: Sequence[Part] = PARTS) -> dict[str, Any]:
    """Part -> its figures, from the completions that `untrained.written` gives.

    These are `figures` (shares, tokens and mean rewards), `form and answers` (counts), `answers by
    form` (the share of right ones with and without the form), and of samples `silent` (the expected
    share of silent groups) and `can start`, whether the form rate is within `WANTED`.
    """
    table = paid(untrained.graded(CASE, PROFILE, parts, completions))
    rewards = [f"{form}{part}" for form in FORMS for part in ("", *(f" {n}" for n in SIX))]
    result: dict[str, Any] = {}
    for part in parts:
        rows = table[table["part"] == part.name]
        figures = untrained.figures(rows, (*COLUMNS, "tokens", *rewards))
        by_form = {True: "with", False: "without"}
        result[part.name] = {
            **part._asdict(),
            "figures": figures,
            "form and answers": untrained.form_and_answers(rows),
            "answers by form": {
                by_form[form]: untrained.figures(some, ["correct"])["correct"]
                for form, some in rows.groupby("well_formed")
            },
        }
        if part.samples:
            low, high = WANTED
            result[part.name] |= {
                "silent": untrained.silent_groups(rows, [*FORMS, "well_formed", "strict"]),
                "can start": low <= figures["well_formed"]["value"] <= high,
            }
    return result


def regraded() -> dict[str, Any]:
    """`found` for the committed completions, by the graders and rewards as they are now."""
    return found(read_rows(completions_path(NAME)))


def record() -> dict[str, Any]:
    """The figures of all parts, and which model, settings and problems they are of."""
    return untrained.study(NAME, CASE, PROFILE, PARTS, SETTINGS, found)
