"""Grade and rewards for word problems: the six rewards of the write-up, in two forms.

The write-up has two rewards for the answer (hard and soft), one for a whole number, and three for
the form: at most 4.0, of which correctness is 1 or 2. Each of the six exists `as_published`, with
the rules as executed and not as described, so that their defects can be measured, and `fixed`. The
values are the write-up's, so the weights of a configuration are 1.

*Well formed* and *correct* are separate:

    reason:  <reasoning> ... </reasoning> <answer> NUMBER </answer>     and nothing else
    answer:  NUMBER, perhaps with a full stop                           and nothing else

where `NUMBER` is digits with or without a sign, commas between thousands and decimals. The other
variants of the prompt ask for the same form as `reason`. *Correct* compares numbers: the one that
a completion states as its answer, whatever its form, by the rules of `answers.yaml`.

Every reward takes any completion and none raises, in either form. All take time linear in its
length, where the published patterns backtrack.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

from casebook.case import Grade, RewardFactories, check_name
from casebook.cases.gsm8k.answers import LONGEST, extract_number, one_number
from casebook.rewards import (
    Reward,
    completion_text,
    last_block,
    part,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)

TAGS = ("reasoning", "answer")
# How a prompt shows the problem; all but `answer` are held to the same form.
CHATS = tuple(
    f"chat{whose}{shots}"
    for whose in ("", "-unsloth")
    for shots in ("", "-shots1", "-shots2", "-shots4")
)
VARIANTS = ("reason", "unsloth", "answer", "shots5", "shots8", *CHATS, "chat-plain")
# `unsloth` is the notebook that the write-up started from, where the write-up changed it.
FORMS = ("fixed", "as_published", "unsloth")
WHOLE_TAGS = tuple(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/"))

_PLAIN = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)
_BETWEEN = re.compile(r"</reasoning>\s*<answer>")


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    """The grade of one completion; `answer` is the right number, as in `"1234"`.

    The answer may be a number of any type. For the variant `"answer"` a number alone is well
    formed. Takes any input, as `Case` says, in time linear in the completion's length.

    >>> grade("<reasoning>3*14</reasoning><answer>42</answer>", "42")
    Grade(well_formed=True, answer='42', correct=True)
    """
    check_name("variant", variant or "reason", VARIANTS)
    text = completion_text(completion)
    blocks = [text.strip().removesuffix(".")] if variant == "answer" else tag_blocks(text, TAGS)
    number = _plain_number(blocks[-1]) if blocks else None
    well_formed = number is not None
    if not well_formed:
        number = extract_number(text)
    written = None if number is None else _written(number)
    return Grade(well_formed, written, _same(number, _right(answer)))


def answer_reward(variant: str | None = None) -> Reward:
    """1.0 for the right number in the form that `grade` asks of `variant`, else 0.0.

    >>> answer_reward()(["<reasoning></reasoning><answer>42</answer>", "42"], answer=["42"] * 2)
    [1.0, 0.0]
    """
    check_name("variant", variant or "reason", VARIANTS)
    return _of_answer("answer_reward", lambda text, answer: grade(text, answer, variant).strict)


def correctness(form: str = "fixed") -> Reward:
    """1.0 where the answer block is the right number and nothing else: hard correctness.

    As published, the strings are compared: what follows the last `<answer>`, up to the next
    closing tag, or the whole completion where there is no tag, against the gold answer as the
    data set writes it. So `1600` is wrong where the gold says `1,600`, `5.0` is wrong against
    `5`, and a bare right number earns it without any tag. In the `unsloth` form it is 2.0.

    Needs the column `answer`; as published `gold` if there is one, the answer with its commas.

    >>> texts = ["<answer>1600</answer>", "1,600"]
    >>> correctness()(texts, answer=["1600"] * 2)
    [1.0, 0.0]
    >>> correctness("as_published")(texts, answer=["1600"] * 2, gold=["1,600"] * 2)
    [0.0, 1.0]
    """
    worth = 2.0 if form == "unsloth" else 1.0

    def passes(text: str, answer: Any) -> bool:
        if form == "fixed":
            return _same(_plain_number(_block(text)), _right(answer))
        return _published_answer(text) == _gold_text(answer)

    return _of_answer("correctness", passes, form, worth)


def soft_correctness(form: str = "fixed") -> Reward:
    """1.0 where the answer block states the right number, whatever else is in it.

    By the rules of the grade: a hedge in the block, such as "42 or 43", states none.

    As published, the first run of digits and commas of the block is read, or of the whole
    completion where there is no tag, and its commas are dropped, but not the gold answer's. So
    sign and decimals are lost (`-3` and `3.5` count where 3 is right), "10 - 4 = 6" is read as 10,
    a gold `1,600` is never met, and where there is no digit at all the answer is `0`.

    Needs the column `answer`; as published `gold` if there is one. The Unsloth notebook has no
    such reward.

    >>> texts = ["<answer>10 - 4 = 6</answer>", "<answer>6.5</answer>"]
    >>> soft_correctness()(texts, answer=["6"] * 2)
    [1.0, 0.0]
    >>> soft_correctness("as_published")(texts, answer=["6"] * 2)
    [0.0, 1.0]
    """
    check_name("form", form, FORMS[:2])

    def passes(text: str, answer: Any) -> bool:
        if form == "fixed":
            return _same(one_number(_block(text)), _right(answer))
        found = re.search(r"\d+(?:,\d+)*", _published_answer(text))
        return (found[0].replace(",", "") if found else "0") == _gold_text(answer)

    return _of_answer("soft_correctness", passes, form)


def integer(form: str = "fixed") -> Reward:
    """0.5 where the answer block is a whole number and nothing else.

    As published, `str.isdigit` decides on the block or, without tags, on the whole completion:
    `-3` and `1,600` are no integers then, and a superscript two is one.

    >>> integer()(["<answer>-3</answer>"]), integer("as_published")(["<answer>-3</answer>"])
    ([0.5], [0.0])
    """

    def fixed(text: str) -> bool:
        number = _plain_number(_block(text))
        return number is not None and number == number.to_integral_value()

    return _of_form("integer", form, fixed, lambda text: _published_answer(text).isdigit())


def strict_format(form: str = "fixed") -> Reward:
    """0.5 for both blocks, each of the four tags alone on its line, and nothing else.

    As published, a second block may hide in the first, since the pattern's dots match anything:
    a model may answer twice. In the `unsloth` form dots stop at line breaks, and a final line
    break is needed: two lines of reasoning earn nothing, nor does a text that ends with its tag.

    >>> text = "<reasoning>\\n2*3=6\\n6*7=42\\n</reasoning>\\n<answer>\\n42\\n</answer>\\n"
    >>> [strict_format(form)([text]) for form in FORMS]
    [[0.5], [0.5], [0.0]]
    """

    def fixed(text: str) -> bool:
        lines = [line.strip() for line in text.split("\n")]
        return tag_blocks(text, TAGS) is not None and all(tag in lines for tag in WHOLE_TAGS)

    def published(text: str) -> bool:
        opening, middle, closing = "<reasoning>\n", "\n</reasoning>\n<answer>\n", "\n</answer>"
        _, found, rest = text.removeprefix(opening).partition(middle)
        return text.startswith(opening) and bool(found) and rest.rstrip("\n").endswith(closing)

    def unsloth(text: str) -> bool:
        lines = text.split("\n", 8)  # six of them, one or two line breaks, and no more
        tags = [line for at, line in enumerate(lines[:6]) if at not in (1, 4)]
        return tags == list(WHOLE_TAGS) and lines[6:] in ([""], ["", ""])

    return _of_form("strict_format", form, fixed, published, unsloth)


def soft_format(form: str = "fixed") -> Reward:
    """0.5 for both blocks, in order and once, wherever the tags are, and nothing else.

    As published, only the beginning is looked at: anything may follow, another answer included.
    In the `unsloth` form dots stop at line breaks, so neither block may have one in it: the
    form that the prompt shows, with tags on lines of their own, earns nothing.

    >>> texts = ["<reasoning>a</reasoning><answer>1</answer> or 2", "<reasoning>a</reasoning>"]
    >>> soft_format()(texts), soft_format("as_published")(texts)
    ([0.0, 0.0], [0.5, 0.0])
    """

    def published(text: str) -> bool:
        found = _BETWEEN.search(text) if text.startswith("<reasoning>") else None
        return found is not None and text.find("</answer>", found.end()) >= 0

    def unsloth(text: str) -> bool:
        end = len(text.partition("\n")[0])
        found = [match.end() for match in _BETWEEN.finditer(text) if match.start() <= end]
        # Of all that begin on the first line only the last can lead on to another one.
        return text.startswith("<reasoning>") and any(
            "</answer>" in text[start:].partition("\n")[0] for start in {*found[:1], *found[-1:]}
        )

    fixed = tag_format(TAGS)
    return _of_form("soft_format", form, lambda text: fixed([text])[0], published, unsloth)


def xml_count(form: str = "fixed") -> Reward:
    """0.125 for each of the four tags that occurs once, less 0.001 per character after the last.

    White space at the end is free, and the sum is never negative.

    As published, the tags are counted with certain line breaks around them, and text behind the
    closing tag is charged twice: once as what follows a closing tag *and a line break*, where
    a completion that ends with the tag is charged its whole length. So a perfect completion of
    49 characters gets 0.452, a long one less than nothing.

    >>> text = "<reasoning>\\n2+2\\n</reasoning>\\n<answer>\\n4\\n</answer>"
    >>> xml_count()([text])
    [0.5]
    >>> [round(paid, 3) for paid in xml_count("as_published")([text, f"{text}\\n", text * 9])]
    [0.452, 0.5, 0.0]
    """

    def fixed(text: str) -> float:
        paid = sum(0.125 for tag in WHOLE_TAGS if text.count(tag) == 1)
        _, closed, rest = text.rpartition("</answer>")
        return max(0.0, paid - 0.001 * len(rest.strip())) if closed else paid

    def published(text: str) -> float:
        paid = 0.125 * (text.count("<reasoning>\n") == 1)
        paid += 0.125 * (text.count("\n</reasoning>\n") == 1)
        if text.count("\n<answer>\n") == 1:
            paid += 0.125 - 0.001 * len(text.rpartition("\n</answer>\n")[2])
        if text.count("\n</answer>") == 1:
            paid += 0.125 - 0.001 * (len(text.rpartition("\n</answer>")[2]) - 1)
        return paid

    return _of_form("xml_count", form, fixed, published, worth=1.0)


SIX = (correctness, soft_correctness, integer, strict_format, soft_format, xml_count)
REWARDS = RewardFactories({make.__name__: make for make in (*SIX, answer_reward, random_reward)})
REWARDS |= {"tag_format": partial(tag_format, tags=TAGS), "repetition": repetition_penalty}


def _of_form(name: str, form: str, *scores: Callable[[str], float], worth: float = 0.5) -> Reward:
    """A reward for what a text looks like: what the score of a form of `FORMS` gives."""
    check_name("form", form, FORMS)
    score = dict(zip(FORMS, scores, strict=False)).get(form, scores[-1])
    return part(name, lambda text: worth * score(text))


def _of_answer(
    name: str, passes: Callable[[str, Any], bool], form: str = "fixed", worth: float = 1.0
) -> Reward:
    """A reward for the completions that pass against the right answer, or the gold text."""
    check_name("form", form, FORMS)

    def score(text: str, right: Any) -> float:
        return worth * passes(text, right)

    def reward(completions: Iterable[Any], **columns) -> list[float]:
        column = "gold" if form != "fixed" and columns.get("gold") is not None else "answer"
        return part(name, score, column)(completions, **columns)

    reward.__name__ = name
    return reward


def _block(text: str) -> str:
    return last_block(text, "answer") or ""


def _published_answer(text: str) -> str:
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _plain_number(text: str) -> Decimal | None:
    text = text.strip()
    if len(text) > LONGEST or not _PLAIN.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def _right(answer: Any) -> Decimal | None:
    try:
        return extract_number(answer) if isinstance(answer, str) else one_number(str(answer))
    except ValueError:  # more digits than Python writes
        return None


def _gold_text(gold: Any) -> str | None:
    return gold.strip() if isinstance(gold, str) else str(gold) if type(gold) is int else None


def _same(one: Decimal | None, other: Decimal | None) -> bool:
    return one is not None and one == other


def _written(number: Decimal) -> str:
    """A number in plain digits, without what does not count: `"3"` for `3.00`."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "-", "") else text
