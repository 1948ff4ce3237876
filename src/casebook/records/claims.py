"""The claims of a write-up, each with its evidence and one verdict.

They stand in `cases/<case>/claims.yaml`. What a verdict may say depends on the evidence: the
embedded model can show a mechanism, never a reproduction. Its verdicts, and those of another real
model than the write-up's, are written nowhere: `claims.yaml` says which figures to compare,
`expectations.yaml` which way they were expected to go and whether that was written down before
the first of their records, and the records decide.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import casebook.cases
from casebook import pretrained
from casebook.case import (
    NO_ANSWER,
    PROFILES,
    CasebookError,
    check_name,
    known_cases,
    load_case,
)
from casebook.records.files import figure_text
from casebook.records.gate import committed
from casebook.stats import pool_seeds

CASES = Path(casebook.cases.__path__[0])

VERDICTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("confirmed", "refuted", "not shown"),
    "citation": ("confirmed", "refuted"),
    "same model": ("reproduced", "not reproduced", "inconclusive"),
    "other real model": ("reproduced", "not reproduced", "inconclusive"),
    "nano": ("mechanism seen", "mechanism not seen", "inconclusive"),
    "none": ("not run here",),
}
BASIS = {  # evidence -> the field that says where to look
    "computation": "computed_in",
    "citation": "document",
    "same model": "record",
    "other real model": "compare",
    "nano": "compare",
    "none": "command",
}
DOCUMENT_FIELDS = ("title", "address", "date")
RECORDED = ("other real model", "nano")  # evidence whose verdicts the records decide
WANTED = ("same model", "other real model")  # what a run that a claim wants can be evidence of
WANT_FIELDS = ("evidence", "profile", "compare")
OF_COMPLETIONS = ("before", "after")  # figures that a contributed record is trusted with
# In a tally: verdicts whose expectation came after the records -> how they are called.
EXPLORATORY = {name: f"{name}, exploratory" for name in ("same model", *RECORDED)}
AS_CONFIGURED = "as_configured"  # the arm of contributed runs of a profile's own settings
SIDES = ("left", "right")  # of a comparison
DIRECTIONS = {"rises": 1, "falls": -1}
WRITTEN = ("before", "after")  # the first record of the arms that are compared
EXPECTATION_FIELDS = ("claim", "left", "right", "expected", "date", "written")
COMMITS = ("first_said", "first_record")
SOURCE_FIELDS = ("title", "author", "date", "address", "about", "task", "model", "ours")
NUMBERS = 3  # of a write-up's own figures, in the box that introduces it
CORRECTION_FIELDS = ("said", "where", "right", "shown_in")
FEWEST_SEEDS = 3  # below it nothing is claimed about a training


class Compared(NamedTuple):
    """One figure against another, over the seeds that both arms have.

    Attributes:
        verdict: one that the evidence allows: see `VERDICTS`.
        text: what was compared and both figures with their intervals.
        seeds: how many seeds both arms have; 1 for a pretrained model before its training.
        detectable: the smallest difference that so many seeds could have shown: see `compared`.
        detectable_text: the same in points, or in the comparison's unit.
    """

    verdict: str
    text: str
    seeds: int
    detectable: float
    detectable_text: str


def load_claims(case: str) -> list[dict[str, Any]]:
    """The claims of a case's source, with their verdicts; an empty list where none are written.

    Args:
        case: name of the case.

    Returns:
        One dict per claim: `id`, `claim`, `source` (where it is said), `evidence`, `verdict`,
        `note`, `exploratory`, and where to look: `computed_in` (a notebook) for evidence by
        computation, `document` (its `title`, `address` and `date`) for a citation, `record` for
        a run of the source's model, `command` for what was not run, perhaps with what it would
        `want`: the `evidence` that a run would be, its `profile`, and what to `compare`; with such
        records, which anybody can send, it has that evidence and the verdict they give. Where
        records decide (the embedded model, or another real one, whose claims name a `profile`)
        each entry of `compare` has its expectation (see `load_expectations`) and that profile, and
        the verdict, `measured` (the figures as text, and which model a real one was) and
        `detectable` (the smallest differences that the seeds could have shown, as text) come from
        the records that `compare` names; without them the claim was not run here. All comparisons
        have to hold; with `ways: true` they are several ways to measure one thing, and the claim is
        inconclusive where one holds and another fails. `exploratory` is
        true where an expectation of the claim was written down after the first record it is about,
        or after a trial had shown something of it.

    Raises:
        UnknownName: unknown case.
        CasebookError: the file is no list of claims, or a claim lacks a field, repeats an id,
            or has a verdict that its evidence does not allow, or a comparison and its
            expectation do not fit; the message names the claim.
    """
    check_name("case", case, known_cases())
    path = CASES / case / "claims.yaml"
    if not path.exists():
        return []
    rows = read_list(path, "claims")
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
    rows = _with_expectations(case, rows)
    arms = set().union(*map(arms_of, rows))
    profiles = sorted({profile for profile, _ in arms})
    runs = [run for profile in profiles for run in committed(case, profile)]
    runs = [run for run in runs if (run["profile"], run.get("arm")) in arms]
    return [_judged(case, row, runs) for row in rows]


def load_expectations(case: str) -> list[dict[str, str]]:
    """What was expected of each comparison, and when that was written down.

    It stands in `cases/<case>/expectations.yaml`; an empty list where there is no such file.

    Returns:
        One dict per comparison: the `claim`'s id, `left` and `right` as in the claim's `compare`,
        `expected` (`rises` or `falls`, from left to right), perhaps the `reason`, the `date` it was
        written (ISO), and
        whether that was `written` `before` or `after` the first record of either arm was
        committed; after it, the comparison is exploratory, however often its records are made
        anew. What was said before this file existed also has two commits by which git's history
        shows it: `first_said`, where claims.yaml first held the comparison with this
        expectation, and `first_record`, where the first record of either arm was added. A later
        row with `written: before` has neither: the commit that added it must be an ancestor of
        the revision that made its records. `written: after` always names `first_record`. A row
        may say what a trial had `seen` of it before it was written: then it is exploratory, too.

    Raises:
        UnknownName: unknown case.
        CasebookError: the file cannot be read, or a row lacks a field or repeats another.
    """
    check_name("case", case, known_cases())
    path = CASES / case / "expectations.yaml"
    if not path.exists():
        return []
    rows = read_list(path, "expectations")
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 1):
        try:
            _check_expectation(row)
            if _pair(row) in seen:
                raise CasebookError("the same comparison of that claim has another expectation")
        except CasebookError as error:
            name = row.get("claim") if isinstance(row, dict) else None
            where = f"{path.name} of {case}, row {number} ({name or 'no claim'})"
            raise CasebookError(f"{where}: {error}") from None
        seen.add(_pair(row))
    return rows


def load_source(case: str) -> dict[str, Any]:
    """The write-up behind a case: what it is, and which of its statements need correcting.

    It stands in `cases/<case>/source.yaml`.

    Returns:
        `title`, `author`, `date`, `address` ("not known" where it is not), `about`, the `task`,
        the `model` and its settings, and what is `ours` (what we did with it), as text;
        `numbers`, three short sentences with the write-up's own figures; and `corrections`, a
        list of dicts: what the write-up `said` and `where`, what is `right`, and where that is
        `shown_in`, a notebook's number and heading with a middle dot between.

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
        check_fields(source, {*SOURCE_FIELDS, "numbers", "corrections"})
        for name in SOURCE_FIELDS:
            check_text(source, name)
        numbers = source.get("numbers")
        if not isinstance(numbers, list) or len(numbers) != NUMBERS:
            raise CasebookError(f"'numbers' must be a list of {NUMBERS} sentences")
        for number in numbers:
            if not isinstance(number, str) or not re.search(r"\d", number):
                raise CasebookError(f"{str(number)[:40]!r} in 'numbers' has no figure in it")
        if not isinstance(source.get("corrections"), list):
            raise CasebookError("'corrections' must be a list")
        for correction in source["corrections"]:
            check_fields(correction, set(CORRECTION_FIELDS))
            for name in CORRECTION_FIELDS:
                check_text(correction, name)
            if not re.fullmatch(r"\d\d · \S.*", correction["shown_in"]):
                raise CasebookError(f"{correction['shown_in']!r} is no '41 · Heading'")
    except CasebookError as error:
        raise CasebookError(f"{path.name} of {case}: {error}") from None
    return source


