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


MANY = 10**12  # more than any of these questions needs


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
        got = min(int(got), MANY)  # SciPy counts in floats

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


# 30, the problems of GSM8K


@exercise("30-a")
def _masked(masked: _Attempt) -> None:
    """A text that two questions share exactly if they differ in their numbers only."""

    def text(question: str) -> str:
        got = masked(question)
        if not isinstance(got, str):
            raise _Wrong(f"{masked.call(question)} gave {_show(got)}, expected a text")
        return got

    for one, other in (
        ("Ann has 3 pens.", "Ann has 12 pens."),
        ("It costs $1,200.", "It costs $7."),
        ("He runs 3.5 km.", "He runs 10 km."),
        ("She eats 3/4 of it.", "She eats 1/2 of it."),
        ("They are 12. How many are left?", "They are 3.  How many\nare left?"),
        ("A herd of 1,234,567 sheep", "A herd of 2 sheep"),
    ):
        if text(one) != text(other):
            raise _Wrong(
                f"{one!r} and {other!r} differ in their numbers only, and it gave "
                f"{_show(text(one))} and {_show(text(other))}"
            )
    for one, other, note in (
        ("Ann has 3 pens.", "Ann has 3 pencils.", "another word"),
        ("Ann has 3 pens.", "Ann has pens.", "no number"),
        ("He sells 3 bags of 4 pears.", "He sells 3 bags of pears.", "one number, not two"),
        ("They are 12. How many?", "They are 12 How many?", "the full stop is the sentence's"),
        ("He has 3, 4 and 5.", "He has 3 and 5.", "a list of numbers is not one number"),
        ("It is 3% off.", "It is 3 off.", "the sign is not the number's"),
    ):
        if text(one) == text(other):
            raise _Wrong(
                f"{one!r} and {other!r} are two questions, and it gave {_show(text(one))} for "
                f"both ({note})"
            )


# 31, the rewards of GSM8K


@exercise("31-a")
def _last_number(last_number: _Attempt) -> None:
    """The last number of a text."""
    for text, expected, note in (
        ("42", 42, "a number alone"),
        ("5 boxes of 12 pens", 12, "the last one"),
        ("10 - 4 = 6", 6, "the last one"),
        ("He pays $1,024.50.", 1024.5, "the full stop is the sentence's"),
        ("1,234,567", 1234567, "one number"),
        ("1,2,3", 3, "these commas separate numbers"),
        ("it has 3.", 3, "the full stop is the sentence's"),
        ("it fell to -5", -5, "a sign"),
        ("x=-0.5", -0.5, "a sign"),
        ("-$1,200", -1200, "a sign before the currency"),
        ("10-4", 4, "a subtraction"),
        ("10 -4", 4, "a subtraction"),
        ("(3)-4", 4, "a subtraction"),
        ("I do not know.", None, "no number"),
        ("", None, "no number"),
    ):
        if isinstance(last_number(text), str):
            raise _Wrong(f"{last_number.call(text)} gave a text, expected a number")
        last_number.expect(expected, text, note=note)


# 32, the baseline of GSM8K


@exercise("32-a")
def _spread_of_halves(spread_of_halves: _Attempt) -> None:
    """The standard deviation of an accuracy on rows drawn without replacement."""
    for accuracy, rows, drawn, note in (
        (0.5, 2, 1, "one of two rows: 0 or 1"),
        (0.7, 10, 10, "all rows are drawn: nothing is left to chance"),
        (1.0, 100, 50, "all right"),
        (0.5, 4, 2, "exactly: 0, four times 1/2, 1"),
        (0.701, 1319, 659, "the source's half"),
        (0.2, 1000, 10, "few rows: nearly as with replacement"),
    ):
        variance = accuracy * (1 - accuracy) / drawn * (rows - drawn) / (rows - 1)
        spread_of_halves.expect(math.sqrt(variance), accuracy, rows, drawn, note=note)


# 33, the training of GSM8K


