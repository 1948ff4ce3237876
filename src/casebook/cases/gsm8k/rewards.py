r"""What a completion to a word problem is worth: the six rewards of the source, in two forms.

The source pays for the answer twice (hard and soft), for a whole number, and for the form three
times. Each of the six stands here `as_published`, with its defects, so that they can be measured,
and `fixed`. The values are the source's, so the weights of a configuration are 1; the six add up
to 4.0.

*Well formed* and *correct* are apart:

    reason:  <reasoning> ... </reasoning> <answer> NUMBER </answer>     and nothing else
    answer:  NUMBER, perhaps with a full stop                           and nothing else

where `NUMBER` has a sign, commas between thousands and decimals, or not. The other variants of
the prompt ask for the same form as `reason`. What number a text gives as its answer, whatever
its form, `extract_number` decides.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from casebook.case import CasebookError, Grade, RewardFactories, check_name
from casebook.rewards import (
    Reward,
    completion_text,
    last_block,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)

TAGS = ("reasoning", "answer")
# How a prompt shows the problem; all but `answer` ask for the same form.
VARIANTS = ("reason", "unsloth", "answer", "shots5", "shots8")
# `unsloth` is the notebook that the source started from, where it differs.
FORMS = ("fixed", "as_published", "unsloth")
LONGEST = 300  # digits of a number; what is longer is no answer to a word problem

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_PLAIN = re.compile(rf"[-+]?{_DIGITS}(?:\.\d+)?", re.ASCII)
_NUMBER = re.compile(
    rf"(?P<minus>(?<![\w)])-\s?)?[$€£]?(?P<value>{_DIGITS}(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?:/(?P<below>\d+))?"
)


def extract_number(text: Any) -> Decimal | None:
    """The number that a text gives as its answer, or `None`.

    >>> extract_number("<reasoning>12 pens at $2</reasoning><answer>$24</answer>")
    Decimal('24')
    """
    text = completion_text(text)
    block = last_block(text, "answer")
    if block is None:
        block = text.rpartition("####")[2]
    found = None
    for match in _NUMBER.finditer(block.replace("\N{MINUS SIGN}", "-")):
        if len(match[0]) > LONGEST:
            continue
        value = Decimal(match["value"].replace(",", ""))
        if match["below"]:
            below = Decimal(match["below"])
            if not below:
                continue
            value /= below
        found = value.copy_negate() if match["minus"] else value
    return found


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    """The grade of one completion; `answer` is the right number, as in `"1234"`.

    Takes any completion and any answer and never raises for them; time is linear in the
    completion's length.

    Args:
        completion: a string or a list of messages; anything else is an empty completion.
        answer: a number or its text; where it is neither, nothing is correct.
        variant: one of `VARIANTS`; for `"answer"` a number alone is well formed.

    Raises:
        UnknownName: unknown variant.

    >>> grade("<reasoning>3*14</reasoning><answer>42</answer>", "42")
    Grade(well_formed=True, answer='42', correct=True)
    """
    check_name("variant", variant or "reason", VARIANTS)
    text = completion_text(completion)
    number, right = extract_number(text), _right(answer)
    if variant == "answer":
        well_formed = _plain_number(text.strip().removesuffix(".")) is not None
    else:
        blocks = tag_blocks(text, TAGS)
        well_formed = blocks is not None and _plain_number(blocks[1]) is not None
    return Grade(
        well_formed,
        None if number is None else _written(number),
        number is not None and number == right,
    )


def answer_reward() -> Reward:
    """1.0 for the right number in the right form, else 0.0: correctness and nothing besides.

    >>> answer_reward()(["<reasoning></reasoning><answer>42</answer>", "42"], answer=["42"] * 2)
    [1.0, 0.0]
    """

    def answer_reward(completions: Iterable[Any], **columns) -> list[float]:
        answers = _column("answer_reward", columns, "answer")
        return [
            float(grade(completion, answer).strict)
            for completion, answer in zip(completions, answers, strict=True)
        ]

    return answer_reward


def correctness(form: str = "fixed") -> Reward:
    """1.0 for the right answer alone in the answer block: the source's hard correctness."""
    _check_form(form)
    worth = 2.0 if form == "unsloth" else 1.0

    def correctness(completions: Iterable[Any], **columns) -> list[float]:
        if form != "fixed":
            golds = _golds("correctness", columns)
            return [
                worth * (_published_answer(completion_text(completion)) == gold)
                for completion, gold in zip(completions, golds, strict=True)
            ]
        answers = _column("correctness", columns, "answer")
        return [
            float(_same(_plain_number(_block(completion)), _right(answer)))
            for completion, answer in zip(completions, answers, strict=True)
        ]

    return correctness


def soft_correctness(form: str = "fixed") -> Reward:
    """1.0 where the answer block gives the right number, whatever is around it."""
    _check_form(form, FORMS[:2])

    def soft_correctness(completions: Iterable[Any], **columns) -> list[float]:
        if form != "fixed":
            golds = _golds("soft_correctness", columns)
            return [
                float(_published_number(completion_text(completion)) == gold)
                for completion, gold in zip(completions, golds, strict=True)
            ]
        answers = _column("soft_correctness", columns, "answer")
        return [
            float(_same(extract_number(_block(completion)), _right(answer)))
            for completion, answer in zip(completions, answers, strict=True)
        ]

    return soft_correctness