def write_up_box(case: str) -> str:
    """The write-up in one minute, as a Markdown table: what it is and what was done with it.

    Title (a link where the address is known), author and date, task, model and settings, three
    of its own figures, and what we did with it.

    >>> print(write_up_box("math").splitlines()[0])
    | **The write-up in one minute** | |

    Raises:
        UnknownName: unknown case.
        CasebookError: see `load_source`.
    """
    source = load_source(case)
    title, address = source["title"], source["address"]
    linked = f"[{title}]({address})"
    rows = {
        "Title": linked if _is_address(address) else f"*{title}* (address {address})",
        "Author": source["author"],
        "Date": source["date"],
        "Task": source["task"],
        "Model and settings": source["model"],
        "Its three numbers": "<br>".join(source["numbers"]),
        "What we did with it": source["ours"],
    }
    lines = ["| **The write-up in one minute** | |", "| --- | --- |"]
    return "\n".join([*lines, *(table_row(f"**{name}**", text) for name, text in rows.items())])


def table_row(*cells: object) -> str:
    """One row of a Markdown table; a cell may hold line ends and bars.

    >>> table_row("P(a | b)", 3)
    '| P(a \\\\| b) | 3 |'
    """
    return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"


def tally(cases: Iterable[str] | None = None) -> dict[str, dict[tuple[str, str], int]]:
    """How many claims of each write-up got which verdict, kinds of evidence apart.

    Args:
        cases: names of cases; all, in the order of their notebooks, unless given.

    Returns:
        Case -> (evidence, verdict) -> count. The evidence is one of `VERDICTS`, or one of
        `EXPLORATORY` for verdicts of records whose expectation was written down after the first
        of them. All cases have the same columns, those that any of them uses, in the order of
        `VERDICTS`, each evidence's exploratory ones after its own.
    """
    if cases is None:
        cases = sorted(known_cases(), key=lambda name: load_case(name).number)
    counts = {case: Counter(map(_column, load_claims(case))) for case in cases}
    columns = []
    for evidence, verdicts in VERDICTS.items():
        columns += [(evidence, verdict) for verdict in verdicts]
        if evidence in EXPLORATORY:
            columns += [(EXPLORATORY[evidence], verdict) for verdict in verdicts]
    used = [column for column in columns if any(found[column] for found in counts.values())]
    return {case: {column: found[column] for column in used} for case, found in counts.items()}


