"""What we predicted of a real model where no write-up claims anything.

Claims have their expectations beside them (`records.claims`). Studies of an untrained model and
control arms have none, so what we expect of them stands in `cases/<case>/predictions.yaml`, and is
committed before they are run. A prediction is data, so that the records decide whether it held.

`figure` is the way to a figure in a record, names with slashes between. A step may be `*`, for
all that there are; behind a list of numbers it is `mean`, `last`, `smallest`, `largest` or `some`,
any one of them. Another record's figure is `RECORD: FIGURE`. What `expected` may say, several of
it together:

    low, high        not below the one, not above the other
    above, below     a number, or another figure
    not_above        another figure, which its interval does not lie above
    no_change_from   another figure; `within` so much, or by what the intervals show
    gains_less_than  two figures: the gain on `above` is less than from the first to the second

`what_came` holds each prediction against the records:

    held, did not hold  a bound is one for the figure itself, whatever its interval. Two figures
                        differ where their 95 % intervals do not overlap and, after a training,
                        where all of at least three seeds move the same way; no change held
                        where they show none. A gain is less where it is in all of three seeds
    inconclusive        a difference was predicted, and the records show none in either direction
    partly              of several conditions some held
    not measured        the record has no such figure, as of answers that were never given
    no recorded run     a record is not there
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from numbers import Real
from pathlib import Path
from statistics import mean
from typing import Any

import casebook.cases
from casebook.case import CasebookError, check_name, known_cases
from casebook.records import studies
from casebook.records.claims import (
    FEWEST_SEEDS,
    check_fields,
    check_text,
    models_of,
    read_list,
)
from casebook.records.files import figure_text
from casebook.records.gate import committed
from casebook.settings import read_arms
from casebook.stats import pool_seeds

CASES = Path(casebook.cases.__path__[0])
PROFILE = "smol"
TEXTS = ("what", "record", "figure", "reason", "date")
OPTIONAL = ("seen", "unit")
BOUNDS = ("low", "high")
EITHER = ("above", "below")  # a number or a figure
FIGURES = ("not_above", "no_change_from")
CONDITIONS = (*BOUNDS, *EITHER, *FIGURES, "within", "gains_less_than")
HELD, FAILED, OPEN, PARTLY = "held", "did not hold", "inconclusive", "partly"
UNMEASURED, NO_RUN = "not measured", "no recorded run"
OUTCOMES = (FAILED, UNMEASURED, OPEN, PARTLY, HELD)  # of several figures the first one counts
REDUCED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "last": lambda values: values[-1],
    "smallest": min,
    "largest": max,
}
SOME = "some"
STUDY = None  # stands where an arm's records have their seed

Figures = Mapping[int | None, Mapping[str, float]]  # seed -> figure


def load_predictions(case: str) -> list[dict[str, Any]]:
    """What was predicted of a case's studies and arms; an empty list where nothing was.

    Returns:
        One dict per prediction: `what` is measured, the `record` (a study's name, or that of an
        arm, with `*` of several arms), the `figure` in it, what is `expected` of it, perhaps its
        `unit` (without one it is a share), perhaps what a trial had `seen` of it, which makes it
        exploratory, the `reason`, and the `date` it was written (ISO).

    Raises:
        UnknownName: unknown case.
        CasebookError: the file cannot be read, or a row is none of this; the message says which.
    """
    check_name("case", case, known_cases())
    path = CASES / case / "predictions.yaml"
    if not path.exists():
        return []
    rows = read_list(path, "predictions")
    seen = []
    for number, row in enumerate(rows, 1):
        try:
            _check(case, row)
            said = [row[name] for name in ("record", "figure", "expected")]
            if said in seen:
                raise CasebookError("the same prediction stands there twice")
            seen.append(said)
        except CasebookError as error:
            name = row.get("what") if isinstance(row, dict) else None
            where = f"{path.name} of {case}, row {number} ({name or 'no text'})"
            raise CasebookError(f"{where}: {error}") from None
    return rows


def records_of(case: str, pattern: str) -> list[str]:
    """The studies and the real model's arms that a row's `record` names; several for a `*`.

    Raises:
        UnknownName: there is none; the message lists those there are.
    """
    known = [name for name, (owner, _) in studies.STUDIES.items() if owner == case]
    known += [name for name, arm in read_arms(case).items() if arm["profile"] == PROFILE]
    found = [name for name in known if fnmatch(name, pattern)]
    if not found:
        check_name("study or arm", pattern, known)
    return found


def what_came(case: str) -> list[dict[str, Any]]:
    """The predictions of a case, each with what the records say.

    Args:
        case: name of the case.

    Returns:
        The rows of `load_predictions`, each with `predicted` (its `expected` in words), `outcome`
        (see the head of this module), `exploratory`, `measured` (the figures as text, with the
        model that they are of; empty without records) and `command`, which makes the record that
        is not there (else empty).

    Raises:
        UnknownName: unknown case.
        CasebookError: as `load_predictions`, or a record cannot be read.
    """
    rows = load_predictions(case)
    patterns = {split(figure, row["record"])[0] for row in rows for figure in _named(row)}
    names = {name for pattern in patterns for name in records_of(case, pattern)}
    found = {name: _records(case, name) for name in sorted(names)}
    return [_judged(case, row, found) for row in rows]


def split(figure: str, record: str) -> tuple[str, str]:
    """The record and the way in it that a figure names; `record` where it names none.

    >>> split("sound: after/greedy_accuracy", "sound_sft")
    ('sound', 'after/greedy_accuracy')
    >>> split("before/greedy_accuracy", "sound_sft")
    ('sound_sft', 'before/greedy_accuracy')
    """
    other, colon, way = figure.partition(": ")
    return (other, way) if colon else (record, figure)


def _check(case: str, row: Any) -> None:
    check_fields(row, {*TEXTS, *OPTIONAL, "expected"})
    for field in (*TEXTS, *(name for name in OPTIONAL if name in row)):
        check_text(row, field)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]):
        raise CasebookError(f"{row['date']!r} is no date such as 2026-11-22")
    records_of(case, row["record"])
    _check_figure(case, row["figure"], row["record"])
    expected = row.get("expected")
    if not isinstance(expected, dict) or not expected:
        raise CasebookError("the field 'expected' is missing or holds no conditions")
    for name, said in expected.items():
        check_name("condition", name, CONDITIONS)
        _check_condition(case, row, name, said)
    for lower, upper in (BOUNDS, EITHER):
        ends = [expected.get(lower), expected.get(upper)]
        if all(map(_is_number, ends)) and ends[0] >= ends[1]:
            raise CasebookError(f"{lower!r} {ends[0]} is not below {upper!r} {ends[1]}")
    if "within" in expected and "no_change_from" not in expected:
        raise CasebookError("'within' says how large a change counts as none: of 'no_change_from'")
    if "gains_less_than" in expected and not isinstance(expected.get("above"), str):
        raise CasebookError("'gains_less_than' needs a figure in 'above', to gain on")


def _check_condition(case: str, row: Mapping[str, Any], name: str, said: Any) -> None:
    if name == "gains_less_than":
        if not isinstance(said, list) or len(said) != 2:
            raise CasebookError(f"{name!r} must be two figures, before and after")
        for figure in said:
            _check_figure(case, figure, row["record"])
    elif name in FIGURES or (name in EITHER and isinstance(said, str)):
        _check_figure(case, said, row["record"])
    elif not _is_number(said):
        kinds = "a number or a figure" if name in EITHER else "a number"
        raise CasebookError(f"{name!r} must be {kinds}, not {str(said)[:40]!r}")
    elif "unit" not in row and not 0 <= said <= 1:
        raise CasebookError(f"{name!r} {said} is no share; a figure that is none needs a 'unit'")


def _check_figure(case: str, figure: Any, record: str) -> None:
    if not isinstance(figure, str) or not figure.strip():
        raise CasebookError(f"{str(figure)[:40]!r} is no figure of a record")
    other, way = split(figure, record)
    records_of(case, other)
    if not all(step and step == step.strip() for step in way.split("/")):
        raise CasebookError(f"{figure!r} is no way to a figure: names with slashes between")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


# What came


def _named(row: Mapping[str, Any]) -> list[str]:
    """All figures that a prediction is about, its own first."""
    expected = row["expected"]
    others = [expected[name] for name in (*EITHER, *FIGURES) if isinstance(expected.get(name), str)]
    return [row["figure"], *others, *expected.get("gains_less_than", ())]


def _records(case: str, name: str) -> dict[int | None, dict[str, Any]]:
    """The records of an arm by seed, or the one of a study; empty where there is none."""
    if name not in studies.STUDIES:
        return {run["seed"]: run for run in committed(case, PROFILE, name)}
    return {STUDY: studies.read(name)} if studies.path(name).exists() else {}


def _judged(case: str, row: dict[str, Any], found: Mapping[str, Mapping]) -> dict[str, Any]:
    row = row | {"predicted": _predicted(row), "exploratory": "seen" in row}
    used = []
    for figure in _named(row):
        names = records_of(case, split(figure, row["record"])[0])
        there = [name for name in names if found[name]]
        if not there:
            command = _command(case, names[0])
            return row | {"outcome": NO_RUN, "measured": "", "model": "", "command": command}
        used += [record for name in there for record in found[name].values()]
    model = models_of(case, used)
    try:
        outcome, text = _outcome(case, row, found)
    except (KeyError, IndexError, TypeError, ValueError):
        outcome, text = UNMEASURED, "the record has no such figure"
    return row | {"outcome": outcome, "measured": text, "model": model, "command": ""}


def _command(case: str, name: str) -> str:
    if name in studies.STUDIES:
        return studies.command(name)
    return f"casebook experiments {case} --profile {PROFILE} --arm {name}"


def _outcome(case: str, row: Mapping[str, Any], found: Mapping[str, Mapping]) -> tuple[str, str]:
    """Whether a prediction held, and the figures as text."""
    expected, percent = row["expected"], "unit" not in row
    sides = _sides(case, row["figure"], row["record"], found)
    others = {
        name: _one(_sides(case, figure, row["record"], found))
        for name in (*EITHER, *FIGURES)
        if isinstance(figure := expected.get(name), str)
    }
    gains = [
        _one(_sides(case, figure, row["record"], found))
        for figure in expected.get("gains_less_than", ())
    ]
    outcomes = [_conditions(figures, expected, others, gains) for figures in sides.values()]
    order = OUTCOMES[::-1] if row["figure"].endswith(f"/{SOME}") else OUTCOMES
    outcome = min(outcomes, key=order.index)
    text = _all_of(sides, percent)
    for other in others.values():
        text = f"{_text(other, percent)}, then {text}"
    if gains:
        own = _gain(others["above"], _one(sides))
        text += f", a gain of {_number(own, percent)} against {_number(_gain(*gains), percent)}"
    seeds = {seed for figures in sides.values() for seed in figures} - {STUDY}
    return outcome, " ".join([text, row.get("unit", "")]).strip() + (
        f" ({len(seeds)} seed{'s' * (len(seeds) != 1)})" if seeds else ""
    )


def _sides(
    case: str, figure: str, record: str, found: Mapping[str, Mapping]
) -> dict[tuple[str, ...], Figures]:
    """What a figure's way leads to: the names that stood for `*` -> its figures by seed."""
    pattern, way = split(figure, record)
    names = records_of(case, pattern)
    sides: dict[tuple[str, ...], dict] = {}
    for name in names:
        for seed, content in found[name].items():
            for label, value in _walk(content, way.split("/")):
                own = (name, *label) if len(names) > 1 else label
                if not isinstance(value, Mapping):
                    value = dict.fromkeys(("value", "low", "high"), float(value))
                sides.setdefault(own, {})[seed] = value
    if not sides:
        raise KeyError(figure)
    return sides


