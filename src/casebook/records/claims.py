"""What was claimed and what was expected, each with its evidence and one verdict.

`cases/<case>/claims.yaml` has the claims of the write-up, and what we predicted of a model
where no write-up claims anything. What a verdict may say depends on the evidence: the embedded
model can show a mechanism, never a reproduction. Verdicts of models that were run are written
nowhere: a comparison says which figure was expected to be how, when that was written down, and
the commit that froze it; the records decide. A comparison has

    what             is compared, in words
    right            the way to a figure (`records.figures`)
    left             another one, or a number as text, which it is held against
    expected         from left to right: `rises`, `falls`, `differs` (either way), `equivalent` (no
                     change beyond the margin) or `not above`
    margin           the largest change that counts as none: 5 points unless it is given; where
                     there is a unit, none but what is given
    fixed            both sides read the same fixed texts: only seeds are chance
    gains_less_than  two figures: the gain is less than from the first to the second
    low, high        bounds of the figure on the right itself, whatever its interval
    above, below     the same without equality
    unit             of the figures; without one they are shares
    gate             where this comparison does not hold, nothing could be learned, and the whole
                     claim is inconclusive
    date, written    when it was written down, and whether `before` or `after` the first record
    frozen           the commit that first held it; a new expectation gets it with its records
    first_record     the commit of the first record, where that came before or was looked up
    reason, seen     why it was expected, and what a trial had shown of it before
    withdrawn        why it will not be run after all

The interval of the difference decides (`stats.contrast`): paired by test row and clustered where
records keep bits, t over seeds. *Rises* holds where it lies above 0, and does not hold where it
lies below 0 or within the margin; else nothing can be told. Each training has three seeds or more.
A real model before its training is one model, whatever the seed: its interval is over rows only.
What was written after the first record, or after a trial had shown something of it, is
exploratory, however often the records are made anew.

A claim may have a `weight` (`central`, `detail` or `slip`, a loose phrase that is not counted), and
`by_design` says that the planting of the embedded corpus, or bounds of ours that could hardly be
missed, decide it: shown, and not counted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import ge, gt, le, lt
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import yaml

from casebook.case import CasebookError, check_name, known_cases
from casebook.records import studies
from casebook.records.figures import (
    Figures,
    Records,
    all_figures_at,
    difference_of,
    figures_at,
    pooled,
    records_at,
)
from casebook.records.record import committed, figure_text
from casebook.stats import Difference, holm

CASES = Path(__file__).parents[1] / "cases"
VERDICTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("confirmed", "refuted", "not shown"),
    "citation": ("confirmed", "refuted", "not shown"),
    "same model": ("reproduced", "not reproduced", "inconclusive", "equivalent"),
    "other real model": ("reproduced", "not reproduced", "inconclusive", "equivalent"),
    "nano": ("mechanism seen", "mechanism not seen", "inconclusive", "equivalent"),
    "none": ("not run here",),
}
WEIGHTS = ("central", "detail", "slip")
WORDS = HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"  # as pages say it
PREDICTED = HELD, FAILED, OPEN = "held", "did not hold", UNKNOWN  # of a prediction
PARTLY, NO_RUN, NOT_RUN, REST = "partly", "no recorded run", "not run here", "by design"
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
PREDICTIONS_OF = "smol"  # the profile that predictions are about, unless they name another
FEWEST_SEEDS = 3  # below it nothing is claimed about a training
SIDES = ("left", "right")
MARGIN = 0.05  # in shares
BOUNDS = {"low": ge, "high": le, "above": gt, "below": lt}
# Real models in words, where their weights are not the hub's own: name -> (model, its weights).
MODELS = {"smollm2": ("SmolLM2-135M-Instruct", "weights from a 4-bit file")}


class Compared(NamedTuple):
    """What the records say of one comparison."""

    outcome: str  # of `PREDICTED`, or `partly`
    text: str  # what was compared, and the figures with their intervals
    difference: Difference | None  # right less left; `None` where only bounds are given
    equivalent: bool  # that is what was shown, expected or not
    power: str  # what so many seeds and rows can tell from no difference


# The claims and the predictions of a case


def load_claims(case: str) -> list[dict[str, Any]]:
    """The claims of a case's source, with their verdicts; an empty list where none are written.

    Returns:
        One dict per claim: `id`, `claim`, `source` (where it is said), `evidence`, `verdict`,
        `note`, `exploratory`, and where to look (`BASIS`): a notebook, a document, a record, a
        command, perhaps with the run that one would `want`. Where records decide, all of `compare`
        have to hold; with `ways: true` they are several ways to measure one thing, and the claim
        is inconclusive where only some hold, or where they differ in opposite directions.
        `measured` are the figures as text, `differences` what was compared, `power` says which of
        them could be told, and `word` is the verdict as pages say it (`WORDS`).

    Raises:
        UnknownName: unknown case.
        CasebookError: a claim has a verdict that its evidence does not allow, or names a figure
            that its records do not have.
    """
    rows = [row for row in _rows(case) if "id" in row]
    profiles = {one["profile"] for row in rows for one in _comparisons(row)}
    runs = [run for profile in sorted(profiles) for run in committed(case, profile)]
    return [_judged(case, row, runs) for row in rows]


def predictions(case: str) -> list[dict[str, Any]]:
    """What we predicted where no write-up claims anything, and what came.

    Returns:
        One dict per prediction: the comparison, with `outcome` (of `PREDICTED`; `partly`, where
        some conditions held; `no recorded run`), `exploratory`, `measured` (the figures as text),
        the `model`, and `command`, which makes a record that is not there.

    Raises:
        UnknownName: unknown case.
        CasebookError: a record has no such figure.
    """
    rows = [{"profile": PREDICTIONS_OF} | row for row in _rows(case) if "id" not in row]
    runs = [run for profile in {row["profile"] for row in rows} for run in committed(case, profile)]
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
        check_name(f"weight of {row['id']}", row.setdefault("weight", "detail"), WEIGHTS)
        if missing := {"claim", "source", "note", BASIS[row["evidence"]]} - set(row):
            raise CasebookError(f"claims.yaml of {case}: {row['id']} has no {missing.pop()!r}")
    return rows


def _read(case: str, name: str) -> Any:
    path = CASES / case / name
    return yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) if path.exists() else None


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
        return row | {"word": _word(row["verdict"])}
    row = row | row.get("want", {}) | {"compare": compare}
    profile = compare[0]["profile"]
    if not all(found):
        command = f"casebook experiments {case}" + f" --profile {profile}" * (profile != "nano")
        return row | {"evidence": "none", "verdict": NOT_RUN, "word": NOT_RUN, "command": command}
    outcomes = {OPEN if one.outcome == PARTLY else one.outcome for one in found}
    pairs = [*zip(found, compare, strict=True)]
    closed = [a for a, b in pairs if b.get("gate") and a.outcome != HELD]
    told = [a.difference for a, b in pairs if b.get("expected") == "differs" and a.outcome == HELD]
    if (row.get("ways") and (len(outcomes) > 1 or len({d.value > 0 for d in told}) > 1)) or closed:
        outcomes = {OPEN}
    worst = next(one for one in (FAILED, OPEN, HELD) if one in outcomes)
    deciding = [one for one in found if one.outcome == worst]
    seen, unseen, undecided, equal = VERDICTS[row["evidence"]]
    verdict = {HELD: seen, FAILED: unseen, OPEN: undecided}[worst]
    measured = "; ".join(one.text for one in found)
    if profile != "nano":
        measured += f" ({_models_behind(case, compare, runs)})"
    return row | {
        "verdict": equal if deciding and all(one.equivalent for one in deciding) else verdict,
        "word": dict(zip((HELD, FAILED, OPEN), WORDS, strict=True))[worst],
        "measured": measured,
        "power": "; ".join(one.power for one in found if one.power),
        "differences": [one.difference for one in found if one.difference],
    }


def _word(verdict: str) -> str:
    """A verdict that a person gave, as pages say it."""
    for verdicts in VERDICTS.values():
        if verdict in verdicts[:3]:
            return NOT_RUN if verdict == NOT_RUN else WORDS[verdicts.index(verdict)]
    return UNKNOWN


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
    found = compared(case, row, runs)
    measured, model = found.text.removeprefix(f"{row['what']}: "), _models_behind(case, [row], runs)
    return nothing | {"outcome": found.outcome, "measured": measured, "model": model}


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


def compared(case: str, comparison: Mapping, runs: Records | None = None) -> Compared | None:
    """What the records of one model say of a comparison.

    Args:
        comparison: see the head of this module; its `profile` is `nano` unless given.
        runs: see `figures_at`.

    Returns:
        The outcome and what it rests on, or `None` where an arm has no records.

    Raises:
        CasebookError: a record has no such figure.
    """
    profile = comparison.get("profile", "nano")
    rights = all_figures_at(case, comparison["right"], runs, profile)
    left = _left(case, comparison, rights, runs, profile)
    gains = [figures_at(case, w, runs, profile) for w in comparison.get("gains_less_than", ())]
    if not rights or left == {} or not all(gains):
        return None
    sides = (comparison.get(side, "") for side in SIDES)
    one_model = profile != "nano" and all(_untrained(comparison, side) for side in sides)
    if one_model:  # whatever the seed, and without a spread between seeds
        first = min(next(iter(rights.values())))
        rights = {label: {first: figures[first]} for label, figures in rights.items()}
        left = {first: left[first]}
    judged = [_outcome(comparison, left, right, gains) for right in rights.values()]
    order = (FAILED, OPEN, PARTLY, HELD).index
    outcome, difference, equivalent = min(judged, key=lambda one: order(one[0]))
    unit = comparison.get("unit", "")
    figures = [figure for side in (left or {}, *rights.values()) for figure in side.values()]
    rows = {len(figure["rows"]) for figure in figures if "rows" in figure}
    trained = [len({*side} - {studies.SEED}) for side in (left or {}, *rights.values())]
    seeds = [*dict.fromkeys(filter(None, trained))]  # of both sides, once where they agree
    counted = f" ({' and '.join(map(str, seeds))} seed{'s' * (seeds != [1])})" if seeds else ""
    if one_model:
        counted = " (one untrained model, interval over rows)"
    text = f"{comparison['what']}: {_said(comparison, left, rights, gains)} {unit}".rstrip()
    power = ""
    if difference:
        # Without a unit it is a share, and shares differ by 1 at most.
        scale, digits, most, unit = (1, ".3g", inf, unit) if unit else (100, ".1f", 1, "points")
        ends = (difference.value, max(difference.low, -most), min(difference.high, most))
        value, low, high = (f"{scale * end:+{digits}}" for end in ends)
        if len(rights) == 1:
            text += f", of different rows; on the {min(rows)} rows of both" if len(rows) > 1 else ""
            text += f": {value} {unit} [{low}, {high}]{', equivalent' * equivalent}"
        least, more = (scale * x for x in (difference.critical, difference.powered))
        power = f"critical difference {least:{digits}}, with 80 % power {more:{digits}} {unit}"
    return Compared(outcome, text + counted, difference, equivalent, power)


def number_in(side: str) -> float | None:
    """The number that a side of a comparison is; `None` where it names a figure."""
    return float(side) if side.lstrip("-")[:1].isdigit() else None


def _untrained(comparison: Mapping, way: str) -> bool:
    """Whether no training is behind a side: it is a number, or a real model as it was fetched."""
    real = comparison.get("profile", "nano") != "nano"
    return number_in(way) is not None or (real and "/before/" in way)


def _left(case, comparison, rights, runs, profile) -> Figures | None:
    """What the right side is held against, by seed; `None` where it is held against nothing."""
    if "left" not in comparison:
        return None
    if (number := number_in(comparison["left"])) is None:
        return figures_at(case, comparison["left"], runs, profile)
    figure = dict.fromkeys(("value", "low", "high"), number)
    return {seed: figure for figures in rights.values() for seed in figures}


def _outcome(
    comparison: Mapping, left: Figures | None, right: Figures, gains: Sequence[Figures]
) -> tuple[str, Difference | None, bool]:
    """What became of all conditions for one figure (of `PREDICTED`, or `partly`), the difference,
    and whether it is that nothing changes."""
    found: list[Any] = []
    value = mean(figure["value"] for figure in right.values())
    ways = [comparison.get(side, "") for side in SIDES] + [*comparison.get("gains_less_than", ())]
    decided = all(
        _untrained(comparison, way) or studies.SEED in seeds or len(seeds) >= FEWEST_SEEDS
        for way, seeds in zip(ways, (left or {}, right, *gains), strict=True)
        if way
    )
    if bounds := [name for name in BOUNDS if name in comparison]:
        within = all(BOUNDS[name](value, comparison[name]) for name in bounds)
        found.append(within if decided else OPEN)
    expected = comparison.get("expected")
    margin = comparison.get("margin", 0.0 if "unit" in comparison else MARGIN)
    if comparison.get("fixed"):
        left, right = (
            {seed: dict.fromkeys(("value", "low", "high"), f["value"]) for seed, f in side.items()}
            for side in (left, right)
        )
    difference = left and difference_of((-1, left), (1, right))
    equivalent = False
    if expected:
        found.append(holds := _holds(expected, difference, margin) if decided else OPEN)
        shown = (holds is False) or (holds is True and expected == "equivalent")
        equivalent = shown and difference.within(margin)
    if gains:
        less = difference_of((1, left), (-1, right), (-1, gains[0]), (1, gains[1]))
        found.append(_holds("rises", less, margin) if decided else OPEN)
    if len(set(found)) == 1:
        outcome = {True: HELD, False: FAILED}.get(found[0], OPEN)
    else:
        outcome = PARTLY if True in found else FAILED
    return outcome, difference, equivalent


def _holds(expected: str, difference: Difference, margin: float) -> bool | str:
    """Whether a difference is as expected, or `OPEN` where its interval leaves that open."""
    low, high = difference.low, difference.high
    yes, no = {
        "rises": (low > 0, high < 0),
        "falls": (high < 0, low > 0),
        "differs": (low > 0 or high < 0, False),
        "not above": (high <= margin, low > 0),
        "equivalent": (difference.within(margin), low > margin or high < -margin),
    }[expected]
    if yes:
        return True
    return False if no or difference.within(margin) else OPEN


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
        pairs = ((left, right), gains)
        own, other = (f"{100 * difference_of((-1, a), (1, b)).value:.1f}" for a, b in pairs)
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

    >>> print(write_up_box("math").splitlines()[3])
    | **Date** | 21 August 2025 |

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
    return "\n".join([lines[0], "| --- | --- |", *lines[1:]])


# Counting


def counts(row: Mapping[str, Any]) -> bool:
    """Whether a claim is counted: a slip is not, nor what is decided by design."""
    return row["weight"] != "slip" and not row.get("by_design")


def tally(claims: Mapping[str, Sequence[Mapping]]) -> dict[str, dict[tuple[str, str], int]]:
    """How many claims of each write-up hold or not, kinds of evidence apart.

    Args:
        claims: case -> its claims, as `load_claims` has them.

    Returns:
        Case -> (evidence, word of `WORDS` or `not run here`) -> number of claims that are counted;
        exploratory ones apart (`EXPLORATORY`). All cases have the same columns, those that any of
        them uses, in the order of `VERDICTS`.
    """
    found = {case: Counter() for case in claims}
    for case, count in found.items():
        for row in filter(counts, claims[case]):
            called = EXPLORATORY if row["exploratory"] else {}
            count[called.get(row["evidence"], row["evidence"]), row["word"]] += 1
    columns = [
        (name, word)
        for evidence in VERDICTS
        for name in (evidence, EXPLORATORY.get(evidence))
        for word in (*WORDS, NOT_RUN)
    ]
    used = [column for column in columns if any(count[column] for count in found.values())]
    return {case: {column: count[column] for column in used} for case, count in found.items()}


def verdict_tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Claims but slips as Markdown: the central ones in short; below them, folded, with reasons."""
    rows = [row for row in rows if row["weight"] != "slip"]
    counted = Counter(row["word"] if counts(row) else REST for row in rows)
    said = ", ".join(f"{word}: {counted[word]}" for word in (*WORDS, NOT_RUN, REST))
    ranked = sorted(rows, key=lambda r: (not counts(r), r["word"] == NOT_RUN, r["weight"]))
    central = [r for r in ranked if r["weight"] == "central" and counts(r)]
    short = (table_row(row["claim"], _said_of(row)) for row in central)
    full = (table_row(f"{r['claim']} *({r['source']})*", _said_of(r), _why(r)) for r in ranked)
    fold = f"\n<details><summary>All {len(rows)}, with the reasons ({said})</summary>\n"
    heads = ("| claim | verdict |\n| --- | --- |", "| claim | verdict | why |\n| --- | --- | --- |")
    return "\n".join([heads[0], *short, fold, heads[1], *full, "\n</details>"])


