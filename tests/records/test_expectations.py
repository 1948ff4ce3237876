"""Expectations against git's history: what was said before the first record, and what was not.

`frozen` names the commit that first held an expectation. Here git is asked whether that came
before the first record of the arms or studies that it is about. Records made anew change nothing:
the first one counts.
"""

import subprocess
from functools import cache
from pathlib import Path

import pytest

from casebook import records
from casebook.case import known_cases
from casebook.records import claims, studies

ROOT = Path(__file__).parents[2]


@cache
def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def history():
    try:
        own = Path(git("rev-parse", "--show-toplevel").strip()).resolve() == ROOT.resolve()
        whole = own and git("rev-parse", "--is-shallow-repository").strip() == "false"
    except (OSError, subprocess.CalledProcessError):
        whole = False
    if not whole:
        pytest.skip("there is no whole git history here")


def before(first: str, second: str) -> bool:
    """Whether one commit is a true ancestor of another."""
    first, second = (git("rev-parse", f"{name}^{{commit}}").strip() for name in (first, second))
    return first != second and git("merge-base", first, second).strip() == first


@cache
def first_records(case: str) -> dict[str, str]:
    """File of a record -> the commit that added it."""
    log = ["log", "--topo-order", "--diff-filter=A", "--no-renames", "--name-only", "--format=@%H"]
    added, commit = {}, ""
    for line in git(*log, "--", f"results/{case}").splitlines():
        if line.startswith("@"):
            commit = line[1:]
        elif line:
            added[line.removeprefix(f"results/{case}/")] = commit
    return added


def commits_of_records(case, row):
    """For each arm or study that a row is about, the commits that added its first records."""
    found = []
    for name in {way.partition("/")[0] for way in claims._ways(row)}:
        start = f"{row['profile']}/{name.rstrip('*')}" + "/seed" * (not name.endswith("*"))
        if name in studies.STUDIES:
            start = f"data/{name}.json"
        added = first_records(case).items()
        found.append({commit for file, commit in added if file.startswith(start)})
    return found


def check(case, row, found):
    """Raise `AssertionError` if a row claims more than history shows.

    Two arms can be compared when the later one has its records; a known one foretells nothing.
    """
    if not all(found):
        return  # not everything was run yet
    assert "frozen" in row, "records are there: name the commit that froze the expectation"
    assert git("show", "-s", "--format=%cs", row["frozen"]).strip() == row["date"]
    early = any(all(before(row["frozen"], commit) for commit in commits) for commits in found)
    assert row["written"] == ("before" if early else "after")


ROWS = [
    (case, row)
    for case in known_cases()
    for one in [*records.load_claims(case), *records.predictions(case)]
    for row in (claims._comparisons(one) if "id" in one else [one])
]


@pytest.mark.parametrize("case", known_cases())
def test_what_was_written_before_its_records_and_what_after(history, case):
    for row in (row for owner, row in ROWS if owner == case):
        check(case, row, commits_of_records(case, row))
