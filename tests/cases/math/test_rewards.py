"""The MATH grade and its rewards: the box's form, exact match, equivalence, thoughts, length."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import anything, texts

from casebook import CasebookError, Grade
from casebook.case import UnknownName
from casebook.cases import problem_sets
from casebook.cases.math.rewards import (
    LONGEST,
    READINGS,
    REWARDS,
    VARIANTS,
    boxed_format,
    equivalence,
    exact_match,
    gated,
    grade,
    overlong,
    think_format,
)

THOUGHT = "<think>\n3x=15\nx=5\n</think>\n"
CAREFUL = THOUGHT + r"\boxed{5}"
PIECES = ["<think>", "</think>", r"\boxed{", r"\boxed", r"\fbox{", r"\frac{1}{2}", r"\)", "3+4"]
PIECES += ["the answer is ", "$", ".", "=", ",", "5", "x", "0.5", "{", "}", "\\", " ", "\n", "\0"]
ANYTHING = anything(PIECES)
# Quadratic readers take minutes over these, linear ones a fraction of a second.
HOSTILE = [
    r"\boxed{" * 150_000,
    r"\boxed{" + "{" * 1_000_000,
    "\\boxed{\n}" * 100_000,
    "\\" * 1_000_000,
    r"\boxed{" + r"\text{a" * 150_000 + "}",
    r"\boxed{" + "a, " * 300_000 + "}",
    r"\boxed{5}" + "." * 1_000_000 + "x",
    r"\boxed" + " " * 1_000_000,
    "$x" * 500_000,
]


def box(content):
    return rf"\boxed{{{content}}}"


# The form


WELL_FORMED = (
    *(CAREFUL, "Then $x = 5$ or so.\n\n\\[\\boxed{5}\\]", r"so \( \boxed{5} \).", r"\boxed {5}"),
    *(r"$$\boxed{\left\{1,2\right\}}$$", r"\fbox{5 }", r"\boxed{y = 2x + 3}"),
    *(r"\boxed{\theta = 30^\circ}", r"\boxed{x=5\text{ or }x=-5}", r"\boxed{\text{Carla and Bob}}"),
)
NOT_WELL_FORMED = (
    *("", "5", r"\boxed{}", r"\boxed5", r"\boxed{5", r"\boxed{\frac{1}{2}"),
    *(r"\boxed{5} and that is all", r"\boxed{5} cm", r"\boxed{5} or \boxed{6}"),
    *(r"\boxed{5}\fbox{5}", r"\boxed{\boxed{5}}", r"\boxed{3+4=7}", r"\boxed{x=2+3=5}"),
    *(r"\boxed{\sqrt{4}=2}", r"\boxed{x=}", r"\boxed{the answer is 5}", "\\boxed{5\n6}"),
    *(r"\boxed{<think>5}", r"\boxed{not 5}", rf"\boxed{{{'5' * (LONGEST + 1)}}}"),
)


@pytest.mark.parametrize(
    ("completion", "holds"),
    [*((text, True) for text in WELL_FORMED), *((text, False) for text in NOT_WELL_FORMED)],
)
def test_one_answer_in_one_box_at_the_end_is_well_formed(completion, holds):
    assert grade(completion, "5").well_formed is holds
    assert boxed_format()([completion]) == [float(holds)]


@pytest.mark.parametrize(
    ("completion", "well_formed"),
    [
        ("5", True),
        (" $\\frac{1}{2}$.\n", True),
        (r"\text{Monday}", True),
        (".", False),
        ("$", False),
        ("5\n6", False),
        ("3+4=7", False),
        ("The answer is 5", False),
        (r"\boxed{5}", False),
        (CAREFUL, False),
    ],
)
def test_form_of_the_answer_variant(completion, well_formed):
    assert grade(completion, "5", "answer").well_formed is well_formed


@settings(deadline=None)
@given(ANYTHING, st.sampled_from([name for name in VARIANTS if name != "answer"]))
def test_all_other_variants_ask_for_the_same_form(completion, variant):
    assert grade(completion, "5", variant) == grade(completion, "5")


def test_a_bare_answer_is_read_where_one_is_asked_for():
    assert grade(r" $\frac{1}{2}$.", "0.5", "answer") == Grade(True, r"\frac{1}{2}", True)
    assert grade("6", "5", "answer") == Grade(True, "6", False)
    assert grade(r"\boxed{5}", "5", "answer") == Grade(False, "5", True)
    assert grade("I cannot tell", "5", "answer") == Grade(False, None, False)


# The grade


@pytest.mark.parametrize("answer", [None, 5, b"5", ["5"]])
def test_an_answer_that_is_no_text_is_met_by_nothing(answer):
    got = grade(CAREFUL, answer)
    assert (got.well_formed, got.correct) == (True, False)
    for name in ("exact_match", "equivalence", "gated"):
        assert REWARDS[name]()([CAREFUL], answer=[answer]) == [0.0]


@settings(max_examples=300, deadline=None)
@given(ANYTHING, ANYTHING | st.sampled_from(["5", r"\frac{1}{2}"]))
def test_grade_takes_anything(completion, answer):
    got = grade(completion, answer)
    assert got.answer is not None or not got.well_formed
    assert got.answer is not None or not got.correct
    assert isinstance(answer, str) or not got.correct


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:12]!r}-{len(text)}")
def test_hostile_texts_are_paid_nothing_in_bounded_time(text):
    # no assertion on the clock: a reader that is not linear would take minutes over these
    assert not grade(text, "7").correct
    assert not grade(text, "7", "answer").correct
    for name in ("exact_match", "equivalence", "gated"):
        assert REWARDS[name]()([text], answer=["7"]) == [0.0]
    assert exact_match(box="documentation")([text], answer=["7"]) == [0.0]
    assert think_format()([text]) == [0.0]
    assert boxed_format()([text]) in ([0.0], [1.0])


@pytest.mark.parametrize(
    ("content", "gold", "paid"),
    [
        ("5", "5", 1.0),
        (" 5 ", "5\n", 1.0),
        (r"\frac{1}{2}", r"\frac{1}{2}", 1.0),
        (r"\frac12", r"\frac{1}{2}", 0.0),
        ("x=5", "5", 0.0),
    ],
)
def test_exact_match_is_letter_for_letter(content, gold, paid):
    assert exact_match()([f"so ${box(content)}$, I think"], answer=[gold]) == [paid]


def test_exact_match_takes_the_last_box_and_the_documentation_the_first():
    text = r"\boxed{5}, no, \boxed{6}"
    assert exact_match()([text] * 2, answer=["5", "6"]) == [0.0, 1.0]
    assert exact_match("documentation")([text] * 2, answer=["5", "6"]) == [1.0, 0.0]


@settings(deadline=None)
@given(texts(PIECES), st.sampled_from(["5", "", r"\frac{1", r"\frac{1}{2}"]))
def test_the_documented_box_is_what_its_expression_finds(text, gold):
    found = re.search(r"\\boxed\{(.*?)\}", text)
    paid = exact_match("documentation")([text], answer=[gold])
    assert paid == [float(found is not None and found[1].strip() == gold)]


# Equivalence and its readings


def test_readings_differ_in_where_the_answer_may_stand():
    texts = [CAREFUL, r"\boxed{5} I think", "The answer is $5$.", r"\boxed{6}"]
    gold = ["5"] * 4
    assert equivalence("box")(texts, answer=gold) == [1.0, 1.0, 0.0, 0.0]
    assert equivalence("any")(texts, answer=gold) == [1.0, 1.0, 1.0, 0.0]
    assert equivalence("strict")(texts, answer=gold) == [1.0, 0.0, 0.0, 0.0]
    assert equivalence("strict", "answer")(["5", r"\boxed{5}"], answer=["5"] * 2) == [1.0, 0.0]


@settings(max_examples=200, deadline=None)
@given(ANYTHING, st.sampled_from(["5", r"\frac{1}{2}", "x"]))
def test_each_reading_pays_what_the_grade_says(completion, gold):
    got = grade(completion, gold)
    paid = {reading: equivalence(reading)([completion], answer=[gold]) for reading in READINGS}
    assert paid["any"] == [float(got.correct)]
    assert paid["strict"] == [float(got.strict)]
    assert paid["strict"] <= paid["box"] <= paid["any"]


@settings(max_examples=100, deadline=None)
@given(texts(PIECES), st.sampled_from(["5", r"\frac{1}{2}", "x"]))
def test_what_is_exact_is_equivalent(text, gold):
    if boxed_format()([text]) == [1.0]:
        assert exact_match()([text], answer=[gold]) <= equivalence()([text], answer=[gold])


# Thoughts and gates


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        (CAREFUL, 1.0),
        ("<think></think>5", 1.0),
        (" \n<think>a</think> \n 5", 1.0),
        ("<think>a</think> \n", 0.0),
        ("<think>a 5", 0.0),
        ("</think>a<think>5", 0.0),
        ("so <think>a</think>5", 0.0),
        ("<think>a</think><think>b</think>5", 0.0),
        (r"\boxed{5}", 0.0),
    ],
)
def test_think_format(text, paid):
    assert think_format()([text]) == [paid]
    assert think_format()([[{"role": "assistant", "content": text}]]) == [paid]


@settings(max_examples=100, deadline=None)
@given(ANYTHING, st.sampled_from(READINGS))
def test_gated_is_the_product_of_its_parts(completion, reading):
    product = think_format()([completion])[0] * equivalence(reading)([completion], answer=["5"])[0]
    assert gated(reading)([completion], answer=["5"]) == [product]
    assert gated(reading)([CAREFUL], answer=["5"]) == [1.0]


@pytest.mark.parametrize(
    ("tokens", "paid"), [(0, 0.0), (80, 0.0), (81, -0.1), (85, -0.5), (90, -1.0), (200, -1.0)]
)
def test_overlong_falls_over_the_buffer(tokens, paid):
    assert overlong(90, 10)([""], completion_ids=[[7] * tokens]) == pytest.approx([paid])


@pytest.mark.parametrize("options", [(10, 0), (10, 11), (10, 5, 1.0), (10, 5, math.nan)])
def test_overlong_refuses_what_makes_no_sense(options):
    with pytest.raises(CasebookError, match="overlong needs 1 <= buffer <= max_length"):
        overlong(*options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: exact_match("first"), "unknown box 'first': known are last, documentation"),
        (lambda: equivalence("all"), "unknown reading 'all': known are box, any, strict"),
        (lambda: gated("all"), "unknown reading 'all'"),
        (lambda: REWARDS["accuracy"], "unknown reward 'accuracy': known are exact_match, equiv"),
    ],
)
def test_unknown_names_list_the_known_ones(make, message):
    with pytest.raises(UnknownName, match=message):
        make()


@settings(max_examples=100, deadline=None)
@given(st.lists(ANYTHING, max_size=4))
def test_every_reward_pays_one_finite_number_for_anything(completions):
    columns = {
        "answer": ["5"] * len(completions),
        "completion_ids": [[1, 2]] * len(completions),
        "prompts": ["p"] * len(completions),
        "level": [1] * len(completions),
    }
    for name, factory in REWARDS.items():
        reward = factory(32, 8) if name == "overlong" else factory()
        paid = reward(completions, **columns)
        assert reward.__name__ == name
        assert [type(value) for value in paid] == [float] * len(completions)
        assert all(-1 <= value <= 1 for value in paid)


# The real answers


@pytest.fixture(scope="module")
def math500():
    if not problem_sets.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with math/math500.jsonl")
    return problem_sets.read("math500", "test")


def test_every_reference_answer_of_math500_can_be_paid_in_full(math500):
    texts = [f"So it is ${box(answer)}$." for answer in math500["answer"]]
    grades = [grade(text, gold) for text, gold in zip(texts, math500["answer"], strict=True)]
    assert all(got.strict for got in grades)
    assert exact_match()(texts, answer=list(math500["answer"])) == [1.0] * len(texts)


def test_the_documented_box_misses_every_reference_answer_with_a_brace(math500):
    golds = list(math500["answer"])
    paid = exact_match("documentation")([box(gold) for gold in golds], answer=golds)
    assert paid == [float("}" not in gold) for gold in golds]
    assert 0 < sum(paid) < len(paid)
