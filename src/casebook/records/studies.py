"""Records of studies: figures that no training is behind, counted once and committed.

The real problem sets are no part of the casebook, and run folders are not either. What a study
found in them is kept in `results/CASE/data/NAME.json`, numbers instead of problems, and
`casebook study NAME` makes it anew: `record()` of the study's module returns what is written. The
records of poker and GSM8K have no maker any more: they are read, and the commit that made them
makes them again (docs/evidence.md).
"""

from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.paths import read_json

STUDIES = {  # name -> its case, and the module that makes it; None where the record is only kept
    "conversion": ("poker", None),
    "smol_poker": ("poker", None),
    "exploration": ("gsm8k", None),
    "rewards": ("gsm8k", None),
    "baseline": ("gsm8k", None),
    "embedding": ("gsm8k", None),
    "smol_gsm8k": ("gsm8k", None),
    "forms": ("math", "forms"),
    "prompts": ("math", "prompts"),
    "verifiers": ("math", "verifiers"),
    "smol_math": ("math", "smol"),
    "gibberish": ("math", "gibberish"),
}
OF_RUNS = ("gibberish",)  # `record` is given the case's finished runs and its base model


def command(name: str) -> str:
    """What brings a record back, for a page or a sentence that lacks it."""
    if STUDIES[name][1] is None:
        return f"git restore results/{STUDIES[name][0]}/data"
    runs = f"casebook experiments {STUDIES[name][0]} && " if name in OF_RUNS else ""
    return f"{runs}casebook study {name}"


def path(name: str) -> Path:
    """Where a study's record is kept.

    Raises:
        UnknownName: there is no such study; the message lists those there are.
    """
    check_name("study", name, STUDIES)
    return paths.RESULTS / STUDIES[name][0] / "data" / f"{name}.json"


def completions_path(name: str) -> Path:
    """Where the completions of a study are kept, if it keeps them apart."""
    return path(name).with_suffix(".jsonl.gz")


def read(name: str) -> dict[str, Any]:
    """The committed record of a study; a `CasebookError` says how it is made."""
    file = path(name)
    try:
        return dict(read_json(file))
    except (CasebookError, TypeError, ValueError):
        raise CasebookError(
            f"there is no record of a study at {file} that can be read: {command(name)} brings it"
        ) from None