def _column(row: Mapping[str, Any]) -> tuple[str, str]:
    """Where a claim is counted."""
    evidence = row["evidence"]
    return EXPLORATORY.get(evidence, evidence) if row["exploratory"] else evidence, row["verdict"]


def tally_table(counts: Mapping[str, Mapping[tuple[str, str], int]]) -> str:
    """A `tally` as a Markdown table: a row per evidence and verdict, a column per case."""
    titles = [load_case(case).title for case in counts]
    lines = [table_row("evidence", "verdict", *titles, "together")]
    lines.append("| --- | --- |" + " ---: |" * (len(titles) + 1))
    columns = list(next(iter(counts.values()), {}))
    for evidence, verdict in columns:
        found = [counts[case][evidence, verdict] for case in counts]
        shown = "–" if evidence == "none" else evidence
        lines.append(table_row(shown, verdict, *found, sum(found)))
    totals = [sum(found.values()) for found in counts.values()]
    lines.append(table_row("**claims**", "", *totals, sum(totals)))
    return "\n".join(lines)


def compared(
    case: str, comparison: Mapping[str, str], runs: Sequence[Mapping[str, Any]] | None = None
) -> Compared | None:
    """What the records of one model say about one figure against another.

    With fewer seeds the intervals are wider, and a true difference stays unseen. How large it
    would have had to be is told by `detectable`, the half-widths of the two pooled intervals
    added:

        detectable = (left.high - left.low) / 2 + (right.high - right.low) / 2

    Two figures further apart than that have intervals that do not overlap; the rule is careful
    where both arms were measured on the same prompts.

    Args:
        case: name of the case.
        comparison: `what` is compared, in words; `left` and `right`, each "arm/when/figure" as
            `figures_at` takes it, or one of them a number as text, such as "0.125", that each
            seed is held against; what is `expected` of it from left to right, `rises` or
            `falls`; perhaps a `unit`: without one the figures are shares; and the `profile` of
            the records, the embedded model's (`nano`) unless given.
        runs: see `figures_at`.

    Returns:
        The verdict, the two figures as text and what could have been seen, or `None` where an
        arm has no records. The mechanism is *seen* (on a real model the claim is *reproduced*)
        where every seed moves as expected and the pooled 95 % intervals (over seeds, then
        prompts) do not overlap, *not seen* (*not reproduced*) where that holds the other way
        round, and all else is inconclusive, as is what fewer than three seeds of a training say.
        A pretrained model before its training is one model, whatever the seed: its figure is the
        first seed's, with an interval over rows only, and counts as one seed.

    Raises:
        CasebookError: a field is missing, or a record has no such figure.
    """
    for field in ("what", *SIDES, "expected"):
        check_text(comparison, field)
    check_name("expectation", comparison["expected"], DIRECTIONS)
    profile = comparison.get("profile", "nano")
    seen, unseen, undecided = VERDICTS["nano" if profile == "nano" else "other real model"]
    numbers = [number_in(comparison[side]) for side in SIDES]
    sides = [
        figures_at(case, comparison[side], runs, profile) if number is None else {}
        for side, number in zip(SIDES, numbers, strict=True)
    ]
    for side, number in enumerate(numbers):
        if number is not None:
            figure = dict.fromkeys(("value", "low", "high"), number)
            sides[side] = dict.fromkeys(sides[1 - side], figure)
    if not all(sides):
        return None
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if not seeds:
        return None
    one_model = profile != "nano" and all(map(_untrained, (comparison[side] for side in SIDES)))
    if one_model:  # whatever the seed: no training is behind it, and no spread between seeds
        seeds = seeds[:1]
    left, right = (pool_seeds([side[seed] for seed in seeds]) for side in sides)
    sign = DIRECTIONS[comparison["expected"]]
    moves = [sign * (sides[1][seed]["value"] - sides[0][seed]["value"]) for seed in seeds]
    apart = right["low"] > left["high"] or left["low"] > right["high"]
    enough = apart and (one_model or len(seeds) >= FEWEST_SEEDS)
    verdict = undecided
    if enough and all(move > 0 for move in moves):
        verdict = seen
    elif enough and all(move < 0 for move in moves):
        verdict = unseen
    unit = comparison.get("unit", "")
    signed = any("/discrimination/" in comparison[side] for side in SIDES)
    texts = [_text(figure, unit, signed) for figure in (left, right)]
    bounds = [number is not None for number in numbers]
    if any(bounds):
        bound, measured = (texts[bounds.index(wanted)] for wanted in (True, False))
        said = f"the bound is {bound.partition(' [')[0]}, measured {measured}"
    else:
        said = f"{texts[0]}, then {texts[1]}"
    said += f"{' ' * bool(unit)}{unit}"
    least = sum((figure["high"] - figure["low"]) / 2 for figure in (left, right))
    shown = f"{least:.2g} {unit}" if unit else f"{100 * least:.1f} points"
    counted = "one untrained model, interval over rows" if one_model else f"{len(seeds)} seeds"
    text = f"{comparison['what']}: {said} ({counted})"
    return Compared(verdict, text, len(seeds), least, shown)


