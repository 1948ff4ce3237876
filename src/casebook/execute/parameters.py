"""What is asked for, against the parameters that each notebook names in its parameters cell."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError, check_name


def check_parameters(
    notebooks: Iterable[Path], parameters: Mapping[str, Any]
) -> dict[Path, dict[str, Any]]:
    """For each notebook, those of `parameters` that its parameters cell names.

    Raises:
        UnknownName: a parameter that no notebook has; the message lists those there are.
        CasebookError: a value of another type than the default, or a notebook that cannot be
            read.
    """
    defaults = {path: _defaults(path) for path in notebooks}
    known = list(dict.fromkeys(name for names in defaults.values() for name in names))
    for name in parameters:
        check_name("parameter", name, known)
    return {
        path: {
            name: _typed(name, value, own[name])
            for name, value in parameters.items()
            if name in own
        }
        for path, own in defaults.items()
    }


def absolute_files(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, a file's path made absolute: it may count from here or from the checkout."""
    found = dict(parameters)
    for name, value in parameters.items():
        # A word without an ending, such as a profile's name, is never meant as a file.
        if isinstance(value, str) and Path(value).suffix:
            places = (Path(value).resolve(), paths.ROOT / value)
            found[name] = next((str(place) for place in places if place.is_file()), value)
    return found


def _defaults(notebook: Path) -> dict[str, str]:
    """The names of a notebook's parameters, and their defaults as they stand in the cell."""
    import papermill

    try:
        parameters = papermill.inspect_notebook(str(notebook))
    except Exception as error:  # papermill, nbformat and json each have their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CasebookError(f"{notebook.name} is not a readable notebook: {reason}") from error
    return {name: parameter["default"] for name, parameter in parameters.items()}


def _typed(name: str, value: Any, default: str) -> Any:
    """The value, if it has the type of the default, which is given as it stands in the cell."""
    try:
        kind = type(ast.literal_eval(default))
    except (ValueError, SyntaxError):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind is not type(None) and type(value) is not kind:
        raise CasebookError(
            f"the parameter {name} is {kind.__name__} (by default {default}), not {value!r}"
        )
    return value
