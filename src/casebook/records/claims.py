"""What was claimed and what was expected, each with its evidence and one verdict.

`cases/<case>/claims.yaml` has the claims of the write-up, and what we predicted of a real model
where no write-up claims anything. What a verdict may say depends on the evidence: the embedded
model can show a mechanism, never a reproduction. Verdicts of models that were run are written
nowhere: a comparison says which figure was expected to be how, when that was written down, and
the commit that froze it; the records decide. A comparison has

    what             is compared, in words
    right            the way to a figure (`records.figures`)
    left             another one, or a number as text, which it is held against
    expected         from left to right: `rises`, `falls`, `unchanged` or `not above`
    within           how large a change counts as `unchanged`; without it, what intervals show
    gains_less_than  two figures: the gain is less than from the first to the second
    low, high        bounds of the figure on the right itself, whatever its interval
    above, below     the same without equality
    unit             of the figures; without one they are shares
    date, written    when it was written down, and whether `before` or `after` the first record
    frozen           the commit that first held it; a new expectation gets it with its records
    first_record     the commit of the first record, where that came before or was looked up
    reason, seen     why it was expected, and what a trial had shown of it before
    withdrawn        why it will not be run after all

Two figures differ where every seed moves the same way and the pooled 95 % intervals (over seeds,
then prompts) do not overlap; a training has at least three seeds. A real model before its
training is one model, whatever the seed: its figure is the first seed's, with an interval over
rows only. What was written after the first record, or after a trial had shown something of it,
is exploratory, however often the records are made anew.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import yaml

from casebook.case import CasebookError, check_name, known_cases, load_case
from casebook.records import studies
from casebook.records.figures import Figures, Records, all_figures_at, figures_at, records_at
from casebook.records.record import committed, figure_text
from casebook.stats import pool_seeds

CASES = Path(__file__).parents[1] / "cases"
VERDICTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("confirmed", "refuted", "not shown"),
    "citation": ("confirmed", "refuted"),
    "same model": ("reproduced", "not reproduced", "inconclusive"),
    "other real model": ("reproduced", "not reproduced", "inconclusive"),
    "nano": ("mechanism seen", "mechanism not seen", "inconclusive"),
    "none": ("not run here",),
}
PREDICTED = HELD, FAILED, OPEN = "held", "did not hold", "inconclusive"  # of a prediction
PARTLY, NO_RUN = "partly", "no recorded run"
BASIS = {  # evidence -> the field that says where to look
    "computation": "computed_in",
    "citation": "document",
    "same model": "record",
    "other real model": "compare",
    "nano": "compare",
    "none": "command",
}
RECORDED = ("other real model", "nano")  # evidence whose verdicts the records decide
# In a tally: verdicts whose expectation came after the records -> how they are called.
EXPLORATORY = {name: f"{name}, exploratory" for name in ("same model", *RECORDED)}
PREDICTIONS_OF = "smol"  # the profile that predictions are about
FEWEST_SEEDS = 3  # below it nothing is claimed about a training
SIDES = ("left", "right")
DIRECTIONS = {"rises": 1, "falls": -1}
BOUNDS = {"low": ge, "high": le, "above": gt, "below": lt}
# Real models in words, where their weights are not the hub's own: name -> (model, its weights).
MODELS = {"smollm2": ("SmolLM2-135M-Instruct", "weights of 4 bits expanded")}


class Compared(NamedTuple):
    """What the records say of one comparison."""

    verdict: str  # one that the evidence allows (`VERDICTS`), or of `PREDICTED` and `partly`
    text: str  # what was compared, and the figures with their intervals
    seeds: int  # of both sides; 1 for a pretrained model before its training
    detectable: float  # the smallest difference that so many seeds could have shown
    detectable_text: str  # the same in points, or in the comparison's unit


# The claims and the predictions of a case


def load_claims(case: str) -> list[dict[str, Any]]:
    """The claims of a case's source, with their verdicts; an empty list where none are written.

    Returns:
        One dict per claim: `id`, `claim`, `source` (where it is said), `evidence`, `verdict`,
        `note`, `exploratory`, and where to look (`BASIS`): a notebook, a document, a record, a
        command, perhaps with the run that one would `want`. Where records decide, all of `compare`
        have to hold; with `ways: true` they are several ways to measure one thing, and the claim
        is inconclusive where they disagree. `measured` are the figures as text, and `detectable`
        the smallest differences that the seeds could have shown.

    Raises:
        UnknownName: unknown case.
        CasebookError: a claim has a verdict that its evidence does not allow, or names a figure
            that its records do not have.
    """
    rows = [row for row in _rows(case) if "id" in row]
    profiles = {one["profile"] for row in rows for one in _comparisons(row)}
    runs = [run for profile in sorted(profiles) for run in committed(case, profile)]
    return [_judged(case, row, runs) for row in rows]


def load_expectations(case: str) -> list[dict[str, Any]]:
    """The comparisons of all claims of a case, each with its `claim`'s id and its `profile`."""
    rows = [row for row in _rows(case) if "id" in row]
    return [one | {"claim": row["id"]} for row in rows for one in _comparisons(row)]


