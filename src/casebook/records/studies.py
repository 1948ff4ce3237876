"""Records of studies: figures that no training is behind, counted once and committed.

The real problem sets are no part of the casebook, and run folders are not either. What a study
found in them is kept in `results/CASE/data/NAME.json`, numbers instead of problems. The command
that counted is gone: the commit that made a record makes it again (docs/evidence.md).
"""

from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.paths import read_json

STUDIES = {  # name -> its case
    **dict.fromkeys(("conversion", "smol_poker"), "poker"),
    **dict.fromkeys(("exploration", "rewards", "baseline", "embedding", "smol_gsm8k"), "gsm8k"),
    **dict.fromkeys(("forms", "prompts", "verifiers", "smol_math", "gibberish"), "math"),
}
SEED = None  # stands where an arm's records have theirs


def command(name: str) -> str:
    """What brings a record back, for a page or a sentence that lacks it."""
    return f"git restore results/{STUDIES[name]}/data"


def path(name: str) -> Path:
    """Where a study's record is kept.

    Raises:
        UnknownName: there is no such study; the message lists those there are.
    """
    check_name("study", name, STUDIES)
    return paths.RESULTS / STUDIES[name] / "data" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """The committed record of a study; a `CasebookError` says what brings it back."""
    file = path(name)
    try:
        return read_json(file)
    except CasebookError:
        raise CasebookError(
            f"the study's record {file} is missing or unreadable: {command(name)} restores it"
        ) from None
