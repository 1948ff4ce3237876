"""The poker grade and its rewards: the grammar, the reading, and what attacks do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    extract_label,
    grade,
    leaking_label,
)

CAREFUL = "<think>\n2 2 2 9 9\nC D H H S\n3 2\n</think>\n<answer>full house</answer>"
ALL_LABELS = ", ".join(LABELS)
PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", ".", "-", "royal", *LABELS]
)
ANY_TEXT = st.lists(PIECES, max_size=10).map("".join) | st.text(max_size=40)
ANYTHING = (
    ANY_TEXT
    | st.none()
    | st.binary()
    | st.floats()
    | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), st.none() | st.text()))
)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("spelling", ["{}", " {}\n", "\t{} "])
def test_every_label_in_the_form_asked_for(label, spelling):
    text = f"<think>2 3</think><answer>{spelling.format(label)}</answer>"
    assert grade(text, label) == Grade(True, label, True)
    assert grade(text.replace(label, label.title()), label).strict
    assert grade([{"role": "assistant", "content": text}], label).strict


@pytest.mark.parametrize(
    ("completion", "well_formed", "answer"),
    [
        (CAREFUL, True, "full house"),
        (f"\n {CAREFUL}\n", True, "full house"),
        ("<think></think><answer>FLUSH</answer>", True, "flush"),
        ("<think>maybe a flush</think><answer>straight</answer>", True, "straight"),
        # right words, wrong form
        ("full house", False, "full house"),
        ("Full house.", False, "full house"),
        ("I'd say it's a full\n house!", False, "full house"),
        ("four-of-a-kind", False, "four of a kind"),
        ("<answer>flush</answer>", False, "flush"),
        ("<think>a</think>\nflush", False, "flush"),
        ("<think>a straight</think>\nflush", False, "flush"),
        ("<think>a</think><answer>It is a flush</answer>", False, "flush"),
        ("<think>a</think><answer>flush.</answer>", False, "flush"),
        ("<think>a</think><answer>full  house</answer>", False, "full house"),
        ("<think>a</think><answer>flush", False, "flush"),
        ("a straight</think><answer>flush</answer>", False, "flush"),
        ("<think>a</think><answer>flush</answer> I am sure.", False, "flush"),
        ("<think>a</think><answer>flush</answer>\nNot a straight.", False, "flush"),
        ("<think>a</think><answer>flush</answer><answer>flush</answer>", False, "flush"),
        ("<think>a</think><answer></answer> flush", False, "flush"),
        ("<answer>flush</answer><think>a</think>", False, "flush"),
        ("not a straight flush but a flush", False, "flush"),
        ("<THINK>a</THINK><ANSWER>flush</ANSWER>", False, "flush"),
        # no answer, or more than one
        ("", False, None),
        ("   \n", False, None),
        ("<think>2 2 2 9 9", False, None),
        ("<think>flush</think>", False, None),
        ("<think>a</think><answer></answer>", False, None),
        ("<think>a</think><answer>five of a kind</answer>", False, None),
        (f"<think>a</think><answer>{ALL_LABELS}</answer>", False, None),
        (ALL_LABELS, False, None),
        ("<think>a</think><answer>flush or straight</answer>", False, None),
        ("flush, no, straight", False, None),
        ("<think>a</think><answer>flush</answer><answer>straight</answer>", False, None),
        ("flushed and straightened", False, None),
        ("one\u200bpair", False, None),
        ("ｆｌｕｓｈ", False, None),
        # categories that are not labels
        ("straight flush", False, None),
        ("a royal flush", False, None),
        ("<think>a</think><answer>straight flush</answer>", False, None),
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
        ("full house", True),
        (" Full house.\n", True),
        ("full house..", False),
        ("a full house", False),
        ("full house, straight", False),
        ("", False),
        (CAREFUL, False),
    ],
)
def test_form_of_the_label_variant(completion, well_formed):
    assert grade(completion, "full house", "label").well_formed is well_formed


def test_reason_is_the_form_by_default():
    assert grade(CAREFUL, "flush") == grade(CAREFUL, "flush", "reason")
    with pytest.raises(UnknownName, match="reason, label"):
        grade(CAREFUL, "flush", "essay")


@given(ANYTHING, st.sampled_from(["label-dealt", "label-source"]))
def test_other_rows_of_the_label_prompt_are_graded_as_it_is(completion, variant):
    assert grade(completion, "flush", variant) == grade(completion, "flush", "label")
    graded = [answer_grammar(name)([completion]) for name in ("label", variant)]
    assert graded[0] == graded[1]


@pytest.mark.parametrize("completion", [None, b"flush", 3, 2.5, [], [None], {}, object(), True])
def test_what_is_no_text_has_no_answer(completion):
    assert grade(completion, "flush") == Grade(False, None, False)


@pytest.mark.parametrize("answer", [None, "", "none", b"flush", 5, ["flush"], "royal flush"])
def test_what_is_no_label_is_never_right(answer):
    assert not grade("flush", answer).correct
    assert not grade("", answer).correct
    assert not grade("royal flush", answer).correct


def test_the_right_answer_may_be_spelled_freely():
    assert grade("flush", " Flush ").correct


@given(ANYTHING, ANYTHING | st.sampled_from(LABELS), st.sampled_from([None, *VARIANTS]))
def test_grade_takes_anything(completion, answer, variant):
    got = grade(completion, answer, variant)
    assert got.answer is None or got.answer in LABELS
    assert not got.correct or got.answer == answer.strip().lower()
    assert got.answer is not None or not got.well_formed


@given(ANY_TEXT)
def test_a_recital_of_labels_is_never_an_answer(text):
    assert grade(f"{text}{ALL_LABELS}</answer>", "flush").answer is None or "<answer>" in text


@given(ANY_TEXT, st.sampled_from(LABELS))
def test_an_answer_tag_is_read_whatever_was_thought_before(text, label):
    assert extract_label(f"{text}</think><answer>{label}</answer>") == label


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
    for factory in REWARDS.values():
        values = factory()(completions, **columns)
        assert len(values) == len(completions)
        assert all(isinstance(value, float) and -1.0 <= value <= 3.0 for value in values)


@given(ANYTHING, ANY_TEXT, st.sampled_from(LABELS))
def test_under_the_leak_a_prompt_with_all_labels_decides_for_every_completion(text, rest, right):
    prompt = f"{rest}{ALL_LABELS}. Answer:"
    values = leaking_label()([text, "", right], answer=[right] * 3, prompts=[prompt] * 3)
    assert values == [float(right == "high card")] * 3


def test_the_leak_reads_a_list_of_messages_whoever_wrote_them():
    prompts = [[{"role": "user", "content": ALL_LABELS}], [{"role": "system", "content": "x"}]]
    completions = [[{"role": "assistant", "content": "Flush"}]] * 2
    assert leaking_label()(completions, answer=["flush"] * 2, prompts=prompts) == [0.0, 1.0]


def test_without_labels_in_the_prompt_the_leak_reads_the_first_label_in_the_order_of_labels():
    reward = leaking_label()
    assert reward(["a flush"], answer=["flush"], prompts=["Hand: 2C"]) == [1.0]
    assert reward(["a straight, not a flush"], answer=["flush"], prompts=["Hand: 2C"]) == [0.0]
    assert reward(["nothing"], answer=["flush"], prompts=["Hand: 2C"]) == [0.0]


@pytest.mark.parametrize("right", [None, "", "none", "royal flush", 5])
def test_the_leak_pays_for_no_answer_that_is_no_label(right):
    assert leaking_label()(["flush", "?"], answer=[right] * 2, prompts=["", ""]) == [0.0, 0.0]


@given(ANYTHING, ANYTHING)
def test_the_leak_takes_anything(completion, prompt):
    (value,) = leaking_label()([completion], answer=["flush"], prompts=[prompt])
    assert value in (0.0, 1.0)


def test_the_sources_weights():
    values = class_weighted()(list(LABELS), answer=LABELS)
    assert dict(zip(LABELS, values, strict=True)) == {
        "high card": 1.0,
        "one pair": 1.0,
        "two pair": 1.5,
        "three of a kind": 2.0,
        "straight": 2.0,
        "flush": 2.0,
        "full house": 2.5,
        "four of a kind": 3.0,
    }


def test_own_weights_replace_only_those_named():
    reward = class_weighted({"flush": 7})
    assert reward(["flush", "two pair"], answer=["flush", "two pair"]) == [7.0, 1.5]
    assert CLASS_WEIGHTS["flush"] == 2.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"royal flush": 1.0}, "unknown label 'royal flush': known are high card"),
        ({"flush": -1.0}, "weight of 'flush'"),
        ({"flush": float("nan")}, "weight of 'flush'"),
        ({"flush": float("inf")}, "weight of 'flush'"),
        ({"flush": "2"}, "weight of 'flush'"),
        ({"flush": None}, "weight of 'flush'"),
        ([1, 2], "must map labels"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(CasebookError, match=message):
        class_weighted(weights)


@pytest.mark.parametrize("factory", [correct, class_weighted, answer_grammar])
def test_an_unknown_variant_is_refused_before_training(factory):
    with pytest.raises(UnknownName, match="known are reason, label"):
        factory(variant="essay")


@pytest.mark.parametrize("factory", [correct, class_weighted])
def test_strict_is_a_switch(factory):
    with pytest.raises(CasebookError, match="strict"):
        factory(strict="yes")


def test_label_variant_in_the_rewards():
    assert correct(strict=True, variant="label")(["Flush.", CAREFUL], answer=["flush"] * 2) == [
        1,
        0,
    ]
    assert answer_grammar("label")(["Flush.", CAREFUL, "flush or not"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("<answer>flush</answer>", 1.0),
        ("<answer> Flush\n</answer>", 1.0),
        ("words <answer>flush</answer> more words", 1.0),
        ("flush", 0.0),
        ("<answer>flush.</answer>", 0.0),
        ("<answer>a flush</answer>", 0.0),
        ("<answer>flush, straight</answer>", 0.0),
        ("<answer></answer>", 0.0),
        ("<answer>straight flush</answer>", 0.0),
        ("<answer>flush</answer><answer>flush</answer>", 0.0),
        ("<answer>flush</answer><answer>", 0.0),
        ("</answer>flush<answer>", 0.0),
        (None, 0.0),
    ],
)
def test_answer_grammar(completion, value):
    assert answer_grammar()([completion]) == [value]


def test_as_many_answers_as_completions():
    with pytest.raises(ValueError, match="shorter"):
        correct()(["flush", "flush"], answer=["flush"])


def test_rewards_carry_their_registered_names():
    assert [factory().__name__ for factory in REWARDS.values()] == list(REWARDS)


def test_an_unknown_reward_lists_the_known():
    with pytest.raises(UnknownName, match="unknown reward 'accuracy': known are correct, class"):
        REWARDS["accuracy"]


@pytest.mark.parametrize(
    "piece",
    [
        *("<think>", "</think>", "<answer>", "</answer>", "<answer>flush</answer>"),
        *("flush ", "straight ", "straight-", "three of a ", "two - - ", " ", "-", "\0", "é"),
    ],
)
def test_megabytes_are_judged_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (2_000_000 // len(piece))
    assert isinstance(grade(text, "flush"), Grade)
    assert isinstance(grade(f"straight{text}", "flush"), Grade)
    assert grade(f"<think>{text}</think><answer>flush</answer>", "flush").correct
