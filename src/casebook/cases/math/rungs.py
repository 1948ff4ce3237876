"""A small question whose answer goes into a box."""

import numpy as np

from casebook.cases.rungs import Problem, Rung


def boxed(rng: np.random.Generator, kind: int) -> Problem:
    """A result of two to four digits that is given, and only has to be put into a box."""
    result = int(rng.integers(10, 10_000))
    text = f"The result is {result}. Give it as the final answer, in \\boxed{{}}."
    return Problem((result,), text, str(result), (), f"\\boxed{{{result}}}")


RUNGS = {"boxed": Rung(boxed, 1, 3)}
