"""What was measured, where it came from, and whether that still holds.

The names below are those that notebooks use. Each is imported when it is asked for: what a
training needs of records does not bring the claims with it.
"""

from importlib import import_module

# At once: asked for later, the module of this name would stand in the function's place.
from casebook.records.provenance import provenance  # noqa: F401

_MODULES = {
    "gate": ("arms_with_completions", "committed", "committed_completions"),
    "files": (
        *("figure_text", "first_and_last", "has_test_figures", "missing", "read_record"),
        "write_json",
    ),
    "freshness": ("STATES", "digest", "state", "state_line"),
    "claims": (
        *("BASIS", "EXPLORATORY", "NO_ANSWER", "VERDICTS", "answer_entropy", "compared"),
        *("discrimination", "figures_at", "labels_recalled", "load_claims", "models_of"),
        *("load_expectations", "load_source", "table_row", "tally", "tally_table"),
        "write_up_box",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_HOME, "provenance"])


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
