"""Arms x seeds become records, and records are replayed: does today's code still do this?"""

from importlib import import_module

_MODULES = {"arms": ("finished_runs", "read_arms", "run_experiments")}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
