"""Expectations against git's history: what was said before the first record, and what was not.

A claim's row in expectations.yaml names the commits that show when its expectation was written.
Here git is asked whether that is so. Records made anew change nothing: the first one counts.
"""

import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from casebook import records
from casebook.case import known_cases
from casebook.records import predictions, studies

ROOT = Path(__file__).parents[2]
CASES = "src/casebook/cases"


@cache
def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def no_history() -> str:
    """Why git's history cannot be asked here; empty where it can."""
    try:
        if Path(git("rev-parse", "--show-toplevel").strip()).resolve() != ROOT.resolve():
            return "this checkout is not a git repository of its own"
        if git("rev-parse", "--is-shallow-repository").strip() == "true":
            return "this clone is shallow: its history is cut off"
    except (OSError, subprocess.CalledProcessError):
        return "there is no git history here"
    return ""


@pytest.fixture
def history():
    if why := no_history():
        pytest.skip(why)


def before(first: str, second: str) -> bool:
    """Whether one commit is a true ancestor of another."""
    first, second = (git("rev-parse", f"{name}^{{commit}}").strip() for name in (first, second))
    return first != second and git("merge-base", first, second).strip() == first


@cache
def versions(path: str) -> tuple[tuple[str, list], ...]:
    """All versions of a YAML file, the oldest first: commit and content."""
    commits = git("log", "--topo-order", "--reverse", "--format=%H", "--", path).split()
    found = []
    for commit in commits:
        try:
            found.append((commit, yaml.safe_load(git("show", f"{commit}:{path}")) or []))
        except subprocess.CalledProcessError:  # the commit that removed it
            continue
    return tuple(found)


@cache
def first_records(case: str) -> dict[tuple[str, str], str]:
    """Profile and arm -> the commit that added its first record."""
    arms: dict[tuple[str, str], str] = {}
    log = ["log", "--topo-order", "--reverse", "--diff-filter=A", "--no-renames", "--name-only"]
    commit = ""
    for line in git(*log, "--format=@%H", "--", f"results/{case}").splitlines():
        if line.startswith("@"):
            commit = line[1:]
        elif "/seed" in line:
            arms.setdefault((line.split("/")[2], line.split("/")[3]), commit)
    return arms


@cache
def profile_of(case: str, claim: str) -> str:
    """The profile of the records that a claim is about."""
    rows = yaml.safe_load((ROOT / CASES / case / "claims.yaml").read_text())
    return next((row.get("profile", "nano") for row in rows if row["id"] == claim), "nano")


def arms_of(case, row):
    """The profile and arm of either side that names a figure."""
    sides = [row[side].split("/") for side in ("left", "right")]
    return {(profile_of(case, row["claim"]), side[0]) for side in sides if len(side) > 1}


def first_record(case, row):
    """The earliest first record of the row's arms; `None` where none was ever committed."""
    found = [first_records(case)[arm] for arm in arms_of(case, row) if arm in first_records(case)]
    for commit in found:
        if not any(before(other, commit) for other in found):
            return commit
    return None


def first_said(case, row):
    """The first commit in which claims.yaml held the comparison with this expectation."""
    wanted = tuple(row[field] for field in ("left", "right", "expected"))
    for commit, claims in versions(f"{CASES}/{case}/claims.yaml"):
        for claim in claims:
            for one in claim.get("compare") or ():
                if (one["left"], one["right"], one.get("expected")) == wanted:
                    return commit
    return None


def added(case, row):
    """The first commit in which expectations.yaml held the row; `None` if it is not committed."""
    fields = ("claim", "left", "right", "expected", "written")
    for commit, rows in versions(f"{CASES}/{case}/expectations.yaml"):
        if any(all(old.get(field) == row[field] for field in fields) for old in rows):
            return commit
    return None


ROWS = [(case, row) for case in sorted(known_cases()) for row in records.load_expectations(case)]
SAID = [pair for pair in ROWS if "first_said" in pair[1]]
LATER = [pair for pair in ROWS if "first_said" not in pair[1]]


def names(pairs):
    return [f"{case}-{row['claim']}-{row['left']}" for case, row in pairs]


@pytest.mark.parametrize(("case", "row"), SAID, ids=names(SAID))
def test_what_was_said_when_claims_held_the_expectations(history, case, row):
    said, measured = first_said(case, row), first_record(case, row)
    assert said is not None
    assert said.startswith(row["first_said"])
    assert measured.startswith(row["first_record"])
    assert row["written"] == ("before" if before(said, measured) else "after")
    assert git("show", "-s", "--format=%cs", said).strip() == row["date"]


@pytest.mark.parametrize(("case", "row"), LATER, ids=names(LATER))
def test_a_later_expectation_is_committed_before_its_records_or_exploratory(history, case, row):
    check_later(case, row)


def check_later(case, row, measured=None, runs=None):
    """Raise `AssertionError` if a row without `first_said` claims more than history shows."""
    measured = measured or first_record(case, row)
    if row["written"] == "after":
        assert measured is not None, "there is no record that it could have come after"
        assert measured.startswith(row["first_record"])
        return
    if runs is None:
        runs = [run for arm in arms_of(case, row) for run in records.committed(case, *arm)]
    said = added(case, row)
    if measured is None and not runs:
        return  # nothing was run yet
    assert said is not None, "commit the expectation before its arms are run"
    assert measured is None or before(said, measured), "its arms had records already"
    for run in runs:
        made = run["provenance"]["git"]
        assert made["dirty"] is False, "a record made in a changed tree shows nothing"
        assert git("merge-base", said, made["revision"]).strip() == said


