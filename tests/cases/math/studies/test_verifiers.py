"""The verifiers that are compared: each does what its description says, no more and no less."""

import pandas as pd
import pytest

from casebook.cases.math.studies.verifiers import (
    VERIFIERS,
    compare,
    hendrycks,
    math500_pairs,
    math_verify_bare,
    math_verify_boxed,
    minerva,
    normalised,
    own_pairs,
    string_match,
)
from casebook.records import studies

pytest.importorskip("math_verify")


@pytest.mark.parametrize(
    ("verifier", "prediction", "gold", "same"),
    [
        (string_match, r"\boxed{3} and \boxed{4}", "4", True),
        (string_match, "$3$", "3", True),
        (string_match, r"\boxed{3.0}", "3", False),
        (string_match, r"\boxed{\dfrac12}", r"\frac{1}{2}", False),
        (hendrycks, r"\boxed{\tfrac12}", r"\frac{1}{2}", True),
        (hendrycks, "0.25", r"\frac{1}{4}", False),
        (minerva, r"The final answer is $x^2-1$. I hope it is correct.", "(x-1)(x+1)", True),
        (minerva, r"\boxed{0.25}", r"\frac{1}{4}", True),
        (minerva, "so $4$ it is", "4", True),
        (minerva, "The final answer is $3$. I hope it is correct.", "4", False),
        (math_verify_bare, r"\sqrt{12}", r"2\sqrt{3}", False),
        (math_verify_boxed, r"\sqrt{12}", r"2\sqrt{3}", True),
    ],
)
def test_a_verifier_forgives_what_its_description_says(verifier, prediction, gold, same):
    assert verifier(prediction, gold) is same


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\tfrac12", r"\frac{1}{2}"),
        (r"\dfrac{1}2", r"\frac{1}{2}"),
        ("0.5", r"\frac{1}{2}"),
        (".75", "0.75"),
        ("3/4", r"\frac{3}{4}"),
        ("x = 5", "5"),
        ("area = 5", "area=5"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"5 \text{ cm}", "5"),
        (r"30^\circ", "30"),
        (r"10,\!080", "10,080"),
        (r"\left( 1, 2 \right)", "(1,2)"),
    ],
)
def test_the_normalisation_of_math(text, expected):
    assert normalised(text) == expected


def test_the_pairs_are_labelled_once_and_on_both_sides():
    own = own_pairs()
    assert not own.duplicated(["prediction", "gold"]).any()
    assert (own.groupby("kind")["equivalent"].nunique() == 2).all()


def test_comparing_counts_what_is_missed_and_what_is_wrongly_paid():
    pairs = pd.DataFrame(
        [("3", "3", True), ("3.0", "3", True), ("3", "4", False), ("5", "5", False)],
        columns=["prediction", "gold", "equivalent"],
    )
    table = compare(pairs)
    assert list(table.index) == list(VERIFIERS)
    row = table.loc["string match"]
    assert (row["pairs"], row["right"], row["missed"], row["wrongly paid"]) == (4, 2, 1, 1)
    assert (table[["median", "p95", "max"]] >= 0).all().all()


def test_pairs_of_solutions_with_their_own_and_with_another_answer():
    frame = pd.DataFrame(
        {"solution": [r"\boxed{1}", r"\boxed{1.}", r"\boxed{2}"], "answer": ["1", "1.", "2"]}
    )
    pairs = math500_pairs(frame)
    assert pairs["equivalent"].tolist() == [True, False] * 3
    assert pairs["gold"].tolist() == ["1", "2", "1.", "2", "2", "1"]


def test_the_record_says_that_ours_is_no_worse_than_the_library():
    kept = studies.read("verifiers")
    for name in ("own", "math500"):
        table = kept[name]["table"]
        assert table["ours"]["right"] >= table["math-verify boxed"]["right"]
    assert kept["hostile"]["paid"] == 0
