"""Which number a completion gives: whatever comes, no hedge in a span, and the real solutions.

What single texts give is in `answers.yaml`, whose every example is graded by `test_answers` above.
"""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import anything

from casebook import Grade
from casebook.cases import problem_sets
from casebook.cases.gsm8k.answers import LONGEST, extract_number, one_number
from casebook.cases.gsm8k.rewards import grade

SPANS = ["<answer>{}</answer>", "<reasoning>9</reasoning>\n<answer>\n{}\n</answer>", "#### {}"]
SPANS += ["so \\boxed{{{}}} in 2 days", "2 days\n#### {}\nDone."]
SPANS += ["<answer>1</answer> <answer>{}</answer>"]
DRESSES = ["{}", "{}.", "${}", "{} students", "{} %", "**{}**", "1 * 2 = {}", "x = {}", "{} km/h"]
HEDGES = ["{0} or {1}", "{1} or {0}", "{0}, {1}", "{0} and {1}", "{0} {1}", "{0} ({1})", "{0}; {1}"]
HEDGES += ["either {0} or {1}", "{0} unless it is {1}", "{0}-{1}", "{0} to {1}", "{0}|{1}"]
HEDGES += ["{0}~{1}", "not {0}", "{0} is wrong", "at least {0}", "{0} or more", "{0}?", "1+{0}"]
HEDGES += ["{0}^2", "{0}!", "{0} dozen", "{0}k", "half of {0}", "{0} and a half", "{0} isn't it"]
HEDGES += ["{1} = {0} or {1}"]
PIECES = [*SPANS, *HEDGES, "<answer>", "</answer>", "\\boxed{", "}", "####", "\n", "-", "$", "½"]
ANYTHING = anything(PIECES)
NUMBERS = st.integers(-(10**7), 10**7)


@given(NUMBERS, st.sampled_from(SPANS), st.sampled_from(DRESSES), st.sampled_from(["", ",", "-"]))
def test_a_dressed_number_is_read_in_every_span(number, span, dress, mark):
    text = f"{number:,}" if mark == "," else f"{number}"
    completion = span.format(dress.format(text))
    assert extract_number(completion) == number
    assert grade(f"{completion}\n", number).correct


@given(st.lists(st.integers(1000, 9999), min_size=2, max_size=2, unique=True), st.data())
def test_no_hedge_in_a_span_is_paid(numbers, data):
    said = data.draw(st.sampled_from(HEDGES)).format(*numbers)
    completion = data.draw(st.sampled_from(SPANS)).format(said)
    assert not any(grade(completion, number).correct for number in numbers)


@given(ANYTHING, NUMBERS)
def test_a_last_answer_block_counts_whatever_stands_around_it(text, number):
    text = text if isinstance(text, str) else ""
    around = f"{text}<answer>{number}</answer>{text.replace('</answer>', '')}"
    assert extract_number(around) == number


@given(st.integers(0, 999), st.integers(1, 999))
def test_fractions_are_divided(above, below):
    for text in (f"<answer>{above}/{below}</answer>", rf"\boxed{{\frac{{{above}}}{{{below}}}}}"):
        assert extract_number(text) == Decimal(above) / Decimal(below)
    assert one_number(f"2 {above}/{below}") == 2 + Decimal(above) / Decimal(below)
    assert one_number(f"{above}/0") is None


@given(ANYTHING)
def test_any_input_gives_a_finite_number_or_none(completion):
    number = extract_number(completion)
    assert number is None or (isinstance(number, Decimal) and number.is_finite())
    assert grade(completion, 42).correct == (number == 42)
    assert not isinstance(completion, str) or re.search(r"\d", completion) or number is None


def test_what_is_too_long_is_no_number():
    assert extract_number("9" * LONGEST) == one_number("9" * LONGEST) == Decimal("9" * LONGEST)
    assert extract_number("9" * (LONGEST + 1)) is one_number("9" * (LONGEST + 1)) is None


LONG = ["\\boxed{", "\\boxed{1", "{}", "#### ", "<answer>", "<answer>1</answer>", "1 ", "1,000 "]
LONG += ["9", "-", "= ", "1/", " \n", "½", "</", "\n Q"]


@pytest.mark.slow
@pytest.mark.parametrize("piece", LONG)
def test_a_megabyte_is_read_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (1_000_000 // len(piece))
    for completion in (text, f"#### {text}", f"\\boxed{{{text}}}", f"<answer>{text}</answer>"):
        assert isinstance(grade(completion, 1), Grade)
    short = f"<answer>{text[: LONGEST - 1]}?</answer>"  # a span just short enough to be read
    assert not grade(short, 1).correct


def test_every_reference_solution_of_gsm8k_is_read_right():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    rows = [problem_sets.read("gsm8k", split) for split in ("train", "test")]
    solutions = [solution for frame in rows for solution in frame["answer"]]
    golds = [Decimal(s.rpartition("####")[2].strip().replace(",", "")) for s in solutions]
    assert [extract_number(solution) for solution in solutions] == golds
    cut = [extract_number(solution.rpartition("####")[0]) for solution in solutions]
    assert sum(a == b for a, b in zip(cut, golds, strict=True)) == 8547
