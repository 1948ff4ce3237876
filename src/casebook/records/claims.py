"""The claims of a write-up, each with its evidence and one verdict.

They stand in `cases/<case>/claims.yaml`. What a verdict may say depends on the evidence: the
embedded model can show a mechanism, never a reproduction. Its verdicts are written nowhere: the
file says which figures to compare, and the records decide.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import casebook.cases
from casebook.case import CasebookError, check_name, known_cases, load_case
from casebook.records.files import figure_text
from casebook.records.gate import committed
from casebook.stats import mean_interval, pool_seeds

CASES = Path(casebook.cases.__path__[0])

VERDICTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("confirmed", "refuted"),
    "same model": ("reproduced", "not reproduced", "inconclusive"),
    "other real model": ("reproduced", "not reproduced", "inconclusive"),
    "nano": ("mechanism seen", "mechanism not seen", "inconclusive"),
    "none": ("not run here",),
}
BASIS = {  # evidence -> the field that says where to look
    "computation": "computed_in",
    "same model": "record",
    "other real model": "record",
    "nano": "compare",
    "none": "command",
}
NO_ANSWER = "none"  # in a label histogram: no answer could be read
DIRECTIONS = {"rises": 1, "falls": -1}
SOURCE_FIELDS = ("title", "author", "date", "address", "about")
CORRECTION_FIELDS = ("said", "where", "right", "shown_in")
FEWEST_SEEDS = 3  # below it nothing is claimed about a training


def load_claims(case: str) -> list[dict[str, str]]:
    """The claims of a case's source, with their verdicts; an empty list where none are written.

    Returns:
        One dict a claim: `id`, `claim`, `source` (where it is said), `evidence`, `verdict`, `note`,
        and where to look: `computed_in` (a notebook) for evidence by computation, `record` for
        a run of the source's or another real model, `command` for what was not run. For nano
        evidence the verdict and `measured`, the figures as text, come from the records that
        `compare` names (see `compared`); without them the claim was not run here.

    Raises:
        UnknownName: unknown case.
        CasebookError: the file is no list of claims, or a claim lacks a field, repeats an id,
            or has a verdict that its evidence does not allow; the message names the claim.
    """
    check_name("case", case, known_cases())
    path = CASES / case / "claims.yaml"
    if not path.exists():
        return []
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CasebookError(f"{path} is not valid YAML: {error}".replace("\n", " ")) from error
    if not isinstance(rows, list):
        raise CasebookError(f"{path} must be a list of claims")
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        name = row.get("id") if isinstance(row, dict) else None
        try:
            _check_claim(row)
            if name in seen:
                raise CasebookError("another claim has the same id")
        except CasebookError as error:
            raise CasebookError(f"{path.name} of {case}, claim {name or number}: {error}") from None
        seen.add(name)
    return [_judged(case, row) for row in rows]


def load_source(case: str) -> dict[str, Any]:
    """The write-up behind a case: what it is, and which of its statements need correcting.

    It stands in `cases/<case>/source.yaml`.

    Returns:
        `title`, `author`, `date`, `address` ("not known" where it is not) and `about`, as text; and
        `corrections`, a list of dicts: what the write-up `said` and `where`, what is `right`, and
        where that is `shown_in`, a notebook's number and heading with a middle dot between.

    Raises:
        UnknownName: unknown case.
        CasebookError: there is no such file, or a field is missing or none of these.
    """
    check_name("case", case, known_cases())
    path = CASES / case / "source.yaml"
    try:
        source = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CasebookError(f"{path} cannot be read: {error}".replace("\n", " ")) from error
    try:
        _check_fields(source, {*SOURCE_FIELDS, "corrections"})
        for name in SOURCE_FIELDS:
            _check_text(source, name)
        if not isinstance(source["corrections"], list):
            raise CasebookError("'corrections' must be a list")
        for correction in source["corrections"]:
            _check_fields(correction, set(CORRECTION_FIELDS))
            for name in CORRECTION_FIELDS:
                _check_text(correction, name)
            if not re.fullmatch(r"\d\d · \S.*", correction["shown_in"]):
                raise CasebookError(f"{correction['shown_in']!r} is no '41 · Heading'")
    except CasebookError as error:
        raise CasebookError(f"{path.name} of {case}: {error}") from None
    return source


def _check_fields(row: Any, known: set[str]) -> None:
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"there is no field {extra[0]!r}")


def compared(case: str, comparison: Mapping[str, str]) -> tuple[str, str] | None:
    """What the embedded model's records say about one figure against another.

    Args:
        case: name of the case.
        comparison: `what` is compared, in words; `left` and `right`, each "arm/when/figure" as
            `figures_at` takes it; what is `expected` of it from left to right, `rises` or
            `falls`; and perhaps a `unit`: without one the figures are shares.

    Returns:
        The verdict and the two figures as text, or `None` where an arm has no records. The
        mechanism is *seen* where every seed moves as expected and the pooled 95 % intervals
        (over seeds, then prompts) do not overlap, *not seen* where that holds the other way
        round, and all else is inconclusive, as is what fewer than three seeds say.

    Raises:
        CasebookError: a field is missing, or a record has no such figure.
    """
    for field in ("what", "left", "right", "expected"):
        _check_text(comparison, field)
    check_name("expectation", comparison["expected"], DIRECTIONS)
    sides = [figures_at(case, comparison[side]) for side in ("left", "right")]
    if not all(sides):
        return None
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if not seeds:
        return None
    left, right = (pool_seeds([side[seed] for seed in seeds]) for side in sides)
    sign = DIRECTIONS[comparison["expected"]]
    moves = [sign * (sides[1][seed]["value"] - sides[0][seed]["value"]) for seed in seeds]
    apart = right["low"] > left["high"] or left["low"] > right["high"]
    enough = apart and len(seeds) >= FEWEST_SEEDS
    verdict = "inconclusive"
    if enough and all(move > 0 for move in moves):
        verdict = "mechanism seen"
    elif enough and all(move < 0 for move in moves):
        verdict = "mechanism not seen"
    unit = comparison.get("unit", "")
    texts = [figure_text(figure, percent=not unit) for figure in (left, right)]
    said = f"{texts[0]}, then {texts[1]}{' ' * bool(unit)}{unit}"
    return verdict, f"{comparison['what']}: {said} ({len(seeds)} seeds)"


def commonest_label(histogram: Mapping[str, int]) -> dict[str, float]:
    """The share of the label that was answered most often, as a figure: 1.0 is a constant answer.

    What could not be read counts as an answer, but is no label.

    >>> commonest_label({"flush": 3, "straight": 1})["value"]
    0.75
    """
    answers = sum(histogram.values())
    most = max((n for label, n in histogram.items() if label != NO_ANSWER), default=0)
    return mean_interval([1.0] * most + [0.0] * (answers - most))


def discrimination(
    confusion: Sequence[Sequence[float]], label: int, samples: int
) -> dict[str, float]:
    """How well one label is told from the others: its recall less its false alarms, as a figure.

    Naming it always gives 0, as naming it never does; recall alone would pay the first.

    Args:
        confusion: counts, true label by answer, as records keep them.
        label: the label's row and column.
        samples: completions of each prompt, which are not independent.
    """
    shares, error = [], 0.0
    rows = [
        [row for i, row in enumerate(confusion) if (i == label) is own] for own in (True, False)
    ]
    for part in rows:
        named, total = sum(row[label] for row in part), sum(map(sum, part))
        shares.append(named / total)
        error += shares[-1] * (1 - shares[-1]) / (total / samples)
    value = shares[0] - shares[1]
    half = 1.96 * math.sqrt(error)
    return {"value": value, "low": value - half, "high": value + half, "n": len(confusion)}


def figures_at(case: str, where: str) -> dict[int, Mapping[str, float]]:
    """One figure of the embedded model's records, by seed; empty where the arm has none.

    Args:
        case: name of the case.
        where: "arm/when/figure", the names a record has on the way to the figure, as in
            `grpo/after/greedy_accuracy`. `commonest_label` reads a label histogram, and
            `discrimination/flush` a confusion matrix.

    Returns:
        Seed -> figure; a plain number becomes a figure without width.

    Raises:
        CasebookError: a record of the arm has no such figure.
    """
    arm, *steps = where.split("/")
    figures = {}
    for record in committed(case, "nano", arm):
        try:
            value: Any = record
            for step in steps:
                if step == "commonest_label":
                    value = commonest_label(value["label_histogram"])
                elif step == "discrimination":
                    table, samples = value["confusion"], record["config"]["test_samples"]
                    names = load_case(case).labels
                    value = {
                        name: discrimination(table, i, samples) for i, name in enumerate(names)
                    }
                else:
                    value = value[step]
            if not isinstance(value, Mapping):
                value = dict.fromkeys(("value", "low", "high"), float(value))
        except (KeyError, TypeError, ValueError):
            seed = record["seed"]
            raise CasebookError(f"the record of seed {seed} has no figure {where!r}") from None
        figures[record["seed"]] = value
    return figures


def _judged(case: str, row: dict[str, Any]) -> dict[str, Any]:
    """A claim as it stands; one about the embedded model with its verdict, from the records."""
    if row["evidence"] != "nano":
        return row
    found = [compared(case, comparison) for comparison in row["compare"]]
    if not all(found):
        missing_run = {"evidence": "none", "verdict": "not run here"}
        return row | missing_run | {"command": f"casebook experiments {case}"}
    verdicts = {verdict for verdict, _ in found}
    for worst in ("mechanism not seen", "inconclusive", "mechanism seen"):
        if worst in verdicts:
            break
    return row | {"verdict": worst, "measured": "; ".join(text for _, text in found)}


def _check_claim(row: Any) -> None:
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    for field in ("id", "claim", "source", "evidence", "note"):
        _check_text(row, field)
    check_name("evidence", row["evidence"], VERDICTS)
    basis = BASIS[row["evidence"]]
    known = {"id", "claim", "source", "evidence", "note", basis}
    if row["evidence"] == "nano":
        if not isinstance(row.get(basis), list) or not row[basis]:
            raise CasebookError("nano evidence needs 'compare', a list of comparisons")
    else:
        _check_text(row, "verdict")
        _check_text(row, basis)
        known.add("verdict")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"{row['evidence']!r} evidence has no field {extra[0]!r}")
    if row["evidence"] != "nano" and row["verdict"] not in VERDICTS[row["evidence"]]:
        raise CasebookError(
            f"verdict {row['verdict']!r} is not one that evidence {row['evidence']!r} allows: "
            + ", ".join(VERDICTS[row["evidence"]])
        )


def _check_text(row: Mapping[str, Any], field: str) -> None:
    if not isinstance(row.get(field), str) or not row[field].strip():
        raise CasebookError(f"the field {field!r} is missing or is not text")