def integer(form: str = "fixed") -> Reward:
    """0.5 where the answer block is a whole number and nothing else."""
    _check_form(form)

    def whole(text: str) -> bool:
        if form != "fixed":
            return _published_answer(text).isdigit()
        number = _plain_number(_block(text))
        return number is not None and number == number.to_integral_value()

    return _of_text("integer", whole)


def strict_format(form: str = "fixed") -> Reward:
    """0.5 where the two blocks stand with each tag on a line of its own, and nothing else."""
    _check_form(form)

    def fixed(text: str) -> bool:
        blocks = tag_blocks(text, TAGS)
        return blocks is not None and all(
            content[:1] == "\n" == content[-1:] and len(content) > 1 for content in blocks
        )

    def published(text: str) -> bool:
        opening, middle, closing = "<reasoning>\n", "\n</reasoning>\n<answer>\n", "\n</answer>"
        _, found, rest = text.removeprefix(opening).partition(middle)
        return text.startswith(opening) and bool(found) and rest.rstrip("\n").endswith(closing)

    def unsloth(text: str) -> bool:
        lines = text.split("\n", 8)
        tags = [lines[at] for at in (0, 2, 3, 5)] if len(lines) in (7, 8) else []
        return tags == ["<reasoning>", "</reasoning>", "<answer>", "</answer>"] and not any(
            lines[6:]
        )

    return _of_text(
        "strict_format", {"fixed": fixed, "as_published": published, "unsloth": unsloth}[form]
    )


def soft_format(form: str = "fixed") -> Reward:
    """0.5 where the two blocks stand, wherever their tags are."""
    _check_form(form)
    between = re.compile(r"</reasoning>\s*<answer>")

    def published(text: str) -> bool:
        found = between.search(text) if text.startswith("<reasoning>") else None
        return found is not None and "</answer>" in text[found.end() :]

    def unsloth(text: str) -> bool:
        first_line = len(text.partition("\n")[0])
        ends = [found.end() for found in between.finditer(text) if found.start() <= first_line]
        return text.startswith("<reasoning>") and any(
            "</answer>" in text[end:].partition("\n")[0] for end in {*ends[:1], *ends[-1:]}
        )

    def fixed(text: str) -> bool:
        return tag_blocks(text, TAGS) is not None

    return _of_text(
        "soft_format", {"fixed": fixed, "as_published": published, "unsloth": unsloth}[form]
    )


def xml_count(form: str = "fixed") -> Reward:
    """0.125 for each of the four tags that stands once, less 0.001 a character behind the last."""
    _check_form(form)
    tags = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]

    def fixed(text: str) -> float:
        paid = sum(0.125 for tag in tags if text.count(tag) == 1)
        _, closed, rest = text.rpartition("</answer>")
        return max(0.0, paid - 0.001 * len(rest.strip()) * bool(closed))

    def published(text: str) -> float:
        paid = 0.125 * (text.count("<reasoning>\n") == 1)
        paid += 0.125 * (text.count("\n</reasoning>\n") == 1)
        if text.count("\n<answer>\n") == 1:
            paid += 0.125 - 0.001 * len(text.rpartition("\n</answer>\n")[2])
        if text.count("\n</answer>") == 1:
            paid += 0.125 - 0.001 * (len(text.rpartition("\n</answer>")[2]) - 1)
        return paid

    score = fixed if form == "fixed" else published

    def xml_count(completions: Iterable[Any], **columns) -> list[float]:
        return [score(completion_text(completion)) for completion in completions]

    return xml_count


REWARDS = RewardFactories(
    correctness=correctness,
    soft_correctness=soft_correctness,
    integer=integer,
    strict_format=strict_format,
    soft_format=soft_format,
    xml_count=xml_count,
    answer_reward=answer_reward,
    random_reward=random_reward,
    tag_format=tag_format,
    repetition=repetition_penalty,
)


def _check_form(form: Any, known: tuple[str, ...] = FORMS) -> None:
    check_name("form of a reward", form, known)


def _of_text(name: str, passes: Callable[[str], bool]) -> Reward:
    """A reward of 0.5 for the completions that pass."""

    def reward(completions: Iterable[Any], **columns) -> list[float]:
        return [0.5 * passes(completion_text(completion)) for completion in completions]

    reward.__name__ = name
    return reward


def _column(reward: str, columns: dict[str, Any], name: str) -> Any:
    if columns.get(name) is None:
        raise CasebookError(f"the reward {reward} needs the rows' column {name!r}")
    return columns[name]


def _golds(reward: str, columns: dict[str, Any]) -> Any:
    """The right answers as the data set writes them, commas included."""
    golds = columns.get("gold")
    return _column(reward, columns, "answer") if golds is None else golds


def _block(completion: Any) -> str:
    return last_block(completion_text(completion), "answer") or ""


def _published_answer(text: str) -> str:
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _published_number(text: str) -> str:
    found = re.search(r"\d+(?:,\d+)*", _published_answer(text))
    return found[0].replace(",", "") if found else "0"


def _plain_number(text: str) -> Decimal | None:
    text = text.strip()
    if len(text) > LONGEST or not _PLAIN.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def _right(answer: Any) -> Decimal | None:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return Decimal(answer)
    return extract_number(answer) if isinstance(answer, str) else None


def _same(one: Decimal | None, other: Decimal | None) -> bool:
    return one is not None and one == other


def _written(number: Decimal) -> str:
    """A number in plain digits, without what does not count: `"3"` for `3.00`."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "-", "") else text
