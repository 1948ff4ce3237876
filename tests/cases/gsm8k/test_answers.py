"""Which one answer a completion gives: no hedge is ever paid, and no reason costs the answer."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import Grade, problem_sets
from casebook.cases.gsm8k.answers import LONGEST_STATEMENT, MOST_MARKS, read_answer, stated
from casebook.cases.gsm8k.reading import extract_number
from casebook.cases.gsm8k.rewards import answer_reward, correctness, grade, soft_correctness

# How an answer is said, what may explain it, and where it stands.
SAID = ["{}", "{}.", "{} students", "{} %", "**{}**", "{} dollars per day", "It is {}", "x = {}"]
SAID += ["Of the 6 in 7 boxes he has 1 * {0} = {0}", "Over 7 days she earns {0} + 0 = {0} dollars"]
SAID += ["She has {} pens left.", "{} miles in 2 hours", "about {}", "1 * {0} = {0}"]
REASONS = [
    " since 6*7",
    " because 6*7 is that",
    " (6*7)",
    ": 21 boys and 21 girls",
    ", as 6*7 shows",
]
REASONS += [". This is because of the 7 days.", " given the 3 boys", " — 6 for each of 7 days"]
PLACES = ["<answer>{}</answer>", "<reasoning>6*7</reasoning>\n<answer>\n{}\n</answer>", "#### {}"]
PLACES += [r"so \boxed{{{}}}", "The answer is {}", "2 days\n#### {}", "{}", "6*7\n<answer>{}"]
# What makes a hedge of an answer: {0} is what was said, {1} another number.
HEDGES = ["{0} or {1}", "{1} or {0}", "either {0} or {1}", "{0}, {1}", "{0} and {1}", "{0}\n{1}"]
HEDGES += ["{0}; {1}", "{0} {1}", "{1} {0}", "{0} ({1})", "{0}, or {1}?", "{0} unless it is {1}"]
HEDGES += ["{1} or 1*{0} = {0}", "He has {1}, or 1*{0} = {0}", "1*{0} = {0} or {1}", "{0} nor {1}"]
HEDGES += ["1*{0} = {0}, or {1}", "{0}, if not {1}", "{0}. No, {1}", "1*{0} = {0}; 1*{1} = {1}"]
DENIALS = ["not {}", "It is not {}", "never {}", "It cannot be {}", "{} is wrong", "{} is not it"]
DENIALS += ["not 1*{0} = {0}", "He has not 1*{0} = {0}", "we rule out {}", "{}. Wrong.", "{}?"]
BOUNDS = ["at least {}", "at most {}", "less than {}", "more than {}", "up to {}", "{} or more"]
BOUNDS += ["over {} days", "at least 1*{0} = {0}", "close to {}", "more than 1*{0} = {0}"]
UNDONE = ["1+{}", "{}!", "{}^2", "{}*3", "{} dozen", "{}k", "{} million", "half of {}", "{}-1"]
UNDONE += ["{} squared", "twice {}", "{} thousand", "{} plus one", "3*{}", "{}\\times 2", "{} / 1"]
UNDONE += ["1*{0} = {0} dozen", "1*{0} = {0} + 1", "{} raised to 2", "{} over 1", "double of {}"]
# A second answer behind the place of the first.
SECOND = [" or {}", "\nor {}", "\n#### {}", r" \boxed{{{}}}", "\n<answer>{}</answer>"]
SECOND += ["\nThe answer is {}.", " and {}", ", unless it is {}", ". No, {}", "\nNo, it is {}."]

NUMBERS = st.integers(3, 10**7)
SIGNED = NUMBERS | NUMBERS.map(lambda number: -number)
SOME = settings(max_examples=150, deadline=None, derandomize=True)
MANY = settings(max_examples=10_000, deadline=None, derandomize=True)


def written(number):
    return st.sampled_from([f"{number}", f"{number:,}", f"{number}.0"])


@st.composite
def right_answers(draw):
    """A number, a completion that gives it, and the same with a reason."""
    number = draw(SIGNED)
    said, place = draw(st.sampled_from(SAID)), draw(st.sampled_from(PLACES))
    said = said.format(draw(written(number)))
    reason = draw(st.sampled_from(REASONS))
    return number, place.format(said), place.format(f"{said.rstrip('.')}{reason}")


@st.composite
def hedges(draw):
    """A completion that gives no one answer, and the numbers in it."""
    number, other = draw(st.lists(NUMBERS, min_size=2, max_size=2, unique=True))
    one, two = draw(written(number)), draw(written(other))
    place = draw(st.sampled_from(PLACES))
    if draw(st.booleans()):
        ways = [*HEDGES, *DENIALS, *BOUNDS, *UNDONE]
        dress = "{}" if place == "{}" else draw(st.sampled_from(["{}", "{} ", "${}$", "**{}**"]))
        return (
            place.format(dress.format(draw(st.sampled_from(ways)).format(one, two))),
            number,
            other,
        )
    first = place.format(draw(st.sampled_from(["{}", "{} pens", "${}"])).format(one))
    if place == "{}":  # without a mark it is working, and what is marked behind it the answer
        return f"{first} or {two}", number, other
    return first + draw(st.sampled_from(SECOND)).format(two), number, other


def check_right(told):
    number, completion, reasoned = told
    assert grade(completion, number).correct
    assert grade(reasoned, number).correct


def check_hedge(told):
    completion, *numbers = told
    for number in numbers:
        assert not grade(completion, number).correct
        assert not grade(f"<answer>{completion}</answer>", number).correct


@SOME
@given(right_answers())
def test_a_right_answer_is_read_and_a_reason_costs_nothing(told):
    check_right(told)


@SOME
@given(hedges())
def test_no_hedge_is_paid(told):
    check_hedge(told)


@pytest.mark.heavy
@MANY
@given(right_answers())
def test_a_right_answer_is_read_in_many_tries(told):
    check_right(told)


@pytest.mark.heavy
@MANY
@given(hedges())
def test_no_hedge_is_paid_in_many_tries(told):
    check_hedge(told)


ALL = SAID + REASONS + PLACES + HEDGES + DENIALS + BOUNDS + UNDONE + SECOND
PIECES = st.sampled_from(
    [*ALL, *"{}()[]<>=≈*/+-×^!.,;:$%|½²٤", "42", "<<", ">>", "\\frac{", "\ud800"]
)
ANY_TEXT = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)


def check_any(text):
    got = grade(text, 42)
    assert isinstance(got, Grade)
    assert got.answer is None or len(got.answer) <= 302  # digits, a sign and a point
    assert not got.correct or got.answer == "42"
    number = stated(text)
    assert number is None or number.is_finite()


@SOME
@given(ANY_TEXT)
def test_any_text_gives_a_finite_number_or_none(text):
    check_any(text)


@pytest.mark.heavy
@MANY
@given(ANY_TEXT)
def test_any_text_gives_a_finite_number_or_none_in_many_tries(text):
    check_any(text)


@pytest.mark.parametrize("hedge", [f"{{}}{second}" for second in SECOND])
def test_a_second_answer_behind_a_wrong_one_makes_no_right_one(hedge):
    text = f"<reasoning>hm</reasoning><answer>43</answer>{hedge.removeprefix('{}').format(42)}"
    assert grade(text, 42) == Grade(False, None, False)


@pytest.mark.parametrize("hedge", [*HEDGES, *DENIALS, *BOUNDS, *UNDONE])
def test_no_reward_but_the_published_pays_a_hedge(hedge):
    completion = f"<reasoning>hm</reasoning><answer>{hedge.format(42, 43)}</answer>"
    for reward in (correctness(), soft_correctness(), answer_reward()):
        assert reward([completion], answer=["42"]) == [0.0]


def test_what_is_too_long_states_no_number():
    assert stated("42" + " " * (LONGEST_STATEMENT - 2)) == 42
    assert stated("42" + " " * (LONGEST_STATEMENT - 1)) is None
    assert stated("9" * 300) == Decimal("9" * 300)
    assert stated("9" * 301) is None
    assert stated("9" * 299 + "e9") is None


def test_more_marks_than_anyone_needs_are_no_answer():
    assert read_answer("#### 42\n" * (MOST_MARKS - 1)) == 42
    assert read_answer("#### 42\n" * MOST_MARKS) is None


REPEATED = [
    "answer is ",
    "answer: 1 ",
    "answer is 1 ",
    "#### ",
    r"\boxed{",
    r"\boxed{1}",
    "<answer>",
    "1 or ",
]
REPEATED += [
    "<answer>1</answer>",
    "<think>",
    "</think>",
    "(",
    "1(",
    "not ",
    "= ",
    "<<1",
    "1\n",
    "½",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_long_texts_are_read_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (500_000 // len(piece))
    assert isinstance(grade(text, 1), Grade)
    assert isinstance(grade(f"{text}<answer>{text}", 1), Grade)


def test_reference_solutions_are_read_right_and_most_of_them_without_their_last_line():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    rows = [problem_sets.read("gsm8k", split, source="folder") for split in ("train", "test")]
    solutions = [solution for frame in rows for solution in frame["answer"]]
    golds = [extract_number(solution) for solution in solutions]
    assert [read_answer(solution) for solution in solutions] == golds
    bodies = [read_answer(solution.rpartition("####")[0]) for solution in solutions]
    assert sum(body == gold for body, gold in zip(bodies, golds, strict=True)) > 8600
