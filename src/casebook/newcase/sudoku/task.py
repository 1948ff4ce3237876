"""4x4 Sudoku: every row, column and 2x2 box gets 1, 2, 3 and 4.

The grader checks a property: each grid that keeps the given cells and breaks no rule is right.
Change this file to your task; `load`, `grade` and `rewards` are all that it needs.
"""

import random
from itertools import permutations, product

from casebook import Grade
from casebook.rewards import last_block, part, tag_blocks

SYSTEM = "Fill the grid. Write it in four lines of four digits, between <answer> and </answer>."
LINES = [range(4 * a, 4 * a + 4) for a in range(4)]  # four cells each, of the 16
UNITS = [*LINES, *zip(*LINES, strict=True), *([a, a + 1, a + 4, a + 5] for a in (0, 2, 8, 10))]


def solved(cells):
    return len(cells) == 16 and all({cells[i] for i in unit} == set("1234") for unit in UNITS)


def drawn(cells):
    return "\n".join(" ".join(cells[i] for i in line) for line in LINES)


FOURS = ["".join(line) for line in permutations("1234")]
HALVES = [a + b for a, b in product(FOURS, FOURS) if len({*a[:2], *b[:2]}) == 4]
GRIDS = [a + b for a, b in product(HALVES, HALVES) if solved(a + b)]  # all 288
random.Random(0).shuffle(GRIDS)
PARTS = {"train": GRIDS[:216] * 7, "validation": GRIDS[216:246] * 4, "test": GRIDS[246:] * 5}


def load(split):
    """The rows: the puzzle as prompt and, for the grader, as answer; and one solution."""
    rng, rows = random.Random(split), []
    for grid in PARTS[split]:
        blanks = rng.sample(range(16), rng.randint(3, 7))
        cells = "".join("." if i in blanks else digit for i, digit in enumerate(grid))
        rows.append({"prompt": drawn(cells), "answer": cells, "grid": grid})
    return rows


def cluster(row):  # no two splits may share a solution
    return row["grid"]


def reference(row):  # what an oracle would write; the embedded model learns from it
    return f"<answer>\n{drawn(row['grid'])}\n</answer>"


def grade(completion, answer):
    """The last answer block is read, or the whole text where there is none."""
    block = last_block(completion, "answer")
    cells = "".join((completion if block is None else block).split())
    kept = all(given in (".", cell) for given, cell in zip(answer, cells, strict=False))
    formed = tag_blocks(completion, ["answer"]) and len(cells) == 16 and set(cells) <= set("1234")
    return Grade(bool(formed), cells[:32] or None, kept and solved(cells))


# Two TRL rewards: `part` makes one of a function of the text and of columns of the row.
rewards = {
    "correct": part("correct", lambda text, answer: grade(text, answer).correct, "answer"),
    "form": part("form", lambda text: grade(text, "").well_formed),
}
