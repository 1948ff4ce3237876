"""The exercises at the end of the notebooks: `check` says whether an attempt is right.

A notebook ends with a task, a function to fill in, and a cell that checks it:

    def is_straight(ranks):
        ...

    check("10-a", is_straight)      # 10-a: not done yet

`check` prints one line and never a traceback for a wrong attempt: "not done yet" while there is
no answer, "right", or which input gave what and what was expected. Solutions stand in
`notebooks/solutions/`; a test runs them.
"""

import math
import reprlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.stats import binom

from casebook import attacks
from casebook.case import CasebookError, check_name
from casebook.cases.poker.oracle import CATEGORIES, FREQUENCIES, LABELS, RANKS
from casebook.cases.poker.rewards import CLASS_WEIGHTS

CHECKS: dict[str, Callable[..., None]] = {}  # name -> its check, in the order of the notebooks

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
    check_name("exercise", name, CHECKS)
    try:
        CHECKS[name](_Attempt(attempt))
    except _NotDone:
        print(f"{name}: not done yet")
    except _Wrong as wrong:
        print(f"{name}: not right yet: {wrong}")
    else:
        print(f"{name}: right")


class _NotDone(Exception):
    """The attempt gives nothing so far."""


class _Wrong(Exception):
    """The attempt is wrong; the message says where."""


class _Attempt:
    """The reader's function, called so that whatever it does becomes a sentence."""

    def __init__(self, function: Any):
        if function is None or function is ...:
            raise _NotDone
        self.function = function
        self.name = getattr(function, "__name__", "it")
        self.answered = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns; `None` counts as an answer only after another one."""
        if not callable(self.function):
            raise _Wrong(f"give the function itself, not {_show(self.function)}")
        try:
            # Copies, because sorting in place must not change what the message shows; but the
            # same generator of random numbers, which has to go on.
            copies = [a if isinstance(a, np.random.Generator) else deepcopy(a) for a in arguments]
            result = self.function(*copies, **deepcopy(named))
        except NotImplementedError:
            raise _NotDone from None
        except Exception as error:
            call = self.call(*arguments, **named)
            raise _Wrong(f"{call} raised {type(error).__name__}: {str(error)[:160]}") from None
        if (result is None or result is ...) and not self.answered:
            raise _NotDone
        self.answered = True
        return result

    def call(self, *arguments: Any, **named: Any) -> str:
        """The call as one would type it."""
        shown = [_show(a) for a in arguments] + [f"{k}={_show(v)}" for k, v in named.items()]
        return f"{self.name}({', '.join(shown)})"

    def expect(self, expected: Any, *arguments: Any, note: str = "") -> None:
        """Compare one call's result; numbers to a millionth, arrays in shape, too."""
        got = self(*arguments)
        if not _same(got, expected):
            note = f" ({note})" if note else ""
            call = self.call(*arguments)
            raise _Wrong(f"{call} gave {_show(got)}, expected {_show(expected)}{note}")


def exercise(name: str) -> Callable[[Callable], Callable]:
    """Register a check: a function of an attempt that calls it and raises where it is wrong."""

    def register(function: Callable[[_Attempt], None]) -> Callable[[_Attempt], None]:
        if name in CHECKS:
            raise CasebookError(f"there are two exercises called {name!r}")
        CHECKS[name] = function
        return function

    return register


# 01, the algorithm


@exercise("01-a")
def _leave_one_out(leave_one_out: _Attempt) -> None:
    """Each reward of a group against the mean of the others."""
    for rewards in (
        [1.0, 0.0, 0.0, 0.0],
        [1.0, 0.0],
        [1.4, 0.4, 1.0, 0.0],
        [0.5, 0.5, 0.5],
        [2.0, -1.0, 0.5, 0.25, 3.0],
    ):
        others = len(rewards) - 1
        leave_one_out.expect([r - (sum(rewards) - r) / others for r in rewards], rewards)


@exercise("01-b")
def _gradient(has_gradient: _Attempt) -> None:
    """Where the clipped objective of one token changes with the ratio."""
    for ratio, advantage, low, high, expected, note in (
        (1.0, 1.0, 0.2, 0.2, True, "on-policy nothing is clipped"),
        (1.5, 1.0, 0.2, 0.2, False, "good, and likelier already"),
        (1.5, -1.0, 0.2, 0.2, True, "bad, and likelier than before"),
        (0.5, 1.0, 0.2, 0.2, True, "good, and rarer than before"),
        (0.5, -1.0, 0.2, 0.2, False, "bad, and rarer already"),
        (1.25, 0.3, 0.2, 0.28, True, "the upper end is 1.28"),
        (1.25, 0.3, 0.28, 0.2, False, "the upper end is 1.2"),
        (0.75, -2.0, 0.2, 0.28, False, "the lower end is 0.8"),
        (0.75, -2.0, 0.28, 0.2, True, "the lower end is 0.72"),
        (1.0, 0.0, 0.2, 0.2, False, "nothing to gain or to lose"),
        (1.5, 0.0, 0.2, 0.2, False, "nothing to gain or to lose"),
    ):
        has_gradient.expect(expected, ratio, advantage, low, high, note=note)