def _text(figure: Mapping[str, float], unit: str, signed: bool) -> str:
    """A figure as text; `signed` where it is a difference of shares, which may be below 0."""
    if not signed:
        return figure_text(figure, percent=not unit)
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} points [{low:.1f}, {high:.1f}]"


def answer_entropy(histogram: Mapping[str, int]) -> float:
    """How evenly the labels are answered, in bits: 0 for one label, 3 for eight equal ones.

    Unlike the share of the most frequent label it sees labels disappear at the other end.

    >>> answer_entropy({"flush": 2, "straight": 2, "none": 5})
    1.0
    """
    counts = [n for label, n in histogram.items() if label != NO_ANSWER and n]
    total = sum(counts)
    return sum(n / total * math.log2(total / n) for n in counts)


def kl_in_reward(windows: Sequence[float]) -> dict[str, float]:
    """The smallest and the largest window of the KL that a reward estimates, in nats per token.

    Args:
        windows: means of `kl_penalty`, which is minus that estimate.

    >>> kl_in_reward([0.25, -0.5])
    {'smallest': -0.25, 'largest': 0.5}
    """
    return {"smallest": -max(windows), "largest": -min(windows)}


def labels_recalled(confusion: Sequence[Sequence[float]]) -> int:
    """How many labels are ever answered where they are right: their recall is above zero.

    >>> labels_recalled([[3, 1, 0], [4, 0, 0], [0, 0, 4]])
    2
    """
    return sum(row[label] > 0 for label, row in enumerate(confusion))


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


