"""What the records say now, against what they said at a commit: Markdown, a section a case.

    python benchmarks/changed_records.py main > changed.md

A figure is pooled over the seeds that an arm has on both sides, with its 95 % interval. It has
moved where it lies outside the interval that it had. Verdicts are those of today's claims, from
the records of either side.
"""

import io
import itertools
import math
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from casebook import paths
from casebook.case import CasebookError, known_cases, load_case
from casebook.records import committed, figure_text, load_claims
from casebook.records.claims import table_row
from casebook.stats import pool_seeds

FIGURES = {
    **{"sampled_accuracy": "sampled", "greedy_accuracy": "greedy"},
    **{"lenient_accuracy": "lenient", "well_formed": "well formed"},
}
SIDES = {"before": "base", "after": "policy"}

Records = Mapping[str, Mapping[int, Mapping[str, Any]]]  # arm -> seed -> record


class Change(NamedTuple):
    """One figure of an arm, then and now."""

    figure: str
    old: Mapping[str, float]
    new: Mapping[str, float]

    @property
    def points(self) -> float:
        """How far it is from where it was."""
        return 100 * (self.new["value"] - self.old["value"])

    @property
    def times(self) -> float:
        """The same in halves of the interval that it had."""
        half = 100 * (self.old["high"] - self.old["low"]) / 2
        return abs(self.points) / half if half else math.inf

    @property
    def moved(self) -> bool:
        """Whether it lies outside the interval that it had."""
        return not self.old["low"] <= self.new["value"] <= self.old["high"]


@contextmanager
def results_at(revision: str) -> Iterator[None]:
    """Inside it, the committed results are those of a commit."""
    made = subprocess.run(
        ["git", "archive", "--format=tar", revision, "results"], capture_output=True, cwd=paths.ROOT
    )
    if made.returncode:
        raise CasebookError(f"git has no results at {revision!r}: {made.stderr.decode().strip()}")
    own = paths.RESULTS
    with TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
        paths.RESULTS = Path(folder) / "results"
        try:
            yield
        finally:
            paths.RESULTS = own


def read(case: str) -> tuple[Records, dict[str, Mapping[str, Any]]]:
    """The embedded model's records of a case, and its claims by their ids."""
    arms: dict[str, dict[int, Mapping[str, Any]]] = {}
    for record in committed(case, "nano", say=lambda line: None):
        arms.setdefault(record["arm"], {})[record["seed"]] = record
    return arms, {claim["id"]: claim for claim in load_claims(case, say=lambda line: None)}


def changes(old: Mapping[int, Mapping], new: Mapping[int, Mapping]) -> list[Change]:
    """The figures of an arm, over the seeds that it has on both sides."""
    seeds = sorted(set(old) & set(new))
    found = []
    for (when, side), (name, words) in itertools.product(SIDES.items(), FIGURES.items()):
        then, now = (pool_seeds([arm[seed][when][name] for seed in seeds]) for arm in (old, new))
        found.append(Change(f"{side}, {words}", then, now))
    return found


def moved_table(found: Mapping[str, list[Change]]) -> str:
    """The figures that moved, the farthest first; arms that share one stand in one row."""
    rows: dict[tuple, list[str]] = {}
    for arm, figures in found.items():
        for change in (change for change in figures if change.moved):
            texts = figure_text(change.old), figure_text(change.new)
            sizes = f"{change.points:+.1f}", f"{change.times:.1f}"
            rows.setdefault((-change.times, change.figure, *texts, *sizes), []).append(f"`{arm}`")
    if not rows:
        return ""
    head = ("arm", "figure", "then", "now", "points", "in halves of the interval")
    lines = [table_row(*head), "| --- | --- | ---: | ---: | ---: | ---: |"]
    lines += [table_row(", ".join(arms), *row[1:]) for row, arms in sorted(rows.items())]
    return "\n".join(lines)


def rest(found: Mapping[str, list[Change]]) -> str:
    """One line about the arms in which nothing moved."""
    farthest = {
        arm: max(abs(change.points) for change in figures)
        for arm, figures in found.items()
        if not any(change.moved for change in figures)
    }
    near = [f"`{arm}` ({points:.1f})" for arm, points in farthest.items() if points]
    same = [f"`{arm}`" for arm, points in farthest.items() if not points]
    parts = []
    if near:
        parts.append(f"within all intervals, with the largest change in points: {', '.join(near)}")
    if same:
        parts.append(f"equal in every figure: {', '.join(same)}")
    return f"Other arms {'; '.join(parts)}." if parts else ""


def verdicts(old: Mapping[str, Mapping], new: Mapping[str, Mapping]) -> str:
    """The claims whose verdict is another one now."""
    flipped = [name for name in new if new[name]["verdict"] != old[name]["verdict"]]
    if not flipped:
        return f"No verdict of {len(new)} claims changed."
    head = ("claim", "verdict then", "verdict now", "measured then", "measured now")
    lines = [table_row(*head), "| --- " * len(head) + "|"]
    for name in flipped:
        sides = old[name], new[name]
        shown = name + ", exploratory" * new[name]["exploratory"]
        measured = [side.get("measured", "–") for side in sides]
        lines.append(table_row(shown, *(side["verdict"] for side in sides), *measured))
    return "\n".join(lines)


def section(case: str, revision: str) -> str:
    """What changed in a case."""
    with results_at(revision):
        old, old_claims = read(case)
    new, new_claims = read(case)
    both = [arm for arm in new if set(old.get(arm, ())) & set(new[arm])]
    anew = [old.get(arm, {}).get(seed) != new[arm][seed] for arm in new for seed in new[arm]]
    said = f"{sum(anew)} of {len(anew)} records were made anew since `{revision}`."
    for word, arms in (("New", set(new) - set(old)), ("Gone", set(old) - set(new))):
        if arms:
            said += f" {word} arms: {', '.join(f'`{arm}`' for arm in sorted(arms))}."
    found = {arm: changes(old[arm], new[arm]) for arm in both}
    parts = [f"## {load_case(case).title}", said, moved_table(found), rest(found)]
    parts.append(verdicts(old_claims, new_claims))
    return "\n\n".join(filter(None, parts)) + "\n"


def main(revision: str) -> None:
    about = __doc__.rpartition("changed.md")[2].strip()
    print(f"# The records, against those of `{revision}`\n\n{about}\n")
    for case in sorted(known_cases(), key=lambda name: load_case(name).number):
        print(section(case, revision))


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    except CasebookError as error:
        sys.exit(f"changed_records: {error}")
