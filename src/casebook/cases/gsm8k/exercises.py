"""The exercises of the GSM8K notebooks: how they are checked."""

import math

from casebook.exercises import Attempt, Wrong, exercise, show


@exercise("30-a")
def _masked(masked: Attempt) -> None:
    """A text that two questions share exactly if they differ in their numbers only."""

    def text(question: str) -> str:
        got = masked(question)
        if not isinstance(got, str):
            raise Wrong(f"{masked.call(question)} gave {show(got)}, expected a text")
        return got

    for one, other in (
        ("Ann has 3 pens.", "Ann has 12 pens."),
        ("It costs $1,200.", "It costs $7."),
        ("He runs 3.5 km.", "He runs 10 km."),
        ("She eats 3/4 of it.", "She eats 1/2 of it."),
        ("They are 12. How many are left?", "They are 3.  How many\nare left?"),
        ("A herd of 1,234,567 sheep", "A herd of 2 sheep"),
    ):
        if text(one) != text(other):
            raise Wrong(
                f"{one!r} and {other!r} differ in their numbers only, and it gave "
                f"{show(text(one))} and {show(text(other))}"
            )
    for one, other, note in (
        ("Ann has 3 pens.", "Ann has 3 pencils.", "another word"),
        ("Ann has 3 pens.", "Ann has pens.", "no number"),
        ("He sells 3 bags of 4 pears.", "He sells 3 bags of pears.", "one number, not two"),
        ("They are 12. How many?", "They are 12 How many?", "the full stop is the sentence's"),
        ("He has 3, 4 and 5.", "He has 3 and 5.", "a list of numbers is not one number"),
        ("It is 3% off.", "It is 3 off.", "the sign is not the number's"),
    ):
        if text(one) == text(other):
            raise Wrong(
                f"{one!r} and {other!r} are two questions, and it gave {show(text(one))} for "
                f"both ({note})"
            )


@exercise("31-a")
def _last_number(last_number: Attempt) -> None:
    """The last number of a text."""
    for text, expected, note in (
        ("42", 42, "a number alone"),
        ("5 boxes of 12 pens", 12, "the last one"),
        ("10 - 4 = 6", 6, "the last one"),
        ("He pays $1,024.50.", 1024.5, "the full stop is the sentence's"),
        ("1,234,567", 1234567, "one number"),
        ("1,2,3", 3, "these commas separate numbers"),
        ("it has 3.", 3, "the full stop is the sentence's"),
        ("it fell to -5", -5, "a sign"),
        ("x=-0.5", -0.5, "a sign"),
        ("-$1,200", -1200, "a sign before the currency"),
        ("10-4", 4, "a subtraction"),
        ("10 -4", 4, "a subtraction"),
        ("(3)-4", 4, "a subtraction"),
        ("I do not know.", None, "no number"),
        ("", None, "no number"),
    ):
        if isinstance(last_number(text), str):
            raise Wrong(f"{last_number.call(text)} gave a text, expected a number")
        last_number.expect(expected, text, note=note)


@exercise("32-a")
def _spread_of_halves(spread_of_halves: Attempt) -> None:
    """The standard deviation of an accuracy on rows drawn without replacement."""
    for accuracy, rows, drawn, note in (
        (0.5, 2, 1, "one of two rows: 0 or 1"),
        (0.7, 10, 10, "all rows are drawn: nothing is left to chance"),
        (1.0, 100, 50, "all right"),
        (0.5, 4, 2, "exactly: 0, four times 1/2, 1"),
        (0.701, 1319, 659, "the source's half"),
        (0.2, 1000, 10, "few rows: nearly as with replacement"),
    ):
        variance = accuracy * (1 - accuracy) / drawn * (rows - drawn) / (rows - 1)
        spread_of_halves.expect(math.sqrt(variance), accuracy, rows, drawn, note=note)


@exercise("33-a")
def _choose_step(choose_step: Attempt) -> None:
    """The earliest step within one standard error of the best."""
    steps = [0, 4, 8, 12, 16, 20, 24]
    rising = [0.30, 0.50, 0.70, 0.765, 0.78, 0.79, 0.80]
    for seen, accuracies, n, expected, note in (
        (steps, rising, 100, 12, "0.76 is enough, and the earliest counts"),
        (steps, rising, 10_000, 24, "with more problems the standard error is smaller"),
        (steps, [0.3, 0.5, 0.85, 0.84, 0.8, 0.7, 0.4], 1_000, 8, "not the last step"),
        (steps, [0.3, 1.0, 1.0, 0.99, 1.0, 1.0, 1.0], 128, 4, "no error: the first perfect one"),
        ([250, 300, 350], [0.776, 0.785, 0.780], 660, 250, "660 cannot tell these apart"),
        ([0], [0.0], 128, 0, "one step"),
    ):
        choose_step.expect(expected, seen, accuracies, n, note=note)


@exercise("34-a")
def _parts_of_gain(parts_of_gain: Attempt) -> None:
    """A gain of a product, split evenly between its two factors."""
    for lenient, formed, note in (
        ((0.5, 0.5), (1.0, 1.0), "nothing changed"),
        ((0.4, 0.8), (1.0, 1.0), "only answers"),
        ((0.8, 0.8), (0.5, 1.0), "only form"),
        ((0.0, 1.0), (0.0, 1.0), "neither comes first: half each"),
        ((0.701, 0.789), (0.41, 0.995), "about the source's"),
        ((0.6, 0.5), (0.5, 0.9), "a part may be negative"),
    ):
        parts = (
            (lenient[1] - lenient[0]) * sum(formed) / 2,
            (formed[1] - formed[0]) * sum(lenient) / 2,
        )
        parts_of_gain.expect(parts, lenient, formed, note=f"answers, then form: {note}")
