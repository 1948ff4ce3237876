"""Bounds that follow from the source's tables, and guesses that need no model."""

from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook.cases import problem_sets
from casebook.cases.gsm8k.studies import baselines
from casebook.records import studies


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("A robe takes 2 bolts and half of that.", ["2", "0.5"]),
        ("It costs $1,200.50, not 1200.", ["1200.50", "1200"]),
        ("Twice three is less than 12,34.", ["2", "3", "12", "34"]),
        ("Someone phoned none.", []),
    ],
)
def test_numbers_of_a_question(question, numbers):
    first, last = (baselines.guess(rule, question) for rule in ("first number", "last number"))
    assert [first, last] == ([Decimal(numbers[i]) for i in (0, -1)] if numbers else [None] * 2)


def test_rules():
    question = "3 pens, 2 boxes, 5 friends"
    answers = ["3", "5", "5", "2", "10", "30", "6", "10", "5", "-4", "0", "2.5", "11"]
    found = [baselines.guess(rule, question) for rule in baselines.RULES]
    assert found == [Decimal(answer) for answer in answers]


@given(st.text() | st.from_regex(r"[0-9., half]{0,40}", fullmatch=True))
def test_no_question_breaks_a_rule(question):
    for rule in baselines.RULES:
        guess = baselines.guess(rule, question)
        assert guess is None or guess.is_finite()


@given(st.integers(1, 400), st.data())
def test_the_size_that_made_a_table_is_always_possible(n, data):
    values = {
        name: round(most * data.draw(st.integers(0, n)) / n, 3)
        for name, (_, _, most) in baselines.TABLE.items()
    }
    assert n in baselines.possible_sizes(values, [n])


def test_counts_are_those_that_were_printed():
    for i in (0, 1):
        for name, count in baselines.counts(i).items():
            assert round(baselines.TABLE[name][2] * count / 659, 3) == baselines.TABLE[name][i]


def test_of_rows_chooses_in_training_and_judges_on_test():
    train = pd.DataFrame(
        {"question": ["2 and 3", "4 and 5", "1 and 9"], "answer": ["6", "20", "20"]}
    )
    test = pd.DataFrame(
        {"question": ["2 and 3", "7 and 8"], "answer": ["5", "15"], "steps": [1, 2]}
    )
    found = baselines.of_rows(train, test)
    assert found["constant"]["answer"] == "20"
    assert found["constant"]["train"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["constant"]["test"]["value"] == 0
    assert found["best"] == "product"
    assert found["rules"]["sum"]["test"]["value"] == 1
    assert found["best_by_steps"]["2"]["value"] == 0


def test_votes_use_every_sample_at_most_once():
    answers = [["3", "4", "4", "3", "3"], [None, None, "3", None, None], [None] * 5]
    assert baselines.majority_at_k(answers, ["4", "3", "3"], 1).tolist() == [0.4, 0.2, 0.0]
    assert baselines.majority_at_k(answers, ["3", "3", "3"], 2).tolist() == [0.5, 0.5, 0.0]
    assert baselines.majority_at_k(answers, ["3", "3", "3"], 5).tolist() == [1.0, 1.0, 0.0]


@pytest.mark.slow
def test_the_record_is_what_the_real_problems_give():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    kept = studies.read("baseline")
    frames = {split: problem_sets.read("gsm8k", split) for split in ("train", "test")}
    train, test = (
        pd.DataFrame(
            {
                "question": frame["question"],
                "answer": frame["answer"].str.replace(",", "").str.extract(r"#### (.*)")[0],
                "steps": frame["answer"].str.count("<<"),
            }
        )
        for frame in frames.values()
    )
    made = baselines.of_rows(train, test)
    assert made == {part: kept[part] for part in made}
