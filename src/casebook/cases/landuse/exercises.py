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
        (lines.replace("oat", "soy"), 1.0, "a wrong label also has the form"),
        (f"{thought}\n<answer>oat</answer>", 1.0, "the answer on one line"),
        (f"{thought}\n\n{block}", 1.0, "a blank line between"),
        (f"\n{lines}", 1.0, "a line break at the start"),
        (f"7 5\n</think>\n{block}", 0.0, "the thought was opened in the prompt"),
        (f"{lines} or wheat", 0.0, "text after, on the line"),
        (f"{lines}\nor wheat", 0.0, "text after, on the next line"),
        (f"{lines}\n{block}", 0.0, "two answer blocks"),
        (f"<think>\nhm\n</think>\n{lines}", 0.0, "two thoughts"),
        (lines.replace("oat", "barley"), 0.0, "not one of the five labels"),
    ):
        repaired.expect([expected], [text], note=note)
    probes = [p for p in attacks("oat", LABELS, "soy") if isinstance(p.completion, str)]
    faults = unsound(repaired.function, probes, pays="form")
    for probe in probes:
        if probe.name in faults:
            raise Wrong(f"attack {probe.name!r}, {show(probe.completion)}: {faults[probe.name]}")
