"""Grade and rewards for a poker hand, and the grammar of an answer.

Two questions are separate. *Well formed*: does the completion have the form that was asked for?

    reason:  <think> ... </think> <answer> LABEL </answer>     and nothing else
    label:   LABEL, perhaps with a full stop                   and nothing else

*Correct*: is the answer read from it right, whatever the form? `casebook.rewards.labels` says how a
label is read, and `answers.yaml` has the rules with examples. The longest name wins, so `straight
flush` and `royal flush` are not read as `flush`; they are categories but not among the eight
labels, so on their own they are no answer.
"""

import math
from collections.abc import Mapping
from typing import Any

from casebook.case import CasebookError, Grade, RewardFactories, check_name
from casebook.cases.poker.oracle import LABELS
from casebook.rewards import (
    Reward,
    completion_text,
    last_block,
    part,
    random_reward,
    repetition_penalty,
    tag_format,
)
from casebook.rewards.labels import LabelReader, label_in_form

# The last two ask as `label` does, about other rows.
VARIANTS = ("reason", "label", "label-dealt", "label-source")

# The poker write-up's weights. With advantages divided by the group's standard deviation they
# have no effect: all completions of a group share one right answer, hence one weight.
CLASS_WEIGHTS: Mapping[str, float] = {
    "high card": 1.0,
    "one pair": 1.0,
    "two pair": 1.5,
    "three of a kind": 2.0,
    "straight": 2.0,
    "flush": 2.0,
    "full house": 2.5,
    "four of a kind": 3.0,
}

# What else the labels are called, in running text and at the table.
ALIASES: Mapping[str, str] = {
    "high cards": "high card",
    "pair": "one pair",
    "1 pair": "one pair",
    "single pair": "one pair",
    "two pairs": "two pair",
    "2 pair": "two pair",
    "2 pairs": "two pair",
    "double pair": "two pair",
    "3 of a kind": "three of a kind",
    "trips": "three of a kind",
    "wheel": "straight",
    "full boat": "full house",
    "boat": "full house",
    "4 of a kind": "four of a kind",
    "quads": "four of a kind",
}
# No answers, though a label is part of their names.
LOOKALIKES = (
    *("straight flush", "royal flush", "royal", "flush draw", "straight draw"),
    *("five of a kind", "5 of a kind", "three pair", "three pairs", "3 pair", "3 pairs"),
    *("no pair", "no pairs", "steel wheel"),
)

_read = LabelReader({label: label for label in LABELS} | dict(ALIASES), LOOKALIKES)


def extract_label(text: Any, variant: str | None = None) -> str | None:
    """The label that a completion gives as its answer, or `None`: see `casebook.rewards.labels`.

    `text` is a string or a list of messages; anything else gives `None`. In the variants without
    tags (all but `reason`) the first line is read.

    >>> extract_label("<answer>Two pairs</answer>"), extract_label("It is a flush.")
    ('two pair', 'flush')
    >>> extract_label("<answer>flush or straight</answer>") is None
    True
    """
    return _read(text, tagged=variant in (None, "reason"))


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    """The grade of one completion; `answer` is the right label, in any case.

    `variant` decides the form: `"reason"` (also `None`), or a label alone. Takes any input, as
    `Case` says, in time linear in the completion's length.

    >>> grade("<think>2 2 9 9 K</think><answer>two pair</answer>", "two pair")
    Grade(well_formed=True, answer='two pair', correct=True)
    >>> grade("Two pair.", "two pair")
    Grade(well_formed=False, answer='two pair', correct=True)
    """
    text = completion_text(completion)
    label = extract_label(text, variant)
    gold = answer.strip().lower() if isinstance(answer, str) else None
    return Grade(_well_formed(text, variant), label, label is not None and label == gold)


def correct(strict: bool = False, variant: str | None = None) -> Reward:
    """1.0 for the right answer, else 0.0; with `strict`, only in a well-formed completion.

    >>> correct()(["flush", "straight"], answer=["flush", "flush"])
    [1.0, 0.0]
    """
    check_name("variant", variant or "reason", VARIANTS)

    def score(text: str, answer: Any) -> float:
        return _counts(grade(text, answer, variant), strict)

    return part("correct", score, "answer")


def class_weighted(
    weights: Mapping[str, float] | None = None, strict: bool = False, variant: str | None = None
) -> Reward:
    """The right answer's class weight, else 0.0: the poker write-up's reward.

    Args:
        weights: label -> weight; labels left out keep the write-up's weight (`CLASS_WEIGHTS`).
        strict: reward well-formed completions only.
        variant: which form is well formed, as in `grade`.

    Raises:
        CasebookError: unknown label or variant, or a weight that is negative or not finite.

    >>> class_weighted()(["full house", "flush"], answer=["full house", "straight"])
    [2.5, 0.0]
    """
    check_name("variant", variant or "reason", VARIANTS)
    table = {**CLASS_WEIGHTS, **(weights or {})}
    for label, weight in table.items():
        check_name("label", label, LABELS)
        if not 0 <= weight < math.inf:
            raise CasebookError(f"the weight of {label!r} must be zero or more, not {weight!r}")

    def score(text: str, answer: Any) -> float:
        found = grade(text, answer, variant)
        return table[found.answer] if _counts(found, strict) else 0.0

    return part("class_weighted", score, "answer")


def answer_grammar(variant: str | None = None) -> Reward:
    """1.0 where the answer is exactly one of the eight labels, right or wrong; else 0.0.

    For `reason` (also `None`) there must be one answer block with a label and nothing else in
    it, whatever surrounds the block; for `label` the whole completion must be a label.

    >>> answer_grammar()(["so: <answer> Flush </answer>", "<answer>a flush</answer>"])
    [1.0, 0.0]
    """
    check_name("variant", variant or "reason", VARIANTS)

    if variant in (None, "reason"):
        return part("answer_grammar", _one_answer_block)
    return part("answer_grammar", lambda text: _well_formed(text, variant))


def leaking_label() -> Reward:
    """The poker write-up's first bug, kept to be measured: it also reads the prompt.

    The first of the eight labels that occurs anywhere in prompt and completion counts as the
    answer. The write-up's prompt lists them all, so that is "high card" for every completion
    there is: the reward depends on the hand and never on the completion.

    >>> leaking_label()(["flush"], answer=["high card"], prompts=["high card, one pair, ..."])
    [1.0]
    """

    def score(text: str, answer: Any, prompt: Any) -> float:
        whole = f"{_prompt_text(prompt)}{text}".lower()
        found = next((label for label in LABELS if label in whole), None)
        return found is not None and found == answer

    return part("leaking_label", score, "answer", "prompts")


REWARDS = RewardFactories(
    correct=correct,
    class_weighted=class_weighted,
    leaking_label=leaking_label,
    random_reward=random_reward,
    tag_format=tag_format,
    answer_grammar=answer_grammar,
    repetition=repetition_penalty,
)


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, list | tuple):  # messages: here the user's count as well
        prompt = [{**m, "role": "assistant"} for m in prompt if isinstance(m, Mapping)]
    return completion_text(prompt)


def _well_formed(text: str, variant: str | None) -> bool:
    check_name("variant", variant or "reason", VARIANTS)
    return label_in_form(text, LABELS, tagged=variant in (None, "reason"))


def _one_answer_block(text: str) -> bool:
    block = last_block(text, "answer")
    once = text.count("<answer>") == text.count("</answer>") == 1
    return once and block is not None and block.strip().lower() in LABELS


def _counts(grade: Grade, strict: bool) -> bool:
    return grade.strict if strict else grade.correct
