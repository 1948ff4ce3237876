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
def _repaired(soft_reward: Attempt) -> None:
    """Soft correctness, repaired."""
    block = "<reasoning>\n3*4=12\n</reasoning>\n<answer>\n{}\n</answer>".format
    for completion, gold, pays, note in (
        (block("96%"), "96", 1, "what it was written for"),
        (block("72 units"), "72", 1, "a unit"),
        (block("$27."), "27", 1, "a currency, and the sentence's full stop"),
        (block("12"), "13", 0, "another number"),
        (block("10 - 4 = 6"), "6", 1, "of a sum, what follows the last ="),
        (block("10 - 4 = 6"), "10", 0, "10 is not the result"),
        (block("1600"), "1,600", 1, "commas are taken out of both"),
        (block("-3"), "3", 0, "a sign"),
        (block("-3"), "-3", 1, "a sign"),
        (block("3.5"), "3", 0, "decimals"),
        (block("3.0"), "3", 1, "the same number"),
        (block("1/2"), "1", 0, "two numbers"),
        (block("17 or 18"), "17", 0, "a hedge"),
        (block("I do not know"), "0", 0, "no number is no answer"),
        ("3*4=12, so 17", "3", 0, "no tags, no answer"),
        ("<answer>17", "17", 0, "the block is not closed"),
        (block("1") + block("17"), "17", 1, "the last block"),
        (block("17") + block("1"), "17", 0, "the last block"),
    ):
        soft_reward.expect(float(pays), completion, gold, note=note)


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
