r"""What a completion about a MATH problem is worth: its form, its answer, and the reward's parts.

The write-up's reward was 1 where the text in the box equalled the reference's. That mixes two
questions, which are separate here. *Well formed*: is the answer given in the form
the prompt asks for?

    all but `answer`:     one \boxed{ANSWER}, with nothing after it but `$`, `\)`, `\]` or a
                          full stop; any text before the box
    answer:               ANSWER alone, perhaps between dollars, perhaps with a full stop

ANSWER is one answer on one line: `x=5`, `3, 5, 7` and `5 \text{ cm}` are, a calculation (`3+4=7`)
and a hedge (`5 \text{ million}`) are not.

*Correct*: is the content of the last box equal in meaning to the reference, whatever the form?
Without a box, math-verify's extraction counts. `verify` compares, by the rules and examples of
`answers.yaml`.

The `<think>` block is separate from both: `think_format` rewards it, and `gated` rewards an answer
only after such a block. To add the two instead, name `equivalence` and `think_format` in
`reward_funcs`, with `reward_weights`.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from casebook.case import CasebookError, Grade, RewardFactories, check_name
from casebook.cases.math.verify import (
    LONGEST,
    answer_of,
    is_answer,
    last_boxed,
    levelled,
    same_answer,
)
from casebook.rewards import (
    Reward,
    completion_text,
    noisy,
    part,
    random_reward,
    repetition_penalty,
)

# How the prompt shows the problem. `cut` is `shots3` or `reason` cut on the left, and asks for
# the same form; only `answer` asks for another.
VARIANTS = ("reason", "answer", "cut", "shots3", "chat-math500")
READINGS = ("box", "any", "strict")
BOXES = ("last", "documentation")

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{?")
_CLOSING = re.compile(r"\s*\}(?:\s|\\[)\]]|[$.])*")  # the box's own brace, and what may follow it


def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
    r"""The grade of one completion; `answer` is the reference answer, LaTeX without a box.

    For the variant `"answer"` an answer alone is well formed. Takes any input, as `Case` says:
    reading is linear in the completion's length, and a comparison takes `verify.TIMEOUT` seconds.

    >>> grade(r"<think>1/4 + 1/2</think> \boxed{0.75}", r"\frac{3}{4}")
    Grade(well_formed=True, answer='0.75', correct=True)
    >>> grade(r"\boxed{1/4 + 1/2 = 3/4} So it is.", r"\frac{3}{4}").well_formed
    False
    """
    check_name("variant", variant or "reason", VARIANTS)
    text = completion_text(completion)
    bare = _bare(text) if variant == "answer" else ""
    alone = _one_answer(bare)
    found = bare if alone else answer_of(text)
    correct = found is not None and isinstance(answer, str) and same_answer(found, answer)
    return Grade(alone if variant == "answer" else _boxes_one(text), found, correct)


def exact_match(box: str = "last") -> Reward:
    r"""1.0 where the box contains exactly the reference's string, else 0.0: the write-up's reward.

    White space around either side is dropped and nothing else is touched, so `\dfrac{1}{2}`,
    `0.5` and `\frac12` all miss `\frac{1}{2}`. No box, or one that is cut off, earns 0.0.

    Args:
        box: which text counts as the box's. `"last"`: the last balanced `\boxed{...}`.
            `"documentation"`: from the first `\boxed{` to the first closing brace on the same
            line, as a regular expression in TRL's documentation of `GRPOTrainer` reads it, which
            gives 0.0 to any answer with a brace in it. The write-up took its reward "largely from
            the Hugging Face documentation"; its code is not published.

    >>> half = r"so \boxed{\frac{1}{2}}"
    >>> exact_match()([half], answer=[r"\frac{1}{2}"])
    [1.0]
    """
    check_name("box", box, BOXES)
    read = last_boxed if box == "last" else _documented_box

    def score(text: str, answer: Any) -> float:
        found = read(text)
        return found is not None and isinstance(answer, str) and found.strip() == answer.strip()

    return part("exact_match", score, "answer")


def equivalence(
    reading: str = "box",
    variant: str | None = None,
    misses: float = 0.0,
    false_alarms: float = 0.0,
) -> Reward:
    r"""1.0 where the answer means the same as the reference's, else 0.0.

    Args:
        reading: where the answer may be. `"box"`: in the last balanced box. `"any"`: wherever
            `grade` finds one, so this is its `correct`. `"strict"`: that, and the completion has
            to be well formed.
        variant: as in `grade`; `"box"` does not ask for it.
        misses, false_alarms: shares of wrong verdicts, as in `casebook.rewards.noisy`.

    >>> texts = [r"\boxed{0.5}", r"\boxed{0.5} I think", "The answer is $0.5$."]
    >>> equivalence()(texts, answer=[r"\frac{1}{2}"] * 3)
    [1.0, 1.0, 0.0]
    """
    check_name("reading", reading, READINGS)
    check_name("variant", variant or "reason", VARIANTS)

    def score(text: str, answer: Any) -> float:
        return _right(text, answer, reading, variant)

    return noisy(part("equivalence", score, "answer"), misses, false_alarms)


def think_format() -> Reward:
    """1.0 for one `<think>` block at the start and something after it, else 0.0.

    An empty block passes. As with `casebook.rewards.tag_format`, a chat template that writes the
    opening tag into the prompt hides it from the reward. The format reward of DeepSeek-R1 (arXiv
    2501.12948, section 2.2.2) asks for tags around the answer as well; here the box marks it.

    >>> think_format()(["<think>3x=15</think> 5", "5", "<think>3x=15</think>"])
    [1.0, 0.0, 0.0]
    """
    return part("think_format", _thinks)


def boxed_format() -> Reward:
    r"""1.0 where one answer is in one box at the end, right or wrong, else 0.0.

    This is the grade's `well_formed` for every variant with a box, and the format-only control.

    >>> boxed_format()([r"\boxed{7}", r"\boxed{3+4=7}", r"\boxed{7} or \boxed{8}"])
    [1.0, 0.0, 0.0]
    """
    return part("boxed_format", _boxes_one)


def gated(reading: str = "box") -> Reward:
    r"""`equivalence` where `think_format` is 1.0, else 0.0.

    A right answer in the wrong form earns nothing, and a good form around a wrong answer earns
    nothing either. An *added* format reward does reward the latter, so in a group without a right
    answer only the form is learned; open-instruct gates for that reason
    (`docs/algorithms/grpo.md`).

    Args:
        reading: as in `equivalence`.

    >>> gated()([r"<think>3x=15</think>\boxed{5}", r"\boxed{5}"], answer=["5", "5"])
    [1.0, 0.0]
    """
    check_name("reading", reading, READINGS)

    def score(text: str, answer: Any) -> float:
        return _thinks(text) and _right(text, answer, reading, None)

    return part("gated", score, "answer")


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
        CasebookError: a length or the penalty is out of range.

    >>> overlong(100, 20)([""] * 3, completion_ids=[[7] * 80, [7] * 90, [7] * 100])
    [0.0, -0.5, -1.0]
    """
    if not 1 <= buffer <= max_length or not -math.inf < penalty <= 0:
        raise CasebookError(
            f"overlong needs 1 <= buffer <= max_length and a penalty of zero or less; got "
            f"{buffer!r}, {max_length!r} and {penalty!r}"
        )

    def score(_: str, ids: Sequence[int]) -> float:
        over = len(ids) - (max_length - buffer)
        return penalty * min(1.0, over / buffer) if over > 0 else 0.0

    return part("overlong", score, "completion_ids")


