"""What a notebook's file name says: `13_poker_grpo` is number 13, case poker, stage grpo."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from casebook import paths
from casebook.case import CasebookError

STAGES = ("oracle", "rewards", "baseline", "grpo", "analysis")
START = "start"  # what the notebooks before the cases (00 to 09) are called together


def select(cases: str | Iterable[str] = "all", start_from: int = 0) -> list[Path]:
    """Some notebooks from a number on, in order.

    Args:
        cases: names of cases, `"start"`, `"all"`, or single notebooks by number or file name.
        start_from: only notebooks with this number or a higher one.

    Raises:
        CasebookError: a name that means no notebook, with those that would; or none is left.
    """
    found = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    names = [cases] if isinstance(cases, str) else list(cases)
    meant = {notebook for name in names for notebook in _meant_by(name, found)}
    chosen = [notebook for notebook in sorted(meant) if number_of(notebook) >= start_from]
    if not chosen:
        raise CasebookError(f"no notebook of {', '.join(names)} has a number from {start_from} on")
    return chosen


def _meant_by(name: str, found: Sequence[Path]) -> list[Path]:
    """The notebooks that a name means: those of a case, or one by its number or file name."""
    word = Path(name).name.removesuffix(".ipynb")
    word = word.zfill(2) if word.isdecimal() else word
    meant = [n for n in found if word in ("all", group_of(n), n.stem, n.stem[:2])]
    if not meant:
        known = ["all", *dict.fromkeys(group_of(notebook) for notebook in found)]
        close = get_close_matches(word, [*known, *(n.stem for n in found)], n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise CasebookError(
            f"unknown case or notebook {name!r}: {hint}known are {', '.join(known)}, and numbers "
            f"{', '.join(notebook.stem[:2] for notebook in found)}"
        )
    return meant


def number_of(notebook: Path) -> int:
    """The number a notebook's file name begins with.

    >>> number_of(Path("13_poker_grpo.ipynb"))
    13
    """
    return int(notebook.stem[:2])


def stage_of(notebook: Path) -> str | None:
    """The stage a notebook's file name ends with, if it belongs to a case.

    >>> stage_of(Path("13_poker_grpo.ipynb")), stage_of(Path("00_start_here.ipynb"))
    ('grpo', None)
    """
    stage = notebook.stem.rpartition("_")[2]
    return stage if stage in STAGES else None


def group_of(notebook: Path) -> str:
    """What a notebook runs together with: its case, `"start"`, or else itself.

    >>> group_of(Path("13_poker_grpo.ipynb")), group_of(Path("00_start_here.ipynb"))
    ('poker', 'start')
    """
    if number_of(notebook) < 10:
        return START
    name = notebook.stem[3:]
    return name.removesuffix(f"_{stage_of(notebook)}")
