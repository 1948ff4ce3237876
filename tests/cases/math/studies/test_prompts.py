"""Lengths of prompts and solutions, and what a limit leaves of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.cases.math.studies.prompts import (
    LIMITS,
    cut_table,
    figures,
    finished,
    left_after,
    shot_prompts,
    tokens,
)
from casebook.records import studies

QUESTIONS = ["one two", "three", "four five six seven", "eight nine"]
SOLUTIONS = ["1", "2", "4 5 6 7 8 9", "0"]
PARTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("xy $7", max_size=12))


def test_examples_are_the_middling_ones_and_are_not_asked():
    made = shot_prompts(QUESTIONS, SOLUTIONS, 2)
    assert len(made) == 2
    asked = [parts["problem"] for parts in made]
    assert asked == ["Question: three\nAnswer:", "Question: four five six seven\nAnswer:"]
    for parts in made:
        assert list(parts) == ["chat mark", "example 1", "example 2", "problem"]
        assert "one two" in parts["example 1"] + parts["example 2"]
        assert "eight nine" in parts["example 1"] + parts["example 2"]


def test_a_cut_takes_the_first_parts_first():
    parts = {"mark": "a", "example": "b c d", "problem": "e f"}
    assert left_after(parts, 6) == {"mark": 1.0, "example": 1.0, "problem": 1.0}
    assert left_after(parts, 5) == {"mark": 0.0, "example": 1.0, "problem": 1.0}
    assert left_after(parts, 3) == pytest.approx({"mark": 0, "example": 1 / 3, "problem": 1})
    assert left_after(parts, 1) == {"mark": 0.0, "example": 0.0, "problem": 0.5}


@settings(deadline=None)
@given(PARTS, st.integers(1, 40))
def test_what_is_left_fits_and_nothing_is_lost_for_nothing(parts, limit):
    left = left_after(parts, limit)
    kept = sum(left[name] * tokens(text) for name, text in parts.items())
    assert list(left) == list(parts)
    assert kept == pytest.approx(min(limit, sum(map(tokens, parts.values()))))


def test_cut_table_counts_prompts():
    made = [{"mark": "a", "problem": "b c"}, {"mark": "a", "problem": "b c d e"}]
    table = cut_table(made, [3, 5])
    assert table.loc[3].to_dict() == {"over": 0.5, "mark": 0.5, "problem": 0.5}
    assert table.loc[5].to_dict() == {"over": 0.0, "mark": 1.0, "problem": 1.0}


@pytest.mark.parametrize(
    ("solution", "most"),
    [
        (r"\boxed{5}", 4),
        (r"so \boxed{\frac{1}{2}} it is", 11),
        (r"\boxed{1} no \boxed{2}", 9),
        ("no box", None),
        (r"\boxed{5", None),
        ("", None),
    ],
)
def test_a_solution_is_finished_once_its_last_box_is_closed(solution, most):
    if most is None:
        assert finished([solution], [10_000]).tolist() == [0.0]
    else:
        assert finished([solution], [most - 1, most]).tolist() == [0.0, 1.0]


def test_figures_without_problems_are_the_committed_ones(monkeypatch):
    monkeypatch.delenv(problem_sets.VARIABLE, raising=False)
    found, live = figures()
    assert not live
    assert found == studies.read("prompts")
    assert found["limits"] == list(LIMITS)


def test_the_record_is_what_the_real_problems_give():
    if not (problem_sets.available("math500") and problem_sets.available("gsm8k")):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with math/ and gsm8k/")
    found, live = figures()
    kept = studies.read("prompts")
    del kept["code"]
    assert live
    assert found == kept
