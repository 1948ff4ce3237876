"""Which number a text gives as its answer: every rule of `extract_number`, and hostile text."""

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.cases.gsm8k.reading import LONGEST, extract_number

MARKS = r"<answer> </answer> << >> #### \boxed{ \frac{ } { = answer: Q: - − $ % , . / : ( ) ^ e x"
OTHERS = "1 20 300 10^3 1/0 ½ ٤ ²"
PIECES = st.sampled_from(
    [*MARKS.split(), *OTHERS.split(), " ", "\n", "\0", "\ud800", "in 2 hours", "answer is"]
)
ANY_TEXT = st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40)
ANYTHING = (
    ANY_TEXT
    | st.none()
    | st.binary()
    | st.floats()
    | st.integers()
    | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), st.none() | st.text()))
)


def read(text):
    number = extract_number(text)
    return None if number is None else float(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("042", 42),
        ("3.0", 3),
        ("3.", 3),
        (".5", 0.5),
        ("...5", 5),
        ("+5", 5),
        ("1,600", 1600),
        ("1,234,567.89", 1234567.89),
        ("12,34,567", 1234567),
        ("1 600", 1600),
        ("1\N{NARROW NO-BREAK SPACE}600", 1600),
        ("1{,}600", 1600),
        (r"1\,600", 1600),
        (r"1,\!600", 1600),
        ("12 boxes of 5 100-gram bars", 100),
        ("1,2,3", 3),
        ("3, 7", 7),
        ("$1,234.50.", 1234.5),
        (r"\$1{,}234", 1234),
        ("€3.50", 3.5),
        ("18$", 18),
        ("50 cents", 50),
        ("96%", 96),
        (r"96\%", 96),
        ("3 million", 3),
        ("3 dozen eggs", 3),
        ("1/2", 0.5),
        ("18/3", 6),
        ("1 1/2", 1.5),
        ("½", 0.5),
        ("1½", 1.5),
        (r"\frac{3}{4}", 0.75),
        (r"\dfrac12", 0.5),
        (r"1\frac{1}{2}", 1.5),
        (r"-\frac{1}{2}", -0.5),
        ("2e3", 2000),
        ("2 x 10^3", 2000),
        (r"2.5 \times 10^{3}", 2500),
        ("5:00 PM", 5),
        ("5:30", 5.5),
        ("3:2", 2),
        ("2023-05-12", 12),
        ("3rd", 3),
        ("**42**", 42),
        ("x=5", 5),
        ("\N{ARABIC-INDIC DIGIT FOUR}\N{ARABIC-INDIC DIGIT TWO}", 42),
        ("\uff14\uff12", 42),
        ("5 m^2", 5),
        ("20 cm2", 20),
        ("USD50", 50),
    ],
)
def test_what_a_number_is(text, number):
    assert read(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-3", -3),
        ("−3", -3),
        ("-$5", -5),
        ("$-5", -5),
        ("(-7)", -7),
        ("x = -5", -5),
        ("x=-5", -5),
        ("= - 5", -5),
        ("it is -4", -4),
        ("5*-3", -3),
        ("negative 5", -5),
        ("<answer>- 5</answer>", -5),
        ("#### -$1,200", -1200),
        # a minus, but no sign
        ("10-4", 4),
        ("10 - 4", 4),
        ("10 -4", 4),
        ("10-15", 15),
        ("10–15 apples", 15),
        ("- 4 apples\n- 5 pears", 5),
        ("GPT-4", 4),
        ("(3)-4", 4),
    ],
)
def test_when_a_minus_is_a_sign(text, number):
    assert read(text) == number


NO_NUMBER = "none NaN Infinity -inf seventeen ² Ⅻ 五 5/0 $ - . #### <answer></answer>"


@pytest.mark.parametrize(
    "text", ["", " ", "<answer>unknown</answer> 5", "5 <answer>", r"\boxed{}", *NO_NUMBER.split()]
)
def test_no_number(text):
    assert extract_number(text) is None