_MADE_HERE = (exact_match, equivalence, think_format, boxed_format, gated, overlong, random_reward)
REWARDS = RewardFactories({make.__name__: make for make in _MADE_HERE})
REWARDS["repetition"] = repetition_penalty


def _right(text: str, gold: Any, reading: str, variant: str | None) -> bool:
    if reading == "box" and last_boxed(text) is None:
        return False
    got = grade(text, gold, variant)
    return got.strict if reading == "strict" else got.correct


def _bare(text: str) -> str:
    """A text without white space around it, a full stop behind it, and dollars on both sides."""
    bare = text.strip().removesuffix(".").strip()
    return bare.strip("$").strip() if bare.startswith("$") and bare.endswith("$") else bare


def _boxes_one(text: str) -> bool:
    r"""There is one box, it is closed, holds one answer, and ends the text."""
    box, begins = last_boxed(text), list(_BOX.finditer(text))
    if box is None or len(begins) != 1 or not _one_answer(box):
        return False
    return bool(_CLOSING.fullmatch(text, text.find(box, begins[0].end()) + len(box)))


def _one_answer(piece: str) -> bool:
    """One answer on one line: no box, no calculation, no tags, and not too long."""
    if not 0 < len(piece) <= LONGEST or re.search(r"\n|</?think>|\\f?box", piece):
        return False
    return is_answer(piece) and not any(
        _calculates(part) for part in re.split(r",|\b(?:and|or)\b", levelled(piece))
    )


def _calculates(part: str) -> bool:
    """`3+4=7` and `x=2+3=5` do; `x=5` says what the answer is the value of."""
    left, *right = part.split("=")
    named = re.search("[A-Za-z]", re.sub(r"\\(?:frac|sqrt|times|cdot|pi|binom)", "", left))
    return len(right) > 1 or (len(right) == 1 and not named)


def _thinks(text: str) -> bool:
    opening, closing = "<think>", "</think>"
    if text.count(opening) != 1 or text.count(closing) != 1:
        return False
    before, _, rest = text.partition(opening)
    _, closed, after = rest.partition(closing)
    return bool(closed and after.strip()) and not before.strip()


def _documented_box(text: str) -> str | None:
    r"""What `\\boxed\{(.*?)\}` finds first, by plain search: backtracking would be quadratic."""
    end = 0
    while (start := text.find(r"\boxed{", end)) >= 0:
        content = start + len(r"\boxed{")
        end = text.find("}", content)
        if end < 0:
            return None
        line_break = text.rfind("\n", content, end)
        if line_break < 0:
            return text[content:end]
        end = line_break
    return None