def figures_at(
    case: str,
    where: str,
    runs: Sequence[Mapping[str, Any]] | None = None,
    profile: str = "nano",
) -> dict[int, Mapping[str, float]]:
    """One figure of an arm's records, by seed; empty where the arm has none.

    Args:
        case: name of the case.
        where: "arm/when/figure", the names a record has on the way to the figure, as in
            `grpo/after/greedy_accuracy`. `answer_entropy` reads a label histogram,
            `labels_recalled` and `discrimination/flush` a confusion matrix, and
            `curve/kl_in_reward/largest` a curve.
        runs: committed records to read it from, if they are read already; those of other arms
            and profiles are passed over.
        profile: of the records.

    Returns:
        Seed -> figure; a plain number becomes a figure without width.

    Raises:
        CasebookError: a record of the arm has no such figure, as one without test rows has none
            of before and after. A contributed record that has it not is passed over.
    """
    arm, *steps = where.split("/")
    figures = {}
    if runs is None:
        runs = committed(case, profile, arm)
    for record in runs:
        if (record["profile"], record.get("arm")) != (profile, arm):
            continue
        try:
            value: Any = record
            for step in steps:
                value = _step(case, record, value, step)
            if not isinstance(value, Mapping):
                value = dict.fromkeys(("value", "low", "high"), float(value))
        except (KeyError, TypeError, ValueError):
            if "contributed" in record:  # it has only what its completions show
                continue
            seed = record["seed"]
            raise CasebookError(f"the record of seed {seed} has no figure {where!r}") from None
        figures[record["seed"]] = value
    return figures


def _step(case: str, record: Mapping[str, Any], value: Any, step: str) -> Any:
    """One step on the way to a figure: a field, or what is computed from one."""
    if step == "answer_entropy":
        return answer_entropy(value["label_histogram"])
    if step == "labels_recalled":
        return labels_recalled(value["confusion"])
    if step == "kl_in_reward":
        return kl_in_reward(value["rewards/kl_penalty/mean"])
    if step == "discrimination":
        table, samples = value["confusion"], record["config"]["test_samples"]
        names = load_case(case).labels
        return {name: discrimination(table, i, samples) for i, name in enumerate(names)}
    return value[step]