@pytest.mark.parametrize("text", [None, 3, 2.5, math.nan, Decimal(3), b"3", [], [None], {}, True])
def test_what_is_no_text_has_no_number(text):
    assert extract_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        # 1. the answer block
        ("7 <answer>42</answer> I am 99% sure", 42),
        ("<answer>1</answer><answer>2</answer>", 2),
        ("<answer>1</answer><answer>2", 1),
        ("1 <answer>2", 2),
        ("I write <answer> first. <answer>\n5\n</answer>", 5),
        ("<ANSWER>4</ANSWER> 5", 4),
        ('<answer type="number">4</answer> 5', 4),
        (r"<answer>\boxed{3} of 4</answer>", 3),
        # 2. the box
        (r"so \boxed{42} and 7", 42),
        (r"\boxed{1} \boxed{2} 3", 2),
        (r"\boxed{\boxed{3}} 4", 3),
        (r"\fbox{3} 4", 3),
        (r"$\boxed{x = \frac{36}{2} = 18 \text{ pens}}$ 4", 18),
        (r"\boxed{\$1{,}800.00}", 1800),
        (r"\boxed{\{3\}} 4", 3),
        (r"\boxed{} 5", 5),
        (r"\boxed{x} 5", 5),
        (r"\boxed{42", 42),
        # 3. hashes
        ("7\n#### 42\n8", 42),
        ("####42", 42),
        ("#### 1 #### 2", 2),
        ("#### $18.00 for 9", 18),
        ("#### **18**", 18),
        ("#### x = 18", 18),
        ("####\n18", 18),
        ("#### The answer is 18 of 20", 18),
        ("#### 3. Then add\n5+4=9", 9),
        ("#### 10 - 4 = 6", 6),
        ("#### Step 2\nso 7 remain", 7),
        # 4. the phrase
        ("The answer is 18 because there are 3 days.", 18),
        ("The answer is 18. Therefore we have 2 left.", 18),
        ("The answer is about $33.33 for 4", 33.33),
        ("The answer would be 18 for 4", 18),
        ("Final Answer: **18**\nI hope it helps 100%", 18),
        ('{"answer": 42}', 42),
        ("answer is 1, no, the answer is 2", 2),
        ("The answer is 5 * 3 = 15", 15),
        ("The answer is 15 gallons * 8 pints = 120 pints", 120),
        ("Answer: 16 eggs, of which 3 are eaten\nThat leaves 13", 13),
        ("Answer: 16 - 3 = 13\n13 - 4 = 9", 9),
        ("I hope this answer is clear. So 5.", 5),
        # 5. the last sentence
        ("She has 5.\nThat is all.", 5),
        ("x = 4 and y = 5, so the sum is 9", 9),
        ("1340/80 = 16.75, meaning 17 bags", 17),
        ("5 pens. Then 6. Done.", 6),
        ("A: 26", 26),
    ],
)
def test_where_the_answer_stands(text, number):
    assert read(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10 - 4 = 6", 6),
        ("x = 2, y = 3", 3),
        ("9 * 2 = 18 dollars for 7 days", 18),
        ("So 5 * 3 = 15. Then 12 are left.", 12),
        ("50/3 = 16.67 ≈ 17", 17),
        ("36/10 = 3.6, which rounds up to 4", 4),
        ("10/3 = 3.333 rounded to 2 decimal places", 3.333),
        ("4 = x", 4),
        ("He pays $30 (5 x $6).", 30),
        ("(30)", 30),
        ("17 pens for 4 boys", 17),
        ("6 miles in 2 hours", 6),
        ("5 out of 20", 5),
        ("3 apples for $6", 6),
        ("In 2 hours", 2),
        ("for 3 and for 4", 3),
        ("3 and 4", 4),
        ("<<48/2=24>>24 clips", 24),
        ("48/2 = <<48/2=24>> clips", 24),
        ("it takes 1/0 = 3/0 of 5", 5),
    ],
)
def test_which_of_several_numbers(text, number):
    assert read(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "18<|im_end|> 7",
        "18</s>7",
        "18<|eot_id|>\n\n7",
        "18\nQ: 7",
        "18.\n\nQuestion 2: 7",
        "18\n Q: 7",
    ],
)
def test_what_follows_the_end_does_not_count(text):
    assert read(text) == 18


