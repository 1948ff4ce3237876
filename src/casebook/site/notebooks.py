"""The notebooks: what a file name says, which are meant, and the parameters that each takes.

`13_poker_grpo` is number 13, case poker, stage grpo.
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError, check_name

STAGES = ("oracle", "rewards", "baseline", "grpo", "analysis", "audit", "cancels")


def select(cases: str | Iterable[str] = "all", start_from: int = 0) -> list[Path]:
    """Some notebooks from a number on, in order.

    Args:
        cases: names of cases, `"start"`, `"all"`, or single notebooks by number or file name.
        start_from: only notebooks with this number or a higher one.

    Raises:
        CasebookError: a name that means no notebook, with those that would; or none is left.
    """
    found, meant = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), set()
    names = [cases] if isinstance(cases, str) else list(cases)
    for name in names:
        word = Path(name).name.removesuffix(".ipynb")
        word = word.zfill(2) if word.isdecimal() else word
        own = [n for n in found if word in ("all", group_of(n), n.stem, n.stem[:2])]
        if not own:
            known = ["all", *dict.fromkeys(map(group_of, found)), *(n.stem for n in found)]
            check_name("case or notebook", word, known)
        meant.update(own)
    chosen = [notebook for notebook in sorted(meant) if int(notebook.stem[:2]) >= start_from]
    if not chosen:
        raise CasebookError(f"no notebook of {', '.join(names)} has a number from {start_from} on")
    return chosen


def stage_of(notebook: Path) -> str | None:
    """The stage a notebook's file name ends with, if it belongs to a case.

    >>> stage_of(Path("13_poker_grpo.ipynb")), stage_of(Path("00_start_here.ipynb"))
    ('grpo', None)
    """
    stage = notebook.stem.rpartition("_")[2]
    return stage if stage in STAGES else None


def group_of(notebook: Path) -> str:
    """What a notebook runs together with: its case, `"start"`, or else itself.

    >>> group_of(Path("13_poker_grpo.ipynb")), group_of(Path("16_what_cancels.ipynb"))
    ('poker', 'poker')
    """
    if notebook.stem < "10":
        return "start"
    stage = stage_of(notebook)  # `cancels` is a page of poker's, though its name does not say so
    return "poker" if stage == "cancels" else notebook.stem[3:].removesuffix(f"_{stage}")


def check_parameters(
    notebooks: Iterable[Path], parameters: Mapping[str, Any]
) -> dict[Path, dict[str, Any]]:
    """For each notebook, those of `parameters` that its parameters cell names.

    Raises:
        UnknownName: a parameter that no notebook has; the message lists those there are.
        CasebookError: a value of another type than the default.
    """
    import papermill

    takes = {path: papermill.inspect_notebook(str(path)) for path in notebooks}
    known = list(dict.fromkeys(name for own in takes.values() for name in own))
    for name in parameters:
        check_name("parameter", name, known)
    return {
        path: {n: _typed(n, v, own[n]["default"]) for n, v in parameters.items() if n in own}
        for path, own in takes.items()
    }


def _typed(name: str, value: Any, default: str) -> Any:
    """The value, if it has the type of the default; a whole number may stand for a float.

    A path may count from here or from the checkout, and the kernel's folder is another one: that
    of a file which is there is made absolute.
    """
    kind = type(ast.literal_eval(default))
    if kind is float and type(value) is int:
        return float(value)
    if kind is not type(None) and type(value) is not kind:
        raise CasebookError(
            f"the parameter {name} is {kind.__name__} (by default {default}), not {value!r}"
        )
    # A word without an ending, such as a profile's name, is never meant as a file.
    if isinstance(value, str) and Path(value).suffix:
        places = (Path(value).resolve(), paths.ROOT / value)
        return next((str(place) for place in places if place.is_file()), value)
    return value
