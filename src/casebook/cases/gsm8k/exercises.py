"""The exercises of the GSM8K notebooks: how they are checked."""

from casebook.exercises import Attempt, exercise


@exercise("31-a")
def _repaired(soft_reward: Attempt) -> None:
    """Soft correctness, repaired."""
    block = "<reasoning>\n3*4=12\n</reasoning>\n<answer>\n{}\n</answer>".format
    for completion, gold, pays, note in (
        (block("96%"), "96", 1, "what it was written for"),
        (block("72 units"), "72", 1, "a unit"),
        (block("$27."), "27", 1, "a currency, and the sentence's full stop"),
        (block("12"), "13", 0, "another number"),
        (block("10 - 4 = 6"), "6", 1, "of a calculation, the number after the last ="),
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
