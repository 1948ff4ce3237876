"""The exercises of the land-use notebooks: how they are checked."""

from casebook.cases.landuse.fields import LABELS
from casebook.exercises import Attempt, Wrong, exercise, show
from casebook.rewards.attacks import attacks, unsound


@exercise("21-a")
def _repaired(repaired: Attempt) -> None:
    """A form reward: one thought, one answer block with exactly one label in it, nothing else."""
    thought, block = "<think>\n7 5\n</think>", "<answer>\noat\n</answer>"
    lines = f"{thought}\n{block}"
    for text, expected, note in (
        (lines, 1.0, "each tag on its line"),
        (lines.replace("oat", "soy"), 1.0, "a wrong label is in form, too"),
        (f"{thought}\n<answer>oat</answer>", 1.0, "the answer on one line"),
        (f"{thought}\n\n{block}", 1.0, "a blank line between"),
        (f"\n{lines}", 1.0, "a line break at the start"),
        (f"7 5\n</think>\n{block}", 0.0, "the thought was opened in the prompt"),
        (f"{lines} or wheat", 0.0, "text after, on the line"),
        (f"{lines}\nor wheat", 0.0, "text after, on the next line"),
        (f"{lines}\n{block}", 0.0, "two answer blocks"),
        (f"<think>\nhm\n</think>\n{lines}", 0.0, "two thoughts"),
        (lines.replace("oat", "barley"), 0.0, "no label of ours"),
    ):
        repaired.expect([expected], [text], note=note)
    probes = [p for p in attacks("oat", LABELS, "soy") if isinstance(p.completion, str)]
    faults = unsound(repaired.function, probes, pays="form")
    for probe in probes:
        if probe.name in faults:
            raise Wrong(f"attack {probe.name!r}, {show(probe.completion)}: {faults[probe.name]}")


@exercise("22-a")
def _strict_ceiling(strict_ceiling: Attempt) -> None:
    """What a blind pick among accepted labels scores under strict matching."""
    for answers, expected, note in (
        (["corn"], 1.0, "one label counts"),
        (["corn|oat"], 1 / 2, "two labels count"),
        (["corn", "corn|oat"], 3 / 4, "the mean over the parcels"),
        (["corn", "habitat|oat|wheat"], 2 / 3, "one label, and three"),
        (["soy|wheat"] * 3 + ["habitat"], 5 / 8, "not one over the mean number of labels"),
        (["corn|habitat|oat|soy|wheat"] * 2, 1 / 5, "all five count"),
    ):
        strict_ceiling.expect(expected, answers, note=note)


@exercise("23-a")
def _first_collapse(first_collapse: Attempt) -> None:
    """Where a curve first lies far below the highest point before it."""
    for values, drop, expected, note in (
        ([0.1, 0.5, 0.6, 0.3, 0.7], 0.2, 3, "0.3 lies 0.3 below 0.6"),
        ([0.1, 0.2], 0.1, None, "it only rises"),
        ([0.3, 0.9], 0.2, None, "the highest value comes later"),
        ([0.6, 0.5, 0.45, 0.39], 0.2, 3, "a slow fall counts, too"),
        ([0.2, 0.9, 0.85, 0.1, 0.0], 0.5, 3, "the first, not the lowest"),
        ([0.5, 0.5], 0.1, None, "nothing falls"),
        ([-3.0, -1.0, -2.5], 1.0, 2, "values may be negative"),
        ([], 0.1, None, "no values, no collapse"),
    ):
        first_collapse.expect(expected, values, drop, note=note)


@exercise("24-a")
def _kappa(kappa: Attempt) -> None:
    """Cohen's kappa of two labellings."""
    five = ["wheat", "oat", "habitat", "corn", "soy"] * 2
    some = ["corn", "corn", "oat", "soy"]
    for first, second, expected, note in (
        (some, some, 1.0, "the same everywhere"),
        (["corn", "corn", "oat", "oat"], ["corn", "oat"] * 2, 0.0, "no more than chance"),
        (["corn"] * 9 + ["oat"], ["corn"] * 9 + ["soy"], 9 / 19, "most agreement is chance"),
        (["corn", "oat"], ["oat", "corn"], -1.0, "less than chance: do not cut at 0"),
        (["corn"] * 9 + ["oat"], ["corn"] * 8 + ["oat", "corn"], -1 / 9, "less than chance"),
        (["corn"] * 3, ["corn"] * 3, 0.0, "chance alone makes them agree always"),
        (five, five[1:] + five[:1], -0.25, "five labels, not two"),
        (["corn", None, "oat", None], ["corn", None, "corn", "oat"], 3 / 11, "None is a label"),
    ):
        kappa.expect(expected, first, second, note=note)
