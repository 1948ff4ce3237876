"""Whether a record still says what the code does."""

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from casebook.case import CasebookError, check_name, known_cases
from casebook.records.files import plain

MODULES = ("case", "rewards", "stats", "models", "evaluation", "training")


def fingerprint(
    case: str,
    config: Mapping[str, Any],
    model_files: Iterable[Path],
    rows_digest: str,
    modules: Iterable[str] = (),
) -> str:
    """A hash of all that decides a measurement: configuration, weights, rows and code.

    Args:
        case: name of the case.
        config: the resolved configuration, without output paths.
        model_files: the files of the base model, hashed by name and content.
        rows_digest: a hash of the rows.
        modules: those of the package that this measurement needs besides `MODULES`.

    Returns:
        16 hexadecimal digits.

    Raises:
        CasebookError: unknown case, or a model file that cannot be read.
    """
    files = {}
    for path in map(Path, model_files):
        try:
            with open(path, "rb") as file:
                files[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    parts = [plain(config), files, rows_digest, code_digest(case, modules)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def code_digest(case: str, modules: Iterable[str] = ()) -> str:
    """A hash of the code behind a case's measurements: blind to comments, docstrings and layout.

    Covered are the modules of `MODULES`, those named, and those of the case's own that come with
    loading it. What only a notebook imports, or what made a committed table whose rows count
    themselves, can change without making a measurement stale.

    Raises:
        UnknownName: unknown case.
    """
    check_name("case", case, known_cases())
    package = Path(__file__).parents[1]
    files = [path for name in (*MODULES, *modules) for path in _files_of(package / name)]
    trees = {path: ast.parse(path.read_bytes()) for path in files} | _loaded_with(case)
    trees = {path.relative_to(package).as_posix(): _syntax(tree) for path, tree in trees.items()}
    return hashlib.sha256(json.dumps(trees, sort_keys=True).encode()).hexdigest()


def _files_of(module: Path) -> list[Path]:
    """A module's file, or all of a package's."""
    return sorted(module.glob("*.py")) if module.is_dir() else [module.with_suffix(".py")]


def source_mark(*files: str | os.PathLike) -> str:
    """A hash of modules' code, blind to comments, docstrings and layout: 16 hexadecimal digits.

    For a record of figures that no training is behind: those of the real problem sets.
    """
    trees = [_syntax(ast.parse(Path(file).read_bytes())) for file in files]
    return hashlib.sha256(json.dumps(trees).encode()).hexdigest()[:16]


def _loaded_with(case: str) -> dict[Path, ast.Module]:
    """The case's own modules that are imported when it is loaded, with their syntax trees."""
    folder = Path(__file__).parents[1] / "cases" / case
    trees: dict[Path, ast.Module] = {}
    waiting = [folder / "__init__.py"]
    while waiting:
        path = waiting.pop()
        if path in trees or not path.exists():
            continue
        trees[path] = ast.parse(path.read_bytes())
        for node in trees[path].body:
            # An import inside a function or under TYPE_CHECKING does not come with loading.
            if isinstance(node, ast.ImportFrom) and node.module:
                package, _, name = node.module.partition(f"casebook.cases.{case}")
                if not package and not name:
                    waiting += [folder / f"{alias.name}.py" for alias in node.names]
                elif not package:
                    waiting.append(folder / f"{name.removeprefix('.')}.py")
    return trees


def is_current(record: Mapping[str, Any], fingerprint: str) -> bool:
    """Whether a record was made by what is here now; a record without fingerprint was not.

    >>> is_current({"fingerprint": "0123456789abcdef"}, "0123456789abcdef")
    True
    """
    return record.get("fingerprint") == fingerprint


def _syntax(node: Any) -> Any:
    """A syntax tree as nested lists, without docstrings.

    `ast.dump` would not do: Python 3.13 writes it differently from 3.11.
    """
    if isinstance(node, list):
        return [_syntax(entry) for entry in node if not _is_bare_string(entry)]
    if isinstance(node, ast.AST):
        fields = [(name, _syntax(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    return None if node is None else repr(node)


def _is_bare_string(node: Any) -> bool:
    """A docstring, or another statement that is nothing but a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
