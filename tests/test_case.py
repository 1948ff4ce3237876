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


def test_planted_shares_add_up_to_one():
    for name in known_cases():
        assert sum(share for share, _ in load_case(name).skills.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "module",
    ["casebook", "casebook.rewards", "casebook.records", "casebook.stats", "casebook.plots"]
    + [f"casebook.cases.{name}" for name in known_cases()],
)
def test_grading_and_records_need_neither_torch_nor_trl(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'trl') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr
