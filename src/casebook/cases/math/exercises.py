"""The exercises of the MATH notebooks: how they are checked."""

from casebook.cases.math.verify import equivalent, last_boxed
from casebook.exercises import Attempt, Wrong, exercise, show


@exercise("40-a")
def _fool(fool: Attempt) -> None:
    """A wrong answer in a box that math-verify accepts, whatever the reference."""
    from casebook.cases.math.studies.verifiers import math_verify_boxed  # pandas comes with it

    for gold in ("7", r"\frac{3}{4}", "x+1"):
        got = fool(gold)
        call = f"{fool.call(gold)} gave {show(got)}"
        if not isinstance(got, str) or last_boxed(got) is None:
            raise Wrong(f"{call}, which has no closed box")
        if equivalent(got, gold):
            raise Wrong(f"{call}, which is right")
        if not math_verify_boxed(got, gold):
            raise Wrong(f"{call}, which math-verify does not accept")
