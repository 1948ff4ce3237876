"""Word problems of our own in GSM8K's form, for a model that a laptop can train.

The real problems need a language model; GRPO can be learned without one. A *frame* is a short
story with gaps for names, a thing and one to four numbers, and the one to three operations that
solve it. Numbers are drawn until every step is a whole number that the embedded model has a token
for, so each problem comes with its solution: calculator notes, and the answer after `####`.

Two problems with the same frame and the same numbers ask the same, whoever is in them. So frame
and numbers alone decide the split. Nothing here was taken from GSM8K: wherever these problems
appear they are called generated.
"""

import hashlib
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from casebook.case import SPLITS

SMALLEST, LARGEST = 2, 24  # of all numbers in a problem and its solution
SMALL = 9  # each sum has one number up to this
STEP_SHARES = {1: 0.25, 2: 0.45, 3: 0.30}  # of the problems, by the operations they take
SPLIT_SHARES = {"test": 0.25, "validation": 0.1, "train": 0.65}  # of all frames with numbers
DISTRACTED = 0.2  # of the problems hold a number that has nothing to do with the answer

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon", "Kira", "Leo")
THINGS = ("apples", "beads", "books", "cards", "coins", "eggs", "pens", "shells", "stamps", "toys")
DISTRACTIONS = (
    "The shop is {x} years old.",  # of no person: a story may tell ages
    "The shop opens in {x} minutes.",
    "It is {x} miles to the park.",
)
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
# How a solution introduces the result of each operation.
SAID = {"+": "Together that is", "-": "What is left is", "*": "That makes", "/": "Shared out it is"}


class Step(NamedTuple):
    """One operation of a solution."""

    left: int
    operation: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}={self.result}"


@dataclass(frozen=True)
class Frame:
    """A story with gaps: `{name}`, `{other}`, `{things}` and the numbers `{a}` to `{d}`."""

    text: str  # the story, then its question
    # Its operations, with blanks between them. An operand is a number's gap, a number, `#` for the
    # result before, or `#1` for that of the first step.
    plan: str
    unit: str  # what is counted in the end
    high: str  # the gaps that hold 8 to 24; the others hold 2 to 9

    @cached_property
    def gaps(self) -> tuple[str, ...]:
        """The gaps for numbers, in alphabetical order."""
        return tuple(sorted(set(re.findall(r"\{([a-d])\}", self.text))))

    @cached_property
    def operations(self) -> tuple[tuple[str, str, str], ...]:
        """The plan as (left, operation, right)."""
        parts = (re.fullmatch(r"(\S+)([-+*/])(\S+)", part) for part in self.plan.split())
        return tuple(part.groups() for part in parts)

    @cached_property
    def told(self) -> re.Pattern:
        """What its problems look like, with a distraction before the question or without."""
        story, question = (
            re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(part)) for part in self.text.rsplit(". ", 1)
        )
        return re.compile(rf"{story}\. (?:.+\. )?{question}")

    def solve(self, numbers: Mapping[str, int]) -> tuple[Step, ...] | None:
        """The steps with these numbers, or `None` where one of them is not fit (see `fits`)."""
        steps: list[Step] = []
        for left, sign, right in self.operations:
            a, b = (
                steps[int(text[1:] or 0) - 1].result
                if text.startswith("#")
                else numbers.get(text) or int(text)
                for text in (left, right)
            )
            if sign == "/" and a % b:
                return None
            step = Step(a, sign, b, OPERATIONS[sign](a, b))
            if not fits(step):
                return None
            steps.append(step)
        return tuple(steps)


def fits(step: Step) -> bool:
    """Whether a step is one that the corpus teaches: one of two small numbers, none above 24.

    The embedded model learns its sums by heart, so there must not be too many: about five hundred.

    >>> fits(Step(3, "*", 7, 21)), fits(Step(21, "+", 8, 29)), fits(Step(11, "+", 12, 23))
    (True, False, False)
    """
    numbers = (step.left, step.right, step.result)
    if min(numbers) < SMALLEST or max(numbers) > LARGEST:
        return False
    # What is taken away may be large where little is left: that is an addition read backwards.
    pair = (step.right, step.result) if step.operation == "-" else (step.left, step.right)
    return min(pair) <= SMALL