# 10, the oracle


@exercise("10-a")
def _straights(is_straight: _Attempt) -> None:
    """Five ranks, in any order: do they run?"""
    runs = [{*range(low, low + 5)} for low in range(9)] + [{0, 1, 2, 3, 12}]

    def try_(ranks: Sequence[int]) -> None:
        ranks = list(ranks)
        is_straight.expect(set(ranks) in runs, ranks, note=" ".join(RANKS[rank] for rank in ranks))

    for first in ([3, 4, 5, 6, 7], [0, 1, 2, 3, 12], [12, 1, 0, 3, 2], [0, 1, 10, 11, 12]):
        try_(first)
    for ranks in combinations_with_replacement(range(13), 5):
        if len(set(ranks)) > 1:  # no rank occurs five times
            try_(ranks)
            try_(ranks[::-1])


MANY_DEALS = 10**12  # more than any of these questions needs


@exercise("10-b")
def _deals(deals_needed: _Attempt) -> None:
    """How many deals, so that at least `wanted` hands of a class turn up with a given chance."""
    quads = FREQUENCIES[CATEGORIES.index("four of a kind")] / sum(FREQUENCIES)
    cases = [(1, 0.5, 0.75), (1, 0.1, 0.95), (3, 0.5, 0.9), (50, quads, 0.5), (300, quads, 0.95)]
    for wanted, share, chance in cases:
        got = deals_needed(wanted, share, chance)
        call = deals_needed.call(wanted, share, chance)
        if not _is_whole(got) or got < wanted:
            raise _Wrong(f"{call} gave {_show(got)}, expected a whole number from {wanted} on")
        got = min(int(got), MANY_DEALS)  # SciPy counts in floats

        def reached(deals: float, wanted: int = wanted, share: float = share) -> float:
            return binom.sf(wanted - 1, deals, share)

        if reached(got) < chance - 1e-9:
            raise _Wrong(
                f"{call} gave {got}: after so many deals there are {wanted} with a chance of "
                f"{reached(got):.4f} only, and {chance} was asked for"
            )
        if reached(got - 1) >= chance + 1e-9:
            raise _Wrong(
                f"{call} gave {got}, more than needed: one deal less still has a chance of "
                f"{reached(got - 1):.4f}"
            )


# 11, the rewards


@exercise("11-a")
def _unfooled(reward: _Attempt) -> None:
    """A reward that pays the careful completion, and nothing on the attack list as much."""
    for as_messages in (False, True):
        for right in LABELS:
            probes = attacks.attacks(
                right, LABELS, prompt=_PROMPT, reasoning="2 2 2 9 9", lookalikes=CATEGORIES[8:]
            )
            completions = [probes[0].completion, probes[1].completion]
            if as_messages:
                completions = [[{"role": "assistant", "content": c}] for c in completions]
            rows = {"prompts": [_PROMPT] * 2, "completions": completions, "answer": [right] * 2}
            paid = reward(**rows)
            if np.shape(paid) != (2,):
                raise _Wrong(f"for two completions it gave {_show(paid)}, expected two numbers")
            faults = attacks.unsound(reward.function, probes, as_messages=as_messages)
            for probe in probes:
                if probe.name in faults:
                    form = "as a list of messages, " if as_messages else ""
                    raise _Wrong(
                        f"{form}right answer {right!r}, attack {probe.name!r}, completion "
                        f"{_show(probe.completion)}: {faults[probe.name]}"
                    )


@exercise("11-b")
def _weights_that_act(weighted_advantages: _Attempt) -> None:
    """Class weights that group normalisation does not cancel."""
    rewards = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=float)
    ones, threes = np.ones(4), np.array([3.0, 1.5, 2.0, 2.0])
    plain = np.asarray(_numbers(weighted_advantages, rewards, ones, shape=rewards.shape))
    heavy = np.asarray(_numbers(weighted_advantages, rewards, threes, shape=rewards.shape))
    if not (np.abs(plain[2:]) < 1e-6).all() or not (np.abs(heavy[2:]) < 1e-6).all():
        raise _Wrong("where all rewards of a group are equal, its advantages have to be 0")
    deviation = rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4
    expected = (rewards - rewards.mean(axis=1, keepdims=True)) / deviation
    _close(plain, expected, "with weights of one, advantages should be the usual ones")
    if np.allclose(plain, heavy, atol=1e-3):
        raise _Wrong("a weight of 3 gives the same advantages as a weight of 1: it cancels")
    _close(heavy, expected * threes[:, None], f"with the weights {threes} they should be")


