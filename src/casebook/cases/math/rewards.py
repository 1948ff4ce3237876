r"""What a completion about a MATH problem is worth: its form, its answer, and the reward's parts.

The source paid 1 where the text in the box was the reference's to the letter. That asks two
questions at once, and they are kept apart here. *Well formed*: is the answer given in the form
the prompt asks for?

    all but `answer`:     one \boxed{ANSWER}, with nothing behind it but `$`, `\)`, `\]` or a
                          full stop; what stands before the box is free
    answer:               ANSWER alone, perhaps between dollars, perhaps with a full stop

ANSWER is one answer: there is something, on one line, without tags or another box. A calculation
is none (`3+4=7`, `x=2+3=5`), nor is a hedge (`not 5`, `5 \text{ million}`), a sentence or a text of
more than 1,000 characters; `x=5`, `y = 2x + 3`, `3, 5, 7` and `5 \text{ cm}` are.

*Correct*: does the answer read from the completion mean the same as the reference's, whatever
the form? `answer_of` of `reading` reads and `same_answer` of `verify` compares, by the rules and
examples of `answers.yaml`. A completion cut off before its box is closed has no box, and one cut
off while it is thinking has no answer.

The `<think>` block is a third thing, which neither asks for: `think_format` pays it, and `gated`
pays an answer only where it stands. To add the two up instead, name `equivalence` and
`think_format` in `reward_funcs`, with `reward_weights`.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

from casebook.case import CasebookError, Grade, RewardFactories, check_name
from casebook.cases.math.hedges import is_answer
from casebook.cases.math.reading import answer_of, boxed_answer, last_boxed
from casebook.cases.math.verify import same_answer
from casebook.rewards import Reward, completion_text, random_reward, repetition_penalty

# How the prompt shows the problem. `cut` is `shots3` or `reason` cut on the left, and asks for
# the same form; only `answer` asks for another.
VARIANTS = ("reason", "answer", "cut", "shots3", "chat-math500")
READINGS = ("box", "any", "strict")
BOXES = ("last", "documentation")
FORMS = ("think_format", "boxed_format")
_TAGS = ("<think>", "</think>")

LONGEST = 1000  # characters of one answer; the longest of MATH-500's references has 53

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_CLOSING = re.compile(r"(?:\s|\\[)\]]|[$.])*")  # what may follow the box
_COMMAND = re.compile(r"\\[A-Za-z]+\s*\{[^{}]*\}|\\[A-Za-z]+")  # with its group, if that is plain
_SENTENCE = re.compile(r"[A-Za-z]{2,}[ ,]+[A-Za-z]{2,}")
_LISTED = re.compile(r",|\\text\s*\{\s*(?:and|or)\s*\}")
# LaTeX that a calculation may be written in; any other letter is a name for something.
_ARITHMETIC = re.compile(
    r"\\(?:[cdt]?frac|sqrt|times|cdot|div|pm|mp|left|right|circ|pi|[dt]?binom|log|ln|sin|cos|tan"
    r"|gcd|max|min)(?![A-Za-z])"
)


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    r"""The grade of one completion; `answer` is the reference answer, LaTeX without a box.

    Takes any completion and any answer and never raises for them. Reading is linear in the
    completion's length; one comparison takes at most `verify.TIMEOUT` seconds.

    Args:
        completion: a string or a list of messages; anything else is an empty completion.
        answer: for anything but a string no completion is correct.
        variant: one of `VARIANTS`; for `"answer"` an answer alone is well formed.

    Raises:
        UnknownName: unknown variant.

    >>> grade(r"<think>1/4 + 1/2</think> \boxed{0.75}", r"\frac{3}{4}")
    Grade(well_formed=True, answer='0.75', correct=True)
    >>> grade(r"\boxed{1/4 + 1/2 = 3/4} So it is.", r"\frac{3}{4}").well_formed
    False
    """
    check_name("variant", variant or "reason", VARIANTS)
    text = completion_text(completion)
    found = _answer(text, variant)
    correct = found is not None and isinstance(answer, str) and same_answer(found, answer)
    return Grade(_well_formed(text, variant), found, correct)


def exact_match(box: str = "last") -> Reward:
    r"""1.0 where the box holds the reference answer letter for letter, else 0.0: the source's.

    White space around either side is dropped and nothing else is touched, so `\dfrac{1}{2}`,
    `0.5` and `\frac12` all miss `\frac{1}{2}`. No box, or one that is cut off, earns 0.0.

    Args:
        box: which text counts as the box's. `"last"`: the last balanced `\boxed{...}`.
            `"documentation"`: from the first `\boxed{` to the first closing brace on the same
            line, as a regular expression in TRL's documentation of `GRPOTrainer` reads it. It
            cannot pay an answer that has a brace in it, `\frac{1}{2}` for one. The source took
            its reward "largely from the Hugging Face documentation"; its code is not published.

    Raises:
        UnknownName: `box` is neither.

    >>> half = r"so \boxed{\frac{1}{2}}"
    >>> exact_match()([half], answer=[r"\frac{1}{2}"])
    [1.0]
    >>> exact_match(box="documentation")([half], answer=[r"\frac{1}{2}"])
    [0.0]
    """
    check_name("box", box, BOXES)
    read = last_boxed if box == "last" else _documented_box

    def exact_match(completions: Iterable[Any], answer: Iterable[Any], **columns) -> list[float]:
        rewards = []
        for completion, gold in zip(completions, answer, strict=True):
            found = read(completion_text(completion))
            same = found is not None and isinstance(gold, str) and found.strip() == gold.strip()
            rewards.append(float(same))
        return rewards

    return exact_match


def equivalence(reading: str = "box", variant: str | None = None) -> Reward:
    r"""1.0 where the answer means the same as the reference's, else 0.0.

    Args:
        reading: where the answer may stand. `"box"`: in the last balanced box. `"any"`: wherever
            `grade` finds one, so this is its `correct`. `"strict"`: that, and the completion has
            to be well formed.
        variant: as in `grade`; `"box"` does not ask for it.

    Raises:
        UnknownName: unknown reading or variant.

    >>> texts = [r"\boxed{0.5}", r"\boxed{0.5} I think", "The answer is $0.5$."]
    >>> equivalence()(texts, answer=[r"\frac{1}{2}"] * 3)
    [1.0, 1.0, 0.0]
    >>> equivalence("strict")(texts, answer=[r"\frac{1}{2}"] * 3)
    [1.0, 0.0, 0.0]
    """
    check_name("reading", reading, READINGS)
    check_name("variant", variant or "reason", VARIANTS)

    def equivalence(completions: Iterable[Any], answer: Iterable[Any], **columns) -> list[float]:
        return [
            float(_right(completion_text(completion), gold, reading, variant))
            for completion, gold in zip(completions, answer, strict=True)
        ]

    return equivalence


def think_format() -> Reward:
    """1.0 for one `<think>` block at the start and something after it, else 0.0.

    Whitespace around the tags is free; an empty block passes. As with
    `casebook.rewards.tag_format`, a chat template that writes the opening tag into the prompt
    hides it from the reward. The format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2)
    asks for tags around the answer as well; here the box marks it.

    >>> think_format()(["<think>3x=15</think> 5", "5", "<think>3x=15</think>"])
    [1.0, 0.0, 0.0]
    """

    def think_format(completions: Iterable[Any], **columns) -> list[float]:
        return [float(_thinks(completion_text(completion))) for completion in completions]

    return think_format


def boxed_format() -> Reward:
    r"""1.0 where one answer stands in one box at the end, right or wrong, else 0.0.

    This is the grade's `well_formed` for every variant with a box, and the format-only control.

    >>> boxed_format()([r"\boxed{7}", r"\boxed{3+4=7}", r"\boxed{7} or \boxed{8}"])
    [1.0, 0.0, 0.0]
    """

    def boxed_format(completions: Iterable[Any], **columns) -> list[float]:
        return [float(_boxes_one(completion_text(completion))) for completion in completions]

    return boxed_format


def gated(form: str = "think_format", reading: str = "box") -> Reward:
    r"""`equivalence` where the form holds, 0.0 where it does not.

    A right answer in the wrong form earns nothing, and a good form around a wrong answer earns
    nothing either. A form reward that is *added* pays the latter, so in a group in which nobody
    is right it becomes the whole lesson; open-instruct gates for that reason
    (`docs/algorithms/grpo.md`).

    Args:
        form: `"think_format"` or `"boxed_format"`.
        reading: as in `equivalence`.

    Raises:
        UnknownName: unknown form or reading.

    >>> gated()([r"<think>3x=15</think>\boxed{5}", r"\boxed{5}"], answer=["5", "5"])
    [1.0, 0.0]
    """
    check_name("form", form, FORMS)
    check_name("reading", reading, READINGS)
    holds = _thinks if form == "think_format" else _boxes_one

    def gated(completions: Iterable[Any], answer: Iterable[Any], **columns) -> list[float]:
        texts = [completion_text(completion) for completion in completions]
        return [
            float(holds(text) and _right(text, gold, reading, None))
            for text, gold in zip(texts, answer, strict=True)
        ]

    return gated


def overlong(max_length: int, buffer: int, penalty: float = -1.0) -> Reward:
    """A penalty that grows over the last `buffer` tokens before a completion would be cut off.

    0.0 up to `max_length - buffer` tokens, `penalty` at `max_length` and beyond, a straight line
    between: the soft overlong punishment of DAPO (Yu et al. 2025, arXiv 2503.14476, section 3.4).
    Lengths are counted in the trainer's `completion_ids`.

    Args:
        max_length: the trainer's `max_completion_length`.
        buffer: tokens over which the penalty grows, from 1 to `max_length`.
        penalty: the bound, zero or negative.

    Raises:
        CasebookError: a length is no whole number or out of range, the penalty is positive or no
            number, or, when the reward is called, `completion_ids` is missing.

    >>> overlong(100, 20)([""] * 3, completion_ids=[[7] * 80, [7] * 90, [7] * 100])
    [0.0, -0.5, -1.0]
    """
    for name, value, most in (("max_length", max_length, math.inf), ("buffer", buffer, max_length)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise CasebookError(
                f"{name} must be a whole number of tokens of at least 1, and buffer at most "
                f"max_length; got {value!r}"
            )
    number = isinstance(penalty, int | float) and not isinstance(penalty, bool)
    if not number or not -math.inf < penalty <= 0:
        raise CasebookError(f"penalty must be a number, zero or negative, not {penalty!r}")

    def overlong(completions: Iterable[Any], completion_ids=None, **columns) -> list[float]:
        if completion_ids is None:
            raise CasebookError("the reward overlong needs the trainer's 'completion_ids'")
        over = [len(ids) - (max_length - buffer) for ids in completion_ids]
        return [penalty * min(1.0, tokens / buffer) if tokens > 0 else 0.0 for tokens in over]

    return overlong


REWARDS = RewardFactories(
    exact_match=exact_match,
    equivalence=equivalence,
    think_format=think_format,
    boxed_format=boxed_format,
    gated=gated,
    overlong=overlong,
    random_reward=random_reward,
    repetition=repetition_penalty,
)


def _right(text: str, gold: Any, reading: str, variant: str | None) -> bool:
    found = boxed_answer(text) if reading == "box" else _answer(text, variant)
    if found is None or not isinstance(gold, str):
        return False
    return (reading != "strict" or _well_formed(text, variant)) and same_answer(found, gold)


def _answer(text: str, variant: str | None) -> str | None:
    found = answer_of(text)
    bare = "" if found or variant != "answer" or _BOX.search(text) else _bare(text)
    return bare if _one_answer(bare) and is_answer(bare) else found


def _well_formed(text: str, variant: str | None) -> bool:
    if variant != "answer":
        return _boxes_one(text)
    bare = _bare(text)
    return not _BOX.search(bare) and _one_answer(bare) and is_answer(bare)


def _bare(text: str) -> str:
    """A text without white space around it, a full stop behind it, and dollars on both sides."""
    bare = text.strip().removesuffix(".").strip()
    return bare.strip("$").strip() if bare.startswith("$") and bare.endswith("$") else bare


def _boxes_one(text: str) -> bool:
    r"""There is one box, it is closed, holds one answer, and ends the text."""
    found = list(_BOX.finditer(text))
    if len(found) != 1:
        return False
    start = found[0].end()
    end = _closing_brace(text, start)
    return (
        end is not None
        and _CLOSING.fullmatch(text, end + 1) is not None
        and _one_answer(text[start + 1 : end])
        and answer_of(text) is not None
    )


def _closing_brace(text: str, start: int) -> int | None:
    """Where the group that opens at `start` closes; escaped braces do not count."""
    if not text.startswith("{", start):
        return None
    depth = 0
    for brace in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None


def _one_answer(piece: str) -> bool:
    """One answer: no calculation, no sentence, no second line, no tags, and not too long."""
    piece = piece.strip()
    if not 0 < len(piece) <= LONGEST or any(mark in piece for mark in ("\n", *_TAGS)):
        return False
    if _SENTENCE.search(_COMMAND.sub(r" \\ ", piece)):  # words in \text{...} may stand in a row
        return False
    return not any(map(_calculates, _LISTED.split(piece)))


def _calculates(part: str) -> bool:
    """`3+4=7` and `x=2+3=5` do; `x=5` says what the answer is the value of."""
    left, *right = part.split("=")
    if not right:
        return False
    names_something = re.search("[A-Za-z]", _ARITHMETIC.sub("", left))
    return len(right) > 1 or not right[0].strip() or not names_something


def _thinks(text: str) -> bool:
    opening, closing = _TAGS
    if text.count(opening) != 1 or text.count(closing) != 1:
        return False
    before, _, rest = text.partition(opening)
    _, closed, after = rest.partition(closing)
    return bool(closed and after.strip()) and not before.strip()


def _documented_box(text: str) -> str | None:
    r"""What `\\boxed\{(.*?)\}` finds first, by plain search: backtracking would be quadratic."""
    mark = r"\boxed{"
    start = text.find(mark)
    while start >= 0:
        content = start + len(mark)
        end = text.find("}", content)
        if end < 0:
            return None
        line_break = text.rfind("\n", content, end)
        if line_break < 0:
            return text[content:end]
        start = text.find(mark, line_break)
    return None