def _walk(value: Any, steps: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not steps:
        yield (), value
        return
    step, *rest = steps
    if step == "*" or (step == SOME and isinstance(value, list)):
        pairs = value.items() if step == "*" else enumerate(value)
        for name, one in pairs:
            for label, found in _walk(one, rest):
                yield (str(name), *label), found
    elif isinstance(value, list):
        yield from _walk(REDUCED[step](value), rest)
    else:
        yield from _walk(value[step], rest)


def _one(sides: Mapping[tuple[str, ...], Figures]) -> Figures:
    (figures,) = sides.values()
    return figures


def _conditions(
    figures: Figures,
    expected: Mapping[str, Any],
    others: Mapping[str, Figures],
    gains: Sequence[Figures],
) -> str:
    """The outcome of all conditions for one figure."""
    own = _pooled(figures)
    value = own["value"]
    outcomes = []
    if bounds := [name for name in (*BOUNDS, *EITHER) if _is_number(expected.get(name))]:
        inside = {
            "low": lambda bound: value >= bound,
            "high": lambda bound: value <= bound,
            "above": lambda bound: value > bound,
            "below": lambda bound: value < bound,
        }
        outcomes.append(_held(all(inside[name](expected[name]) for name in bounds)))
    for name, other in others.items():
        if name == "not_above":
            outcomes.append(_held(own["low"] <= _pooled(other)["value"]))
        elif "within" in expected and name == "no_change_from":
            change = abs(value - _pooled(other)["value"])
            outcomes.append(_held(change <= expected["within"] + 1e-9))  # as decimals are written
        else:
            moved = _moved(other, figures)
            if moved is None:
                outcomes.append(OPEN)
            elif name == "no_change_from":
                outcomes.append(_held(moved == 0))
            else:
                outcomes.append(OPEN if moved == 0 else _held((moved > 0) is (name == "above")))
    if gains:
        pairs = zip(_gains(others["above"], figures), _gains(*gains), strict=True)
        less = [mine < theirs for mine, theirs in pairs]
        decided = STUDY in figures or len(less) >= FEWEST_SEEDS
        outcomes.append(_held(all(less)) if decided and len(set(less)) == 1 else OPEN)
    if len(set(outcomes)) == 1:
        return outcomes[0]
    return PARTLY if HELD in outcomes else FAILED


def _moved(left: Figures, right: Figures) -> int | None:
    """1 for up and -1 for down from left to right, 0 where no difference is shown; `None` where
    there are too few seeds to show one."""
    seeds = [seed for seed in left if seed in right]
    if not seeds or (STUDY not in seeds and len(seeds) < FEWEST_SEEDS):
        return None
    moves = [right[seed]["value"] - left[seed]["value"] for seed in seeds]
    sides = [_pooled({seed: side[seed] for seed in seeds}) for side in (left, right)]
    for sign, (lower, upper) in {1: sides, -1: sides[::-1]}.items():
        if upper["low"] > lower["high"] and all(sign * move > 0 for move in moves):
            return sign
    return 0


def _held(held: bool) -> str:
    return HELD if held else FAILED


def _pooled(figures: Figures) -> Mapping[str, float]:
    return pool_seeds([*figures.values()])


def _gains(left: Figures, right: Figures) -> list[float]:
    return [right[seed]["value"] - left[seed]["value"] for seed in sorted(right, key=str)]


def _gain(left: Figures, right: Figures) -> float:
    return mean(_gains(left, right))


def _number(value: float, percent: bool) -> str:
    return f"{100 * value:.1f} points" if percent else f"{value:.3g}"


def _text(figures: Figures, percent: bool) -> str:
    """A figure with its interval, if it has one."""
    figure = _pooled(figures)
    if figure["low"] < figure["high"]:
        return figure_text(figure, percent)
    return f"{100 * figure['value']:.1f} %" if percent else f"{figure['value']:.3g}"


def _all_of(sides: Mapping[tuple[str, ...], Figures], percent: bool) -> str:
    """One figure as text, or the lowest and the highest of several, with their names."""
    if len(sides) == 1:
        return _text(_one(sides), percent)
    ordered = sorted(sides, key=lambda label: _pooled(sides[label])["value"])
    ends = [
        f"{_text(sides[label], percent)} ({', '.join(label)})"
        for label in ordered[:: len(ordered) - 1]
    ]
    return f"{len(sides)} figures, from {ends[0]} to {ends[1]}"


def _predicted(row: Mapping[str, Any]) -> str:
    """What is expected, in words."""
    expected = row["expected"]

    def number(name: str) -> str:
        value = expected[name]
        return f"{value} {row['unit']}" if "unit" in row else f"{100 * value:g} %"

    said = []
    if all(name in expected for name in BOUNDS):
        said.append(f"{number('low')} to {number('high')}")
    elif "low" in expected:
        said.append(f"at least {number('low')}")
    elif "high" in expected:
        said.append(f"at most {number('high')}")
    for name, direction in zip(EITHER, ("rises", "falls"), strict=True):
        if name in expected:
            figure = isinstance(expected[name], str)
            said.append(direction if figure else f"{name} {number(name)}")
    if "not_above" in expected:
        said.append("not above it by more than the interval")
    if "within" in expected:
        said.append(f"no change beyond {_number(expected['within'], 'unit' not in row)}")
    elif "no_change_from" in expected:
        said.append("no change that the records show")
    if "gains_less_than" in expected:
        said.append("by less")
    return ", ".join(said)