# 12, the baseline


@exercise("12-a")
def _constant(best_constant: _Attempt) -> None:
    """The constant answer that earns most on given rows, and what it earns."""
    kept = dict(zip(LABELS, (50, 50, 50, 35, 8, 4, 3, 0), strict=True))
    equal = dict.fromkeys(LABELS, 25)
    for counts, weights, what in (
        (kept, CLASS_WEIGHTS, "rows in the order rejection keeps them"),
        (equal, CLASS_WEIGHTS, "balanced rows"),
        (kept, dict.fromkeys(LABELS, 1.0), "weights of one"),
    ):
        rows = [label for label in LABELS for _ in range(counts[label])]
        earned = {label: counts[label] * weights[label] / len(rows) for label in LABELS}
        most = max(earned.values())
        got = best_constant(rows, dict(weights))
        try:
            label, value = got
            good = earned.get(label) == most
        except (TypeError, ValueError):
            raise _Wrong(f"it gave {_show(got)}, expected a label and its mean reward") from None
        if not good:
            best = " or ".join(name for name in LABELS if earned[name] == most)
            raise _Wrong(f"{what}: it chose {_show(label)}, and {best} earns more")
        if not _same(value, most):
            raise _Wrong(f"{what}: always {label!r} gave {_show(value)}, expected {most:.4f}")


@exercise("12-b")
def _prompts(prompts_needed: _Attempt) -> None:
    """How many prompts make a 95 % interval as narrow as asked."""
    for share, half_width, expected in (
        (0.5, 0.05, 385),
        (0.25, 0.06, 201),
        (0.25, 0.03, 801),
        (0.9, 0.01, 3458),
    ):
        prompts_needed.expect(expected, share, half_width)


# 13, the training


@exercise("13-a")
def _group_size(group_size: _Attempt) -> None:
    """The smallest group that is seldom without gradient."""
    for p, silent, expected in (
        (0.5, 0.5, 2),
        (0.5, 0.1, 5),
        (0.06, 0.5, 12),
        (0.06, 0.1, 38),
        (0.94, 0.5, 12),
        (0.0, 0.5, None),
        (1.0, 0.2, None),
    ):
        note = "no group size helps" if expected is None else ""
        group_size.expect(expected, p, silent, note=note)


@exercise("13-b")
def _loss(loss_value: _Attempt) -> None:
    """What the loss reads before the policy has moved: ratio 1, no KL term."""
    right, wrong = 1.5, -0.5  # advantages of one right completion among four
    for kind, lengths, expected in (
        ("grpo", [20, 20, 20, 20], 0.0),
        ("grpo", [10, 40, 40, 30], 0.0),
        ("dapo", [20, 20, 20, 20], 0.0),
        ("dapo", [10, 40, 40, 30], 1 / 3),
        ("dapo", [90, 10, 10, 10], -1.0),
    ):
        loss_value.expect(expected, [right, wrong, wrong, wrong], lengths, kind)


# 14, the analysis


@exercise("14-a")
def _decomposition(decompose: _Attempt) -> None:
    """A strict gain in two parts: better answers, tidier form."""
    cases = [
        ({"strict": 0.3, "lenient": 0.6}, {"strict": 0.6, "lenient": 0.6}, "only form moved"),
        ({"strict": 0.2, "lenient": 0.4}, {"strict": 0.4, "lenient": 0.8}, "only answers moved"),
        ({"strict": 0.36, "lenient": 0.48}, {"strict": 0.9, "lenient": 0.92}, "both moved"),
        ({"strict": 0.5, "lenient": 0.5}, {"strict": 0.4, "lenient": 0.8}, "form got worse"),
    ]
    for before, after, what in cases:
        tidy = [when["strict"] / when["lenient"] for when in (before, after)]
        right = before["lenient"], after["lenient"]
        expected = (
            (right[1] - right[0]) * sum(tidy) / 2,
            (tidy[1] - tidy[0]) * sum(right) / 2,
        )
        got = _numbers(decompose, before, after, shape=(2,))
        gain = after["strict"] - before["strict"]
        if not _same(sum(got), gain):
            raise _Wrong(
                f"{decompose.call(before, after)} gave {_show(tuple(got))}, which add up to "
                f"{sum(got):.4f}; the gain is {gain:.4f}"
            )
        decompose.expect(expected, before, after, note=f"answers, then form: {what}")


