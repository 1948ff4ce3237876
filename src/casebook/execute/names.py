"""What a notebook's file name says: `13_poker_grpo` is number 13, case poker, stage grpo."""

from collections.abc import Iterable
from pathlib import Path

from casebook import paths
from casebook.case import CasebookError, check_name

STAGES = ("oracle", "rewards", "baseline", "grpo", "analysis")
START = "start"  # what the notebooks before the cases (00 to 09) are called together


def select(cases: str | Iterable[str] = "all", start_from: int = 0) -> list[Path]:
    """The notebooks of some cases from a number on, in order.

    Raises:
        UnknownName: a case without notebooks; the message lists those that have some.
        CasebookError: no notebook is left.
    """
    found = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    names = [cases] if isinstance(cases, str) else list(cases)
    known = list(dict.fromkeys(group_of(notebook) for notebook in found))
    for name in names:
        check_name("case", name, ["all", *known])
    chosen = [
        notebook
        for notebook in found
        if ("all" in names or group_of(notebook) in names) and number_of(notebook) >= start_from
    ]
    if not chosen:
        raise CasebookError(f"no notebook of {', '.join(names)} has a number from {start_from} on")
    return chosen


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