def predictions(case: str) -> list[dict[str, Any]]:
    """What we predicted of a real model where no write-up claims anything, and what came.

    Returns:
        One dict per prediction: the comparison, with `outcome` (of `PREDICTED`; `partly`, where
        some conditions held; `no recorded run`), `exploratory`, `measured` (the figures as text),
        the `model`, and `command`, which makes a record that is not there.

    Raises:
        UnknownName: unknown case.
        CasebookError: a record has no such figure.
    """
    rows = [row | {"profile": PREDICTIONS_OF} for row in _rows(case) if "id" not in row]
    runs = committed(case, PREDICTIONS_OF)
    return [row | {"exploratory": exploratory(row)} | _came(case, row, runs) for row in rows]


def exploratory(comparison: Mapping[str, Any]) -> bool:
    """Whether something was known of a comparison when it was written down."""
    return comparison["written"] == "after" or "seen" in comparison


def models_of(case: str, runs: Iterable[Mapping[str, Any]]) -> str:
    """Which real models stand behind some records, in the words that stand beside their figures."""
    unlike = _read(case, "source.yaml").get("unlike")
    shown = []
    for model in (run["provenance"]["model"] for run in runs):
        name, weights = MODELS.get(model["name"], (model["name"], ""))
        known = name if model.get("source") == "hub" or not weights else f"{name}, {weights}"
        shown.append(f"{known}; {unlike}" if unlike and weights else known)
    return " and ".join(dict.fromkeys(shown))


def _rows(case: str) -> list[dict[str, Any]]:
    """All rows of `claims.yaml`: claims, which have an `id`, and predictions."""
    check_name("case", case, known_cases())
    rows = _read(case, "claims.yaml") or []
    for row in (row for row in rows if "id" in row):
        check_name("evidence", row["evidence"], VERDICTS)
        if row["evidence"] not in RECORDED:
            check_name(f"verdict of {row['id']}", row["verdict"], VERDICTS[row["evidence"]])
        if missing := {"claim", "source", "note", BASIS[row["evidence"]]} - set(row):
            raise CasebookError(f"claims.yaml of {case}: {row['id']} has no {missing.pop()!r}")
    return rows


def _read(case: str, name: str) -> Any:
    path = CASES / case / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


