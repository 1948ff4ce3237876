"""The one way to committed records, and what has to hold before one is written.

Notebooks, claims and the site read `results/<case>/` through these functions and no other way;
a test holds them to it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name, known_cases
from casebook.records.files import read_record, read_rows
from casebook.records.provenance import revision

COMPLETIONS = "completions.jsonl.gz"  # of the runs that keep theirs: see `experiments.arms`


def check_clean() -> None:
    """Raise a `CasebookError` where tracked files have changes: a record names its commit."""
    if revision()["dirty"]:
        raise CasebookError(
            "tracked files have changes: commit them first, since a record names the commit that "
            "it was made from"
        )


def committed(case: str, profile: str, arm: str | None = None) -> list[dict[str, Any]]:
    """The committed records of a case and profile, by arm and seed; an empty list if none.

    Args:
        case: name of the case.
        profile: name of the profile.
        arm: only this arm's.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: a record cannot be read.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    folder = paths.RESULTS / case / profile
    records = [read_record(path) for path in folder.glob(f"{arm or '*'}/seed*.json")]
    records.sort(key=lambda record: (str(record.get("arm")), record["seed"]))
    return records


def recorded(
    cases: Iterable[str], profile: str, arms: Iterable[str] = (), seed: int | None = None
) -> list[Path]:
    """The records of some cases' arms, one for each arm: of the given seed, else of its first.

    Args:
        cases: names of cases.
        profile: name of the profile.
        arms: only these; all by default.
        seed: of the records.

    Raises:
        CasebookError: an unknown name, or there is no such record.
    """
    cases, arms = list(cases), list(arms)
    for case in cases:
        check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    found: dict[Path, list[Path]] = {}
    for case in cases:
        for path in (paths.RESULTS / case / profile).glob("*/seed*.json"):
            found.setdefault(path.parent, []).append(path)
    for arm in arms:
        check_name(f"recorded arm of {', '.join(cases)}", arm, sorted({f.name for f in found}))
    chosen = [folder for folder in sorted(found) if not arms or folder.name in arms]
    if not chosen:
        raise CasebookError(f"there is no record of {', '.join(cases)} with profile {profile!r}")
    if seed is None:
        return [min(found[folder], key=lambda path: int(path.stem[4:])) for folder in chosen]
    for folder in chosen:
        if folder / f"seed{seed}.json" not in found[folder]:
            raise CasebookError(f"{folder.parents[1].name}/{folder.name} has no record of {seed=}")
    return [folder / f"seed{seed}.json" for folder in chosen]


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
