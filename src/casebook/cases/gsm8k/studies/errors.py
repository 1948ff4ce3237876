"""What is wrong with a completion: a taxonomy that a program can apply to every transcript.

A table says how many answers are wrong, not why. Why matters here, because most of what RL
changes may be how an answer is dressed. So a completion is read twice, and the two readings are
kept apart:

- its *form*: is it what the prompt asks for, and if not, is the answer dressed ("17 pens"), are
  the tags broken, or are there none;
- its *content*: every equation of the working is found and computed again. Where the answer is
  wrong, the first of `CONTENTS` that applies names the fault.

A taxonomy by rules is cheap, repeatable and blind to prose. It reads arithmetic, and algebra in
one unknown; a mistake in words alone it calls a guess. Someone who takes another right road and
stops short of the end is called a wrong operation. How well it does can be measured: completions
of the embedded model show which way they were planted, and what it finds in real solutions that
were broken on purpose is kept in `results/gsm8k/data/baseline.json`.
"""

import ast
import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from casebook.cases.gsm8k import rewards
from casebook.cases.gsm8k.rewards import TAGS, WHOLE_TAGS
from casebook.rewards import completion_text, tag_blocks

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
LONGEST = 20_000  # characters that are read; no completion of this case is near it
LONGEST_SIDE = 100  # characters of a side of an equation
UNKNOWNS = ("x", "y", "z", "n")
OPERATIONS = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Div: operator.truediv, ast.USub: operator.neg, ast.UAdd: operator.pos},
}
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)|(?P<sign>[-+*/()=%])"
    r"|(?P<word>[^\W\d_]+)|(?P<space>[ \t$€£]+)|(?P<other>.)",
    re.DOTALL,
)
LOST = "?"  # where an expression lost its beginning, so that it is not read


class Equation(NamedTuple):
    """One equation of a text."""

    text: str  # without currency and units
    stated: Fraction  # what stands on its right side
    holds: bool  # whether the sides agree, as far as the decimals that are shown
    unknown: str = ""  # the letter it has


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
    return "broken tags" if any(tag in text for tag in WHOLE_TAGS) else "no tags"


def content(completion: Any, answer: str, solution: str) -> str:
    """Which of `CONTENTS` a completion has: right, or why not, by the equations of `solution`.

    >>> solution = "He buys 3*4=<<3*4=12>>12 pens and has 12+5=<<12+5=17>>17. #### 17"
    >>> content("<reasoning>3*4=13\\n13+5=18</reasoning><answer>18</answer>", "17", solution)
    'arithmetic slip'
    >>> content("<reasoning>3*4=12</reasoning><answer>12</answer>", "17", solution)
    'dropped step'
    """
    text = completion_text(completion)
    grade = rewards.grade(text, answer)
    said = None if grade.answer is None else Fraction(grade.answer)
    working = equations(text, said)
    reached = {said if equation.unknown else equation.stated for equation in working}
    sound = all(equation.holds for equation in working)
    if grade.correct:
        return "right" if sound and said in reached else "right, not by its working"
    if said is None:
        return "no answer"
    if not sound:
        return "arithmetic slip"
    if not working:
        return "guess"
    right = rewards.extract_number(answer)
    if right is not None and Fraction(right) in reached:
        return "not its own result"
    known = {equation.stated for equation in equations(solution)}
    return "dropped step" if reached <= known else "wrong operation"


def equations(text: Any, said: Fraction | None = None) -> list[Equation]:
    """The equations of a text, each computed again, in time linear in its length.

    Read are sums, differences, products, quotients and brackets of numbers that equal a number,
    also in chains (`20 * 1.3 = 26`), with currency, per cent and a word for the unit after a
    number; `x` between numbers multiplies. What cannot be read is left out. A stated decimal may
    be rounded at its last place, a whole number may not. `said`, the answer of the text, takes the
    place of an unknown letter.

    >>> [(e.text, e.holds) for e in equations("8.50 * 8 = $68, and 68 x 20 = 1,350 a month")]
    [('8.50*8=68', True), ('68*20=1350', False)]
    >>> equations("0.10x + 20(x + 1) = 80", Fraction(3))[0].holds
    False
    """
    runs = _runs(completion_text(text)[:LONGEST].translate(_SIGNS))
    pairs = [pair for run in runs for pair in pairwise(run.split("="))]
    found = (_equation(left, right, said) for left, right in pairs)
    return [equation for equation in found if equation is not None]