def _comparisons(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What decides a claim, or would if it were run, each with the profile of its records."""
    wanted = row.get("want", row)
    profile = {"profile": wanted.get("profile", "nano")}
    return [comparison | profile for comparison in wanted.get("compare", ())]


def _judged(case: str, row: dict[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A claim as it stands; one that records decide with its verdict."""
    compare = _comparisons(row)
    row = row | {"exploratory": any(map(exploratory, compare))}
    found = [compared(case, one, runs) for one in compare]
    if not compare or ("want" in row and not all(found)):
        return row
    row = row | row.get("want", {}) | {"compare": compare}
    profile = compare[0]["profile"]
    if not all(found):
        command = f"casebook experiments {case}" + f" --profile {profile}" * (profile != "nano")
        return row | {"evidence": "none", "verdict": "not run here", "command": command}
    verdicts = {one.verdict for one in found}
    seen, unseen, undecided = VERDICTS[row["evidence"]]
    if row.get("ways") and {seen, unseen} <= verdicts:
        verdicts = {undecided}
    measured = "; ".join(one.text for one in found)
    if profile != "nano":
        measured += f" ({_models_behind(case, compare, runs)})"
    return row | {
        "verdict": next(worst for worst in (unseen, undecided, seen) if worst in verdicts),
        "measured": measured,
        "detectable": "; ".join(one.detectable_text for one in found),
    }


def _came(case: str, row: dict[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The outcome of a prediction."""
    nothing = {"outcome": NO_RUN, "measured": "", "model": "", "command": ""}
    if "withdrawn" in row:
        return nothing | {"measured": row["withdrawn"]}
    for where in _ways(row):
        name = where.partition("/")[0]
        if not any(records_at(case, name, runs, row["profile"])):
            made = f"casebook experiments {case} --profile {row['profile']} --arm {name}"
            return nothing | {"command": studies.command(name) if name in studies.STUDIES else made}
    found = compared(case, row, runs, PREDICTED)
    text = found.text.removeprefix(f"{row['what']}: ")
    model = _models_behind(case, [row], runs)
    return {"outcome": found.verdict, "measured": text, "model": model, "command": ""}


def _models_behind(case: str, compare: Sequence[Mapping], runs: Sequence[Mapping]) -> str:
    """The models of the records that some comparisons are about."""
    names = [(way.partition("/")[0], one["profile"]) for one in compare for way in _ways(one)]
    return models_of(case, (r for name, of in names for *_, r in records_at(case, name, runs, of)))


def _ways(comparison: Mapping[str, Any]) -> list[str]:
    """The ways to all figures that a comparison names."""
    sides = [comparison[side] for side in SIDES if side in comparison]
    return [
        *(side for side in sides if number_in(side) is None),
        *comparison.get("gains_less_than", ()),
    ]


# One comparison


def compared(
    case: str, comparison: Mapping, runs: Records | None = None, verdicts: Sequence[str] = ()
) -> Compared | None:
    """What the records of one model say of a comparison.

    With fewer seeds the intervals are wider, and a true difference stays unseen. How large it
    would have had to be is told by `detectable`, the half-widths of the two pooled intervals
    added: figures further apart than that have intervals that do not overlap.

    Args:
        comparison: see the head of this module; its `profile` is `nano` unless given.
        runs: see `figures_at`.
        verdicts: the words for *held*, *did not hold* and *neither*; of the profile by default.

    Returns:
        The verdict and what it rests on, or `None` where an arm has no records.

    Raises:
        CasebookError: a record has no such figure.
    """
    profile = comparison.get("profile", "nano")
    words = verdicts or VERDICTS["nano" if profile == "nano" else "other real model"]
    rights = all_figures_at(case, comparison["right"], runs, profile)
    left = _left(case, comparison, rights, runs, profile)
    if not rights or left == {}:
        return None
    # Whatever the seed: no training is behind it, and no spread between seeds.
    sides = [comparison.get(side, "") for side in SIDES]
    untrained = ("/before/" in side or number_in(side) is not None for side in sides)
    one_model = profile != "nano" and all(untrained)
    if one_model:
        first = min(next(iter(rights.values())))
        rights = {label: {first: figures[first]} for label, figures in rights.items()}
        left = {first: left[first]}
    ways = comparison.get("gains_less_than", ())
    gains = [figures_at(case, where, runs, profile) for where in ways]
    found = [_outcome(comparison, left, right, gains, one_model) for right in rights.values()]
    worst = min(found, key=(FAILED, OPEN, PARTLY, HELD).index)
    verdict = dict(zip(PREDICTED, words, strict=True)).get(worst, worst)
    unit = comparison.get("unit", "")
    seeds = {seed for figures in rights.values() for seed in figures} - {studies.SEED}
    counted = f" ({len(seeds)} seed{'s' * (len(seeds) != 1)})" if seeds else ""
    if one_model:
        counted = " (one untrained model, interval over rows)"
    said = f"{_said(comparison, left, rights, gains)}{' ' * bool(unit)}{unit}{counted}"
    both = [pooled(side) for side in (left, next(iter(rights.values()))) if side]
    least = sum((figure["high"] - figure["low"]) / 2 for figure in both)
    shown = f"{least:.2g} {unit}" if unit else f"{100 * least:.1f} points"
    return Compared(verdict, f"{comparison['what']}: {said}", len(seeds), least, shown)


def number_in(side: str) -> float | None:
    """The number that a side of a comparison is; `None` where it names a figure."""
    return float(side) if side.lstrip("-")[:1].isdigit() else None


def _left(case, comparison, rights, runs, profile) -> Figures | None:
    """What the right side is held against, by seed; `None` where it is held against nothing."""
    if "left" not in comparison:
        return None
    number = number_in(comparison["left"])
    if number is None:
        return figures_at(case, comparison["left"], runs, profile)
    figure = dict.fromkeys(("value", "low", "high"), number)
    return {seed: figure for figures in rights.values() for seed in figures}


def _outcome(
    comparison: Mapping, left: Figures | None, right: Figures, gains: Sequence, one_model: bool
) -> str:
    """What became of all conditions for one figure: of `PREDICTED`, or `partly`."""
    found = []
    value = pooled(right)["value"]
    if bounds := [name for name in BOUNDS if name in comparison]:
        found.append(all(BOUNDS[name](value, comparison[name]) for name in bounds))
    expected = comparison.get("expected")
    if expected == "not above":
        found.append(pooled(right)["low"] <= pooled(left)["value"])
    elif "within" in comparison:
        change = abs(value - pooled(left)["value"])
        found.append(change <= comparison["within"] + 1e-9)  # as decimals are written
    elif expected:
        moved = _moved(left, right, one_model)
        if expected == "unchanged":
            found.append(OPEN if moved is None else moved == 0)
        else:
            found.append(moved == DIRECTIONS[expected] if moved else OPEN)
    if gains:
        pairs = zip(_gains(left, right), _gains(*gains), strict=True)
        less = {mine < theirs for mine, theirs in pairs}
        decided = studies.SEED in right or len(right) >= FEWEST_SEEDS
        found.append(less.pop() if decided and len(less) == 1 else OPEN)
    if len(set(found)) == 1:
        return {True: HELD, False: FAILED}.get(found[0], OPEN)
    return PARTLY if True in found else FAILED


def _moved(left: Figures, right: Figures, one_model: bool) -> int | None:
    """1 for up and -1 for down from left to right, 0 where no difference is shown; `None` where
    there are too few seeds to show one."""
    seeds = [seed for seed in left if seed in right]
    if not (one_model or studies.SEED in seeds or len(seeds) >= FEWEST_SEEDS):
        return None
    left, right = ({seed: side[seed] for seed in seeds} for side in (left, right))
    moves, before, after = _gains(left, right), pooled(left), pooled(right)
    if after["low"] > before["high"] and min(moves) > 0:
        return 1
    return -1 if after["high"] < before["low"] and max(moves) < 0 else 0


def pooled(figures: Figures) -> Mapping[str, float]:
    """Figures by seed as one, with an interval over the seeds (`stats.pool_seeds`)."""
    return pool_seeds([*figures.values()])


def _gains(left: Figures, right: Figures) -> list[float]:
    return [right[seed]["value"] - left[seed]["value"] for seed in sorted(right, key=str)]


def _said(comparison, left: Figures | None, rights: Mapping, gains: Sequence[Figures]) -> str:
    """The figures of a comparison as text; of many on the right the lowest and the highest."""
    unit, right = comparison.get("unit"), next(iter(rights.values()))
    signed = "/discrimination/" in comparison["right"]
    text = _text(right, unit, signed)
    if len(rights) > 1:
        ordered = sorted(rights, key=lambda label: pooled(rights[label])["value"])
        ends = [f"{_text(rights[n], unit)} ({', '.join(n)})" for n in (ordered[0], ordered[-1])]
        text = f"{len(rights)} figures, from {ends[0]} to {ends[1]}"
    if left and number_in(comparison["left"]) is not None:
        text = f"the bound is {_text(left, unit)}, measured {text}"
    elif left:
        text = f"{_text(left, unit, signed)}, then {text}"
    if gains:
        own, other = (f"{100 * mean(_gains(*pair)):.1f}" for pair in ((left, right), gains))
        text += f", a gain of {own} points against {other} points"
    return text


def _text(figures: Figures, unit: str | None, signed: bool = False) -> str:
    """A figure with its interval, if it has one; `signed` where shares may be below 0."""
    figure = pooled(figures)
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    if signed:
        return f"{value:.1f} points [{low:.1f}, {high:.1f}]"
    if low < high:
        return figure_text(figure, percent=not unit)
    return f"{value / 100:.3g}" if unit else f"{value:.1f} %"


# The write-up itself


def load_source(case: str) -> dict[str, Any]:
    """The write-up behind a case: what it is, and which of its statements need correcting.

    Returns:
        What `cases/<case>/source.yaml` says: `title`, `author`, `date`, `address` ("not known"
        where it is not), `about`, the `task`, the `model` and its settings, and what is `ours`
        (what we did with it), as text; `numbers`, three short sentences; and `corrections`: what
        the write-up `said` and `where`, what is `right`, and where that is `shown_in`, a
        notebook's number and heading.

    Raises:
        UnknownName: unknown case.
    """
    check_name("case", case, known_cases())
    return _read(case, "source.yaml")


def write_up_box(case: str) -> str:
    """The write-up in one minute, as a Markdown table: what it is and what was done with it.

    >>> print(write_up_box("math").splitlines()[0])
    | **The write-up in one minute** | |

    Raises:
        UnknownName: unknown case.
    """
    source = load_source(case)
    title, address = source["title"], source["address"]
    known = re.fullmatch(r"https?://\S+\.\S+", address)
    rows = {
        "Title": f"[{title}]({address})" if known else f"*{title}* (address {address})",
        "Author": source["author"],
        "Date": source["date"],
        "Task": source["task"],
        "Model and settings": source["model"],
        "Its three numbers": "<br>".join(source["numbers"]),
        "What we did with it": source["ours"],
    }
    lines = [table_row(f"**{name}**", text) for name, text in rows.items()]
    return "\n".join(["| **The write-up in one minute** | |", "| --- | --- |", *lines])


# Counting


def tally(cases: Iterable[str] | None = None) -> dict[str, dict[tuple[str, str], int]]:
    """How many claims of each write-up got which verdict, kinds of evidence apart.

    Args:
        cases: names of cases; all, in the order of their notebooks, unless given.

    Returns:
        Case -> (evidence, verdict) -> count; exploratory verdicts apart (`EXPLORATORY`). All cases
        have the same columns, those that any of them uses, in the order of `VERDICTS`.
    """
    if cases is None:
        cases = sorted(known_cases(), key=lambda name: load_case(name).number)
    counts = {case: Counter() for case in cases}
    for case, found in counts.items():
        for row in load_claims(case):
            called = EXPLORATORY if row["exploratory"] else {}
            found[called.get(row["evidence"], row["evidence"]), row["verdict"]] += 1
    columns = [
        (name, verdict)
        for evidence, verdicts in VERDICTS.items()
        for name in (evidence, EXPLORATORY.get(evidence))
        for verdict in verdicts
    ]
    used = [column for column in columns if any(found[column] for found in counts.values())]
    return {case: {column: found[column] for column in used} for case, found in counts.items()}


def tally_table(counts: Mapping[str, Mapping[tuple[str, str], int]]) -> str:
    """A `tally` as a Markdown table: a row per evidence and verdict, a column per case."""
    titles = [load_case(case).title for case in counts]
    lines = [table_row("evidence", "verdict", *titles, "together")]
    lines.append("| --- | --- |" + " ---: |" * (len(titles) + 1))
    for evidence, verdict in next(iter(counts.values()), {}):
        found = [counts[case][evidence, verdict] for case in counts]
        shown = "–" if evidence == "none" else evidence
        lines.append(table_row(shown, verdict, *found, sum(found)))
    totals = [sum(found.values()) for found in counts.values()]
    lines.append(table_row("**claims**", "", *totals, sum(totals)))
    return "\n".join(lines)


def table_row(*cells: object) -> str:
    """One row of a Markdown table; a cell may hold line ends and bars.

    >>> table_row("P(a | b)", 3)
    '| P(a \\\\| b) | 3 |'
    """
    return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"
