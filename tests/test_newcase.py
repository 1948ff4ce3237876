"""A case of one's own: written, loaded from a folder, checked, and trained for two steps."""

import json
import subprocess
import sys

import pytest

from casebook import load_case, newcase, paths, settings
from casebook.case import CasebookError
from casebook.newcase import check as checks

TASK = """
from casebook import Grade
from casebook.rewards import part
N = [0]
def load(split):
    first = {{"train": 0, "validation": {validation}, "test": 200}}[split]
    return [{{"prompt": f"twice {{n}}", "answer": str(2 * n)}} for n in range(first, first + 60)]
def grade(text, answer):
    N[0] += 1
    {grade}
    return Grade(text.isdigit(), text, text == answer)
rewards = {{"right": part("right", lambda text, answer: text == answer, "answer")}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(
        "prompt,answer\n" + "".join(f"Is {n} odd?,{['no', 'yes'][n % 2]}\n" for n in range(99))
    )
    return tmp_path


def written(folder, validation=100, grade="", **changes):
    """A folder with the task above and the Sudoku's settings, with `changes`."""
    folder.mkdir()
    (folder / "task.py").write_text(TASK.format(validation=validation, grade=grade))
    own = settings.read_yaml(paths.ROOT / "src/casebook/newcase/nano.yaml")
    own |= {"reward_funcs": ["right"], "reward_weights": None, "max_seq_length": 128}
    (folder / "nano.yaml").write_text(json.dumps(own | {"max_completion_length": 9} | changes))
    return str(folder)


def told(name, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)  # no look at the model
    monkeypatch.setattr(checks.redteam, "redteam", lambda *args, **given: {"findings": []})
    return [": ".join(it) for it in checks.check(name) if it[0] != "note"]


def test_what_it_writes_is_a_case_whose_property_is_graded(here):
    newcase.new("demo")
    case = load_case("demo")
    assert case.name == str(here / "demo")
    row = case.load("validation")[0]
    assert case.grade(case.reference(row), row["answer"]).strict
    swapped = case.reference(row).translate(str.maketrans("12", "21"))
    assert not case.grade(swapped, row["answer"]).correct
    empty = "." * 16  # any solved grid is right where nothing is given
    assert case.grade(swapped, empty).correct
    assert case.load("train", "t4")[0]["prompt"][-1]["role"] == "user"
    for profile in ("nano", "t4"):
        assert settings.checked(("demo", profile))["case"] == str(here / "demo")
    with pytest.raises(CasebookError, match="demo is there already"):
        newcase.new("demo")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (None, r"known are gsm8k.*any folder with a task.py"),
        ("1 / 0", "the import of .*task.py raised ZeroDivisionError"),
        ("def load(split): ...", "needs load, grade, and rewards"),
        (TASK.format(validation=1, grade="") + "load = lambda split: [{}]", "rows with the texts"),
        (TASK.format(validation=1, grade="return True"), "gave True, and no Grade"),
    ],
)
def test_a_folder_that_is_no_case_says_what_it_lacks(here, task, said):
    (here / "mine").mkdir()
    if task:
        (here / "mine/task.py").write_text(task)
    with pytest.raises(CasebookError, match=said):
        load_case("mine").load("test") and load_case("mine").grade("1", "1")


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({}, "", ""),
        ({"reward_funcs": ["rihgt"]}, "settings", "unknown reward 'rihgt': known are right"),
        ({"validation": 30}, "leak", "train and validation share 30 prompts"),
        ({"grade": "assert text"}, "grader", "raised AssertionError"),
        ({"grade": "text += ' ' * (N[0] % 97 > 40)"}, "grader", "another grade the next time"),
        ({"grade": "answer = text"}, "grader", "right for the next one"),
    ],
)
def test_the_check_finds_what_would_spoil_a_training(here, changes, kind, said, monkeypatch):
    found = told(written(here / "mine", **changes), monkeypatch)
    assert bool(found) == bool(said) == any(it.startswith(kind) and said in it for it in found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "rows.csv", "grader": "number"}, "answer in line 2 is no number"),
        ({"rows": "none.csv"}, "none.csv cannot be read"),
        ({"rows": "words.csv"}, "needs a column prompt"),
        ({"rows": "rows.csv", "grader": "labl"}, "known are number, label, math"),
        ({"task": "leg_counting"}, "reasoning-gym is not installed"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence_and_no_folder(here, given, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    (here / "words.csv").write_text("question,answer\na,b\n")
    with pytest.raises(CasebookError, match=said):
        newcase.new("mine", **given)
    assert not (here / "mine").exists()


def test_rows_of_a_table_become_a_case_that_trains_two_steps(here):
    newcase.new("mine", here / "rows.csv", "label")
    assert load_case("mine").labels == ("no", "yes")
    quick = ["--set", "max_steps=2", "--set", "per_device_train_batch_size=16"]
    for command in (
        ["nano", "build", "mine", "--steps", "2"],
        ["train", "--config", "mine/nano.yaml", *quick, "--set", "evaluate_every=0"],
        ["evaluate", "--case", "mine", "--limit", "2", "--model", "runs/adapter"],
    ):
        more = ["--output", "runs"] if command[0] == "train" else []
        done = subprocess.run(
            [sys.executable, "-m", "casebook.cli", *command, *more], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert json.loads((here / "runs/record.json").read_text())["case"] == str(here / "mine")
