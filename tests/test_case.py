"""Finding cases by name, the errors a wrong name gets, and what all corpora have in common."""

import subprocess
import sys
from importlib import import_module

import pytest

from casebook import load_case
from casebook.case import CasebookError, UnknownName, check_name, check_skills, known_cases, left

ASKED = [  # each case without a variant, and in each that it knows
    (name, variant)
    for name in known_cases()
    for variant in (None, *import_module(f"casebook.cases.{name}.rewards").VARIANTS)
]
SKILLS = {"reason": {"careful": (0.4, ""), "guess": (0.6, "")}, "label": {"blurt": (1.0, "")}}


def test_every_known_case_loads_under_its_own_name():
    assert known_cases() == ("gsm8k", "landuse", "math", "poker")
    for name in known_cases():
        assert load_case(name).name == name


@pytest.mark.parametrize("name", ["pokr", None, "poker.oracle", "../poker"])
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


@pytest.mark.parametrize("name", known_cases())
def test_skills_are_planted_in_prompts_that_there_are_in_shares_that_add_up(name):
    assert {(name, variant) for variant in load_case(name).skills} <= set(ASKED)
    for skills in load_case(name).skills.values():
        assert sum(share for share, _ in skills.values()) == pytest.approx(1)


@pytest.mark.parametrize(("name", "variant"), ASKED)
def test_the_reference_is_well_formed_and_right_for_every_row(name, variant):
    case = load_case(name)
    for row in case.load("validation", variant=variant):
        answer = row.get("plan_label", row["answer"])  # the plan's own, of all labels that count
        assert case.grade(case.reference(row, variant), answer, variant).strict


@pytest.mark.parametrize("name", known_cases())
def test_a_seed_gives_the_same_rows_again_and_another_gives_others(name):
    first, again, other = (load_case(name).load("test", seed=seed) for seed in (5, 5, 6))
    assert first[:] == again[:]
    assert first["prompt"][:] != other["prompt"][:]


def test_what_is_left_out_has_to_be_there_and_to_leave_something():
    check_skills(SKILLS, ["guess"])
    with pytest.raises(UnknownName, match="known are careful, guess, blurt"):
        check_skills(SKILLS, ["gess"])
    with pytest.raises(CasebookError, match="no skill is left for the prompt 'label'"):
        check_skills(SKILLS, ["blurt"])
    shares = left({"careful": 0.2, "guess": 0.3, "blurt": 0.5}, ["blurt"])
    assert shares == pytest.approx({"careful": 0.4, "guess": 0.6})


@pytest.mark.slow
def test_grading_needs_no_torch_and_a_case_brings_neither_studies_nor_training():
    cases = "; ".join(f"load_case({name!r}).load('validation')" for name in known_cases())
    code = (
        "import sys, casebook.records, casebook.plots; from casebook import load_case\n"
        "for name in ('gsm8k', 'landuse', 'math', 'poker'): load_case(name).grade('x', '1')\n"
        "print([m for m in ('torch', 'trl') if m in sys.modules])\n"
        f"{cases}\n"
        "print([m for m in sys.modules if m.startswith(('casebook.training', 'casebook.exp')) or "
        "m.startswith('casebook.cases.') and m.split('.')[-1] in ('studies', 'exercises')])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.split("\n")[:2] == ["[]", "[]"], output.stderr