def _runs(text: str) -> list[str]:
    """The stretches of a text that may be equations, without blanks, currency and units."""
    tokens = [(found.lastgroup, found[0]) for found in _TOKEN.finditer(text)]
    tokens = [token for token in tokens if token[0] != "space"]
    runs = [""]
    for before, (kind, piece), after in zip(
        [("", ""), *tokens], tokens, [*tokens[1:], ("", "")], strict=False
    ):
        ends = before[0] == "number" or before[1] in (")", "%")
        unit = before[0] == "number" and after[0] == "sign" and after[1] != "("
        if kind == "number":
            runs[-1] += " " * (before[0] == "number") + piece.replace(",", "")  # 1 1/2 is left out
        elif kind == "sign":
            lost = not runs[-1] and before[0] == "word" and piece in "+-*/"  # ripe plums - 3 = 7
            runs[-1] += LOST * lost + piece
        elif piece in "xX" and ends and (after[0] == "number" or after[1] == "("):
            runs[-1] += "*"
        elif piece in UNKNOWNS and before[1] not in ("'", "’"):
            runs[-1] += piece
        elif kind != "word" or not unit or len(piece) == 1:  # else 4 boxes * 3 = 12
            runs.append(LOST if before[1] in ("+", "-", "*", "/") else "")
    return [run for run in runs if "=" in run]


def _equation(left: str, right: str, said: Fraction | None) -> Equation | None:
    """Left side = right side, or the number that the right side begins with.

    "16 - 9 = 7 * 2 = 14" says that 16 - 9 is 7, and then goes on.
    """
    letters = {piece for piece in left + right if piece in UNKNOWNS}
    works = re.search(r".[-+*/]|[xyzn].|.[xyzn]", left)
    if not works or not right or len(letters) > 1 or (letters and said is None):
        return None
    values = _values(left, said) + (_values(left[1:], said) if left[0] == "-" else [])  # a list
    shown = re.match(r"-?[\d.]+(?![\d. ])", right)
    first = _values(shown[0], said) if shown else []
    goals = [(goal, shown[0]) for goal in first] + [(goal, "") for goal in _values(right, said)]
    if not values or not goals:
        return None
    reached = []
    for goal, text in goals:
        places = len(text.partition(".")[2])  # a decimal may be rounded there
        far = Fraction(1, 2 * 10**places) if places else 0
        reached += [goal for value in values if abs(value - goal) <= far]
    stated = [*reached, goals[0][0]][0]
    return Equation(f"{left}={right}", stated, bool(reached), "".join(letters))


def _values(side: str, unknown: Fraction | None) -> list[Fraction]:
    """What a side may be worth: nothing where it cannot be read, two values if it has per cent."""
    if len(side) > LONGEST_SIDE:
        return []
    product = re.sub(r"(?<=[\d)%])(?=[(xyzn])", "*", side)  # 20(x + 1), 0.10x
    found = []
    for percent in ("/100 ", " ") if "%" in side else ("",):
        try:
            tree = ast.parse(product.replace("%", percent), mode="eval")
            found.append(_worth(tree.body, unknown))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
            continue
    return found


def _worth(node: ast.expr, unknown: Fraction | None) -> Fraction:
    """The value of a parsed expression; `KeyError` or `ValueError` for what is no arithmetic."""
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if isinstance(node, ast.Name) and unknown is not None:
        return unknown
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](_worth(node.operand, unknown))
    if isinstance(node, ast.BinOp):
        sides = _worth(node.left, unknown), _worth(node.right, unknown)
        return OPERATIONS[type(node.op)](*sides)
    raise ValueError("no arithmetic")
