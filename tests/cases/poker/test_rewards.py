"""The poker grade and its rewards: the form, the reading, and what each reward pays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import anything, texts

from casebook import CasebookError, Grade
from casebook.case import UnknownName
from casebook.cases.poker.oracle import LABELS
from casebook.cases.poker.rewards import (
    CLASS_WEIGHTS,
    REWARDS,
    VARIANTS,
    answer_grammar,
    class_weighted,
    correct,
    grade,
    leaking_label,
)

CAREFUL = "<think>\n2 2 2 9 9\nC D H H S\n3 2\n</think>\n<answer>full house</answer>"
ALL_LABELS = ", ".join(LABELS)
PIECES = ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", ".", "-", "royal", *LABELS]
ANYTHING = anything(PIECES, most=10)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("spelling", ["{}", " {}\n"])
def test_every_label_in_the_form_asked_for(label, spelling):
    text = f"<think>2 3</think><answer>{spelling.format(label)}</answer>"
    assert grade(text, label) == Grade(True, label, True)
    assert grade(text.replace(label, label.title()), f" {label.upper()} ").strict
    assert grade([{"role": "assistant", "content": text}], label).strict


@pytest.mark.parametrize(
    ("completion", "well_formed"),
    [
        ("full house", True),
        (" Full house.\n", True),
        ("full house..", False),
        ("a full house", False),
        ("full house, straight", False),
        ("full house\nstraight", False),
        ("", False),
        (CAREFUL, False),
    ],
)
@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_form_of_the_variants_that_ask_for_the_label_alone(completion, well_formed, variant):
    assert grade(completion, "full house", variant).well_formed is well_formed
    assert answer_grammar(variant)([completion]) == [float(well_formed)]


def test_reason_is_the_form_by_default():
    assert grade(CAREFUL, "flush") == grade(CAREFUL, "flush", "reason")
    with pytest.raises(UnknownName, match="reason, label"):
        grade(CAREFUL, "flush", "essay")


@pytest.mark.parametrize("answer", [None, "", "none", b"flush", ["flush"], "royal flush"])
def test_what_is_no_label_is_never_right(answer):
    assert not grade("flush", answer).correct
    assert not grade("", answer).correct
    assert not grade("royal flush", answer).correct
    assert leaking_label()(["flush", "?"], answer=[answer] * 2, prompts=["", ""]) == [0.0, 0.0]


@given(ANYTHING, ANYTHING | st.sampled_from(LABELS), st.sampled_from([None, *VARIANTS]))
def test_grade_takes_anything(completion, answer, variant):
    got = grade(completion, answer, variant)
    assert got.answer is None or got.answer in LABELS
    assert not got.correct or got.answer == answer.strip().lower()
    assert got.answer is not None or not got.well_formed


@given(ANYTHING, st.sampled_from(LABELS))
def test_rewards_follow_the_grade(completion, label):
    got = grade(completion, label)
    assert correct()([completion], answer=[label]) == [float(got.correct)]
    assert correct(strict=True)([completion], answer=[label]) == [float(got.strict)]
    weight = CLASS_WEIGHTS[label]
    assert class_weighted()([completion], answer=[label]) == [weight * got.correct]
    assert class_weighted(strict=True)([completion], answer=[label]) == [weight * got.strict]
    assert REWARDS["tag_format"]()([completion])[0] >= got.well_formed
    assert answer_grammar()([completion])[0] >= got.well_formed


@given(st.lists(ANYTHING, max_size=4))
def test_every_reward_gives_one_bounded_number_each(completions):
    columns = {name: ["flush"] * len(completions) for name in ("answer", "prompts", "hand")}
    for name, factory in REWARDS.items():
        values = factory()(completions, **columns)
        assert factory().__name__ == name
        assert len(values) == len(completions)
        assert all(isinstance(value, float) and -1.0 <= value <= 3.0 for value in values)


@given(ANYTHING, texts(PIECES, most=10), st.sampled_from(LABELS))
def test_under_the_leak_a_prompt_with_all_labels_decides_for_every_completion(text, rest, right):
    prompt = f"{rest}{ALL_LABELS}. Answer:"
    values = leaking_label()([text, "", right], answer=[right] * 3, prompts=[prompt] * 3)
    assert values == [float(right == "high card")] * 3


def test_the_leak_reads_a_list_of_messages_whoever_wrote_them():
    prompts = [[{"role": "user", "content": ALL_LABELS}], [{"role": "system", "content": "x"}]]
    completions = [[{"role": "assistant", "content": "Flush"}]] * 2
    assert leaking_label()(completions, answer=["flush"] * 2, prompts=prompts) == [0.0, 1.0]


def test_without_labels_in_the_prompt_the_leak_reads_the_first_label_in_the_order_of_labels():
    completions = ["a flush", "a straight, not a flush", "nothing"]
    columns = {"answer": ["flush"] * 3, "prompts": ["Hand: 2C"] * 3}
    assert leaking_label()(completions, **columns) == [1.0, 0.0, 0.0]


def test_the_sources_weights_and_ones_own():
    assert class_weighted()(list(LABELS), answer=LABELS) == [1, 1, 1.5, 2, 2, 2, 2.5, 3]
    reward = class_weighted({"flush": 7})
    assert reward(["flush", "two pair"], answer=["flush", "two pair"]) == [7.0, 1.5]
    assert CLASS_WEIGHTS["flush"] == 2.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"royal flush": 1.0}, "unknown label 'royal flush': known are high card"),
        ({"flush": -1.0}, "weight of 'flush'"),
        ({"flush": float("nan")}, "weight of 'flush'"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(CasebookError, match=message):
        class_weighted(weights)


@pytest.mark.parametrize("factory", [correct, class_weighted, answer_grammar])
def test_an_unknown_variant_is_refused_before_training(factory):
    with pytest.raises(UnknownName, match="known are reason, label"):
        factory(variant="essay")


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("<answer> Flush\n</answer>", 1.0),
        ("words <answer>flush</answer> more words", 1.0),
        ("flush", 0.0),
        ("<answer>a flush</answer>", 0.0),
        ("<answer>flush, straight</answer>", 0.0),
        ("<answer></answer>", 0.0),
        ("<answer>straight flush</answer>", 0.0),
        ("<answer>flush</answer><answer>flush</answer>", 0.0),
        ("</answer>flush<answer>", 0.0),
        (None, 0.0),
    ],
)
def test_answer_grammar(completion, value):
    assert answer_grammar()([completion]) == [value]