PREDICTED = [(c, row) for c in sorted(known_cases()) for row in predictions.load_predictions(c)]


@pytest.mark.parametrize(
    ("case", "row"),
    PREDICTED,
    ids=[f"{case}-{row['record']}-{row['figure']}" for case, row in PREDICTED],
)
def test_a_prediction_is_committed_before_its_records(history, case, row):
    runs = [run for name in predictions.records_of(case, row["record"]) for run in made(case, name)]
    check_prediction(case, row, runs)


def made(case, name):
    """The records of a study or of an arm of the real model."""
    if name not in studies.STUDIES:
        return records.committed(case, predictions.PROFILE, name)
    return [studies.read(name)] if studies.path(name).exists() else []


def check_prediction(case, row, runs):
    """Raise `AssertionError` if a record was made before its prediction was committed."""
    if not runs:
        return
    fields = ("record", "figure", "expected")
    said = next(
        (
            commit
            for commit, rows in versions(f"{CASES}/{case}/predictions.yaml")
            if any(all(old.get(field) == row[field] for field in fields) for old in rows)
        ),
        None,
    )
    assert said is not None, "commit the prediction before it is run"
    for run in runs:
        git_state = run["provenance"]["git"]
        assert git_state["dirty"] is False, "a record made in a changed tree shows nothing"
        assert git("merge-base", said, git_state["revision"]).strip() == said, "predicted after it"


def test_a_record_made_before_its_prediction_is_found_out(history):
    case, row = PREDICTED[0]
    if not versions(f"{CASES}/{case}/predictions.yaml"):
        pytest.skip("predictions.yaml is not committed yet")
    head = git("rev-parse", "HEAD").strip()
    root = git("rev-list", "--max-parents=0", "HEAD").split()[0]
    check_prediction(case, row, [run_at(head)])
    with pytest.raises(AssertionError, match="predicted after it"):
        check_prediction(case, row, [run_at(root)])
    with pytest.raises(AssertionError, match="changed tree"):
        check_prediction(case, row, [run_at(head, dirty=True)])
    with pytest.raises(AssertionError, match="before it is run"):
        check_prediction(case, row | {"expected": {"low": 0.987}}, [run_at(head)])


def test_known_rows_came_after_the_data():
    """Two were turned when the records were there, and one was added after them."""
    after = {(c, row["claim"]) for c, row in ROWS if row["written"] == "after" or "seen" in row}
    assert {("gsm8k", "choice-alpha"), ("gsm8k", "choice-full")} <= after
    assert ("poker", "overemphasis-sampled") in after
    for case in ("poker", "gsm8k"):
        for claim in records.load_claims(case):
            assert claim["exploratory"] is ((case, claim["id"]) in after)


# The rule for later rows, tried on a row that is there and records that are not

OLD = {"claim": "x", "left": "grpo/before/a", "right": "grpo/after/a", "expected": "rises"}


def run_at(revision, dirty=False):
    return {"provenance": {"git": {"revision": revision, "dirty": dirty}}}


def committed_row():
    """A row of the oldest version of an expectations.yaml, and the commit that added it."""
    commit, rows = versions(f"{CASES}/poker/expectations.yaml")[0]
    return {k: v for k, v in rows[0].items() if k not in ("first_said", "first_record")}, commit


def test_an_expectation_counts_from_the_commit_that_adds_it(history):
    if not versions(f"{CASES}/poker/expectations.yaml"):
        pytest.skip("expectations.yaml is not committed yet")
    row, commit = committed_row()
    assert added("poker", row) == commit
    assert added("poker", row | {"expected": "falls"}) != commit
    early = git("rev-parse", f"{commit}^").strip()
    later = row | {"written": "before"}
    # The arm of this row had records long before, whatever the new records say.
    with pytest.raises(AssertionError):
        check_later("poker", later, runs=[run_at(commit)])
    assert before(early, commit)
    assert not before(commit, commit)
    assert not before(commit, early)


def test_a_row_without_commit_and_one_without_records(history):
    fresh = OLD | {"written": "before", "left": "unheard/a", "right": "unheard/b"}
    check_later("poker", fresh)  # neither committed nor run: nothing to say against it
    head = git("rev-parse", "HEAD").strip()
    with pytest.raises(AssertionError, match="commit the expectation"):
        check_later("poker", fresh, runs=[run_at(head)])


@pytest.fixture
def said_at_the_start(monkeypatch):
    """The row was added by the second commit of this repository."""
    second = git("rev-list", "--topo-order", "--reverse", "HEAD").split()[1]
    monkeypatch.setitem(globals(), "added", lambda case, row: second)
    return second


def test_records_have_to_descend_from_the_expectation_in_a_clean_tree(history, said_at_the_start):
    fresh = OLD | {"written": "before", "left": "unheard/a", "right": "unheard/b"}
    head = git("rev-parse", "HEAD").strip()
    root = git("rev-parse", f"{said_at_the_start}^").strip()
    check_later("poker", fresh, measured=head, runs=[run_at(head)])
    with pytest.raises(AssertionError, match="changed tree"):
        check_later("poker", fresh, measured=head, runs=[run_at(head, dirty=True)])
    with pytest.raises(AssertionError):
        check_later("poker", fresh, measured=head, runs=[run_at(root)])
    with pytest.raises(AssertionError, match="had records already"):
        check_later("poker", fresh, measured=root, runs=[run_at(head)])
    with pytest.raises(AssertionError, match="could have come after"):
        check_later("poker", fresh | {"written": "after", "first_record": head[:7]})
