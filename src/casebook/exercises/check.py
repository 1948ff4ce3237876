"""The exercises at the end of the notebooks: `check` says whether an attempt is right.

A notebook ends with a task, a function to fill in, and a cell that checks it:

    def is_straight(ranks):
        ...

    check("10-a", is_straight)      # 10-a: not done yet

`check` prints one line and never a traceback for a wrong attempt: "not done yet" while there is
no answer, "right", or which input gave what and what was expected. Solutions stand in
`notebooks/solutions/`; a test runs them.
"""

import importlib
import importlib.util
import math
import reprlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from casebook.case import CasebookError, check_name, known_cases

MANY = 10**12  # more than any question after a number needs

_CHECKS: dict[str, Callable[["Attempt"], None]] = {}  # those of the modules imported so far
_SHORT = reprlib.Repr()  # cuts values to the width of a sentence
_SHORT.maxstring = _SHORT.maxother = 90


def check(name: str, attempt: Any) -> None:
    """Print whether `attempt` solves the exercise called `name`.

    Args:
        name: number of the notebook and a letter, as in `"10-a"`.
        attempt: the function that the exercise asks for.

    Raises:
        UnknownName: there is no such exercise; the message lists those there are.

    >>> check("10-a", lambda ranks: ...)
    10-a: not done yet
    >>> check("10-a", lambda ranks: sorted(ranks)[4] - sorted(ranks)[0] == 4)
    10-a: not right yet: <lambda>([0, 1, 2, 3, 12]) gave False, expected True (2 3 4 5 A)
    """
    known = checks()
    check_name("exercise", name, known)
    try:
        known[name](Attempt(attempt))
    except NotDone:
        print(f"{name}: not done yet")
    except Wrong as wrong:
        print(f"{name}: not right yet: {wrong}")
    else:
        print(f"{name}: right")


def checks() -> dict[str, Callable[["Attempt"], None]]:
    """All exercises: name -> its check, in the order of the notebooks.

    Those of a case stand in its folder, in `exercises.py`; the others in `start.py` beside this.
    """
    for module in ("exercises.start", *(f"cases.{case}.exercises" for case in known_cases())):
        if importlib.util.find_spec(f"casebook.{module}"):
            importlib.import_module(f"casebook.{module}")
    return dict(sorted(_CHECKS.items()))


class NotDone(Exception):
    """The attempt gives nothing so far."""


class Wrong(Exception):
    """The attempt is wrong; the message says where."""


class Attempt:
    """The reader's function, called so that whatever it does becomes a sentence."""

    def __init__(self, function: Any):
        if function is None or function is ...:
            raise NotDone
        self.function = function
        self.name = getattr(function, "__name__", "it")
        self.answered = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns; `None` counts as an answer only after another one."""
        if not callable(self.function):
            raise Wrong(f"give the function itself, not {show(self.function)}")
        try:
            # Copies, because sorting in place must not change what the message shows; but the
            # same generator of random numbers, which has to go on.
            copies = [a if isinstance(a, np.random.Generator) else deepcopy(a) for a in arguments]
            result = self.function(*copies, **deepcopy(named))
        except NotImplementedError:
            raise NotDone from None
        except Exception as error:
            call = self.call(*arguments, **named)
            raise Wrong(f"{call} raised {type(error).__name__}: {str(error)[:160]}") from None
        if (result is None or result is ...) and not self.answered:
            raise NotDone
        self.answered = True
        return result

    def call(self, *arguments: Any, **named: Any) -> str:
        """The call as one would type it."""
        shown = [show(a) for a in arguments] + [f"{k}={show(v)}" for k, v in named.items()]
        return f"{self.name}({', '.join(shown)})"

    def expect(self, expected: Any, *arguments: Any, note: str = "") -> None:
        """Compare one call's result; numbers to a millionth, arrays in shape, too."""
        got = self(*arguments)
        if not same(got, expected):
            note = f" ({note})" if note else ""
            call = self.call(*arguments)
            raise Wrong(f"{call} gave {show(got)}, expected {show(expected)}{note}")


def exercise(name: str) -> Callable[[Callable], Callable]:
    """Register a check: a function of an attempt that calls it and raises where it is wrong."""

    def register(function: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
        if name in _CHECKS:
            raise CasebookError(f"there are two exercises called {name!r}")
        _CHECKS[name] = function
        return function

    return register


# What checks are made of


def expect_text(attempt: Attempt, expected: str | None, *arguments: Any, note: str) -> None:
    """Compare one call's result with a text, letter by letter."""
    got = attempt(*arguments)
    if not isinstance(got, str | None) or got != expected:
        call = attempt.call(*arguments)
        raise Wrong(f"{call} gave {show(got)}, expected {show(expected)} ({note})")


def numbers(attempt: Attempt, *arguments: Any, shape: tuple[int, ...]) -> Any:
    """What an attempt returns, if it is an array of finite numbers of this shape."""
    got = attempt(*arguments)
    try:
        array = np.asarray(got, dtype=float)
    except (TypeError, ValueError):
        raise Wrong(f"{attempt.name} gave {show(got)}, expected numbers") from None
    if array.shape != shape:
        raise Wrong(f"{attempt.name} gave shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise Wrong(f"{attempt.name} gave numbers that are not finite: {show(array.tolist())}")
    return array.tolist()


def close(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Compare advantages, loosely: everyone adds another epsilon to the deviation."""
    if not np.allclose(got, expected, rtol=1e-3, atol=1e-3):
        row = int(np.abs(got - expected).max(axis=1).argmax())
        raise Wrong(
            f"{what} {show(expected[row].round(2).tolist())}, not "
            f"{show(got[row].round(2).tolist())} (group {row})"
        )


def same(got: Any, expected: Any) -> bool:
    """Whether two results are equal, numbers to a millionth."""
    if expected is None:
        return got is None
    if isinstance(expected, bool):
        return isinstance(got, bool | np.bool_) and bool(got) == expected
    try:
        got, expected = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return False
    return got.shape == expected.shape and bool(np.allclose(got, expected, rtol=1e-6, atol=1e-9))


def is_whole(value: Any) -> bool:
    try:
        return math.isfinite(value) and int(value) == value
    except (TypeError, ValueError, OverflowError):
        return False


def show(value: Any) -> str:
    """A value in the width of a sentence."""
    if isinstance(value, np.random.Generator):
        return "rng"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    try:
        return _SHORT.repr(value)
    except Exception:  # an object whose repr is broken
        return f"an object of type {type(value).__name__}"