# Each story under its plan, its unit and its high gaps. First those of one operation, then of two
# and of three; of both, first those whose last operation adds or multiplies.
STORIES = """
a+b | {things} | a
{name} has {a} {things} and gets {b} more. How many {things} are there now?

a-b | {things} | a
{name} had {a} {things} and gave {b} to {other}. How many {things} are left?

a*b | {things} | -
{name} buys {a} boxes with {b} {things} in each. How many {things} are there?

a/b | {things} | a
{name} shares {a} {things} among {b} friends. How many {things} does each friend get?

a*b | {things} | -
{name} has {a} {things}. {other} has {b} times as many. How many {things} does {other} have?

a+b | pages | a
{name} reads {a} pages on Monday and {b} on Tuesday. How many pages is that?

a+b a+# | {things} | -
{name} has {a} {things}. {other} has {b} more. How many {things} do both have together?

a-b #+c | people | a
A bus has {a} people. {b} get off and {c} get on. How many people are on the bus?

a*b #+c | dollars | -
{name} buys {a} {things} for {b} dollars each and a bag for {c} dollars. How many dollars does
{name} pay?

a/b #*c | dollars | a
{name} puts {a} {things} into bags of {b} and sells each bag for {c} dollars. How many dollars
does {name} get?

b+c #*a | dollars | -
{name} earns {a} dollars an hour and works {b} hours on Monday and {c} on Tuesday. How many
dollars is that?

a*2 #+b | years | -
{name} is {a} years old. {other} is twice as old. How many years old is {other} in {b} years?

a*b #-c | {things} | -
{name} buys {a} boxes of {b} {things} and gives {c} {things} to {other}. How many {things} are
left?

a+b #/c | {things} | a
{name} had {a} {things} and found {b} more. Now {c} friends share them. How many {things} does
each friend get?

b*c a-# | pages | a
A book has {a} pages. {name} reads {b} pages a day for {c} days. How many pages are left?

a*b #/c | boxes | -
{name} bakes {a} trays of {b} cookies and packs them into boxes of {c}. How many boxes are there?

a/2 #-b | {things} | a
{name} had {a} {things}, lost half of them and sold {b}. How many {things} are left?

a*b c*d #1+# | {things} | -
{name} buys {a} boxes of {b} {things} and {c} bags of {d} {things}. How many {things} are there?

a*b #+c #*2 | chairs | -
A hall has {a} rows of {b} chairs. {name} brings {c} more, then twice as many are set up. How many
chairs are there?

a*2 #+b #+a | years | -
{name} is {a}. {other} is twice as old, and the teacher {b} years older than {other}. How many
years are {name} and the teacher together?

a*b #-c #/2 | dollars | -
{name} works {a} hours for {b} dollars each, spends {c} and shares the rest with {other}. How many
dollars does each get?

a+b a+# #-c | {things} | -
{name} has {a} {things}. {other} has {b} more. Together they give away {c}. How many {things} are
left?

a*b #-c #/d | bags | -
{name} picks {a} pears a day for {b} days, eats {c} and packs the rest into bags of {d}. How many
bags are there?

a+b #/2 #-c | {things} | a
{name} had {a} {things} and found {b} more. Then {name} gave half to {other} and lost {c}. How
many {things} are left?
"""


def _read(story: str) -> Frame:
    head, text = story.strip().split("\n", 1)
    plan, unit, high = head.split(" | ")
    return Frame(text.replace("\n", " "), plan, unit, high)


FRAMES = tuple(_read(story) for story in STORIES.strip().split("\n\n"))


@dataclass(frozen=True)
class Problem:
    """A word problem with its solution: what a row of GSM8K holds, and how it was made."""

    frame: int  # position in `FRAMES`
    numbers: tuple[int, ...]  # what stands in the frame's gaps, in alphabetical order
    question: str
    steps: tuple[Step, ...]
    unit: str  # what is counted, as one word

    @property
    def answer(self) -> str:
        """The answer, in digits."""
        return str(self.steps[-1].result)

    @property
    def solution(self) -> str:
        """The worked answer in GSM8K's form: a calculator note a line, the answer after `####`."""
        lines = [
            f"{SAID[step.operation]} {str(step).partition('=')[0]}=<<{step}>>{step.result}."
            for step in self.steps
        ]
        return "\n".join([*lines, f"#### {self.answer}"])


def frame_of(question: str) -> int | None:
    """The position in `FRAMES` of the story that a question tells; `None` where it tells another.

    >>> story, question = "Ada has 9 pens and gets 4 more.", "How many pens are there now?"
    >>> frame_of(f"{story} {question}"), frame_of(f"{story} The shop is 3 years old. {question}")
    (0, 0)
    """
    return next((i for i, frame in enumerate(FRAMES) if frame.told.fullmatch(question)), None)


def split_of(frame: int, numbers: tuple[int, ...]) -> str:
    """The split to which a frame with these numbers belongs, whatever names stand in it."""
    place = digest(f"{FRAMES[frame].text}|{numbers}")
    for split, share in SPLIT_SHARES.items():
        if place < share:
            return split
        place -= share
    return "train"


def digest(text: str) -> float:
    """A number from 0 to 1 that a text always has, and that says nothing about it."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64


def draw(rng: np.random.Generator, split: str = "train") -> Problem:
    """A random problem of a split."""
    wanted = int(rng.choice(list(STEP_SHARES), p=list(STEP_SHARES.values())))
    frames = [i for i, frame in enumerate(FRAMES) if len(frame.operations) == wanted]
    frame = frames[int(rng.integers(len(frames)))]
    pool = _pools(frame)[split]
    numbers, told = pool[int(rng.integers(len(pool)))], FRAMES[frame]
    gaps = dict(zip(told.gaps, numbers, strict=True))
    name, other = (str(chosen) for chosen in rng.choice(NAMES, 2, replace=False))
    words = {"name": name, "other": other, "things": str(rng.choice(THINGS))}
    text = told.text
    if rng.random() < DISTRACTED:
        story, question = text.rsplit(". ", 1)
        text = f"{story}. {rng.choice(DISTRACTIONS)} {question}"
        words["x"] = str(rng.integers(SMALLEST, LARGEST + 1))
    question = text.format(**words, **gaps)
    return Problem(frame, numbers, question, told.solve(gaps), told.unit.format(**words))


@cache
def _pools(frame: int) -> dict[str, list[tuple[int, ...]]]:
    """Split -> all numbers with which a frame makes a problem of that split."""
    told = FRAMES[frame]
    high, low = range(SMALL - 1, LARGEST + 1), range(SMALLEST, SMALL + 1)
    pools: dict[str, list[tuple[int, ...]]] = {split: [] for split in SPLITS}
    for numbers in product(*(high if gap in told.high else low for gap in told.gaps)):
        steps = told.solve(dict(zip(told.gaps, numbers, strict=True)))
        if not steps:
            continue
        # A wrong way has to show: the answer is no number of the question or of a step before,
        # and not 2 * 2, which is 2 + 2 as well.
        *before, last = (step.result for step in steps)
        if last not in (*numbers, *before) and steps[-1][:3] != (2, "*", 2):
            pools[split_of(frame, numbers)].append(numbers)
    return pools
