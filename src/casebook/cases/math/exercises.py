"""The exercises of the MATH notebooks: how they are checked."""

import math

from casebook.cases.math.verify import equivalent, last_boxed
from casebook.exercises import MANY, Attempt, Wrong, exercise, is_whole, show


@exercise("40-a")
def _fool(fool: Attempt) -> None:
    """A wrong answer in a box that math-verify pays, whatever the reference."""
    from casebook.cases.math.studies.verifiers import math_verify_boxed  # pandas comes with it

    for gold in ("7", r"\frac{3}{4}", "x+1"):
        got = fool(gold)
        call = f"{fool.call(gold)} gave {show(got)}"
        if not isinstance(got, str) or last_boxed(got) is None:
            raise Wrong(f"{call}: that has no closed box")
        if equivalent(got, gold):
            raise Wrong(f"{call}: that is right")
        if not math_verify_boxed(got, gold):
            raise Wrong(f"{call}: math-verify does not pay it")


@exercise("42-a")
def _silent_share(silent_share: Attempt) -> None:
    """The share of groups that are all right or all wrong, from counts, without bias."""
    for right, samples, group, expected, note in (
        ([0], 8, 4, 1.0, "never right"),
        ([8], 8, 4, 1.0, "always right"),
        ([1], 2, 2, 0.0, "the one group there is has both; 1/2 is the biased estimate"),
        ([4], 8, 4, 2 / 70, "two of the 70 groups"),
        ([0, 4, 8], 8, 4, (2 + 2 / 70) / 3, "the mean over prompts"),
        ([2, 6], 8, 2, 16 / 28, "16 of 28 groups, for either prompt"),
    ):
        silent_share.expect(expected, right, samples, group, note=note)


@exercise("43-a")
def _steps_to_see(steps_to_see: Attempt) -> None:
    """The fewest steps after which a mean reward is known to a given standard error."""
    for p, completions, error in (
        (0.5, 1, 0.5),
        (0.5, 64, 0.02),
        (0.05, 20, 0.01),
        (0.05, 8, 0.01),
        (0.3, 160, 0.05),
        (0.0, 20, 0.01),
        (1.0, 20, 0.01),
    ):
        got = steps_to_see(p, completions, error)
        call = steps_to_see.call(p, completions, error)
        if not is_whole(got) or got < 1:
            raise Wrong(
                f"{call} gave {show(got)}: steps are whole, and there is at least one of them"
            )
        steps = min(int(got), MANY)

        def left(steps: int, p: float = p, completions: int = completions) -> float:
            return math.sqrt(p * (1 - p) / (completions * steps))

        allowed = error * (1 + 1e-9)
        if left(steps) > allowed:
            raise Wrong(
                f"{call} gave {steps}: the mean still has a standard error of "
                f"{left(steps):.4f} then, and {error} was asked for"
            )
        if steps > 1 and left(steps - 1) <= allowed:
            raise Wrong(
                f"{call} gave {steps}, more than needed: one step less still has a standard "
                f"error of {left(steps - 1):.4f}"
            )


@exercise("44-a")
def _unknown_pairs(unknown_pairs: Attempt) -> None:
    """The share of pairs of neighbours that no text of a corpus has."""
    for words, corpus, expected, note in (
        ("a c b", ["a b c"], 1.0, "known words, no known pair"),
        ("b a", ["a b"], 1.0, "order counts"),
        ("a b a b", ["a b"], 1 / 3, "(b, a) is unknown; (a, b) stands there twice"),
        ("a x a x", ["a b"], 1.0, "unknown pairs count as often as they occur"),
        ("a b x a b", ["a b"], 0.5, "an unknown word spoils both its pairs"),
        ("b c", ["a b", "c d"], 1.0, "the end of a text and the start of the next are apart"),
        ("a", ["a b"], 0.0, "no pairs"),
        ("a b", [], 1.0, "an empty corpus knows nothing"),
        ("the sum of the sum", ["the sum of two"], 0.25, "one unknown pair of four"),
    ):
        unknown_pairs.expect(expected, words.split(), [t.split() for t in corpus], note=note)
