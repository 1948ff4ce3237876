"""The exercises at the end of the notebooks: `check` says whether an attempt is right.

It prints one line and never a traceback for a wrong attempt: "not done yet" while there is no
answer, "right", or which input gave what and what was expected. Solutions stand in
`notebooks/solutions/`.
"""

import importlib
import reprlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from casebook.case import check_name, known_cases

_CHECKS: dict[str, Callable[["Attempt"], None]] = {}  # those of the modules imported so far
_SHORT = reprlib.Repr()  # cuts values to the width of a sentence
_SHORT.maxstring = _SHORT.maxother = 90


def check(name: str, attempt: Any) -> None:
    """Print whether `attempt` solves the exercise called `name`.

    Args:
        name: number of the notebook and a letter, as in `"12-a"`.
        attempt: the function that the exercise asks for.

    Raises:
        UnknownName: there is no such exercise; the message lists those there are.

    >>> check("12-a", lambda answers, weights: ...)
    12-a: not done yet
    >>> check("12-a", lambda answers, weights: 2.0)
    12-a: not right yet: it gave 2, expected a label and its mean reward
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
    """All exercises, those of the cases and those below: name -> its check."""
    for case in known_cases():
        importlib.import_module(f"casebook.cases.{case}.exercises")
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
            # Copies, because sorting in place must not change what the message shows.
            result = self.function(*deepcopy(arguments), **deepcopy(named))
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
        """As one would type it."""
        shown = [show(a) for a in arguments] + [f"{k}={show(v)}" for k, v in named.items()]
        return f"{self.name}({', '.join(shown)})"

    def expect(self, expected: Any, *arguments: Any, note: str = "") -> None:
        """Compare one call's result: texts by letters, numbers to a millionth, arrays in shape."""
        got = self(*arguments)
        if not same(got, expected):
            note = f" ({note})" if note else ""
            call = self.call(*arguments)
            raise Wrong(f"{call} gave {show(got)}, expected {show(expected)}{note}")


def exercise(name: str) -> Callable[[Callable], Callable]:
    """Register a check: a function of an attempt that calls it and raises where it is wrong."""

    def register(function: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
        _CHECKS[name] = function
        return function

    return register


# What checks are made of


def same(got: Any, expected: Any) -> bool:
    """Whether two results are equal, numbers to a millionth."""
    if expected is None or isinstance(expected, str):
        return isinstance(got, str | None) and got == expected
    if isinstance(expected, bool):
        return isinstance(got, bool | np.bool_) and bool(got) == expected
    try:
        got, expected = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a torch gradient
        return False
    return got.shape == expected.shape and bool(np.allclose(got, expected, rtol=1e-6, atol=1e-9))


def show(value: Any) -> str:
    """A value in the width of a sentence."""
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    try:
        return _SHORT.repr(value.tolist() if hasattr(value, "tolist") else value)
    except Exception:  # an object whose repr is broken
        return f"an object of type {type(value).__name__}"


# The exercises that belong to no case


@exercise("01-a")
def _leave_one_out(leave_one_out: Attempt) -> None:
    """Each reward of a group against the mean of the others."""
    for rewards in ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0], [0.5] * 3, [2.0, -1.0, 0.5, 0.25, 3.0]):
        others = len(rewards) - 1
        leave_one_out.expect([r - (sum(rewards) - r) / others for r in rewards], rewards)


@exercise("01-b")
def _gradient(has_gradient: Attempt) -> None:
    """Where the clipped objective of one token changes with the ratio."""
    for ratio, advantage, low, high, expected, note in (
        (1.0, 1.0, 0.2, 0.2, True, "on-policy nothing is clipped"),
        (1.5, 1.0, 0.2, 0.2, False, "good, and already more likely"),
        (1.5, -1.0, 0.2, 0.2, True, "bad, and more likely than before"),
        (0.5, 1.0, 0.2, 0.2, True, "good, and less likely than before"),
        (0.5, -1.0, 0.2, 0.2, False, "bad, and already less likely"),
        (1.25, 0.3, 0.2, 0.28, True, "the upper end is 1.28"),
        (0.75, -2.0, 0.2, 0.28, False, "the lower end is 0.8"),
        (1.5, 0.0, 0.2, 0.2, False, "an advantage of 0"),
    ):
        has_gradient.expect(expected, ratio, advantage, low, high, note=note)


@exercise("01-c")
def _loss(loss: Attempt) -> None:
    """The loss of notebook 01: clipped, with a KL term, averaged over the tokens that count."""
    import torch

    from casebook.grpo import policy_loss

    new, adv = torch.tensor([[-1.0, -2.0], [-0.3, -9.0]]), torch.tensor([1.0, -0.5])
    ref, mask = new - 0.5, torch.tensor([[True, True], [True, False]])
    for old, beta, note in (
        (new, 0.0, "every ratio is 1"),
        (new - 1, 0.0, "all are more likely: the good one is clipped"),
        (new + 1, 0.1, "all are less likely: the bad one is clipped; and a KL term"),
    ):
        expected = policy_loss(new, old, adv, mask, ref_logps=ref, beta=beta).item()
        loss.expect(expected, new, old, ref, adv, mask, 0.2, beta, note=note)