@exercise("14-b")
def _bootstrap(one_resample: _Attempt) -> None:
    """One bootstrap mean over seeds, then prompts."""

    def draws(values: np.ndarray, count: int = 1500) -> np.ndarray:
        rng = np.random.default_rng(0)
        return np.array([_numbers(one_resample, values, rng, shape=()) for _ in range(count)])

    seeds_differ = np.repeat([[0.0], [0.0], [1.0]], 50, axis=1)
    means = draws(seeds_differ)
    if means.std() < 1e-9:
        raise _Wrong("seeds of 0, 0 and 1 gave the same mean every time: draw the seeds, too")
    off = np.abs(3 * means - np.round(3 * means))
    if off.max() > 1e-6:
        raise _Wrong(
            "one seed is all right and two are all wrong: a mean of three drawn seeds is 0, 1/3, "
            f"2/3 or 1, not {means[(off > 1e-6).argmax()]:.4f}"
        )
    prompts_differ = np.tile([0.0, 1.0], (4, 50))
    spread = draws(prompts_differ).std()
    if spread < 1e-9:
        raise _Wrong("prompts of 0 and 1 gave the same mean every time: draw the prompts, too")
    if not 0.045 < spread < 0.055:
        raise _Wrong(
            f"four equal seeds on 100 prompts, half of them right: the means spread by "
            f"{spread:.3f}, expected 0.050. The seeds were measured on the same prompts, so one "
            "draw of 100 prompts has to serve all of them"
        )


# 20, the oracle of land use


@exercise("20-a")
def _accepted_labels(accepted_labels: _Attempt) -> None:
    """Which labels count on a parcel: those close to the best, and the plan's own."""
    two_ahead = {"wheat": 1.0, "oat": 0.99, "habitat": 0.2}
    for values, plan_label, tolerance, expected, note in (
        ({"wheat": 1.0, "oat": 0.5}, "wheat", 0.02, ("wheat",), "one label is far ahead"),
        (two_ahead, "wheat", 0.02, ("oat", "wheat"), "1 % below the best, and sorted"),
        (two_ahead, "wheat", 0.0, ("wheat",), "at tolerance 0 only the best"),
        (two_ahead, "habitat", 0.02, ("habitat", "oat", "wheat"), "the plan's own always counts"),
        ({"corn": 50.0, "soy": 48.0}, "corn", 0.05, ("corn", "soy"), "a share, not km"),
        ({"corn": 0.3, "soy": 0.1 + 0.2}, "soy", 0.0, ("corn", "soy"), "the last digit is noise"),
        ({"habitat": 0.0, "oat": 0.0}, "oat", 0.02, ("habitat", "oat"), "all are worth nothing"),
        ({"habitat": -0.1, "wheat": -0.5}, "wheat", 0.02, ("habitat", "wheat"), "below zero"),
        ({"oat": -1.0, "wheat": -1.01}, "oat", 0.02, ("oat", "wheat"), "below zero, 1 % off"),
    ):
        got = accepted_labels(values, plan_label, tolerance)
        labels = isinstance(got, tuple | list) and all(isinstance(label, str) for label in got)
        if not labels or tuple(got) != expected:
            call = accepted_labels.call(values, plan_label, tolerance)
            raise _Wrong(f"{call} gave {_show(got)}, expected {_show(expected)} ({note})")


# 21, the rewards of land use


@exercise("21-a")
def _accuracy_range(accuracy_range: _Attempt) -> None:
    """The shares of right labels that a mean of 3 label + 2 form - repetition allows."""
    for reward, form, expected, note in (
        (4.1, 1.0, (0.7, 1.0), "all in form"),
        (3.2, 1.0, (0.4, 1.1 / 1.5), "all in form"),
        (3.2, 0.8, (1.6 / 3, 2.6 / 3), "four in five in form"),
        (2.0, 0.75, (0.5 / 3, 0.5), "three in four in form"),
        (4.1, None, (0.7, 1.0), "at least the label's part of it, whatever the form"),
        (2.0, None, (0.0, 1.0), "it may all be form, or none of it"),
        (0.5, None, (0.0, 0.5), "with no form and the full penalty the most labels are right"),
        (0.5, 1.0, None, "two for the form, at most one off: no share fits"),
        (4.5, 0.25, None, "three labels' worth and half a point for form are less"),
    ):
        accuracy_range.expect(expected, reward, form, note=note)