@pytest.mark.parametrize("text", ["Question: 7", "\nQ: 7", "Here it is.\nQuestion: 7"])
def test_a_question_with_no_number_before_it_is_no_end(text):
    assert read(text) == 7


def test_messages_are_read_as_text():
    assert read([{"role": "assistant", "content": "<answer>5</answer>"}]) == 5


def test_decimals_are_exact():
    digits = "0." + "1234567890" * 10
    assert extract_number(digits) == Decimal(digits)
    assert str(extract_number("1,024.50")) == "1024.50"


def test_what_is_too_long_is_no_number():
    assert extract_number("9" * LONGEST) == Decimal("9" * LONGEST)
    assert extract_number("9" * (LONGEST + 1)) is None
    assert extract_number(f"5 or {'9' * (LONGEST + 1)}") == 5
    assert extract_number("1e400") == 1


# Whatever comes


@given(ANYTHING)
def test_any_input_gives_a_finite_number_or_none(text):
    number = extract_number(text)
    assert number is None or (isinstance(number, Decimal) and number.is_finite())


@given(ANY_TEXT)
def test_a_text_without_digits_has_no_number(text):
    bare = re.sub(r"[\d½⅓⅔¼¾⅕⅛]", "", text)
    assert extract_number(bare) is None


@given(ANY_TEXT, st.integers(-(10**12), 10**12))
def test_a_last_answer_block_counts_whatever_came_before(text, number):
    assert extract_number(f"{text}<answer>{number}</answer>") == number
    assert extract_number(f"{text}<answer>{number:,}</answer>") == number


@given(st.decimals(-(10**9), 10**9, places=2))
def test_every_way_to_mark_an_answer_gives_the_same(number):
    ways = ["#### {}", r"so \boxed{{{}}}.", "The answer is {}.", "{}", "a = {} pens", "<answer>{}"]
    assert {extract_number(way.format(f"{number:,f}")) for way in ways} == {number}
    assert extract_number(f"${abs(number):,f}.") == abs(number)


@given(st.integers(0, 999), st.integers(1, 999))
def test_fractions_are_divided(above, below):
    for text in (f"{above}/{below}", rf"\frac{{{above}}}{{{below}}}"):
        assert extract_number(text) == Decimal(above) / Decimal(below)


REPEATED = (
    r"9 1, ,000 1= = # #### \boxed{ } { <answer> </answer> ( ) \frac{1} - 1. 1/ 1: << 1e1 ½ é"
)
WITH_BLANKS = ["1 ", " 000", "<answer ", "answer is ", "answer: 1 ", "\n", "1. ", " ", "\nQ", "٤ "]


@pytest.mark.parametrize(
    "piece", [*REPEATED.split(), *WITH_BLANKS, "= round to ", "5 in ", "\0", "\\"]
)
def test_long_texts_are_read_in_linear_time(piece):
    # anything quadratic would take hours here, so passing is the proof
    text = piece * (200_000 // len(piece))
    extract_number(text)
    assert extract_number(f"{text}<answer>5</answer>") == 5


# The real reference solutions


@pytest.fixture(scope="module")
def reference_solutions():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    rows = [problem_sets.read("gsm8k", split, source="folder") for split in ("train", "test")]
    solutions = [solution for frame in rows for solution in frame["answer"]]
    return [(solution, solution.rpartition("####")[2].strip()) for solution in solutions]


def test_every_reference_solution_of_gsm8k_is_read_right(reference_solutions):
    assert len(reference_solutions) == 8792
    wrong = [gold for text, gold in reference_solutions if extract_number(text) != _plain(gold)]
    assert wrong == []


def test_most_reference_solutions_are_read_right_without_their_last_line(reference_solutions):
    bodies = [(text.rpartition("####")[0], _plain(gold)) for text, gold in reference_solutions]
    right = sum(extract_number(body) == gold for body, gold in bodies)
    last = re.compile(r"\d[\d,]*(?:\.\d+)?")
    naive = sum(_plain(last.findall(body)[-1]) == gold for body, gold in bodies)
    assert right / len(bodies) > 0.99 > naive / len(bodies)


def _plain(gold):
    return Decimal(gold.replace(",", ""))
