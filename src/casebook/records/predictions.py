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
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from numbers import Real
from pathlib import Path
from typing import Any

import casebook.cases
from casebook.case import CasebookError, check_name, known_cases
from casebook.records.claims import check_fields, check_text, read_list
from casebook.records.studies import STUDIES
from casebook.settings import read_arms

CASES = Path(casebook.cases.__path__[0])
PROFILE = "smol"
TEXTS = ("what", "record", "figure", "reason", "date")
OPTIONAL = ("seen", "unit")
BOUNDS = ("low", "high")
EITHER = ("above", "below")  # a number or a figure
FIGURES = ("not_above", "no_change_from")
CONDITIONS = (*BOUNDS, *EITHER, *FIGURES, "within", "gains_less_than")


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
    known = [name for name, study in STUDIES.items() if study.case == case]
    known += [name for name, arm in read_arms(case).items() if arm["profile"] == PROFILE]
    found = [name for name in known if fnmatch(name, pattern)]
    if not found:
        check_name("study or arm", pattern, known)
    return found


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
