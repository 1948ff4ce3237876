"""The shared reward parts: open-r1's behaviour where it is sound, and any input at all."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import CasebookError
from casebook.rewards import (
    completion_text,
    last_block,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)

PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "flush", "a", " ", "\n", "<", ">", "é", "\0"]
)
TAGGED_TEXT = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content"]), inner)
    ),
    max_leaves=6,
)


def message(content, role="assistant"):
    return [{"role": role, "content": content}]


# completion_text


@given(st.text())
def test_both_forms_of_a_completion_give_the_same_text(text):
    assert completion_text(text) == text
    assert completion_text(message(text)) == text


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ([{"content": "no role"}], "no role"),
        ([*message("one"), *message("two")], "one\ntwo"),
        ([*message("flush", "tool"), *message("pair")], "pair"),
        (message("echo", "user"), ""),
        (message([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab"),
        (message([{"type": "image"}, "stray", {"text": 3}]), ""),
        (message(None), ""),
        ([{"role": "assistant"}], ""),
        (["flush", None, 3], ""),
        ({"role": "assistant", "content": "not in a list"}, ""),
        ([], ""),
        (None, ""),
        (b"flush", ""),
        (7, ""),
        (float("nan"), ""),
    ],
)
def test_completion_text(completion, text):
    assert completion_text(completion) == text


@given(JSON)
def test_completion_text_takes_anything(completion):
    assert isinstance(completion_text(completion), str)


# tag_format


@pytest.mark.parametrize(
    "completion",
    [
        "<think>\nSome reasoning\n</think>\n<answer>\nwheat\n</answer>",
        "<think>a</think><answer>b</answer>",
        "  <think>a</think>\n\n\n<answer>b</answer>\n",
        "<think></think><answer></answer>",
        "<think>1 < 2, <b>bold</b></think><answer>b</answer>",
        "<think>many\nlines\n\nof it</think><answer>b</answer>",
        message("<think>a</think><answer>b</answer>"),
    ],
)
def test_tag_format_passes(completion):
    assert tag_format()([completion]) == [1.0]


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "no tags at all",
        "<think>only thinking</think>",
        "<answer>only an answer</answer>",
        "<think>never closed <answer>b</answer>",
        "<think>a</think><answer>never closed",
        "<answer>b</answer><think>a</think>",
        "<think>a</answer><answer>b</think>",
        "<think>a</think><answer>b</answer>\ntrailing text on a new line",
        "<think>a</think><answer>b</answer> trailing text",
        "before <think>a</think><answer>b</answer>",
        "<think>a</think> between <answer>b</answer>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a</think><think>b</think><answer>c</answer>",
        "<think>a<answer>b</answer></think>",
        "<think>a</think><answer><answer>b</answer></answer>",
        "a</think><answer>b</answer>",  # the template pre-filled the opening tag
        "<Think>a</Think><Answer>b</Answer>",
        "< think>a</think><answer>b</answer>",
        None,
        b"<think>a</think><answer>b</answer>",
        3,
    ],
)
def test_tag_format_fails(completion):
    assert tag_format()([completion]) == [0.0]


def test_tag_format_with_other_tags():
    reward = tag_format(["reasoning", "final-answer"])
    good = "<reasoning>a</reasoning><final-answer>b</final-answer>"
    assert reward([good, "<think>a</think><answer>b</answer>"]) == [1.0, 0.0]
    assert tag_format(("answer",))(["<answer>b</answer>"]) == [1.0]


@given(st.lists(TAGGED_TEXT | JSON, max_size=4))
def test_tag_format_is_bounded_for_any_input(completions):
    values = tag_format()(completions, prompts=None, answer=["x"])
    assert len(values) == len(completions)
    assert set(values) <= {0.0, 1.0}


@given(TAGGED_TEXT, TAGGED_TEXT)
def test_blocks_are_what_stands_between_the_tags(thought, answer):
    text = f"<think>{thought}</think><answer>{answer}</answer>"
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    if any(tag in part for tag in tags for part in (thought, answer)):
        assert tag_blocks(text, ("think", "answer")) is None
    else:
        assert tag_blocks(text, ("think", "answer")) == [thought, answer]


@pytest.mark.parametrize(
    "tags", ["think", (), [""], ["<think>"], ["think", "think"], [1], None, ["a b"], {"think"}]
)
def test_tag_format_refuses_bad_tags(tags):
    with pytest.raises(CasebookError, match="tag"):
        tag_format(tags)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>a</answer>", "a"),
        ("<answer>a</answer><answer>b</answer>", "b"),
        ("<answer>a</answer><answer>b", "a"),
        ("<answer>a<answer>b</answer>", "b"),
        ("<answer></answer>", ""),
        ("</answer><answer>", None),
        ("a</answer>", None),
        ("", None),
    ],
)
def test_last_block(text, content):
    assert last_block(text, "answer") == content


# repetition_penalty


@pytest.mark.parametrize(
    ("ngram_size", "max_penalty", "completion", "expected"),
    [
        (2, -1.0, "this is a test sentence", 0.0),
        (2, -1.0, "this this this this this", -0.75),
        (2, -1.0, "this is a this is a test", -1 / 3),
        (3, -2.0, "this is a this is a test", -0.4),
        (2, -1.0, "This is A this IS a test", -1 / 3),
        (2, -1.0, "this\n is\ta  this is a test", -1 / 3),
        (2, -1.0, "this is a, this is a test", -1 / 6),  # punctuation makes another word
        (1, -1.0, "a a a a", -0.75),
        (3, -1.0, "a a a a", -0.5),
        (3, -1.0, " ".join(["word"] * 50), -(1 - 1 / 48)),
        (3, -1.0, "", 0.0),
        (3, -1.0, "   \n", 0.0),
        (3, -1.0, "one", 0.0),
        (3, -1.0, "two words", 0.0),
        (3, -1.0, "same same same", 0.0),  # one n-gram cannot repeat
        (3, -1.0, "a" * 10_000, 0.0),  # one word, however long
        (3, 0.0, "a a a a a a", 0.0),
        (3, -1, "a a a a", -0.5),
        (3, -1.0, None, 0.0),
        (3, -1.0, b"a a a a", 0.0),
    ],
)
def test_repetition_penalty(ngram_size, max_penalty, completion, expected):
    reward = repetition_penalty(ngram_size, max_penalty)
    assert reward([completion]) == [pytest.approx(expected)]
    if isinstance(completion, str):
        assert reward([message(completion)]) == reward([completion])


def test_several_completions_are_judged_one_by_one():
    reward = repetition_penalty(3, -1.0)
    assert reward(["this is a test", "test test test test", ""]) == [0.0, -0.5, 0.0]
    assert reward([]) == []


@given(st.lists(st.sampled_from(["a", "b", "C", "\n", "é"]), max_size=40), st.integers(1, 5))
def test_repetition_penalty_is_bounded(words, ngram_size):
    (value,) = repetition_penalty(ngram_size, -2.0)([" ".join(words)])
    assert -2.0 < value <= 0.0
    assert str(value) != "-0.0"


@given(st.lists(JSON, max_size=4))
def test_repetition_penalty_takes_anything(completions):
    values = repetition_penalty(2, -1.0)(completions, answer=None)
    assert len(values) == len(completions)
    assert all(-1.0 < value <= 0.0 for value in values)


@pytest.mark.parametrize("max_penalty", [1.0, 1e-9, float("nan"), float("-inf"), "−1", None, True])
def test_a_penalty_that_is_none_is_refused(max_penalty):
    with pytest.raises(CasebookError, match="max_penalty"):
        repetition_penalty(3, max_penalty)


@pytest.mark.parametrize("ngram_size", [0, -1, 2.0, "3", None, True])
def test_an_impossible_ngram_is_refused(ngram_size):
    with pytest.raises(CasebookError, match="ngram_size"):
        repetition_penalty(ngram_size, -1.0)


# random_reward


def test_the_coin_is_fair_and_looks_at_nothing():
    random.seed(0)
    values = random_reward()(["flush"] * 10_000, answer=["straight"] * 10_000)
    assert set(values) == {0.0, 1.0}
    assert sum(values) / 10_000 == pytest.approx(0.5, abs=0.02)


def test_a_seed_tosses_the_same_coins_again_and_another_does_not():
    tosses = []
    for seed in (3, 3, 4):
        random.seed(seed)
        tosses.append(random_reward()(["flush"] * 64))
    assert tosses[0] == tosses[1] != tosses[2]


def test_each_call_tosses_again():
    random.seed(0)
    reward = random_reward()
    assert reward([""] * 64) != reward([""] * 64)


@given(st.lists(JSON, max_size=4))
def test_the_coin_takes_anything(completions):
    values = random_reward()(completions, prompts=None, answer=None)
    assert len(values) == len(completions)
    assert set(values) <= {0.0, 1.0}


# all


def test_rewards_carry_the_name_they_are_logged_under():
    assert tag_format().__name__ == "tag_format"
    assert random_reward().__name__ == "random_reward"
    assert repetition_penalty(3, -1.0).__name__ == "repetition"


@pytest.mark.parametrize("reward", [tag_format(), repetition_penalty(3, -1.0)])
@pytest.mark.parametrize(
    "piece", ["<think>", "<answer></answer>", "<think>a</think>", "a ", "<", " ", "\n", "a\0é"]
)
def test_megabytes_are_judged_in_linear_time(reward, piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (2_000_000 // len(piece))
    (value,) = reward([text])
    assert -1.0 < value <= 1.0
