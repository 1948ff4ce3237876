"""Grade and rewards for a parcel: the form, the label, and the value of the plan with it.

The write-up's reward is `3 x right label + 2 x right form + 1 x repetition`. Here the three parts
have a factor of one each; the weights are in the trainer's configuration (`reward_weights`).

The oracle's plan gives every parcel one label, but others may be as good: `answer` lists all
accepted ones, joined by a bar, as in `"corn|oat"`. *Well formed* and *correct* are separate:

    reason:  <think> ... </think> <answer> LABEL </answer>     and nothing else
    label:   LABEL, perhaps with a full stop                   and nothing else

`casebook.rewards.labels` says how a label is read, and `answers.yaml` has the rules with examples.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from casebook.case import Grade, RewardFactories, check_name
from casebook.cases.landuse.fields import LABELS
from casebook.rewards import (
    Reward,
    completion_text,
    part,
    random_reward,
    repetition_penalty,
    tag_format,
)
from casebook.rewards.labels import LabelReader, label_in_form

# How a prompt shows the parcel; all but the last ask for the same form.
VARIANTS = ("reason", "prices", "alone", "shuffled", "rotated", "source", "label")
# What else the labels are called.
ALIASES: Mapping[str, str] = {
    **{"oats": "oat", "habitats": "habitat", "maize": "corn", "soya": "soy"},
    **{f"{soy}bean{s}": "soy" for soy in ("soya ", "soy ", "soy") for s in ("", "s")},
}
OTHER_CROPS = ("barley", "rye", "rice", "millet", "sorghum", "canola", "rapeseed", "sunflower")

_read = LabelReader({label: label for label in LABELS} | dict(ALIASES), OTHER_CROPS)


def extract_label(text: Any, variant: str | None = None) -> str | None:
    """The label that a completion gives as its answer, or `None`: see `casebook.rewards.labels`.

    `text` is a string or a list of messages; anything else gives `None`. In the variant without
    tags, `label`, the first line is read.

    >>> extract_label("<answer>maize</answer>"), extract_label("I would plant oats.")
    ('corn', 'oat')
    >>> extract_label("<answer>wheat or oat</answer>") is None
    True
    """
    return _read(text, tagged=variant != "label")


def accepted(answer: Any) -> frozenset[str]:
    """The labels that an `answer` accepts; what is no label is left out.

    >>> sorted(accepted("corn|oat"))
    ['corn', 'oat']
    """
    names = answer.lower().split("|") if isinstance(answer, str) else ()
    return frozenset(name.strip() for name in names).intersection(LABELS)


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    """The grade of one completion; `answer` lists the accepted labels, as in `"corn|oat"`.

    For the variant `"label"` a label alone is well formed. Takes any input, as `Case` says, in time
    linear in the completion's length.

    >>> grade("<think>corn 8, oat 7</think><answer>oat</answer>", "corn|oat")
    Grade(well_formed=True, answer='oat', correct=True)
    """
    check_name("variant", variant or "reason", VARIANTS)
    text = completion_text(completion)
    label = extract_label(text, variant)
    well_formed = label_in_form(text, LABELS, tagged=variant != "label")
    return Grade(well_formed, label, label in accepted(answer))


def label_match(own_label: bool = False, variant: str | None = None) -> Reward:
    """1.0 for an accepted label, else 0.0, whatever the form: the write-up's land-use match.

    Args:
        own_label: accept the plan's own label only (column `plan_label`), as the write-up seems to;
            any other is wrong then, even one that is worth exactly as much.
        variant: how the label is read, as in `grade`.

    >>> label_match()(["corn", "oat", "soy"], answer=["corn|oat"] * 3)
    [1.0, 1.0, 0.0]
    """

    def score(text: str, answer: Any) -> float:
        return extract_label(text, variant) in accepted(answer)

    return part("label_match", score, "plan_label" if own_label else "answer")


def plan_value(relative_to: str = "objective", variant: str | None = None) -> Reward:
    """The share of the optimum that is kept if this one parcel gets the completion's label.

    Needs the column `values`: what each of `LABELS` is worth on the parcel (km of connectivity,
    everything else as in the plan). No label earns 0.0.

    Args:
        relative_to: `"objective"`, the share of the whole landscape's objective (column
            `objective`) that is kept, `1 - (best value - value) / objective`; or `"parcel"`,
            the share of this parcel's best value, `value / best value`. Both end at 0.
        variant: how the label is read, as in `grade`.

    >>> row = {"values": [[8.0, 6.0, 4.0, 0.0, 0.0]] * 2, "objective": [400.0] * 2}
    >>> plan_value()(["oat", "soy"], **row)
    [0.995, 0.98]
    >>> plan_value("parcel")(["oat", "soy"], **row)
    [0.75, 0.0]
    """
    check_name("yardstick", relative_to, ("objective", "parcel"))

    def kept(text: str, values: Any, whole: Any) -> float:
        label, yardstick = extract_label(text, variant), float(np.max(whole))
        if label is None or yardstick <= 0:  # nothing is to be won
            return 0.0
        return max(0.0, 1 - float(max(values) - values[LABELS.index(label)]) / yardstick)

    whole = "objective" if relative_to == "objective" else "values"
    return part("plan_value", kept, "values", whole)


def open_r1_format() -> Reward:
    """1.0 or 0.0 as open-r1's `format_reward` gives it: the write-up's part, kept to be measured.

    The text has to begin with both blocks, each tag on a line of its own, nothing between them and
    nothing behind the last tag *on its line*. There it is a regular expression; this is the same
    by plain search, in linear time. `casebook.rewards.tag_format` says what is unsound in it.

    >>> open_r1_format()(["<think>\\n7 5 3\\n</think>\\n<answer>\\noat\\n</answer>\\nor wheat!"])
    [1.0]
    >>> open_r1_format()(["<think>7 5 3</think><answer>oat</answer>"])
    [0.0]
    """

    def passes(text: str) -> bool:
        opening, middle, closing = "<think>\n", "\n</think>\n<answer>\n", "\n</answer>"
        if not text.startswith(opening):
            return False
        _, found, rest = text.removeprefix(opening).partition(middle)
        return bool(found) and f"{closing}\n" in f"{rest}\n"

    return part("open_r1_format", passes)


REWARDS = RewardFactories(
    label_match=label_match,
    plan_value=plan_value,
    random_reward=random_reward,
    tag_format=tag_format,
    open_r1_format=open_r1_format,
    repetition=repetition_penalty,
)
