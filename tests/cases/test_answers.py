"""Each case's written policy of what an answer is: its examples, graded one by one."""

from pathlib import Path

import pytest
import yaml

import casebook
from casebook import load_case
from casebook.case import known_cases

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
