r"""Whether two answers to a mathematics problem are the same answer.

A label like `\frac{1}{2}` can be met by `0.5`, by `x = 1/2` and by `\boxed{\tfrac12}`. A reward
that compares strings pays one of them; which one, the policy finds out at the price of its
reasoning.
`equivalent` compares what is meant:

1. **The answer is found.** What the last balanced `\boxed{}` holds; without one, what follows "the
   answer is", the last formula, or the text itself. Thoughts are no answer (`reading`), and
   neither is a hedge such as `not 5` or `5 million` (`hedges`).
2. **Notation is levelled**: `\dfrac`, `\left`, `{,}`, `−`, `\text{ cm}` and the like (`notation`).
3. **The answer is taken apart** into lists, sets, tuples and intervals, unions, matrices and what
   an equation says of a name, down to single values, and compared part by part (`comparing`).
4. **Single values** are compared exactly where both are numbers, as words where both are words,
   and by math-verify in a worker process otherwise (`worker.ask`).

Steps 1 to 3 are ours because that is where a computer algebra system has no opinion: whether order
matters, whether `50\%` is `0.5`, whether a unit may be left out. What was decided stands in
`answers.yaml`, with examples on both sides; `POLICIES` are its rules.

A check never raises, never evaluates text as code, and thinks for at most `TIMEOUT` seconds of
processor time, from any thread. What cannot be decided in that time is not equivalent.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from casebook.case import CasebookError
from casebook.cases.math import worker
from casebook.cases.math.comparing import Ask, same_parts, same_value, taken_apart, without_unit
from casebook.cases.math.hedges import is_answer
from casebook.cases.math.notation import (
    BRACE,
    CLOSE,
    LONGEST,
    OPEN,
    ROW,
    is_name,
    level,
    number_of,
    rounds_to,
    split_at,
)
from casebook.cases.math.reading import OPENS_WITH_NOT, answer_of, last_boxed, stated_answer

__all__ = ["POLICIES", "answer_of", "equivalent", "last_boxed", "prepare", "same_answer"]

TIMEOUT = 4.5  # seconds of processor time that a check may take in all
PATIENCE = 60.0  # seconds that a check may wait, for workers to start, to be free, to get on
_REMEMBERED = 50_000  # verdicts; a training asks about the same few answers again and again
ANSWERS = Path(__file__).with_name("answers.yaml")
POLICIES: Mapping[str, str] = yaml.safe_load(ANSWERS.read_text("utf-8"))["rules"]


# The check

_remembered: dict[tuple[str, str], bool] = {}


class _OutOfTime(Exception):
    pass


def equivalent(prediction: str, gold: str) -> bool:
    r"""Whether two answers are the same answer, by `POLICIES`.

    Args:
        prediction, gold: each a bare answer, a formula between dollars, or a whole completion.

    Returns:
        False for anything that is not a string, for no answer, and for what cannot be decided
        within `TIMEOUT` seconds of processor time. The order of the arguments matters: a
        reference is taken at its word, and a prediction's words are looked at.

    Raises:
        CasebookError: math-verify is needed and not installed. No text makes it raise.

    >>> equivalent(r"It is \boxed{x = 0.5}.", r"\frac{1}{2}")
    True
    >>> equivalent("(2, 1)", "(1, 2)")
    False
    """
    if not isinstance(prediction, str) or not isinstance(gold, str):
        return False
    given = "" if OPENS_WITH_NOT.match(prediction) else stated_answer(prediction)
    return is_answer(given) and same_answer(given, gold)


def same_answer(answer: str, gold: str) -> bool:
    """`equivalent` for an answer that `answer_of` has found."""
    meant = stated_answer(gold)
    if not meant.strip() or not answer.strip():
        return False
    if answer == meant:
        return True
    if max(len(answer), len(meant)) > LONGEST:
        return False
    key = meant, answer
    verdict = _remembered.get(key)
    if verdict is None:
        try:
            verdict = _decide(meant, answer)
        except _OutOfTime:
            return False  # not remembered: another time the machine may be less busy
        except (RecursionError, ArithmeticError, ValueError):
            verdict = False  # thousands of signs or brackets
        except worker.Unavailable as error:
            raise CasebookError(f"answers cannot be compared: {error}") from error
        if len(_remembered) >= _REMEMBERED:
            _remembered.clear()
        _remembered[key] = verdict
    return verdict


def prepare(seconds: float = 60.0) -> bool:
    """Start a worker now and wait until it answers, `seconds` at most; whether it does.

    The first check that needs a worker waits for its start, a second on an idle machine. Where
    the machine is busy and a verdict must not depend on that, as before a training, call this.
    """
    try:
        return worker.ask("1", "1", time.monotonic() + seconds) is not None
    except worker.Unavailable as error:
        raise CasebookError(f"answers cannot be compared: {error}") from error


def _decide(gold: str, given: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    budget = worker.Budget(TIMEOUT)
    worker.start()  # it may be needed, if not now then soon

    def ask(one: str, other: str, within: str = "") -> bool:
        if _hopeless(one) or _hopeless(other) or _foreign_words(one, other):
            return False
        one, other = _cased(_for_math_verify(one), _for_math_verify(other))
        answer = worker.ask(one, other, deadline, within, budget)
        if answer is None:
            raise _OutOfTime
        return answer == worker.EQUAL

    meant, said = level(gold), level(given)
    if not meant or not said:
        return False
    if same_value(meant, said, lambda *_: False):
        return True
    forms = _halves(said)
    if len(forms) > 1 and not _approximates(*forms, ask):
        forms = forms[1:]  # as of a chain
    return any(
        same_parts(taken_apart(one), taken_apart(other), ask)
        for one in _halves(meant)
        for other in forms
    )


def _halves(text: str) -> list[str]:
    r"""2\sqrt{3} \approx 3.46 says two things, each of which may be the answer."""
    halves = [half for half in split_at(text, r"\approx") if half and not is_name(half)]
    return halves[:2] if r"\approx" in text and halves else [text]


def _approximates(one: str, other: str, ask: Ask) -> bool:
    r"""Whether both sides of \approx are seen to be about the same."""
    sides = [without_unit(half.split("=")[-1].strip())[0] for half in (one, other)]
    numbers = [number_of(side) for side in sides]
    if all(numbers):
        return rounds_to(*numbers)
    rounded = numbers[0] or numbers[1]
    return bool(rounded) and ask(*sides, f"1e-{rounded[1]}" if rounded[1] else "0.5")


_RUN_OF_LETTERS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{\w+\}(?:\{[lcr|]+\})?")


def _foreign_words(gold: str, given: str) -> bool:
    """Whether an answer has words that the reference has not; math-verify would overlook them."""
    known = _ENVIRONMENT.sub("", gold).lower()
    letters = set(re.sub(r"\\[A-Za-z]+", "", known))
    marked = re.findall(rf"{OPEN}([^{CLOSE}]*)", given)
    if any(word.strip().lower() not in known for word in marked):
        return True
    signs = (r"\ldots", r"\ne ", r"\equiv", "mod", "'")
    if any(sign in given and sign not in gold for sign in signs):
        return True
    runs = _RUN_OF_LETTERS.findall(_FUNCTION.sub("", _ENVIRONMENT.sub("", given)))
    return any(run.lower() not in known and set(run.lower()) - letters for run in runs)


_FUNCTION = re.compile(
    r"(?<![\\A-Za-z])"
    r"(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|pi|sqrt|infty)(?![A-Za-z])"
)


def _for_math_verify(text: str) -> str:
    """LaTeX in the form that math-verify's grammar reads best."""
    text = text.replace(OPEN, r"\text{").replace(CLOSE, "}").replace(ROW, r"\\")
    text = _FUNCTION.sub(r"\\\1 ", text)
    text = re.sub(r"\\sqrt ?\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\sqrt ?(\d+|[A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\^ ?\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"(?<=[\dA-Za-z)}]) ?\* ?(?=[\dA-Za-z(\\])", r"\\cdot ", text)
    return re.sub(r"(\d+(?:\.\d+)?) ?\^\\circ", r"(\1\\cdot\\frac{\\pi}{180})", text)


def _cased(one: str, other: str) -> tuple[str, str]:
    """Both texts with another name for R where an r occurs too: the grammar knows no capitals."""
    tokens = re.findall(r"\\[A-Za-z]+|[A-Za-z]", f"{one} {other}")
    letters = {token for token in tokens if len(token) == 1}
    both = {letter for letter in letters if letter.isupper() and letter.lower() in letters}
    if not both:
        return one, other

    def renamed(match: re.Match) -> str:
        token = match.group()
        return f"{{{token.lower()}_{{99}}}}" if token in both else token

    return tuple(re.sub(r"\\text\{[^{}]*\}|\\[A-Za-z]+|[A-Z]", renamed, s) for s in (one, other))


# What is not worth asking

_LARGEST_EXPONENT = 20_000
_LARGEST_FACTORIAL = 5_000
_BINOMIAL = re.compile(r"\\binom ?\{ ?(\d+) ?\}")
_FACTORIAL = re.compile(r"(\d+) ?[)}]* ?!|([)}!]) ?!")
_POWER = re.compile(r"\^ ?(?:\{|(\d|\\[A-Za-z]+|.))")


def _hopeless(text: str) -> bool:
    """Whether a value is larger than can be computed: power towers, huge factorials.

    Not a proof of anything: what this lets through, the worker's limits stop, only later.
    """
    if re.search(r"\d{400}", text) or text.count("^") > 120:
        return True
    for match in _FACTORIAL.finditer(text):
        if match[2] == "!" or (match[1] and int(match[1]) > _LARGEST_FACTORIAL):
            return True
        if match[2] and "!" in text[: match.start()]:
            return True
    if any(int(above) > _LARGEST_FACTORIAL for above in _BINOMIAL.findall(text)):
        return True
    return any(
        _size(text[match.end() :] if not match[1] else match[1]) for match in _POWER.finditer(text)
    )


def _braced(text: str) -> str:
    """What stands before the brace that closes a group, from inside the group."""
    depth = 1
    for match in BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return text[: match.start()]
    return text


def _size(exponent: str) -> bool:
    """Whether what follows `^{` is a number too large for an exponent."""
    inside = _braced(exponent).strip().lstrip("+-")
    if inside.isdecimal():
        return int(inside) > _LARGEST_EXPONENT
    tower = re.fullmatch(r"(\d+) ?\^ ?\{? ?(\d+) ?\}?", inside)
    if tower:
        base, power = int(tower[1]), int(tower[2])
        return power > 1000 or (base > 1 and base**power > _LARGEST_EXPONENT)
    # A tower above a numeric exponent, or a factorial in it
    higher = any("^" in _braced(inside[match.end() :]) for match in re.finditer(r"\^ ?\{", inside))
    chained = re.search(r"\^ ?\w ?\^", inside)
    return bool(re.search(r"\d", inside)) and bool(higher or chained or "!" in inside)
