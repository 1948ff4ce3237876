"""The land-use grade and its rewards: form, accepted labels, and the plan's value."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import anything, texts

from casebook import CasebookError
from casebook.cases.landuse.fields import LABELS
from casebook.cases.landuse.rewards import (
    REWARDS,
    accepted,
    grade,
    label_match,
    open_r1_format,
    plan_value,
)

CAREFUL = "<think>\nyields wheat 7 oat 5\nweigh oat\n</think>\n<answer>oat</answer>"
OPEN_R1 = "<think>\n7 5 3\n</think>\n<answer>\noat\n</answer>"
LINES = ["<think>\n", "\n</think>\n<answer>\n", "\n</answer>", "<answer>\n", "\n", "oat", " "]
PIECES = ["<think>", "</think>", "<answer>", "</answer>", ".", "|", "7", *LABELS, *LINES]
ANYTHING = anything(PIECES, most=10)
VALUES = [8.0, 6.0, 4.0, 0.0, -2.0]  # wheat, oat, habitat, corn, soy


@given(ANYTHING, ANYTHING | st.sampled_from(["oat", "corn|oat"]))
def test_grade_takes_anything(completion, answer):
    got = grade(completion, answer)
    assert got.answer is None or got.answer in LABELS
    assert not got.correct or got.answer in answer.lower()
    assert got.answer is not None or not got.well_formed


# What is accepted


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ("oat", {"oat"}),
        (" Corn | OAT ", {"corn", "oat"}),
        ("corn|barley|", {"corn"}),
        ("corn oat", set()),
        (None, set()),
    ],
)
def test_accepted_labels(answer, labels):
    assert accepted(answer) == labels
    assert {label for label in LABELS if grade(label, answer).correct} == labels


@pytest.mark.parametrize(
    ("options", "paid"), [({"own_label": True}, {"wheat"}), ({}, {"corn", "habitat"})]
)
def test_label_match_accepts_the_plans_own_label_or_all_that_count(options, paid):
    row = {"plan_label": "wheat", "answer": "corn|habitat"}
    columns = {name: [value] * 5 for name, value in row.items()}
    match = label_match(**options)(list(LABELS), **columns)
    assert match == [float(label in paid) for label in LABELS]


@pytest.mark.parametrize(
    ("reward", "columns", "missing"),
    [
        (label_match(), {}, "answer"),
        (label_match(own_label=True), {}, "plan_label"),
        (plan_value("parcel"), {}, "values"),
        (plan_value(), {"values": [VALUES]}, "objective"),
    ],
)
def test_a_missing_column_is_named(reward, columns, missing):
    with pytest.raises(CasebookError, match=f"column '{missing}'"):
        reward(["oat"], **columns)


# What a label costs the plan


@pytest.mark.parametrize(
    ("label", "of_objective", "of_parcel"),
    [
        ("wheat", 1.0, 1.0),
        ("oat", 0.98, 0.75),
        ("habitat", 0.96, 0.5),
        ("corn", 0.92, 0.0),
        ("soy", 0.9, 0.0),
        ("barley", 0.0, 0.0),
    ],
)
def test_plan_value_by_hand(label, of_objective, of_parcel):
    row = {"values": [VALUES], "objective": [100.0]}
    assert plan_value()([label], **row) == [pytest.approx(of_objective)]
    assert plan_value("parcel")([label], **row) == [pytest.approx(of_parcel)]


@given(
    st.lists(st.floats(0, 100), min_size=5, max_size=5),
    st.floats(1, 1e4),
    st.sampled_from(["objective", "parcel"]),
)
def test_plan_value_ranks_labels_as_their_values(values, objective, yardstick):
    row = {"values": [values] * 5, "objective": [objective] * 5}
    paid = plan_value(yardstick)(list(LABELS), **row)
    assert all(0.0 <= share <= 1.0 for share in paid)
    ranked = [share for _, share in sorted(zip(values, paid, strict=True))]
    assert ranked == sorted(ranked)
    assert max(values) == 0 or max(paid) == 1.0 or max(values) < 1e-300


# open-r1's form


@pytest.mark.parametrize(
    ("completion", "ours", "theirs"),
    [
        (f"{OPEN_R1}\n", 1.0, 1.0),
        (f"{OPEN_R1}\nor wheat", 0.0, 1.0),  # these three are unsound there
        (f"{OPEN_R1}\n<answer>\nwheat\n</answer>", 0.0, 1.0),
        (f"<think>\nno\n</think>\n{OPEN_R1}", 0.0, 1.0),
        (CAREFUL, 1.0, 0.0),  # these three are needlessly narrow there
        ("<think>\n7 5 3\n</think>\n\n<answer>\noat\n</answer>", 1.0, 0.0),
        (f" {OPEN_R1}", 1.0, 0.0),
        (OPEN_R1.removeprefix("<think>\n"), 0.0, 0.0),
        (f"{OPEN_R1} or wheat", 0.0, 0.0),
        (f"so: {OPEN_R1}", 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_both_forms(completion, ours, theirs):
    assert REWARDS["tag_format"]()([completion]) == [ours]
    assert open_r1_format()([completion]) == [theirs]


@given(texts(LINES, most=8))
def test_plain_search_agrees_with_a_regular_expression(text):
    lines = "<think>\n[^]*?\n</think>\n<answer>\n[^]*?\n</answer>".replace("[^]", r"[\s\S]")
    expected = re.match(f"{lines}(?=\n|$)", text) is not None
    assert open_r1_format()([text]) == [float(expected)]


# All of them


@given(st.lists(ANYTHING, max_size=4))
def test_every_reward_gives_one_bounded_number_each(completions):
    row = {"answer": "corn|oat", "values": VALUES, "objective": 9.0, "prompts": "parcel 7 5 3 - 6"}
    columns = {name: [value] * len(completions) for name, value in row.items()}
    for name, factory in REWARDS.items():
        paid = factory()(completions, **columns)
        assert factory().__name__ == name
        assert len(paid) == len(completions)
        assert all(isinstance(value, float) and -1.0 <= value <= 1.0 for value in paid)


@example("oat\nThe answer is soy", "label")
@given(ANYTHING, st.sampled_from(["reason", "label"]))
def test_rewards_follow_the_grade(completion, variant):
    got, worth = grade(completion, "corn|oat", variant), plan_value("parcel", variant)
    assert label_match(variant=variant)([completion], answer=["corn|oat"]) == [float(got.correct)]
    assert (worth([completion], values=[[1.0] * 5]) == [0.0]) == (got.answer is None)
    got = grade(completion, "corn|oat")
    assert REWARDS["tag_format"]()([completion])[0] >= got.well_formed
