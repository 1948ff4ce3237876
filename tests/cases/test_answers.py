"""Each case's written policy of what an answer is: its examples, graded one by one."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

import casebook
from casebook import load_case
from casebook.case import known_cases
from casebook.cases import problem_sets
from casebook.records import read_rows, studies
from casebook.stats import mean_interval

FILES = sorted((Path(casebook.__file__).parent / "cases").glob("*/answers.yaml"))
TABLES = {path.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in FILES}


def grade_of(name, example):
    variant = {"variant": example["template"]} if "template" in example else {}
    grade = load_case(name).grade(example["completion"], example["gold"], **variant)
    if grade.correct:
        return "strict" if grade.strict else "lenient"
    return "none" if grade.answer is None else "wrong"


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, table in TABLES.items() for number in range(len(table["examples"]))],
)
def test_an_example_gets_its_grade(name, number):
    example = TABLES[name]["examples"][number]
    assert grade_of(name, example) == example["grade"], example


@pytest.mark.parametrize("name", known_cases())
def test_every_rule_has_an_example_and_every_example_a_rule(name):
    table = TABLES[name]
    assert {example["rule"] for example in table["examples"]} == set(table["rules"])


@pytest.mark.parametrize(("name", "needs"), [("gsm8k", "gsm8k"), ("math", "math500")])
def test_the_kept_completions_of_smollm2_are_graded_as_their_record_says(name, needs):
    if not problem_sets.available(needs):
        pytest.skip(f"CASEBOOK_DATA_DIR names no folder with {needs}")
    case, study = load_case(name), f"smol_{name}"
    kept = studies.read(study)["parts"]
    for title, written in read_rows(studies.path(study).with_suffix(".jsonl.gz")).groupby("part"):
        part = kept[title]
        gold = case.load(part["split"], "smol", variant=part["variant"])["answer"]
        grades = [
            case.grade(text, gold[row], variant=part["variant"])
            for text, row in zip(written["completion"], written["row"], strict=True)
        ]
        table = pd.DataFrame(
            [(g.well_formed, g.answer is not None, g.strict, g.correct) for g in grades],
            columns=["well_formed", "answered", "strict", "correct"],
        )
        by_row = table.astype(float).groupby(written["row"].to_numpy()).mean()
        for column in table:
            assert mean_interval(by_row[column]) == part["figures"][column]