@exercise("33-a")
def _choose_step(choose_step: _Attempt) -> None:
    """The earliest step within one standard error of the best."""
    steps = [0, 4, 8, 12, 16, 20, 24]
    rising = [0.30, 0.50, 0.70, 0.765, 0.78, 0.79, 0.80]
    for seen, accuracies, n, expected, note in (
        (steps, rising, 100, 12, "0.76 is enough, and the earliest counts"),
        (steps, rising, 10_000, 24, "with more problems the standard error is smaller"),
        (steps, [0.3, 0.5, 0.85, 0.84, 0.8, 0.7, 0.4], 1_000, 8, "not the last step"),
        (steps, [0.3, 1.0, 1.0, 0.99, 1.0, 1.0, 1.0], 128, 4, "no error: the first perfect one"),
        ([250, 300, 350], [0.776, 0.785, 0.780], 660, 250, "660 cannot tell these apart"),
        ([0], [0.0], 128, 0, "one step"),
    ):
        choose_step.expect(expected, seen, accuracies, n, note=note)


# 34, the analysis of GSM8K


@exercise("34-a")
def _parts_of_gain(parts_of_gain: _Attempt) -> None:
    """A gain of a product, split evenly between its two factors."""
    for lenient, formed, note in (
        ((0.5, 0.5), (1.0, 1.0), "nothing changed"),
        ((0.4, 0.8), (1.0, 1.0), "only answers"),
        ((0.8, 0.8), (0.5, 1.0), "only form"),
        ((0.0, 1.0), (0.0, 1.0), "neither comes first: half each"),
        ((0.701, 0.789), (0.41, 0.995), "about the source's"),
        ((0.6, 0.5), (0.5, 0.9), "a part may be negative"),
    ):
        parts = (
            (lenient[1] - lenient[0]) * sum(formed) / 2,
            (formed[1] - formed[0]) * sum(lenient) / 2,
        )
        parts_of_gain.expect(parts, lenient, formed, note=f"answers, then form: {note}")


# 40, the oracle of MATH


@exercise("40-a")
def _last_box(last_box: _Attempt) -> None:
    r"""The content of the last balanced box, escaped braces being none."""
    for text, expected, note in (
        (r"so \boxed{7}.", "7", "one box"),
        (r"not \boxed{3}, but \boxed{4}.", "4", "the last one counts"),
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", "braces inside braces"),
        (r"so \boxed{\{1, 2\}}", r"\{1, 2\}", "an escaped brace is no brace"),
        (r"half a set: \boxed{\{}", r"\{", "an escaped brace is no brace"),
        (r"cut off: \boxed{\frac{1}{2", None, "a box that is never closed"),
        (r"\boxed{7}, no: \boxed{8", "7", "a box that is never closed is none"),
        (r"} and { before \boxed{9}", "9", "other braces are not the box's"),
        ("no box, {braces} only", None, "no box"),
        ("", None, "no box"),
        (r"\boxed{" * 20_000 + r"\boxed{5}", "5", "20,000 boxes that are never closed, then one"),
    ):
        _expect_text(last_box, expected, text, note=note)


# 41, the rewards of MATH


@exercise("41-a")
def _whole_box(whole_box: _Attempt) -> None:
    r"""The content of the last closed box, braces inside braces included."""
    for text, expected, note in (
        (r"so \boxed{5}.", "5", "one box"),
        (r"it is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}", "braces inside braces"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}", r"\sqrt{2}", "the last one counts"),
        (r"\boxed{7} and then \boxed{\frac{1}{2}", "7", "the last that is closed"),
        (r"\boxed{\frac{1}{2}", None, "never closed"),
        ("no box at all", None, "no box"),
        (r"\boxed{}", "", "an empty box is a box"),
    ):
        _expect_text(whole_box, expected, text, note=note)


# 42, the baseline of MATH


@exercise("42-a")
def _silent_share(silent_share: _Attempt) -> None:
    """The share of groups that are all right or all wrong, from counts, without bias."""
    for right, samples, group, expected, note in (
        ([0], 8, 4, 1.0, "never right"),
        ([8], 8, 4, 1.0, "always right"),
        ([1], 2, 2, 0.0, "the one group there is has both; 1/2 is the biased estimate"),
        ([4], 8, 4, 2 / 70, "two of the 70 groups"),
        ([0, 4, 8], 8, 4, (2 + 2 / 70) / 3, "the mean over prompts"),
        ([2, 6], 8, 2, 16 / 28, "16 of 28 groups, for either prompt"),
    ):
        silent_share.expect(expected, right, samples, group, note=note)


# 43, the training of MATH


