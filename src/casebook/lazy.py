"""Names of a package that are imported when they are first asked for (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """What a package's `__init__` assigns to `__getattr__` and `__all__`.

    Args:
        package: its `__name__`.
        modules: of the package -> the names that they give it, with blanks between them.

    >>> find, names = lazy_names("casebook", {"stats": "pass_at_k"})
    >>> names, find("pass_at_k").__module__
    (['pass_at_k'], 'casebook.stats')
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, sorted(home)
