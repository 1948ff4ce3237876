"""The exercises of the MATH notebooks: how they are checked."""

import math

from casebook.exercises import MANY, Attempt, Wrong, exercise, is_whole, show


@exercise("40-a")
def _last_box(last_box: Attempt) -> None:
    r"""The content of the last balanced box, escaped braces being none."""
    for text, expected, note in (
        (r"not \boxed{3}, but \boxed{4}.", "4", "the last one counts"),
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", "braces inside braces"),
        (r"half a set: \boxed{\{}", r"\{", "an escaped brace is no brace"),
        (r"cut off: \boxed{\frac{1}{2", None, "a box that is never closed"),
        (r"\boxed{7}, no: \boxed{8", "7", "a box that is never closed is none"),
        ("no box, {braces} only", None, "no box"),
        ("", None, "no box"),
        (r"\boxed{" * 20_000 + r"\boxed{5}", "5", "20,000 boxes that are never closed, then one"),
    ):
        last_box.expect(expected, text, note=note)


@exercise("41-a")
def _whole_box(whole_box: Attempt) -> None:
    r"""The content of the last closed box, braces inside braces included."""
    for text, expected, note in (
        (r"so \boxed{5}.", "5", "one box"),
        (r"it is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}", "braces inside braces"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}", r"\sqrt{2}", "the last one counts"),
        (r"\boxed{7} and then \boxed{\frac{1}{2}", "7", "the last that is closed"),
        (r"\boxed{\frac{1}{2}", None, "never closed"),
        ("no box at all", None, "no box"),
        (r"\boxed{}", "", "an empty box is a box"),
    ):
        whole_box.expect(expected, text, note=note)


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
