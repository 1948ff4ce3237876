"""The exercises at the end of the notebooks: `check`, and the machinery of what it checks."""

from casebook.exercises.check import check, checks

__all__ = ["check", "checks"]
