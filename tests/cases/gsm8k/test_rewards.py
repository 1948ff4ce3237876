"""The GSM8K grade and the source's six rewards: as published, fixed, and where they differ."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import CasebookError, Grade
from casebook.case import UnknownName
from casebook.cases.gsm8k.rewards import (
    FORMS,
    REWARDS,
    TAGS,
    VARIANTS,
    answer_reward,
    correctness,
    extract_number,
    grade,
    integer,
    soft_correctness,
    soft_format,
    strict_format,
    xml_count,
)

CAREFUL = "<reasoning>\n4*3=12\n5+12=17\n</reasoning>\n<answer>\n17\n</answer>"
ONE_LINE = "<reasoning>\n5+12=17\n</reasoning>\n<answer>\n17\n</answer>\n"
SIX = ("correctness", "soft_correctness", "integer", "strict_format", "soft_format", "xml_count")
TAG = ["<reasoning>", "</reasoning>", "<answer>", "</answer>"]
LINES = ["<reasoning>\n", "\n</reasoning>\n", "\n</reasoning>\n<answer>\n", "\n</answer>"]
PIECES = st.sampled_from(
    [*TAG, *LINES, "\n</answer>\n", "<answer>\n", "\n", " ", "17", "1,700", "-3", "3.5", "$", "%"]
)
ANY_TEXT = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30)
ANYTHING = (
    ANY_TEXT
    | st.none()
    | st.binary()
    | st.floats()
    | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), st.none() | st.text()))
)
GOLDS = ANYTHING | st.sampled_from(["17", "1,700", "-3", "0"]) | st.integers()


def block(content):
    return f"<reasoning>\nhm\n</reasoning>\n<answer>\n{content}\n</answer>"


def pay(factory, form, content, gold):
    """What a completion earns with `content` in its answer block, against a gold answer."""
    answer = gold.replace(",", "")
    return factory(form)([block(content)], answer=[answer], gold=[gold])[0]


# The grade


@pytest.mark.parametrize("content", ["17", " 17 ", "\n17\n", "+17", "17.0", "017"])
def test_one_plain_number_is_the_form(content):
    text = f"<reasoning>x</reasoning><answer>{content}</answer>"
    assert grade(text, "17") == Grade(True, "17", True)
    assert grade([{"role": "assistant", "content": text}], "17").strict


DRESSED = "17. $17 **17** 34/2 1,7 1,70,000 17% １７ seventeen <answer>17 --17 1e1 .5 NaN Infinity"


@pytest.mark.parametrize("content", ["", "17 pens", "x = 17", "1 7", "17 17", *DRESSED.split()])
def test_anything_but_a_plain_number_is_not_the_form(content):
    assert not grade(f"<reasoning>x</reasoning><answer>{content}</answer>", "17").well_formed


def test_what_is_too_long_is_not_the_form():
    assert grade(block("9" * 300), "17").well_formed
    assert not grade(block("9" * 301), "17").well_formed


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("17", "17"),
        ("#### 17", "17"),
        (f"{CAREFUL}\nI hope this helps.", "17"),
        (CAREFUL + CAREFUL, "17"),
        (CAREFUL.removeprefix("<reasoning>"), "17"),
        (CAREFUL.removesuffix("</answer>"), "17"),
        ("<answer>17</answer>", "17"),
        ("<answer>$1,700.00</answer>", "1700"),
        (r"\boxed{-3.50}", "-3.5"),
        ("1/3", "0.3333333333333333333333333333"),
        ("-0", "0"),
        ("1e3", "1000"),
        ("<answer></answer>", None),
        ("", None),
    ],
)
def test_another_form_is_read_all_the_same(completion, answer):
    got = grade(completion, answer)
    assert got == Grade(False, answer, answer is not None)


@pytest.mark.parametrize(
    ("completion", "well_formed"),
    [
        ("17", True),
        (" 1,700.\n", True),
        ("-3", True),
        ("17..", False),
        ("", False),
        (CAREFUL, False),
    ],
)
def test_form_of_the_answer_variant(completion, well_formed):
    assert grade(completion, "17", "answer").well_formed is well_formed


@given(ANYTHING, st.sampled_from([name for name in VARIANTS if name != "answer"]))
def test_all_other_variants_ask_for_the_same_form(completion, variant):
    assert grade(completion, "17", variant) == grade(completion, "17")


def test_an_unknown_variant_is_named():
    with pytest.raises(UnknownName, match="unknown variant 'label': known are reason, unsloth"):
        grade(CAREFUL, "17", "label")


@pytest.mark.parametrize("answer", [17, "17", "17.0", "1,7e1", " 17\n", "#### 17"])
def test_answers_are_compared_as_numbers(answer):
    assert grade(CAREFUL, answer).correct is (answer != "1,7e1")


NO_NUMBERS = [math.nan, math.inf, Decimal("NaN"), Decimal("-Infinity"), 17 + 0j, np.float32("nan")]


ANY_17 = [17, 17.0, np.int64(17), np.uint8(17), np.float32(17), Decimal(17), Decimal("17.00")]


@pytest.mark.parametrize("answer", [*ANY_17, Fraction(34, 2)])
def test_the_right_answer_may_be_a_number_of_any_type(answer):
    assert grade(CAREFUL, answer) == Grade(True, "17", True)
    assert correctness()([CAREFUL], answer=[answer]) == [1.0]


@pytest.mark.parametrize(
    ("written", "answer"),
    [("0.1", 0.1), ("0.1", np.float32(0.1)), ("0.5", Fraction(1, 2)), ("1" * 300, int("1" * 300))],
)
def test_a_right_answer_is_compared_as_it_is_written(written, answer):
    assert grade(block(written), answer).strict


@pytest.mark.parametrize(
    "answer", [None, "", "seventeen", 17.5, True, b"17", ["17"], "18", *NO_NUMBERS]
)
def test_nothing_is_correct_against_what_is_another_number_or_none(answer):
    assert not grade(CAREFUL, answer).correct


@given(ANYTHING, GOLDS)
def test_grade_takes_anything(completion, answer):
    got = grade(completion, answer)
    assert got.answer is None or got.answer == grade(got.answer, None).answer
    assert got.answer is not None or not (got.well_formed or got.correct)


@given(st.integers(-(10**9), 10**9))
def test_the_careful_completion_of_any_number_is_strict(number):
    assert grade(block(f"{number:,}"), str(number)) == Grade(True, str(number), True)


# Each defect of the published rewards: what is in the answer block, the gold text, and what a
# right rule pays. As published it is the opposite.


@pytest.mark.parametrize(
    ("content", "gold", "right"),
    [
        ("1600", "1,600", True),  # the gold answer keeps its comma
        ("1,600", "1600", True),
        ("5.0", "5", True),
        ("+5", "5", True),
        ("05", "5", True),
    ],
)
def test_hard_correctness_compares_strings_as_published(content, gold, right):
    assert pay(correctness, "fixed", content, gold) == float(right)
    assert pay(correctness, "as_published", content, gold) == float(not right)


@pytest.mark.parametrize(
    ("content", "gold", "right"),
    [
        ("-3", "3", False),  # the sign is lost
        ("-3", "-3", True),
        ("3.5", "3", False),  # and so are the decimals
        ("0.5", "0", False),
        ("1/2", "1", False),
        ("10 - 4 = 6", "6", True),  # the first number is read, not the last
        ("10 - 4 = 6", "10", False),
        ("x = 2, y = 3", "2", False),
        ("1600", "1,600", True),  # commas go from the answer, not from the gold
        ("$1,600", "1,600", True),
        ("none", "0", False),  # where there is no number it is 0
        ("", "0", False),
    ],
)
def test_soft_correctness_reads_the_first_digits_as_published(content, gold, right):
    assert pay(soft_correctness, "fixed", content, gold) == float(right)
    assert pay(soft_correctness, "as_published", content, gold) == float(not right)


@pytest.mark.parametrize("gold", ["17", "5", "4"])
def test_without_tags_the_whole_completion_is_the_answer_as_published(gold):
    bare = {"answer": [gold], "gold": [gold]}
    assert correctness("as_published")([gold], **bare) == [1.0]
    assert correctness()([gold], **bare) == soft_correctness()([gold], **bare) == [0.0]
    restated = f"{gold} children share 30 sweets; the answer is 6"
    assert soft_correctness("as_published")([restated], **bare) == [1.0]


@pytest.mark.parametrize(
    ("content", "right"),
    [("-3", 0.5), ("1,600", 0.5), ("3.0", 0.5), ("²", 0.0), ("٣", 0.0)],
)
def test_integer_is_isdigit_as_published(content, right):
    assert pay(integer, "fixed", content, "3") == right
    assert pay(integer, "as_published", content, "3") == 0.5 - right


@pytest.mark.parametrize("content", ["17", "0"])
def test_integer_of_a_whole_number_is_paid_in_all_forms(content):
    assert [pay(integer, form, content, "3") for form in FORMS] == [0.5] * 3


@pytest.mark.parametrize("content", ["3.5", "17 pens", "", "seventeen"])
def test_integer_of_anything_else_is_paid_in_none(content):
    assert [pay(integer, form, content, "3") for form in FORMS] == [0.0] * 3


@pytest.mark.parametrize(
    ("completion", "fixed", "published", "unsloth"),
    [
        (ONE_LINE, 0.5, 0.5, 0.5),
        (ONE_LINE.removesuffix("\n"), 0.5, 0.5, 0.0),  # no final newline
        (f"{ONE_LINE}\n", 0.5, 0.5, 0.5),
        (f"{ONE_LINE}\n\n", 0.5, 0.5, 0.0),
        (CAREFUL, 0.5, 0.5, 0.0),
        (f"{CAREFUL}\n", 0.5, 0.5, 0.0),  # two lines of reasoning, no DOTALL
        (f"{CAREFUL} ", 0.5, 0.0, 0.0),
        (f"\n{ONE_LINE}", 0.5, 0.0, 0.0),
        (ONE_LINE.replace(">\n<", ">\n\n<"), 0.5, 0.0, 0.0),
        (f"{CAREFUL}\n<answer>\n18\n</answer>", 0.0, 0.5, 0.0),  # answers twice
        (f"<reasoning>\n</reasoning>\n{CAREFUL}", 0.0, 0.5, 0.0),
        (CAREFUL.replace("\n", ""), 0.0, 0.0, 0.0),
        (f"{CAREFUL} or 18", 0.0, 0.0, 0.0),
        (f"{CAREFUL}\nor 18", 0.0, 0.0, 0.0),
        ("17", 0.0, 0.0, 0.0),
    ],
)
def test_strict_format(completion, fixed, published, unsloth):
    paid = [strict_format(form)([completion])[0] for form in FORMS]
    assert paid == [fixed, published, unsloth]


@pytest.mark.parametrize(
    ("completion", "fixed", "published", "unsloth"),
    [
        ("<reasoning>x</reasoning><answer>17</answer>", 0.5, 0.5, 0.5),
        ("<reasoning>x</reasoning>\n\n<answer>17</answer>\n", 0.5, 0.5, 0.5),
        (ONE_LINE, 0.5, 0.5, 0.0),  # the form that was asked for
        (CAREFUL, 0.5, 0.5, 0.0),
        (f" {CAREFUL}", 0.5, 0.0, 0.0),
        (f"{CAREFUL} or 18", 0.0, 0.5, 0.0),  # anything may follow
        (f"{CAREFUL}<answer>18</answer>", 0.0, 0.5, 0.0),
        ("<reasoning>x</reasoning>y</reasoning><answer>17</answer>", 0.0, 0.5, 0.5),
        ("<reasoning>x</reasoning> so <answer>17</answer>", 0.0, 0.0, 0.0),
        ("<answer>17</answer>", 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
    ],
)
def test_soft_format(completion, fixed, published, unsloth):
    paid = [soft_format(form)([completion])[0] for form in FORMS]
    assert paid == [fixed, published, unsloth]


@pytest.mark.parametrize(
    ("completion", "fixed", "published"),
    [
        (f"{CAREFUL}\n", 0.5, 0.5),
        (CAREFUL, 0.5, 0.5 - 0.001 * len(CAREFUL) + 0.001),  # no final newline
        (f"{CAREFUL}\nDone.", 0.495, 0.49),  # charged twice
        (f"<answer>\n{'x' * 400}", 0.125, 0.0),
        (f"\n<answer>\n{'x' * 400}", 0.125, 0.125 - 0.001 * 410),  # less than nothing
        (CAREFUL.replace("\n", ""), 0.5, 0.0),
        (CAREFUL * 2, 0.0, 0.0),
        (f"{CAREFUL}{'!' * 600}", 0.0, 0.5 - 0.001 * (len(CAREFUL) + 600) - 0.599),
        ("", 0.0, 0.0),
    ],
)
def test_xml_count(completion, fixed, published):
    assert xml_count()([completion]) == [pytest.approx(fixed)]
    assert xml_count("as_published")([completion]) == [pytest.approx(published)]


def test_unsloth_pays_two_for_correctness_and_has_no_soft_one():
    assert correctness("unsloth")([CAREFUL], answer=["17"]) == [2.0]
    with pytest.raises(UnknownName, match="unknown form 'unsloth': known are fixed, as_publ"):
        soft_correctness("unsloth")


def test_the_source_and_unsloth_reach_the_same_maximum():
    row = {"answer": ["17"], "gold": ["17"]}
    assert sum(REWARDS[name]("as_published")([ONE_LINE], **row)[0] for name in SIX) == 4.0
    assert sum(REWARDS[name]("fixed")([ONE_LINE], **row)[0] for name in SIX) == 4.0
    unsloth = [name for name in SIX if name not in ("soft_correctness", "soft_format")]
    assert sum(REWARDS[name]("unsloth")([ONE_LINE], **row)[0] for name in unsloth) == 3.5


# Plain search against the patterns, on short texts


@given(ANY_TEXT)
def test_published_formats_agree_with_regular_expressions(text):
    strict = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n"
    soft = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
    expected = {
        (strict_format, "as_published"): re.match(f"{strict[:-2]}\n*$", text, re.DOTALL),
        (strict_format, "unsloth"): re.match(f"{strict}$", text),
        (soft_format, "as_published"): re.match(soft, text, re.DOTALL),
        (soft_format, "unsloth"): re.match(soft, text),
    }
    for (factory, form), found in expected.items():
        assert factory(form)([text]) == [0.5 * (found is not None)]


@given(st.sampled_from(["", " ", "\n"]), st.text(max_size=12), st.lists(PIECES, max_size=3))
def test_published_formats_agree_near_the_form(between, content, rest):
    text = f"<reasoning>{content}</reasoning>{between}<answer>{content}</answer>{''.join(rest)}"
    soft = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
    assert soft_format("unsloth")([text]) == [0.5 * bool(re.match(soft, text))]
    assert soft_format("as_published")([text]) == [0.5 * bool(re.match(soft, text, re.DOTALL))]


@given(ANY_TEXT)
def test_fixed_strict_format_implies_the_soft_one(text):
    assert (
        strict_format()([text])
        <= soft_format()([text])
        == [0.5 * REWARDS["tag_format"]()([text])[0]]
    )


# All of them


@given(st.lists(ANYTHING, max_size=4), GOLDS)
def test_every_reward_gives_one_bounded_number_each(completions, gold):
    columns = {name: [gold] * len(completions) for name in ("answer", "gold", "prompts")}
    for name, factory in REWARDS.items():
        for form in FORMS[:2] if name in SIX else [None]:
            paid = (factory(form) if form else factory())(completions, **columns)
            assert len(paid) == len(completions)
            assert all(isinstance(value, float) and -9.0 <= value <= 1.0 for value in paid)


@given(ANYTHING, GOLDS)
def test_rewards_follow_the_grade(completion, answer):
    got = grade(completion, answer)
    row = {"answer": [answer]}
    assert answer_reward()([completion], **row) == [float(got.strict)]
    assert correctness()([completion], **row)[0] >= got.strict
    assert soft_correctness()([completion], **row)[0] >= correctness()([completion], **row)[0]
    assert REWARDS["tag_format"]()([completion])[0] >= got.well_formed


@pytest.mark.parametrize(
    "reward",
    [answer_reward(), *(make(f) for make in (correctness, soft_correctness) for f in FORMS[:2])],
)
def test_a_missing_column_is_named(reward):
    with pytest.raises(CasebookError, match=f"{reward.__name__} needs the rows' column 'answer'"):
        reward([CAREFUL], gold=["17"])


@pytest.mark.parametrize("gold", [None, True, 17.0, b"17"])
def test_a_gold_answer_that_is_no_text_is_never_met_as_published(gold):
    for factory in (correctness, soft_correctness):
        completions = [block(str(gold)), block("17"), block("1")]
        assert factory("as_published")(completions, answer=[gold] * 3) == [0.0] * 3


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("form", ["published", None, 1, ["fixed"]])
def test_an_unknown_form_is_named(name, form):
    with pytest.raises(UnknownName, match=r"unknown form .*: known are fixed, as_published"):
        REWARDS[name](form)


def test_as_many_rows_as_completions():
    with pytest.raises(ValueError, match="shorter"):
        correctness()(["17", "17"], answer=["17"])


def test_rewards_carry_their_registered_names():
    assert [factory().__name__ for factory in REWARDS.values()] == list(REWARDS)


def test_the_tags_of_this_case_are_the_default_of_tag_format():
    assert REWARDS["tag_format"]()([CAREFUL]) == [1.0]
    assert REWARDS["tag_format"](tags=["think", "answer"])([CAREFUL]) == [0.0]
    assert TAGS == ("reasoning", "answer")


def test_an_unknown_reward_lists_the_known():
    with pytest.raises(UnknownName, match="unknown reward 'accuracy': known are correctness, soft"):
        REWARDS["accuracy"]


@pytest.mark.parametrize("piece", [*TAG, *LINES, "</reasoning><answer>", "17 ", " ", "\n", "é"])
def test_long_texts_are_judged_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (500_000 // len(piece))
    assert isinstance(grade(text, "17"), Grade)
    for opened in (text, f"<reasoning>{text}", f"<reasoning>\n{text}"):
        for name in SIX:
            for form in FORMS[:2]:
                (paid,) = REWARDS[name](form)([opened], answer=["17"])
                assert paid <= 1.0
        assert soft_format("unsloth")([opened])[0] in (0.0, 0.5)
    assert extract_number(f"{text}<answer>17</answer>") == 17
