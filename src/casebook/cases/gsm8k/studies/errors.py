"""What is wrong with a completion: a taxonomy that a program can apply to every transcript.

A table says how many answers are wrong, not why. Why matters here, because most of what RL
changes may be how an answer is dressed. So a completion is read twice, and the two readings are
kept apart:

- its *form*: is it what the prompt asks for, and if not, is the answer dressed ("17 pens"), are
  the tags broken, or are there none;
- its *content*: every equation of the working is found and computed again. Where the answer is
  wrong, the first of these that applies names the fault: no answer, an arithmetic slip, a guess
  without any working, an answer that is not the one the working reaches, a wrong operation (a
  correct equation whose result the solution does not have), a dropped step.

A taxonomy by rules is cheap, repeatable and blind to prose. It reads arithmetic, and algebra in
one unknown; a mistake in words alone it calls a guess. Someone who takes another right road and
stops short of the end is called a wrong operation. How well it does can be measured: completions
of the embedded model show which way they were planted, and solutions can be broken on purpose.

No text is evaluated as code, and the time is linear in its length.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from casebook.case import check_name
from casebook.cases.gsm8k import rewards
from casebook.cases.gsm8k.rewards import TAGS
from casebook.rewards import completion_text, tag_blocks
from casebook.stats import mean_interval

FORMS: Mapping[str, str] = {
    "as asked": "both blocks, and one plain number for an answer",
    "dressed answer": "both blocks, but the answer is more than a number, or none",
    "broken tags": "some of the tags, or too many, or text outside of them",
    "no tags": "none of the tags",
}
CONTENTS: Mapping[str, str] = {
    "right": "the answer is right, and an equation of the working has it for a result",
    "right, not by its working": "the answer is right, but no correct working leads to it",
    "no answer": "no number can be read as the answer",
    "arithmetic slip": "an equation is false, or the answer does not solve it",
    "guess": "there is no equation at all",
    "not its own result": "the working reaches the right number, the answer is another",
    "wrong operation": "an equation is correct, but its result is none of the solution's",
    "dropped step": "all results are the solution's, and some are missing",
}
MADE = ("arithmetic slip", "wrong operation", "dropped step")  # what `break_solution` can make
LONGEST = 20_000  # characters that are read; no completion of this case is near it
MOST_TOKENS = 64  # of one expression
TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"|(?P<sign>[-+*/()×÷−–·=])|(?P<percent>%)|(?P<word>[^\W\d_]+)|(?P<space>[ \t$€£]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
UNKNOWNS = ("x", "y", "z", "n")
OPERATORS = "+-*/×÷−–·"
FRAGMENT = ("fragment", "")  # where an expression lost its beginning, so that it is not read
SAME_SIGN = {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"}


@dataclass(frozen=True)
class Equation:
    """One equation of a text, as written and as computed.

    Attributes:
        text: the equation, without currency and units.
        value: of its left side; `None` where it has an unknown.
        stated: what stands on its right side.
        holds: whether the two agree, as far as the decimals that are shown.
        unknown: the letter it has, or "".
    """

    text: str
    value: Fraction | None
    stated: Fraction
    holds: bool
    unknown: str = ""


def form(completion: Any) -> str:
    """Which of `FORMS` a completion has.

    >>> form("<reasoning>3*4=12</reasoning><answer>12 pens</answer>")
    'dressed answer'
    """
    text = completion_text(completion)
    if rewards.grade(text, "").well_formed:
        return "as asked"
    if tag_blocks(text, TAGS) is not None:
        return "dressed answer"
    return "broken tags" if any(mark in text for mark in _marks()) else "no tags"


def content(completion: Any, answer: str, solution: str) -> str:
    """Which of `CONTENTS` a completion has: right, or why not.

    Args:
        completion: what the model wrote.
        answer: the right one.
        solution: a worked solution, with its equations; of GSM8K or a generated one.

    >>> solution = "He buys 3*4=<<3*4=12>>12 pens and has 12+5=<<12+5=17>>17. #### 17"
    >>> content("<reasoning>3*4=13\\n13+5=18</reasoning><answer>18</answer>", "17", solution)
    'arithmetic slip'
    >>> content("<reasoning>3*4=12</reasoning><answer>12</answer>", "17", solution)
    'dropped step'
    """
    text = completion_text(completion)
    grade = rewards.grade(text, answer)
    said = _fraction(grade.answer)
    working = equations(text, said)
    reached = {said if equation.unknown else equation.stated for equation in working}
    sound = all(equation.holds for equation in working)
    if grade.correct:
        own = sound and said in reached
        return "right" if own else "right, not by its working"
    if said is None:
        return "no answer"
    if not sound:
        return "arithmetic slip"
    if not working:
        return "guess"
    if _fraction(answer) in reached:
        return "not its own result"
    known = {equation.stated for equation in equations(solution)}
    return "dropped step" if reached <= known else "wrong operation"


def equations(text: Any, said: Fraction | None = None) -> list[Equation]:
    """The equations of a text, each computed again.

    Read are sums, differences, products, quotients and brackets of numbers that equal a number,
    also in chains (`20 * 1.3 = 26`), with currency, per cent and a word for the unit after a
    number; `x` between numbers multiplies. An expression with one unknown letter is read where
    `said` is given: the text's own answer is put in for it. What cannot be read is left out.

    A stated decimal may be rounded at its last place, a whole number may not; where a per cent
    sign stands, either reading of it may hold.

    Args:
        text: of a completion or a solution.
        said: the answer of the text, which takes the place of its unknown.

    >>> [(e.text, e.holds) for e in equations("8.50 * 8 = $68, and 68 x 20 = 1,350 a month")]
    [('8.50*8=68', True), ('68*20=1350', False)]
    >>> equations("0.10x + 20(x + 1) = 80", Fraction(3))[0].holds
    False
    """
    found = []
    for run in _runs(completion_text(text)[:LONGEST]):
        sides = _sides(run)
        for left, right in pairwise(sides):
            equation = _equation(left, right, said)
            if equation is not None:
                found.append(equation)
    return found


def break_solution(solution: str, fault: str) -> str | None:
    """A completion whose working is a solution's, with its last step broken on purpose.

    The equations are those of the calculator notes. "arithmetic slip" makes the last result wrong
    by one, "wrong operation" takes another operation there, "dropped step" leaves it out; the
    answer is what the working then ends with. So the taxonomy can be tested: it knows no more of
    what was done than of a model's completion.

    Returns:
        The completion, in the form that is asked for; `None` where the solution has no such step.

    Raises:
        UnknownName: a fault that cannot be made.

    >>> break_solution("<<3*4=12>>12, <<12+5=17>>17 #### 17", "dropped step")
    '<reasoning>\\n3*4=12\\n</reasoning>\\n<answer>\\n12\\n</answer>'
    """
    check_name("fault", fault, MADE)
    notes = re.findall(r"<<([^<>=]*)=([^<>=]*)>>", solution)
    steps = [f"{left}={right}" for left, right in notes]
    last = equations(steps[-1]) if steps else []
    if not last:
        return None
    if fault == "dropped step":
        steps = steps[:-1]
        if not steps:
            return None
        answer = notes[-2][1]
    elif fault == "arithmetic slip":
        answer = _shown(last[0].stated + 1)
        steps[-1] = f"{notes[-1][0]}={answer}"
    else:
        parts = re.fullmatch(r"([\d.]+)([-+*/])([\d.]+)", notes[-1][0])
        if not parts:
            return None
        one, other = Fraction(parts[1]), Fraction(parts[3])
        sign, value = ("-", one - other) if parts[2] == "+" else ("+", one + other)
        answer = _shown(value)
        steps[-1] = f"{parts[1]}{sign}{parts[3]}={answer}"
    working = "\n".join(steps)
    return f"<reasoning>\n{working}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def probe(solutions: Sequence[str]) -> dict[str, Any]:
    """The taxonomy put to the test: solutions as they are, and broken on purpose.

    Args:
        solutions: worked solutions with calculator notes, and the answer behind `####`.

    Returns:
        `equations` and `false` (how many are read, and how many of them do not hold), and under
        `found`: fault of `MADE` -> the share of the solutions broken so that are called so.
    """
    read = [equation for solution in solutions for equation in equations(solution)]
    found = {}
    for fault in MADE:
        pairs = [(break_solution(solution, fault), solution) for solution in solutions]
        hits = [
            content(completion, solution.rpartition("####")[2].strip(), solution) == fault
            for completion, solution in pairs
            if completion is not None
        ]
        found[fault] = mean_interval(hits) if hits else None
    return {
        "equations": len(read),
        "false": sum(not equation.holds for equation in read),
        "found": found,
    }


def _shown(value: Fraction) -> str:
    """Digits that a completion would have."""
    return f"{float(value):.6f}".rstrip("0").rstrip(".")


def _fraction(text: str | None) -> Fraction | None:
    """A number as it is, unless it is absurdly large or none at all."""
    number = rewards.extract_number(text)
    if number is None or not number.is_finite() or abs(number.adjusted()) > 30:
        return None
    return Fraction(number)


def _marks() -> list[str]:
    return [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]


def _runs(text: str) -> list[list[tuple[str, str]]]:
    """The stretches of a text that may be equations, as (kind, text) tokens."""
    tokens = [(m.lastgroup or "", m.group()) for m in TOKEN.finditer(text)]
    tokens = [token for token in tokens if token[0] != "space"]
    runs: list[list[tuple[str, str]]] = [[]]
    for i, (kind, piece) in enumerate(tokens):
        before = tokens[i - 1] if i else ("", "")
        after = tokens[i + 1] if i + 1 < len(tokens) else ("", "")
        unit = before[0] == "number" and after[0] == "sign" and after[1] != "("
        if kind == "number":
            runs[-1].append((kind, piece.replace(",", "")))
        elif kind in ("sign", "percent"):
            if not runs[-1] and before[0] == "word" and piece in OPERATORS:
                runs[-1].append(FRAGMENT)  # 10 ripe plums - 3 = 7
            runs[-1].append((kind, SAME_SIGN.get(piece, piece)))
        elif piece in "xX" and _ends_factor(before) and _begins_factor(after):
            runs[-1].append(("sign", "*"))
        elif piece in UNKNOWNS and before[1] not in "'’":
            runs[-1].append(("word", piece))
        elif kind == "word" and unit and len(piece) > 1:
            continue  # 4 boxes * 3 = 12; but in 2T + 14 = 44 the letter is another unknown
        else:
            runs.append([FRAGMENT] if before[1] in OPERATORS and before[1] else [])
    return [run for run in runs if ("sign", "=") in run]


def _sides(run: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    sides: list[list[tuple[str, str]]] = [[]]
    for token in run:
        if token == ("sign", "="):
            sides.append([])
        else:
            sides[-1].append(token)
    return sides


def _ends_factor(token: tuple[str, str]) -> bool:
    return token[0] in ("number", "percent") or token[1] == ")"


def _begins_factor(token: tuple[str, str]) -> bool:
    return token[0] == "number" or token[1] == "("


def _equation(left: list, right: list, said: Fraction | None) -> Equation | None:
    """Left side = right side, or the number that the right side begins with.

    "16 - 9 = 7 * 2 = 14" says that 16 - 9 is 7, and then goes on.
    """
    letters = {piece for kind, piece in (*left, *right) if kind == "word"}
    works = any(piece in ("+", "-", "*", "/") for kind, piece in left[1:] if kind == "sign")
    works |= len(left) > 1 and any(kind == "word" for kind, _ in left)
    long = max(len(left), len(right)) > MOST_TOKENS
    if not works or not right or long or len(letters) > 1 or (letters and said is None):
        return None
    known = dict.fromkeys(letters, said)
    values = _values(left, known)
    if left[0] == ("sign", "-"):  # perhaps the dash of a list
        values += _values(left[1:], known)
    signed = 2 if right[0] == ("sign", "-") and len(right) > 1 else 1
    shown = "".join(piece for _, piece in right[:signed])
    alone = [kind for kind, _ in right[signed - 1 : signed + 1]] != ["number", "number"]  # 1 1/2
    first = _values(right[:signed], {}) if alone and right[signed - 1][0] == "number" else []
    goals = [(goal, shown) for goal in first]
    goals += [(goal, "") for goal in _values(right, known)]
    if not values or not goals:
        return None
    reached = [goal for goal, shown in goals if any(_agree(v, goal, shown) for v in values)]
    text = "=".join("".join(piece for _, piece in side) for side in (left, right))
    unknown = "".join(letters)
    value = None if unknown else values[0]
    return Equation(text, value, [*reached, goals[0][0]][0], bool(reached), unknown)


def _agree(value: Fraction, stated: Fraction, shown: str) -> bool:
    places = len(shown.partition(".")[2])
    return abs(value - stated) <= (Fraction(1, 2 * 10**places) if places else 0)


def _values(tokens: list[tuple[str, str]], unknowns: Mapping[str, Fraction | None]) -> list:
    """What an expression may be worth: one value, or two where it has a per cent sign."""
    found = []
    for hundredth in (True, False) if ("percent", "%") in tokens else (True,):
        reader = _Reader(tokens, unknowns, hundredth)
        try:
            value = reader.total()
        except (ValueError, ZeroDivisionError):
            continue
        if reader.done:
            found.append(value)
    return found


class _Reader:
    """Sums of products of factors, by recursive descent; `ValueError` for what is none."""

    def __init__(self, tokens: list, unknowns: Mapping[str, Fraction | None], hundredth: bool):
        self._tokens, self._at = tokens, 0
        self._unknowns, self._hundredth = unknowns, hundredth

    @property
    def done(self) -> bool:
        return self._at == len(self._tokens)

    def total(self) -> Fraction:
        value = self._product()
        while self._next() in ("+", "-"):
            plus = self._take() == "+"
            term = self._product()
            value = value + term if plus else value - term
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while not self.done:
            if self._next() in ("*", "/"):
                times = self._take() == "*"
                factor = self._factor()
                value = value * factor if times else value / factor
            elif self._next() == "(" or self._kind() == "word":  # 20(x + 1), 0.10x
                value *= self._factor()
            else:
                break
        return value

    def _factor(self) -> Fraction:
        kind, piece = self._kind(), self._take()
        if piece == "-":
            return -self._factor()
        if piece == "(":
            value = self.total()
            if self._take() != ")":
                raise ValueError("a bracket is not closed")
        elif kind == "number" and len(piece) <= 30:
            value = Fraction(piece)
        elif kind == "word" and self._unknowns.get(piece) is not None:
            value = self._unknowns[piece]
        else:
            raise ValueError(f"no factor: {piece!r}")
        while self._kind() == "percent":
            self._take()
            value = value / 100 if self._hundredth else value
        return value

    def _kind(self) -> str:
        return "" if self.done else self._tokens[self._at][0]

    def _next(self) -> str:
        return "" if self.done else self._tokens[self._at][1]

    def _take(self) -> str:
        piece = self._next()
        self._at += 1
        return piece