def arms_of(row: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The profile and arm of the records that a claim's verdict comes from."""
    return {
        (comparison.get("profile", "nano"), comparison[side].partition("/")[0])
        for comparison in _comparisons(row)
        for side in SIDES
        if number_in(comparison[side]) is None
    }


def _comparisons(row: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    """What a claim compares, or would compare if the run that it wants were there."""
    return row["want"]["compare"] if "want" in row else row.get("compare", ())


def _untrained(side: str) -> bool:
    """Whether a side is a number, or a figure of the model before training."""
    return number_in(side) is not None or "/before/" in side


def number_in(side: str) -> float | None:
    """The number that a side of a comparison is; `None` where it names a figure."""
    try:
        return float(side)
    except ValueError:
        return None


def _judged(case: str, row: dict[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A claim as it stands; one that records decide with its verdict."""
    if row["evidence"] not in RECORDED and "want" not in row:
        return row
    found = [compared(case, comparison, runs) for comparison in _comparisons(row)]
    if not all(found):
        if "want" in row:
            return row
        command = f"casebook experiments {case}"
        if "profile" in row:
            command += f" --profile {row['profile']}"
        return row | {"evidence": "none", "verdict": "not run here", "command": command}
    verdicts = {one.verdict for one in found}
    row = row | row.get("want", {})
    seen, unseen, undecided = VERDICTS[row["evidence"]]
    if row.get("ways") and {seen, unseen} <= verdicts:
        verdicts = {undecided}
    used = [run for run in runs if (run["profile"], run.get("arm")) in arms_of(row)]
    measured = "; ".join(one.text for one in found)
    if row["evidence"] != "nano":
        measured += f" ({models_of(case, used)})"
    return row | {
        "verdict": next(worst for worst in (unseen, undecided, seen) if worst in verdicts),
        "measured": measured,
        "detectable": "; ".join(one.detectable_text for one in found),
    }


def models_of(case: str, runs: Iterable[Mapping[str, Any]]) -> str:
    """Which real models stand behind some records, in the words that stand beside their figures."""
    shown = (pretrained.shown(run["provenance"]["model"], case) for run in runs)
    return " and ".join(dict.fromkeys(shown))


def _with_expectations(case: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The claims, each comparison with what was expected of it; `exploratory` on every claim."""
    expected = {_pair(row): row for row in load_expectations(case)}
    waiting = set(expected)
    made = []
    for row in rows:
        compare = []
        profile = row.get("want", row).get("profile")
        for comparison in _comparisons(row):
            pair = (row["id"], comparison["left"], comparison["right"])
            if pair not in expected:
                raise CasebookError(
                    f"expectations.yaml of {case} has nothing about claim {row['id']}, "
                    f"{comparison['left']} against {comparison['right']}"
                )
            waiting.discard(pair)
            fields = {k: v for k, v in expected[pair].items() if k != "claim"}
            if profile:
                fields["profile"] = profile
            compare.append(comparison | fields)
        exploratory = any(one["written"] == "after" or "seen" in one for one in compare)
        if "want" in row:
            row = row | {"want": row["want"] | {"compare": compare}}
        elif compare:
            row = row | {"compare": compare}
        made.append(row | {"exploratory": exploratory})
    if waiting:
        claim, left, right = sorted(waiting)[0]
        raise CasebookError(
            f"expectations.yaml of {case}: claim {claim} does not compare {left} with {right}"
        )
    return made


def _pair(row: Mapping[str, str]) -> tuple[str, str, str]:
    return row["claim"], row["left"], row["right"]


def read_list(path: Path, content: str) -> list[Any]:
    """The list that a YAML file holds; `content` says what of, in the error if it is none."""
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CasebookError(f"{path} is not valid YAML: {error}".replace("\n", " ")) from error
    if not isinstance(rows, list):
        raise CasebookError(f"{path} must be a list of {content}")
    return rows


def _check_claim(row: Any) -> None:
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    for field in ("id", "claim", "source", "evidence", "note"):
        check_text(row, field)
    check_name("evidence", row["evidence"], VERDICTS)
    basis = BASIS[row["evidence"]]
    known = {"id", "claim", "source", "evidence", "note", basis}
    if row["evidence"] in RECORDED:
        _check_comparisons(row["evidence"], row.get(basis))
        if row["evidence"] != "nano":
            _check_profile(row)
            known.add("profile")
        known.add("ways")
        if row.get("ways", True) is not True or ("ways" in row and len(row[basis]) < 2):
            raise CasebookError("'ways' is true, or left out, and wants several comparisons")
    else:
        check_text(row, "verdict")
        known.add("verdict")
        if row["evidence"] == "citation":
            _check_document(row.get(basis))
        else:
            check_text(row, basis)
        if row["evidence"] == "none" and "want" in row:
            _check_want(row["want"])
            known.add("want")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"{row['evidence']!r} evidence has no field {extra[0]!r}")
    if row["evidence"] not in RECORDED and row["verdict"] not in VERDICTS[row["evidence"]]:
        raise CasebookError(
            f"verdict {row['verdict']!r} is not one that evidence {row['evidence']!r} allows: "
            + ", ".join(VERDICTS[row["evidence"]])
        )


def _check_want(want: Any) -> None:
    """Raise `CasebookError` unless a claim says which figures of which runs would decide it."""
    check_fields(want, set(WANT_FIELDS))
    check_text(want, "evidence")
    check_name("evidence of a wanted run", want["evidence"], WANTED)
    _check_profile(want)
    _check_comparisons(want["evidence"], want.get("compare"))
    for comparison in want["compare"]:
        for side in SIDES:
            _, _, figure = comparison[side].partition("/")
            when = figure.partition("/")[0]
            if number_in(comparison[side]) is None and when not in OF_COMPLETIONS:
                raise CasebookError(
                    f"{comparison[side]!r} is no figure that completions show: before or after"
                )


def _check_profile(row: Mapping[str, Any]) -> None:
    check_text(row, "profile")
    check_name("profile", row["profile"], [name for name, p in PROFILES.items() if not p.embedded])


def _check_comparisons(evidence: str, comparisons: Any) -> None:
    if not isinstance(comparisons, list) or not comparisons:
        raise CasebookError(f"{evidence!r} evidence needs 'compare', a list of comparisons")
    for comparison in comparisons:
        if isinstance(comparison, dict) and "expected" in comparison:
            raise CasebookError("what is 'expected' of a comparison belongs in expectations.yaml")
        check_fields(comparison, {"what", "left", "right", "unit"})
        for field in ("what", *SIDES):
            check_text(comparison, field)
        if all(number_in(comparison[side]) is not None for side in SIDES):
            raise CasebookError("a comparison of two numbers asks no record")


def _check_document(document: Any) -> None:
    if document is None:
        raise CasebookError("a citation needs 'document': its title, address and date")
    check_fields(document, set(DOCUMENT_FIELDS))
    for field in DOCUMENT_FIELDS:
        check_text(document, field)
    if not _is_address(document["address"]):
        raise CasebookError(f"{document['address']!r} is no address of a document")
    if not re.search(r"\b(19|20)\d\d\b", document["date"]):
        raise CasebookError(f"{document['date']!r} is no date: it has no year")


def _check_expectation(row: Any) -> None:
    check_fields(row, {*EXPECTATION_FIELDS, *COMMITS, "reason", "seen"})
    for field in (*EXPECTATION_FIELDS, *(name for name in ("reason", "seen") if name in row)):
        check_text(row, field)
    check_name("expectation", row["expected"], DIRECTIONS)
    check_name("value of 'written'", row["written"], WRITTEN)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]):
        raise CasebookError(f"{row['date']!r} is no date such as 2026-11-22")
    for field in COMMITS:
        if field in row and not re.fullmatch(r"[0-9a-f]{7,40}", str(row[field])):
            raise CasebookError(f"{row[field]!r} in {field!r} is no commit")
    if row["written"] == "after" and "first_record" not in row:
        raise CasebookError("what was written after the records names 'first_record', a commit")
    if row["written"] == "before" and ("first_said" in row) != ("first_record" in row):
        raise CasebookError("'first_said' and 'first_record' prove it together, or neither does")


def check_fields(row: Any, known: set[str]) -> None:
    """Raise `CasebookError` unless a row holds fields, and known ones only."""
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"there is no field {extra[0]!r}")


def check_text(row: Mapping[str, Any], field: str) -> None:
    """Raise `CasebookError` unless a field holds text."""
    if not isinstance(row.get(field), str) or not row[field].strip():
        raise CasebookError(f"the field {field!r} is missing or is not text")


def _is_address(text: str) -> bool:
    return re.fullmatch(r"https?://\S+\.\S+", text) is not None
