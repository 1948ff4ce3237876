"""The shared reward parts: open-r1's behaviour where it is sound, and any input at all."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts

from casebook import CasebookError
from casebook.rewards import (
    completion_text,
    last_block,
    noisy,
    part,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)

PIECES = ["<think>", "</think>", "<answer>", "</answer>", "flush", "a", "<", ">", "é"]
PIECES += [" ", "\n", "\0"]
TAGGED_TEXT = texts(PIECES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content"]), inner)
    ),
    max_leaves=6,
)


def message(content, role="assistant"):
    return [{"role": role, "content": content}]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("flush", "flush"),
        (message("flush"), "flush"),
        ([*message("one"), *message("two")], "one\ntwo"),
        ([*message("flush", "tool"), *message("pair")], "pair"),
        (message("echo", "user"), ""),
        (message([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab"),
        (message([{"type": "image"}, "stray", {"text": 3}]), ""),
        ([{"role": "assistant"}, "flush", None, 3], ""),
        ({"role": "assistant", "content": "not in a list"}, ""),
        (None, ""),
    ],
)
def test_completion_text(completion, text):
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    ("completion", "paid"),
    [
        ("<think>\nSome reasoning\n</think>\n<answer>\nwheat\n</answer>", 1.0),
        ("  <think>a</think>\n\n\n<answer>b</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("<think>1 < 2, <b>bold</b></think><answer>b</answer>", 1.0),
        (message("<think>a</think><answer>b</answer>"), 1.0),
        ("", 0.0),
        ("no tags at all", 0.0),
        ("<answer>only an answer</answer>", 0.0),
        ("<think>never closed <answer>b</answer>", 0.0),
        ("<think>a</think><answer>never closed", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a</think><answer>b</answer>\ntrailing text on a new line", 0.0),
        ("<think>a</think> between <answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.0),
        ("<think>a<answer>b</answer></think>", 0.0),
        ("a</think><answer>b</answer>", 0.0),  # the template pre-filled the opening tag
        ("<Think>a</Think><Answer>b</Answer>", 0.0),
        (None, 0.0),
    ],
)
def test_tag_format(completion, paid):
    assert tag_format()([completion]) == [paid]


def test_tag_format_with_other_tags():
    reward = tag_format(["reasoning", "final-answer"])
    good = "<reasoning>a</reasoning><final-answer>b</final-answer>"
    assert reward([good, "<think>a</think><answer>b</answer>"]) == [1.0, 0.0]


@given(TAGGED_TEXT, TAGGED_TEXT)
def test_blocks_are_what_stands_between_the_tags(thought, answer):
    text = f"<think>{thought}</think><answer>{answer}</answer>"
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    torn = any(tag in part for tag in tags for part in (thought, answer))
    assert tag_blocks(text, ("think", "answer")) == (None if torn else [thought, answer])


@pytest.mark.parametrize("tags", ["think", (), ["<think>"], ["think", "think"], [1], None])
def test_tag_format_refuses_bad_tags(tags):
    with pytest.raises(CasebookError, match="tag"):
        tag_format(tags)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>a</answer><answer>b</answer>", "b"),
        ("<answer>a</answer><answer>b", "a"),
        ("<answer>a<answer>b</answer>", "b"),
        ("<answer></answer>", ""),
        ("</answer><answer>", None),
        ("a</answer>", None),
    ],
)
def test_last_block(text, content):
    assert last_block(text, "answer") == content


@pytest.mark.parametrize(
    ("ngram_size", "max_penalty", "completion", "expected"),
    [
        (2, -1.0, "this is a test sentence", 0.0),
        (2, -1.0, "this this this this this", -0.75),
        (2, -1.0, "this is a this is a test", -1 / 3),
        (3, -2.0, "this is a this is a test", -0.4),
        (2, -1.0, "This\n is\tA  this IS a test", -1 / 3),
        (2, -1.0, "this is a, this is a test", -1 / 6),  # punctuation makes another word
        (3, -1.0, " ".join(["word"] * 50), -(1 - 1 / 48)),
        (3, -1.0, "", 0.0),
        (3, -1.0, "same same same", 0.0),  # one n-gram cannot repeat
        (3, -1.0, "a" * 10_000, 0.0),  # one word, however long
        (3, -1, message("a a a a"), -0.5),
        (3, -1.0, b"a a a a", 0.0),
    ],
)
def test_repetition_penalty(ngram_size, max_penalty, completion, expected):
    reward = repetition_penalty(ngram_size, max_penalty)
    assert reward([completion, ""]) == [pytest.approx(expected), 0.0]


@pytest.mark.parametrize("max_penalty", [1.0, float("nan"), float("-inf"), "−1", None, True])
def test_a_penalty_that_is_none_is_refused(max_penalty):
    with pytest.raises(CasebookError, match="max_penalty"):
        repetition_penalty(3, max_penalty)


def test_a_seed_tosses_the_same_coins_again_and_the_coin_is_fair():
    tosses = []
    for seed in (3, 3, 4):
        random.seed(seed)
        tosses.append(random_reward()(["flush"] * 10_000, answer=["straight"] * 10_000))
    assert tosses[0] == tosses[1] != tosses[2]
    assert set(tosses[0]) == {0.0, 1.0}
    assert sum(tosses[0]) / 10_000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("misses", "false_alarms"), [(0.1, 0.0), (0.0, 0.1), (0.3, 0.2)])
def test_a_verifier_that_errs_does_so_as_often_as_asked_and_again_on_the_same_text(
    misses, false_alarms
):
    sure = part("sure", lambda text: float(text.startswith("right")))
    texts = [f"{kind} {i}" for kind in ("right", "wrong") for i in range(4000)]
    reward = noisy(sure, misses, false_alarms)
    paid = np.array(reward(completions=texts, prompts=["?"] * len(texts)))
    assert 1 - paid[:4000].mean() == pytest.approx(misses, abs=0.03)
    assert paid[4000:].mean() == pytest.approx(false_alarms, abs=0.03)
    assert reward(completions=texts[:9], prompts=["?"] * 9) == paid[:9].tolist()
    with pytest.raises(CasebookError, match="are shares"):
        noisy(sure, misses=1.5)


@pytest.mark.parametrize("factory", [tag_format, repetition_penalty, random_reward])
@given(completions=st.lists(TAGGED_TEXT | JSON, max_size=4))
def test_any_input_gets_one_bounded_number_each(factory, completions):
    values = factory()(completions, prompts=None, answer=["x"])
    assert len(values) == len(completions)
    assert all(-1.0 < value <= 1.0 for value in values)


@pytest.mark.parametrize("reward", [tag_format(), repetition_penalty(3, -1.0)])
@pytest.mark.parametrize("piece", ["<think>", "<think>a</think>", "a ", " "])
def test_megabytes_are_judged_in_linear_time(reward, piece):
    # anything quadratic would take hours here, so passing is the proof
    (value,) = reward([piece * (1_000_000 // len(piece))])
    assert -1.0 < value <= 1.0