def _said_of(row: Mapping[str, Any]) -> str:
    """A verdict as pages say it, and small below it what it rests on."""
    tags = [row["evidence"]] * (row["evidence"] != "none") + ["exploratory"] * row["exploratory"]
    word = REST if row.get("by_design") else row["word"]
    return f'<abbr title="{row["verdict"]}">**{word}**</abbr><br><small>{", ".join(tags)}</small>'


def _why(row: Mapping[str, Any]) -> str:
    why = row["note"]
    if "measured" in row:  # folded: long, and the verdict says what comes of it
        figures = row["measured"] + f" ({row['power']})" * bool(row["power"])
        why += f" <details><summary>figures</summary>{figures}</details>"
    if "document" in row:
        why += " ([{title}]({address}), {date})".format(**row["document"])
    why += f" `{row['command']}`" if "command" in row else ""
    return why + (f" ({row['computed_in']})" if "computed_in" in row else "")


def corrected(claims: Mapping[str, Sequence[Mapping]]) -> dict[str, Any]:
    """The comparisons that counted claims rest on, each once: their `number`, how many are `told`
    from no difference at 5 %, how many Holm's correction over all of them has `left`, and the
    claims behind the others, `lost`: their ids."""
    rows = [row for of_case in claims.values() for row in filter(counts, of_case)]
    found = [{(d.p, d.value) for d in row.get("differences", ())} for row in rows]
    each = sorted(set().union(*found))
    told, left = sum(p <= 0.05 for p, _ in each), holm([p for p, _ in each])
    lost = [row["id"] for row, own in zip(rows, found, strict=True) if own & {*each[left:told]}]
    return {"number": len(each), "told": told, "left": left, "lost": lost}


def table_row(*cells: object) -> str:
    """One row of a Markdown table; a cell may hold line ends and bars.

    >>> table_row("P(a | b)", 3)
    '| P(a \\\\| b) | 3 |'
    """
    return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"
