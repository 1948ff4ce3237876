"""The one way to committed records: whoever shows a figure is told where it is not current.

Notebooks, claims and the site read `results/<case>/` through these functions and no other way;
a test holds them to it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import PROFILES, check_name, known_cases
from casebook.records.files import read_record, read_rows
from casebook.records.freshness import state_line

COMPLETIONS = "completions.jsonl.gz"  # of the runs that keep theirs: see `experiments.arms`
_PRINTED: set[str] = set()


def tell(line: str, say: Callable[[str], None] = print) -> None:
    """Say a line, if there is one; what is printed is printed once a process."""
    if line and not (say is print and line in _PRINTED):
        say(line)
        if say is print:
            _PRINTED.add(line)


def committed(
    case: str, profile: str, arm: str | None = None, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """The committed records of a case and profile, by arm and seed; an empty list if none.

    Args:
        case: name of the case.
        profile: name of the profile.
        arm: only this arm's.
        say: called with one line if a record is not current (`records.freshness`); what is
            printed is printed once a process, however often a page asks.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: a record cannot be read.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    folder = paths.RESULTS / case / profile
    records = [read_record(path) for path in folder.glob(f"{arm or '*'}/seed*.json")]
    records.sort(key=lambda record: (str(record.get("arm")), record["seed"]))
    tell(state_line(records), say)
    return records


def committed_completions(case: str, profile: str = "nano", arm: str | None = None) -> pd.DataFrame:
    """What one run of the case wrote, in small; an empty frame where nothing is committed.

    Args:
        case: name of the case.
        profile: name of the profile.
        arm: of a real model's run; of an embedded model's one run a case is kept.

    Returns:
        One completion a row: `step`, `prompt`, `answer`, `completion`, `tokens`, `truncated`,
        `well_formed`, `extracted` (`None` where nothing could be read), `correct`, `strict`,
        one `reward/<name>` for each reward, `reward` and `advantage`.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: the file is damaged.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    path = completions_file(case, profile, arm)
    if not path.exists():
        return pd.DataFrame()
    rows = read_rows(path)
    rows["extracted"] = rows["extracted"].astype(object).where(rows["extracted"].notna(), None)
    return rows


def completions_file(case: str, profile: str, arm: str | None = None) -> Path:
    """Where `committed_completions` are kept."""
    return paths.RESULTS / case / profile / (arm or "") / COMPLETIONS


def arms_with_completions(case: str, profile: str) -> list[str]:
    """The arms of a real model whose first seed's completions are committed."""
    folder = paths.RESULTS / case / profile
    return sorted(path.parent.name for path in folder.glob(f"*/{COMPLETIONS}"))
