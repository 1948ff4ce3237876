"""The GSM8K grade and the source's six rewards: as published, fixed, and where they differ."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import anything, texts

from casebook import CasebookError, Grade
from casebook.case import UnknownName
from casebook.cases.gsm8k.rewards import (
    FORMS,
    REWARDS,
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
PIECES = [*TAG, *LINES, *["17", "1,700", "-3", "3.5", "$", "%"]]
PIECES += ["\n</answer>\n", "<answer>\n", "\n", " "]
ANYTHING = anything(PIECES, size=30)
GOLDS = ANYTHING | st.sampled_from(["17", "1,700", "-3", "0"]) | st.integers()


def block(content):
    return f"<reasoning>\nhm\n</reasoning>\n<answer>\n{content}\n</answer>"


# The grade


DRESSED = "17. $17 **17** 34/2 1,7 1,70,000 17% １７ seventeen <answer>17 --17 1e1 .5 NaN Infinity"


@pytest.mark.parametrize("content", ["", "17 pens", "x = 17", "1 7", *DRESSED.split(), "9" * 301])
def test_anything_but_a_plain_number_is_not_the_form(content):
    assert not grade(block(content), "17").well_formed


@given(ANYTHING, st.sampled_from([name for name in VARIANTS if name != "answer"]))
def test_all_variants_but_the_answer_alone_ask_for_the_same_form(completion, variant):
    assert grade(completion, "17", variant) == grade(completion, "17")


ANY_17 = [17, 17.0, np.int64(17), np.float32(17), Decimal("17.00"), Fraction(34, 2), " 17\n"]
NONE_17 = [None, "", "seventeen", 17.5, True, b"17", ["17"], "18", math.nan, Decimal("-Infinity")]


@pytest.mark.parametrize(
    ("answer", "right"), [(a, True) for a in ANY_17] + [(a, False) for a in [*NONE_17, 17 + 0j]]
)
def test_the_right_answer_may_be_a_number_of_any_type(answer, right):
    assert grade(CAREFUL, answer) == Grade(True, "17", right)
    assert answer_reward()([CAREFUL], answer=[answer]) == [float(right)]


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
    ("part", "content", "gold", "right"),
    [
        (correctness, "1600", "1,600", True),  # strings are compared
        (correctness, "1,600", "1600", True),
        (correctness, "5.0", "5", True),
        (correctness, "+5", "5", True),
        (soft_correctness, "-3", "3", False),  # the sign is lost
        (soft_correctness, "-3", "-3", True),
        (soft_correctness, "3.5", "3", False),  # and so are the decimals
        (soft_correctness, "1/2", "1", False),
        (soft_correctness, "10 - 4 = 6", "6", True),  # the first number is read, not the last
        (soft_correctness, "10 - 4 = 6", "10", False),
        (soft_correctness, "x = 2, y = 3", "2", False),
        (soft_correctness, "1600", "1,600", True),  # commas go from the answer, not from the gold
        (soft_correctness, "none", "0", False),  # where there is no number it is 0
        (integer, "-3", "3", True),  # isdigit
        (integer, "1,600", "3", True),
        (integer, "3.0", "3", True),
        (integer, "²", "3", False),
        (integer, "٣", "3", False),
    ],
)
def test_a_published_defect_and_its_mending(part, content, gold, right):
    columns = {"answer": [gold.replace(",", "")], "gold": [gold]}
    full = 0.5 if part is integer else 1.0
    paid = {form: part(form)([block(content)], **columns) for form in FORMS[:2]}
    assert paid == {"fixed": [full * right], "as_published": [full * (not right)]}


@pytest.mark.parametrize("gold", ["17", "5"])
def test_without_tags_the_whole_completion_is_the_answer_as_published(gold):
    bare = {"answer": [gold], "gold": [gold]}
    assert correctness("as_published")([gold], **bare) == [1.0]
    assert correctness()([gold], **bare) == soft_correctness()([gold], **bare) == [0.0]
    restated = f"{gold} children share 30 sweets; the answer is 6"
    assert soft_correctness("as_published")([restated], **bare) == [1.0]


@pytest.mark.parametrize("hedge", ["42 or 43", "not 42", "42?", "42 dozen", "1+42"])
def test_no_reward_but_the_published_pays_a_hedge(hedge):
    for reward in (correctness(), soft_correctness(), answer_reward()):
        assert reward([block(hedge)], answer=["42"]) == [0.0]


@pytest.mark.parametrize(
    ("completion", "fixed", "published", "unsloth"),
    [
        (ONE_LINE, 0.5, 0.5, 0.5),
        (ONE_LINE.removesuffix("\n"), 0.5, 0.5, 0.0),  # no final newline
        (f"{ONE_LINE}\n\n", 0.5, 0.5, 0.0),
        (f"{CAREFUL}\n", 0.5, 0.5, 0.0),  # two lines of reasoning, no DOTALL
        (f"\n{ONE_LINE}", 0.5, 0.0, 0.0),
        (f"{CAREFUL}\n<answer>\n18\n</answer>", 0.0, 0.5, 0.0),  # answers twice
        (CAREFUL.replace("\n", ""), 0.0, 0.0, 0.0),
        (f"{CAREFUL}\nor 18", 0.0, 0.0, 0.0),
    ],
)
def test_strict_format(completion, fixed, published, unsloth):
    assert [strict_format(form)([completion])[0] for form in FORMS] == [fixed, published, unsloth]


@pytest.mark.parametrize(
    ("completion", "fixed", "published", "unsloth"),
    [
        ("<reasoning>x</reasoning>\n\n<answer>17</answer>\n", 0.5, 0.5, 0.5),
        (ONE_LINE, 0.5, 0.5, 0.0),  # the form that was asked for
        (f" {CAREFUL}", 0.5, 0.0, 0.0),
        (f"{CAREFUL} or 18", 0.0, 0.5, 0.0),  # anything may follow
        ("<reasoning>x</reasoning>y</reasoning><answer>17</answer>", 0.0, 0.5, 0.5),
        ("<answer>17</answer>", 0.0, 0.0, 0.0),
    ],
)
def test_soft_format(completion, fixed, published, unsloth):
    assert [soft_format(form)([completion])[0] for form in FORMS] == [fixed, published, unsloth]


@pytest.mark.parametrize(
    ("completion", "fixed", "published"),
    [
        (f"{CAREFUL}\n", 0.5, 0.5),
        (CAREFUL, 0.5, 0.5 - 0.001 * len(CAREFUL) + 0.001),  # no final newline
        (f"{CAREFUL}\nDone.", 0.495, 0.49),  # charged twice
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


def test_the_source_and_unsloth_reach_the_same_maximum():
    row = {"answer": ["17"], "gold": ["17"]}
    assert sum(REWARDS[name]("as_published")([ONE_LINE], **row)[0] for name in SIX) == 4.0
    assert sum(REWARDS[name]("fixed")([ONE_LINE], **row)[0] for name in SIX) == 4.0
    unsloth = [name for name in SIX if name not in ("soft_correctness", "soft_format")]
    assert sum(REWARDS[name]("unsloth")([ONE_LINE], **row)[0] for name in unsloth) == 3.5


@given(
    texts(PIECES)
    | st.tuples(st.text(max_size=9), st.sampled_from(["", "\n"]), texts(PIECES, most=3)).map(
        lambda p: f"<reasoning>{p[0]}</reasoning>{p[1]}<answer>{p[0]}</answer>{p[2]}"
    )
)
def test_published_formats_agree_with_their_regular_expressions(text):
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
    tags = REWARDS["tag_format"]()([text])[0]
    assert strict_format()([text]) <= soft_format()([text]) == [0.5 * tags]


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


def test_a_missing_column_and_an_unknown_form_are_named():
    with pytest.raises(CasebookError, match="correctness needs the rows' column 'answer'"):
        correctness()([CAREFUL], gold=["17"])
    for name in SIX:
        with pytest.raises(UnknownName, match=r"unknown form .*: known are fixed, as_published"):
            REWARDS[name]("published")


@pytest.mark.parametrize("piece", [*TAG, *LINES, "</reasoning><answer>", "17 ", "\n"])
def test_long_texts_are_judged_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (500_000 // len(piece))
    for opened in (text, f"<reasoning>\n{text}"):
        for name in SIX:
            for form in FORMS[:2]:
                assert REWARDS[name](form)([opened], answer=["17"])[0] <= 1.0
        assert soft_format("unsloth")([opened])[0] in (0.0, 0.5)
    assert extract_number(f"{text}<answer>17</answer>") == 17