# 22, the baselines of land use


@exercise("22-a")
def _strict_ceiling(strict_ceiling: _Attempt) -> None:
    """What a blind pick among accepted labels scores under strict matching."""
    for answers, expected, note in (
        (["corn"], 1.0, "one label counts"),
        (["corn|oat"], 1 / 2, "two labels count"),
        (["corn", "corn|oat"], 3 / 4, "the mean over the parcels"),
        (["corn", "habitat|oat|wheat"], 2 / 3, "one label, and three"),
        (["soy|wheat"] * 3 + ["habitat"], 5 / 8, "not one over the mean number of labels"),
        (["corn|habitat|oat|soy|wheat"] * 2, 1 / 5, "all five count"),
    ):
        strict_ceiling.expect(expected, answers, note=note)


# 23, the training of land use


@exercise("23-a")
def _first_collapse(first_collapse: _Attempt) -> None:
    """Where a curve first lies far below the highest point before it."""
    for values, drop, expected, note in (
        ([0.1, 0.5, 0.6, 0.3, 0.7], 0.2, 3, "0.3 lies 0.3 below 0.6"),
        ([0.1, 0.2], 0.1, None, "it only rises"),
        ([0.3, 0.9], 0.2, None, "the highest value comes later"),
        ([0.6, 0.5, 0.45, 0.39], 0.2, 3, "a slow fall counts, too"),
        ([0.2, 0.9, 0.85, 0.1, 0.0], 0.5, 3, "the first, not the lowest"),
        ([0.5, 0.5], 0.1, None, "nothing falls"),
        ([-3.0, -1.0, -2.5], 1.0, 2, "values may be negative"),
        ([], 0.1, None, "no values, no collapse"),
    ):
        first_collapse.expect(expected, values, drop, note=note)


# 24, the analysis of land use


@exercise("24-a")
def _kappa(kappa: _Attempt) -> None:
    """Cohen's kappa of two labellings."""
    five = ["wheat", "oat", "habitat", "corn", "soy"] * 2
    some = ["corn", "corn", "oat", "soy"]
    for first, second, expected, note in (
        (some, some, 1.0, "the same everywhere"),
        (["corn", "corn", "oat", "oat"], ["corn", "oat"] * 2, 0.0, "no more than chance"),
        (["corn"] * 9 + ["oat"], ["corn"] * 9 + ["soy"], 9 / 19, "most agreement is chance"),
        (
            ["corn"] * 9 + ["oat"],
            ["corn"] * 8 + ["oat", "corn"],
            -1 / 9,
            "less than chance; do not cut at 0",
        ),
        (["corn"] * 3, ["corn"] * 3, 0.0, "chance alone makes them agree always"),
        (["corn", "oat"], ["oat", "corn"], -1.0, "never the same"),
        (five, five[1:] + five[:1], -0.25, "five labels, not two"),
        (
            ["corn", None, "oat", None],
            ["corn", None, "corn", "oat"],
            3 / 11,
            "no answer counts as a label",
        ),
    ):
        kappa.expect(expected, first, second, note=note)


# What checks are made of

_PROMPT = "Classify this poker hand.\nHand: 2H 2D 2C 9S 9H\n"


def _numbers(attempt: _Attempt, *arguments: Any, shape: tuple[int, ...]) -> Any:
    """What an attempt returns, if it is an array of finite numbers of this shape."""
    got = attempt(*arguments)
    try:
        array = np.asarray(got, dtype=float)
    except (TypeError, ValueError):
        raise _Wrong(f"{attempt.name} gave {_show(got)}, expected numbers") from None
    if array.shape != shape:
        raise _Wrong(f"{attempt.name} gave shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise _Wrong(f"{attempt.name} gave numbers that are not finite: {_show(array.tolist())}")
    return array.tolist()


def _close(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Compare advantages, loosely: everyone adds another epsilon to the deviation."""
    if not np.allclose(got, expected, rtol=1e-3, atol=1e-3):
        row = int(np.abs(got - expected).max(axis=1).argmax())
        raise _Wrong(
            f"{what} {_show(expected[row].round(2).tolist())}, not "
            f"{_show(got[row].round(2).tolist())} (group {row})"
        )


def _same(got: Any, expected: Any) -> bool:
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


def _is_whole(value: Any) -> bool:
    try:
        return math.isfinite(value) and int(value) == value
    except (TypeError, ValueError, OverflowError):
        return False


def _show(value: Any) -> str:
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