@exercise("43-a")
def _steps_to_see(steps_to_see: _Attempt) -> None:
    """The fewest steps after which a mean reward is known to a given standard error."""
    for p, completions, error in (
        (0.5, 1, 0.5),
        (0.5, 64, 0.02),
        (0.05, 20, 0.01),
        (0.05, 8, 0.01),
        (0.3, 160, 0.05),
        (0.0, 20, 0.01),
        (1.0, 20, 0.01),
    ):
        got = steps_to_see(p, completions, error)
        call = steps_to_see.call(p, completions, error)
        if not _is_whole(got) or got < 1:
            raise _Wrong(
                f"{call} gave {_show(got)}: steps are whole, and there is at least one of them"
            )
        steps = min(int(got), MANY)

        def left(steps: int, p: float = p, completions: int = completions) -> float:
            return math.sqrt(p * (1 - p) / (completions * steps))

        allowed = error * (1 + 1e-9)
        if left(steps) > allowed:
            raise _Wrong(
                f"{call} gave {steps}: the mean still has a standard error of "
                f"{left(steps):.4f} then, and {error} was asked for"
            )
        if steps > 1 and left(steps - 1) <= allowed:
            raise _Wrong(
                f"{call} gave {steps}, more than needed: one step less still has a standard "
                f"error of {left(steps - 1):.4f}"
            )


# 44, the analysis of MATH


@exercise("44-a")
def _unknown_pairs(unknown_pairs: _Attempt) -> None:
    """The share of pairs of neighbours that no text of a corpus has."""
    for words, corpus, expected, note in (
        ("a c b", ["a b c"], 1.0, "known words, no known pair"),
        ("a b c", ["a b c"], 0.0, "the corpus's own text"),
        ("b a", ["a b"], 1.0, "order counts"),
        ("a b a b", ["a b"], 1 / 3, "(b, a) is unknown; (a, b) stands there twice"),
        ("a x a x", ["a b"], 1.0, "unknown pairs count as often as they occur"),
        ("a b x a b", ["a b"], 0.5, "an unknown word spoils both its pairs"),
        ("b c", ["a b", "c d"], 1.0, "the end of a text and the start of the next are apart"),
        ("a", ["a b"], 0.0, "no pairs"),
        ("", ["a"], 0.0, "no pairs"),
        ("a b", [], 1.0, "an empty corpus knows nothing"),
        ("x x x", ["a b"], 1.0, "a pair that occurs twice counts twice"),
        ("the sum of the sum", ["the sum of two"], 0.25, "one unknown pair of four"),
    ):
        unknown_pairs.expect(expected, words.split(), [t.split() for t in corpus], note=note)


# 90, the claims


@exercise("90-a")
def _verdict(verdict: _Attempt) -> None:
    """What the records of a comparison allow to say."""
    low, high = [0.30, 0.31, 0.29], [0.60, 0.62, 0.61]
    below, above = (0.28, 0.32), (0.58, 0.64)
    seen, not_seen, open_ = "mechanism seen", "mechanism not seen", "inconclusive"
    for before, after, pooled_before, pooled_after, rises, expected, note in (
        (low, high, below, above, True, seen, "all seeds rise, and the intervals are apart"),
        (high, low, above, below, False, seen, "all seeds fall, as they were to"),
        (high, low, above, below, True, not_seen, "all seeds fall, and were to rise"),
        (low, high, below, above, False, not_seen, "all seeds rise, and were to fall"),
        (low, [0.33, 0.34, 0.32], (0.27, 0.33), (0.3, 0.36), True, open_, "they overlap"),
        (low, [0.36, 0.37, 0.35], below, (0.32, 0.4), True, open_, "they touch"),
        (low[:2], high[:2], below, above, True, open_, "two seeds are too few"),
        ([0.3, 0.3, 0.7], high, (0.28, 0.5), above, True, open_, "one seed falls"),
        ([0.3, 0.3, 0.61], high, (0.28, 0.5), above, True, open_, "one seed does not move"),
    ):
        arguments = before, after, pooled_before, pooled_after, rises
        _expect_text(verdict, expected, *arguments, note=note)


# What checks are made of

_PROMPT = "Classify this poker hand.\nHand: 2H 2D 2C 9S 9H\n"


def _expect_text(attempt: _Attempt, expected: str | None, *arguments: Any, note: str) -> None:
    """Compare one call's result with a text, letter by letter."""
    got = attempt(*arguments)
    if not isinstance(got, str | None) or got != expected:
        call = attempt.call(*arguments)
        raise _Wrong(f"{call} gave {_show(got)}, expected {_show(expected)} ({note})")


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
