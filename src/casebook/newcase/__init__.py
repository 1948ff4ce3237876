"""Write a case: 4x4 Sudoku, the rows of a table with a grader by name, a task of reasoning-gym.

`table` and `gym` return what a `task.py` needs: `SYSTEM, labels, load, grade, rewards`.
"""

import csv
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from casebook import folder, paths
from casebook.case import SPLITS, CasebookError, Grade, check_name, load_case
from casebook.rewards import last_block, part, tag_blocks
from casebook.rewards.labels import TAGS, LabelReader, label_in_form

HERE = Path(__file__).parent
MADE = '''"""A task without code: `casebook.newcase.{0}` reads and grades it."""

from casebook.newcase import {0}

SYSTEM, labels, load, grade, rewards = {0}({1})
'''
TAGGED = "Write <{0}>, your reasoning, </{0}>, then <answer>, the answer alone, </answer>."
GRADERS = {  # name -> how to answer, and whose grade it is
    "number": (TAGGED.format("reasoning"), "gsm8k"),
    "label": (TAGGED.format("think"), ""),
    "math": ("Reason first. Then write the answer alone in \\boxed{}.", "math"),
}
GYM_ROWS = {"test": 200, "validation": 100, "train": 1000}


def new(name: str, rows: Path | None = None, grader: str = "number", task: str = "") -> None:
    """Write `task.py`, `nano.yaml` and `t4.yaml` into a new folder: of `rows`, a CSV file for
    `table`, of a `task` of reasoning-gym, or of 4x4 Sudoku. `CasebookError`: the folder is there,
    or what it is made of cannot be read."""
    place, text = Path(name).expanduser(), (HERE / "sudoku" / folder.TASK).read_text("utf-8")
    if folder.place(place.name) or place.exists():
        raise CasebookError(f"a case or folder {name} is there already: choose another name")
    if rows:
        table(rows, grader)
        text = MADE.format("table", f'__file__.replace("task.py", "rows.csv"), "{grader}"')
    elif task:
        gym(task)
        text = MADE.format("gym", f'"{task}"')
    paths.check_writable(place)
    (place / folder.TASK).write_text(text, encoding="utf-8")
    if rows:
        shutil.copyfile(rows, place / "rows.csv")
    for file in ("nano.yaml", "t4.yaml"):
        shutil.copyfile(HERE / file, place / file)


def table(file: str | Path, grader: str) -> tuple:
    """A CSV file with columns `prompt` and `answer`, and perhaps `split`: else a hash of the prompt
    puts a tenth each into validation and test. What cannot be read is a `CasebookError`."""
    check_name("grader", grader, GRADERS)
    try:
        with open(file, encoding="utf-8-sig", newline="") as opened:
            rows = [{k: str(row[k] or "").strip() for k in row} for row in csv.DictReader(opened)]
    except (OSError, ValueError, csv.Error) as error:
        raise CasebookError(f"{file} cannot be read as CSV: {error}") from None
    for name in ("prompt", "answer"):
        if not rows or not all(row.get(name) and None not in row for row in rows):
            raise CasebookError(f"{file} needs a column {name}, filled, and quotes around commas")
    labels = tuple(dict.fromkeys(row["answer"] for row in rows)) if grader == "label" else ()
    how, case = GRADERS[grader]
    grade = load_case(case).grade if case else _labelled({it.lower(): it for it in labels})
    for number, row in enumerate(rows, 2):
        tenth = int(hashlib.sha256(row["prompt"].lower().encode()).hexdigest(), 16) % 10
        row.setdefault("split", {0: "test", 1: "validation"}.get(tenth, "train"))
        check_name(f"split in row {number} of {file}:", row["split"], SPLITS)
        told = "<answer>{0}</answer> \\boxed{{{0}}}".format(row["answer"])
        if not grade(told, row["answer"]).correct:
            raise CasebookError(f"{file}: the answer in row {number} is no {grader}")
    if empty := set(SPLITS) - {row["split"] for row in rows}:
        raise CasebookError(f"{file} has no rows for {', '.join(sorted(empty))}: add some")
    return _task(how, rows, grade, labels)


def gym(task: str, **settings: Any) -> tuple:
    """A task of reasoning-gym with its own scorer, of which full marks are right. `answer` names
    the entry, since some scorers read all of it. No such package or task is a `CasebookError`."""
    try:
        from reasoning_gym import create_dataset

        made = {it: create_dataset(task, size=n, seed=n, **settings) for it, n in GYM_ROWS.items()}
    except ImportError as error:
        raise CasebookError(f"{error.name} is missing: pip install reasoning-gym") from None
    except (ValueError, TypeError, AssertionError) as error:
        raise CasebookError(f"reasoning-gym refuses {task}: {error}") from None
    entries = {split: [*dataset] for split, dataset in made.items()}  # else made anew at each use
    rows: dict[str, dict[str, str]] = {}  # a question that the test has is in no other split
    for split, number, it in ((s, n, it) for s in entries for n, it in enumerate(entries[s])):
        row = {"prompt": it["question"], "answer": f"{split} {number}: {it['answer']}"}
        rows.setdefault(it["question"], row | {"split": split, "solution": str(it["answer"])})

    def grade(text: str, answer: str) -> Grade:
        split, number = answer.partition(":")[0].split()
        said = last_block(text, "answer")
        said = (text if said is None else said).strip()
        score = made[split].score_answer(said, entries[split][int(number)])
        return Grade(tag_blocks(text, TAGS) is not None, said or None, float(score) == 1.0)

    return _task(GRADERS["label"][0], list(rows.values()), grade)


def _task(how: str, rows: list[dict], grade: Callable, labels: tuple[str, ...] = ()) -> tuple:
    correct = part("correct", lambda text, answer: grade(text, answer).strict, "answer")
    form = part("form", lambda text, answer: grade(text, answer).well_formed, "answer")
    splits = {split: [row for row in rows if row["split"] == split] for split in SPLITS}
    return how, labels, splits.__getitem__, grade, {"correct": correct, "form": form}


def _labelled(names: dict[str, str]) -> Callable[[str, str], Grade]:
    read = LabelReader(names)
    return lambda text, answer: Grade(label_in_form(text, names), read(text), read(text) == answer)
