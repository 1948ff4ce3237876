r"""Small questions whose answer goes into a box."""

import numpy as np

from casebook.cases.rungs import Problem, Rung, numbers

SIGNS = ("+", "-", "\\times")


def boxed(rng: np.random.Generator, kind: int) -> Problem:
    """A result of two to four digits that is given, and only has to be put into a box."""
    result = int(rng.integers(10, 10_000))
    text = f"The result is {result}. Give it as the final answer, in \\boxed{{}}."
    return Problem((result,), text, str(result), (), f"\\boxed{{{result}}}")


def calculate(rng: np.random.Generator, kind: int) -> Problem:
    """One sum, difference or product, whose result goes into a box."""
    a, b, result = numbers(rng, kind)
    calculation = f"{a} {SIGNS[kind]} {b}"
    text = f"Calculate ${calculation}$. Give the final answer in \\boxed{{}}."
    return Problem((kind, a, b), text, str(result), (), f"${calculation} = \\boxed{{{result}}}$")


RUNGS = {"boxed": Rung(boxed, 1, 3), "calculate": Rung(calculate, 3, 3)}
