"""A case of one's own: written, read from its folder, checked, and trained for two steps."""

import json
import sys

import pytest
from typer.testing import CliRunner

from casebook import cli, load_case, newcase, paths, settings, training
from casebook.case import CasebookError
from casebook.experiments import nano
from casebook.newcase import check as checks

TASK = """
import numpy
from casebook import Grade
N = [0]
def load(split):
    first = {{"train": 0, "validation": {validation}, "test": 200}}[split]
    return [{{"prompt": f"twice {{n}}", "answer": str(2 * n)}} for n in range(first, first + 60)]
def grade(text, answer):
    N[0] += 1
    {grade}
    return Grade(text.isdigit(), text, text == answer)
def right(completions, answer, **more):
    return numpy.array([text == own for text, own in zip(completions, answer)], float)
rewards = {{"right": right}}
"""

ROW = "from __future__ import annotations\nimport dataclasses as d\n@d.dataclass\nclass A: b: int"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"Is {n} odd?,{('no', 'yes')[n % 2]}\n" for n in range(99))
    (tmp_path / "rows.csv").write_text(f"prompt,answer\n{rows}")
    (tmp_path / "words.csv").write_text("question,answer\na,b\n")
    (tmp_path / "few.csv").write_text("prompt,answer\none,1\n")
    return tmp_path


def test_what_it_writes_is_a_case_whose_property_is_graded(here):
    newcase.new("demo")
    case = load_case("demo")
    row = case.load("validation")[0]
    assert case.grade(case.reference(row), row["answer"]).strict
    swapped = case.reference(row).translate(str.maketrans("12", "21"))
    assert not case.grade(swapped, row["answer"]).correct
    assert case.grade(swapped, "." * 16).correct  # right where no cell is given
    assert case.load("train", "t4")[0]["prompt"][-1]["role"] == "user"
    newcase.new("mine", here / "rows.csv", "label")
    named = {"answer": "yes", "solution": "no"}  # as a reasoning-gym row, whose answer is a name
    assert load_case("mine").reference(named).endswith("<answer>no</answer>")
    for profile in ("nano", "t4"):
        assert settings.checked(("demo", profile))["case"] == case.name == str(here / "demo")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("", r"known are gsm8k.*any folder with a task.py"),
        ("1 / 0", "the import of .*task.py raised ZeroDivisionError"),
        ("def load(split): ...", "needs load, grade, and rewards"),
        (TASK.format(validation=1, grade="") + "load = lambda split: [{}]", "rows with the texts"),
        (TASK.format(validation=1, grade="") + "load = lambda split: [1]", "rows with the texts"),
        (TASK.format(validation=1, grade="") + "def load(split): yield 1 / 0", "load of .* raised"),
        (TASK.format(validation=1, grade="return True"), "gave True, and no Grade"),
        (ROW, "needs load, grade, and rewards"),
    ],
)
def test_a_folder_that_is_no_case_says_what_it_lacks(here, task, said):
    (here / "mine").mkdir()
    if task:
        (here / "mine/task.py").write_text(task)
    with pytest.raises(CasebookError, match=said):
        load_case("mine").load("test") and load_case("mine").grade("1", "1")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"reward_funcs": ["rihgt"]}, "unknown reward 'rihgt': known are right"),
        ({"validation": 30}, "leak: train and validation share 30 prompts"),
        ({"grade": "assert text"}, "grader: grade of "),
        ({"grade": "text += ' ' * (N[0] % 97 > 40)"}, "get another grade the next time"),
        ({"grade": "answer = text"}, "grader: the reference of any row is right for the next one"),
        ({"own": "text"}, "rewards: none reads the answer"),
        ({"complete": False}, "note: reward right was not attacked to the end"),
    ],
)
def test_the_check_finds_what_would_spoil_a_training(here, changes, said, monkeypatch):
    monkeypatch.setattr(checks, "_base", lambda *given: ())
    (here / "mine").mkdir()
    task = {"validation": 100, "grade": "", "complete": True, "findings": []} | changes
    monkeypatch.setattr(checks.redteam, "redteam", lambda *given, **more: task)
    text = TASK.format(**task).replace("== own", f"== {changes.get('own', 'own')}")
    (here / "mine/task.py").write_text(text)
    own = settings.read_yaml(paths.ROOT / "src/casebook/newcase/nano.yaml")
    own |= {"reward_funcs": changes.get("reward_funcs", ["right"]), "reward_weights": None}
    (here / "mine/nano.yaml").write_text(json.dumps(own))
    done = CliRunner().invoke(cli.app, ["check", "mine"])
    assert (done.exit_code, said in done.output) == (said[:4] not in ("", "note"), 1), done.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "rows.csv", "grader": "number"}, "answer in row 2 is no number"),
        ({"rows": "none.csv"}, "none.csv cannot be read"),
        ({"rows": "words.csv"}, "needs a column prompt, filled"),
        ({"rows": "few.csv"}, "few.csv has no rows for .*validation"),
        ({"rows": "rows.csv", "grader": "labl"}, "known are number, label, math"),
        ({"task": "leg_counting"}, "reasoning_gym is missing: pip install"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence_and_no_folder(here, given, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(CasebookError, match=said):
        newcase.new("mine", **given)
    assert not (here / "mine").exists()


@pytest.mark.slow
def test_rows_of_a_table_become_a_case_that_trains_two_steps(here):
    newcase.new("mine", here / "rows.csv", "label")
    nano.build("mine", steps=2)
    quick = {"max_steps": 2, "per_device_train_batch_size": 16, "save_steps": 2, "test_limit": 2}
    config = training.read_config(here / "mine/nano.yaml", quick)
    run = training.train(config, here / "run")
    assert run.record()["case"] == load_case("mine").name == str(here / "mine")
    measured = ["evaluate", "--case", "mine", "--limit", "2", "--model", str(run.adapter)]
    assert CliRunner().invoke(cli.app, measured).exit_code == 0
    begun, task = training.default_folder(config), here / "mine/task.py"
    task.write_text(task.read_text() + "\n# graded otherwise\n")
    assert training.default_folder(config) != begun


def test_clusters_of_the_casebooks_own_cases_are_no_leaks():
    poker = load_case("poker")
    rows = {split: poker.load(split).select(range(50)).to_list() for split in checks.SPLITS}
    assert not list(checks._leaks(poker, rows))
