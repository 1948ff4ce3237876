"""The land-use grade and its rewards: form, reading, accepted labels, and the plan's value."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import CasebookError, Grade
from casebook.attacks import attacks
from casebook.case import UnknownName
from casebook.cases.landuse.fields import LABELS
from casebook.cases.landuse.rewards import (
    REWARDS,
    TOLERANCES,
    VARIANTS,
    accepted,
    extract_label,
    grade,
    label_match,
    open_r1_format,
    plan_value,
)

CAREFUL = "<think>\nyields wheat 7 oat 5\nweigh oat\n</think>\n<answer>oat</answer>"
OPEN_R1 = "<think>\n7 5 3\n</think>\n<answer>\noat\n</answer>"
LISTED = ", ".join(LABELS)
PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", ".", "|", "7", *LABELS]
)
LINES = st.sampled_from(
    ["<think>\n", "\n</think>\n<answer>\n", "\n</answer>", "<answer>\n", "\n", "oat", " "]
)
ANY_TEXT = st.lists(PIECES | LINES, max_size=10).map("".join) | st.text(max_size=40)
ANYTHING = (
    ANY_TEXT
    | st.none()
    | st.binary()
    | st.floats()
    | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), st.none() | st.text()))
)
VALUES = [8.0, 6.0, 4.0, 0.0, -2.0]  # wheat, oat, habitat, corn, soy


# What is read


@pytest.mark.parametrize("label", LABELS)
def test_every_label_in_the_form_asked_for(label):
    text = f"<think>7 5 3</think><answer> {label.title()}\n</answer>"
    assert grade(text, label) == Grade(True, label, True)
    assert grade([{"role": "assistant", "content": text}], label).strict


@pytest.mark.parametrize(
    ("completion", "well_formed", "answer"),
    [
        (CAREFUL, True, "oat"),
        (OPEN_R1, True, "oat"),
        ("<think></think><answer>SOY</answer>", True, "soy"),
        ("<think>wheat or corn</think><answer>corn</answer>", True, "corn"),
        # a label, but not the form
        ("Habitat.", False, "habitat"),
        ("<answer>oat</answer>", False, "oat"),
        ("7 5 3</think><answer>oat</answer>", False, "oat"),  # pre-filled <think>
        ("<think>a</think>\nI would keep the habitat", False, "habitat"),
        ("<think>a</think><answer>plant oat</answer>", False, "oat"),
        ("<think>a</think><answer>oat", False, "oat"),
        # no label, or several
        ("not wheat", False, None),
        ("<think>a</think><answer>oat</answer>\nor wheat", False, None),
        ("<think>a</think><answer>oat</answer><answer>soy</answer>", False, None),
        ("", False, None),
        ("<think>wheat", False, None),
        ("<think>wheat</think>", False, None),
        ("<think>a</think><answer></answer>", False, None),
        ("<think>a</think><answer>barley</answer>", False, None),
        ("<think>a</think><answer>wheat|oat</answer>", False, None),
        ("oats and soybeans", False, None),
        (LISTED, False, None),
        (f"<think>a</think><answer>{LISTED}</answer>", False, None),
    ],
)
def test_form_and_reading(completion, well_formed, answer):
    got = grade(completion, answer)
    assert (got.well_formed, got.answer) == (well_formed, answer)
    assert got.correct == (answer is not None)
    assert extract_label(completion) == answer


@pytest.mark.parametrize(
    ("completion", "well_formed"),
    [
        ("oat", True),
        (" Oat.\n", True),
        ("oat..", False),
        ("oat, soy", False),
        ("", False),
        (CAREFUL, False),
    ],
)
def test_form_of_the_label_variant(completion, well_formed):
    assert grade(completion, "oat", "label").well_formed is well_formed


@given(ANYTHING, st.sampled_from([name for name in VARIANTS if name != "label"]))
def test_all_other_variants_ask_for_the_same_form(completion, variant):
    assert grade(completion, "oat", variant) == grade(completion, "oat")


def test_an_unknown_variant_is_named():
    with pytest.raises(UnknownName, match="unknown variant 'essay': known are reason, prices"):
        grade(CAREFUL, "oat", "essay")


@pytest.mark.parametrize("completion", [None, b"oat", 3, 2.5, [], [None], {}, object(), True])
def test_what_is_no_text_has_no_answer(completion):
    assert grade(completion, "oat") == Grade(False, None, False)


@given(ANYTHING, ANYTHING | st.sampled_from(["oat", "corn|oat"]))
def test_grade_takes_anything(completion, answer):
    got = grade(completion, answer)
    assert got.answer is None or got.answer in LABELS
    assert not got.correct or got.answer in answer.lower()
    assert got.answer is not None or not got.well_formed


@given(ANY_TEXT, st.sampled_from(LABELS))
def test_an_answer_tag_is_read_whatever_was_thought_before(text, label):
    assert extract_label(f"{text}</think><answer>{label}</answer>") == label


@pytest.mark.parametrize(("variant", "tags"), [("reason", ("think", "answer")), ("label", ())])
@pytest.mark.parametrize("right", LABELS)
def test_the_grade_gives_each_attack_what_it_deserves(right, variant, tags):
    probes = attacks(right, LABELS, reasoning="7 5 3", tags=tags, lookalikes=["barley"])
    for probe in probes:
        got = grade(probe.completion, right, variant)
        assert got.strict == (probe.deserves == "full"), probe.name
        assert got.well_formed == (probe.deserves in ("full", "form")), probe.name
        assert got.correct == (probe.deserves in ("full", "answer")), probe.name


# What is accepted


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ("oat", {"oat"}),
        ("corn|oat", {"corn", "oat"}),
        (" Corn | OAT ", {"corn", "oat"}),
        ("corn|barley|", {"corn"}),
        ("corn oat", set()),
        ("", set()),
        (None, set()),
        (b"oat", set()),
        (["oat"], set()),
    ],
)
def test_accepted_labels(answer, labels):
    assert accepted(answer) == labels
    assert {label for label in LABELS if grade(label, answer).correct} == labels


def test_label_match_accepts_every_label_of_the_answer():
    assert label_match()(list(LABELS), answer=["corn|oat"] * 5) == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_label_match_reads_the_column_of_its_tolerance():
    rows = {
        "plan_label": ["wheat"],
        "answer_0": ["oat|wheat"],
        "answer": ["corn"],
        "answer_5": ["soy"],
    }
    paid = {
        "own label": label_match(own_label=True),
        **{tolerance: label_match(tolerance=tolerance) for tolerance in TOLERANCES},
    }
    earners = {
        name: [label for label in LABELS if reward([label], **rows) == [1.0]]
        for name, reward in paid.items()
    }
    assert earners == {
        "own label": ["wheat"],
        "0": ["wheat", "oat"],
        "2": ["corn"],
        "5": ["soy"],
    }


def test_a_tolerance_may_be_a_number_as_yaml_reads_it():
    assert label_match(tolerance=5)(["soy"], answer_5=["soy"]) == [1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"own_label": "yes"}, "own_label must be true or false"),
        ({"own_label": 1}, "own_label must be true or false"),
        ({"tolerance": "10"}, "unknown tolerance '10': known are 0, 2, 5"),
        ({"tolerance": 0.02}, "unknown tolerance"),
        ({"tolerance": None}, "unknown tolerance"),
        ({"tolerance": ["2"]}, "unknown tolerance"),
    ],
)
def test_bad_options_of_label_match(options, message):
    with pytest.raises(CasebookError, match=message):
        label_match(**options)


@pytest.mark.parametrize(
    ("reward", "column"),
    [
        (label_match(), "answer"),
        (label_match(own_label=True), "plan_label"),
        (plan_value(), "values"),
        (plan_value("parcel"), "values"),
    ],
)
def test_a_missing_column_is_named(reward, column):
    with pytest.raises(CasebookError, match=f"column '{column}'"):
        reward(["oat"])


def test_the_objective_is_a_column_of_its_own():
    with pytest.raises(CasebookError, match="column 'objective'"):
        plan_value()(["oat"], values=[VALUES])


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
    st.sampled_from(YARDSTICKS := ("objective", "parcel")),
)
def test_plan_value_ranks_labels_as_their_values(values, objective, yardstick):
    row = {"values": [values] * 5, "objective": [objective] * 5}
    paid = plan_value(yardstick)(list(LABELS), **row)
    assert all(0.0 <= share <= 1.0 for share in paid)
    ranked = [share for _, share in sorted(zip(values, paid, strict=True))]
    assert ranked == sorted(ranked)
    assert max(values) == 0 or max(paid) == 1.0 or max(values) < 1e-300


@pytest.mark.parametrize("yardstick", YARDSTICKS)
@pytest.mark.parametrize(
    "values",
    [None, [], [1.0] * 4, "wheat", 5, [1.0, None, 0, 0, 0], [math.nan] * 5, [math.inf, 0, 0, 0, 0]],
)
def test_rows_without_usable_values_pay_nothing(yardstick, values):
    row = {"values": [values], "objective": [10.0]}
    assert plan_value(yardstick)(["wheat"], **row) == [0.0]


@pytest.mark.parametrize("objective", [0.0, -1.0, None, "much", math.nan, math.inf])
def test_an_objective_that_is_no_yardstick_pays_nothing(objective):
    assert plan_value()(["wheat"], values=[VALUES], objective=[objective]) == [0.0]


def test_a_parcel_where_nothing_is_worth_anything_pays_nothing():
    assert plan_value("parcel")(["habitat"], values=[[0.0] * 5]) == [0.0]


def test_the_yardsticks_are_named():
    with pytest.raises(UnknownName, match="known are objective, parcel"):
        plan_value("landscape")


# open-r1's form


@pytest.mark.parametrize(
    ("completion", "ours", "theirs"),
    [
        (OPEN_R1, 1.0, 1.0),
        ("<think>\n\n</think>\n<answer>\n\n</answer>", 1.0, 1.0),
        (f"{OPEN_R1}\n", 1.0, 1.0),
        # unsound there
        (f"{OPEN_R1}\nor wheat", 0.0, 1.0),
        (f"{OPEN_R1}\n<answer>\nwheat\n</answer>", 0.0, 1.0),
        (f"<think>\nno\n</think>\n{OPEN_R1}", 0.0, 1.0),
        # needlessly narrow there
        (CAREFUL, 1.0, 0.0),
        ("<think>\n7 5 3\n</think>\n\n<answer>\noat\n</answer>", 1.0, 0.0),
        (f" {OPEN_R1}", 1.0, 0.0),
        ("<think>\n</think>\n<answer>\noat\n</answer>", 1.0, 0.0),
        # neither
        (OPEN_R1.removeprefix("<think>\n"), 0.0, 0.0),
        (f"{OPEN_R1} or wheat", 0.0, 0.0),
        (f"so: {OPEN_R1}", 0.0, 0.0),
        ("oat", 0.0, 0.0),
        ("", 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_both_forms(completion, ours, theirs):
    assert REWARDS["tag_format"]()([completion]) == [ours]
    assert open_r1_format()([completion]) == [theirs]


@given(st.lists(LINES, max_size=8).map("".join))
def test_plain_search_agrees_with_a_regular_expression(text):
    lines = "<think>\n[^]*?\n</think>\n<answer>\n[^]*?\n</answer>".replace("[^]", r"[\s\S]")
    expected = re.match(f"{lines}(?=\n|$)", text) is not None
    assert open_r1_format()([text]) == [float(expected)]


# All of them


@given(st.lists(ANYTHING, max_size=4))
def test_every_reward_gives_one_bounded_number_each(completions):
    row = {"answer": "corn|oat", "values": VALUES, "objective": 9.0, "prompts": "parcel 7 5 3 - 6"}
    columns = {name: [value] * len(completions) for name, value in row.items()}
    for factory in REWARDS.values():
        paid = factory()(completions, **columns)
        assert len(paid) == len(completions)
        assert all(isinstance(value, float) and -1.0 <= value <= 1.0 for value in paid)


@given(ANYTHING)
def test_rewards_follow_the_grade(completion):
    got = grade(completion, "corn|oat")
    assert label_match()([completion], answer=["corn|oat"]) == [float(got.correct)]
    assert REWARDS["tag_format"]()([completion])[0] >= got.well_formed
    assert (plan_value("parcel")([completion], values=[[1.0] * 5]) == [0.0]) == (got.answer is None)


@pytest.mark.parametrize("reward", [label_match(), plan_value("parcel")])
def test_as_many_rows_as_completions(reward):
    with pytest.raises(ValueError, match="shorter"):
        reward(["oat", "oat"], answer=["oat"], values=[VALUES])


def test_rewards_carry_their_registered_names():
    assert [factory().__name__ for factory in REWARDS.values()] == list(REWARDS)


def test_an_unknown_reward_lists_the_known():
    with pytest.raises(UnknownName, match="unknown reward 'accuracy': known are label_match, plan"):
        REWARDS["accuracy"]


@pytest.mark.parametrize(
    "piece", ["<think>\n", "\n</think>\n<answer>\n", "\n</answer>", "oat ", "oat|", " ", "\n", "é"]
)
def test_megabytes_are_judged_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (2_000_000 // len(piece))
    assert isinstance(grade(text, text), Grade)
    assert open_r1_format()([f"<think>\n{text}"])[0] in (0.0, 1.0)
    assert grade(f"<think>{text}</think><answer>corn</answer>", "corn").correct
