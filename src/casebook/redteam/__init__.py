"""Attack a reward of one's own: `casebook redteam rewards.py:correct --examples examples.jsonl`."""

# ruff: noqa: F401, the names that others use

from casebook.redteam.judge import lines, paid, redteam
from casebook.redteam.subject import Subject, load
