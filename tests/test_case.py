"""Finding cases by name, and the errors a wrong name gets."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import casebook
from casebook import load_case
from casebook.case import CasebookError, UnknownName, check_name, known_cases


def test_every_known_case_loads_under_its_own_name():
    assert "poker" in known_cases()
    for name in known_cases():
        assert load_case(name).name == name


@pytest.mark.parametrize("name", ["pokr", "", None, 3, "poker.oracle", "../poker"])
def test_an_unknown_case_lists_the_known_ones(name):
    with pytest.raises(UnknownName, match=r"known are .*poker"):
        load_case(name)


def test_an_unknown_reward_lists_the_known_ones():
    with pytest.raises(CasebookError, match=r"unknown reward 'corect'.*class_weighted"):
        load_case("poker").rewards["corect"]


def test_the_message_is_a_sentence_not_a_repr():
    with pytest.raises(KeyError) as caught:
        check_name("profile", "t5", ["t4", "a100"])
    assert str(caught.value) == "unknown profile 't5': known are t4, a100"


def test_planted_shares_add_up_to_one_for_each_prompt():
    for name in known_cases():
        for skills in load_case(name).skills.values():
            assert sum(share for share, _ in skills.values()) == pytest.approx(1)


def test_a_skill_is_the_same_in_every_prompt_in_which_it_is_planted():
    for name in known_cases():  # so that its name alone says what to leave out
        told = {}
        for skills in load_case(name).skills.values():
            for skill, (_, text) in skills.items():
                assert told.setdefault(skill, text) == text


def test_prompts_with_planted_skills_are_variants_the_case_can_load_and_grade():
    for name in known_cases():
        case = load_case(name)
        for variant in case.skills:
            row = case.load("validation", variant=variant)[0]
            assert case.grade(case.reference(row, variant), row["answer"], variant).strict


@pytest.mark.parametrize(
    "module",
    ["casebook", "casebook.rewards", "casebook.records", "casebook.stats", "casebook.plots"]
    + [f"casebook.cases.{name}" for name in known_cases()],
)
def test_grading_and_records_need_neither_torch_nor_trl(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'trl') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr


@pytest.mark.parametrize("name", known_cases())
def test_loading_a_case_brings_neither_its_studies_nor_its_exercises_nor_training(name):
    code = (
        f"import sys; from casebook import load_case; load_case({name!r}).load('validation')\n"
        "print([m for m in sys.modules if m.startswith('casebook.') and "
        "any(part in m for part in ('.studies', '.exercises', '.training', '.experiments'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr


def test_no_module_of_a_case_imports_training():
    folder = Path(casebook.__file__).parent / "cases"
    for path in folder.rglob("*.py"):
        names = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
        ]
        wrong = [n for n in names if n and n.removeprefix("casebook.").split(".")[0] == "training"]
        assert not wrong, f"{path.relative_to(folder)} imports {wrong}"
