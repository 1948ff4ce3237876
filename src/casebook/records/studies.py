"""Records of studies: figures without a training, computed once and committed.

The real problem sets and the run folders are not part of the casebook. The figures that a study
found in them are in `results/CASE/data/NAME.json`. The commands that computed them
were removed; docs/evidence.md says how to make a record again.
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
    """The command that restores a missing record."""
    return f"git restore results/{STUDIES[name]}/data"


def path(name: str) -> Path:
    """Where a study's record is kept.

    Raises:
        UnknownName: there is no such study; the message lists those there are.
    """
    check_name("study", name, STUDIES)
    return paths.RESULTS / STUDIES[name] / "data" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """The committed record of a study; a `CasebookError` names the command that restores it."""
    file = path(name)
    try:
        return read_json(file)
    except CasebookError:
        raise CasebookError(
            f"the study's record {file} is missing or unreadable: {command(name)} restores it"
        ) from None
