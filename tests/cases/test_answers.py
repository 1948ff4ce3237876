"""Each case's written policy of what an answer is: its examples, graded one by one."""

from pathlib import Path

import pytest
import yaml

import casebook
from casebook import load_case
from casebook.case import known_cases

FILES = sorted((Path(casebook.__file__).parent / "cases").glob("*/answers.yaml"))
TABLES = {path.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in FILES}
CASES = pytest.mark.parametrize("name", TABLES)
GRADES = ("strict", "lenient", "wrong", "none")
FEWEST = 60


def grade_of(name, example):
    variant = {"variant": example["template"]} if "template" in example else {}
    grade = load_case(name).grade(example["completion"], example["gold"], **variant)
    assert not grade.correct or grade.answer is not None
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


def test_there_are_tables():
    assert set(known_cases()) == set(TABLES)


@CASES
def test_every_rule_has_an_example_and_every_example_a_rule(name):
    table = TABLES[name]
    assert {example["rule"] for example in table["examples"]} == set(table["rules"])
    assert all(rule.strip().endswith(".") for rule in table["rules"].values())


@CASES
def test_an_example_says_what_it_has_to_and_no_more(name):
    for example in TABLES[name]["examples"]:
        assert {"rule", "completion", "gold", "grade"} <= set(example), example
        assert set(example) <= {"rule", "completion", "gold", "grade", "template", "note"}, example
        assert example["grade"] in GRADES, example


@CASES
def test_there_are_enough_examples_and_half_of_them_are_right(name):
    grades = [example["grade"] for example in TABLES[name]["examples"]]
    assert len(grades) >= FEWEST
    assert sum(grade in ("strict", "lenient") for grade in grades) * 2 >= len(grades)
    assert set(grades) == set(GRADES)


@CASES
def test_no_example_stands_twice(name):
    told = [
        repr([example.get(key) for key in ("completion", "gold", "template")])
        for example in TABLES[name]["examples"]
    ]
    assert len(set(told)) == len(told)
