"""Completions made rightly and wrongly, and how often a reward turns two of them around."""

import pytest

from casebook import problem_sets
from casebook.cases.gsm8k import rewards
from casebook.cases.gsm8k.studies import ranking
from casebook.cases.gsm8k.studies.ranking import (
    DEFECTS,
    PARTS,
    defects,
    merits,
    payments,
    readings,
    rendered,
    study,
    wrong_pairs,
)
from casebook.records import studies

SOLUTION = "3 boxes hold 3*4=<<3*4=12>>12 pens.\nWith 5 more he has 12+5=<<12+5=17>>17.\n#### 17"


def row(answer="17", gold=None, solution=SOLUTION):
    return {"answer": answer, "gold": gold or answer, "solution": solution}


ROWS = [row(), row("1600", "1,600", "20*80=<<20*80=1600>>1,600\n#### 1,600"), row("0"), row("-5")]


@pytest.fixture(scope="module")
def table():
    return rendered(ROWS)


def test_what_is_said_of_a_way_is_what_the_grade_says(table):
    for one in table.itertuples():
        got = rewards.grade(one.completion, one.answer)
        assert got.well_formed == (one.plain and one.form), one.way
        if one.way not in ("two answers", "restated"):
            assert got.correct == one.right, one.way


def test_fixed_parts_order_every_pair_as_they_are_meant_to(table):
    paid, merit = payments(table, "fixed"), merits(table)
    for part in PARTS:
        found = wrong_pairs(paid[part], merit[part], table["problem"])
        assert (found["reversed"], found["level"]) == (0.0, 0.0), part


@pytest.mark.parametrize("part", PARTS)
def test_published_parts_do_not(table, part):
    found = wrong_pairs(
        payments(table, "as_published")[part], merits(table)[part], table["problem"]
    )
    assert found["reversed"] + found["level"] > 0


def test_every_defect_is_seen_and_mended(table):
    found = defects(table)
    assert list(found.index) == list(DEFECTS)
    assert (found["problems"] > 0).all()
    assert (found["reversed"] + found["level"] > 0.7).all()
    assert (found["fixed"] == 0).all()


@pytest.mark.parametrize(
    ("paid", "merit", "groups", "expected"),
    [
        ([1, 0], [1, 0], "aa", (1, 0.0, 0.0)),
        ([0, 1], [1, 0], "aa", (1, 1.0, 0.0)),
        ([1, 1], [1, 0], "aa", (1, 0.0, 1.0)),
        ([1, 0], [1, 1], "aa", (0, 0.0, 0.0)),  # nothing to tell apart
        ([0, 1], [1, 0], "ab", (0, 0.0, 0.0)),  # not in one group
        ([1, 1 + 1e-9, 2], [2, 1, 0], "aaa", (3, 2 / 3, 1 / 3)),
        ([], [], "", (0, 0.0, 0.0)),
    ],
)
def test_pairs_by_hand(paid, merit, groups, expected):
    found = wrong_pairs(paid, merit, list(groups))
    assert (found["pairs"], found["reversed"], found["level"]) == pytest.approx(expected)


def test_readings_of_a_solution_whole_and_cut():
    found = readings([SOLUTION, "He has 7, not 8.\n#### 7", "No number.\n#### 7"])
    assert found == {"solutions": 3, "right": 3, "last": 1, "first": 1}


# The committed record


def test_the_record_comes_out_the_same_from_the_real_problems():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    again = study(ranking.rows(real=True))
    kept = studies.read("rewards")
    for part in ("ways", "limits", "defects", "fixed", "as_published"):
        assert again[part] == kept[part]
