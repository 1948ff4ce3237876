"""Finding cases by name, and the errors a wrong name gets."""

import subprocess
import sys

import pytest

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
