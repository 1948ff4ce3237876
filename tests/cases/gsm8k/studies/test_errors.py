"""The taxonomy of mistakes: every kind by hand, hostile text, and real solutions."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from casebook.cases import problem_sets
from casebook.cases.gsm8k.studies import errors
from casebook.records import studies

SOLUTION = "He buys 3*4=<<3*4=12>>12 pens, then has 12+5=<<12+5=17>>17.\n#### 17"
VIGGO = (  # in the source's words cut down to its equations
    "Let x be the bills. 0.10x + 20(x + 1) = 80. Subtract 20 to get 20.10x = 60, then x = 3."
)


def written(working, answer="17"):
    return f"<reasoning>\n{working}\n</reasoning>\n<answer>\n{answer}\n</answer>"


@pytest.mark.parametrize(
    ("completion", "form", "content"),
    [
        (written("3*4=12\n12+5=17"), "as asked", "right"),
        (written("3*4=12\n12+5=17", "17 pens"), "dressed answer", "right"),
        ("3*4=12\n12+5=17\n#### 17", "no tags", "right"),
        (written("17"), "as asked", "right, not by its working"),
        (written("3*4=13\n12+5=17"), "as asked", "right, not by its working"),
        (written("3*4=12", "many"), "dressed answer", "no answer"),
        (written("3*4=13\n13+5=18", "18"), "as asked", "arithmetic slip"),
        (written("about twenty", "20"), "as asked", "guess"),
        (written("3*4=12\n12+5=17", "12"), "as asked", "not its own result"),
        (written("3*4=12\n12-5=7", "7") + " Done.", "broken tags", "wrong operation"),
        (written("3*4=12", "12"), "as asked", "dropped step"),
        ("<reasoning>\n3*4=12", "broken tags", "dropped step"),
        (None, "no tags", "no answer"),
    ],
)
def test_forms_and_contents(completion, form, content):
    assert errors.form(completion) == form
    assert errors.content(completion, "17", SOLUTION) == content


@pytest.mark.parametrize(
    ("text", "stated", "holds"),
    [
        ("20 * 1.3 = 26", 26, True),
        ("John's claims = 20 x 1.3 = 26.", 26, True),
        ("4 boxes * 3 pens = 12 pens", 12, True),
        ("$1,200 - $200 = $1,000", 1000, True),
        ("(2 + 3) × 4 = 20", 20, True),
        ("2(3 + 4) = 14", 14, True),
        ("10 − 14 = -4", -4, True),
        ("20% * 50 = 10", 10, True),
        ("<<16-3-4=9>>", 9, True),
        ("1 – 3/4 = 1/4", Fraction(1, 4), True),
        ("- 20*3=60", 60, True),  # the dash of a list
        ("10/3=3.33", Fraction("3.33"), True),  # rounded where it is shown
        ("10/3=3.4", Fraction("3.4"), False),
        ("10/3=3", 3, False),
        ("3*4=13", 13, False),
        ("5-3=-2", -2, False),
    ],
)
def test_an_equation_is_computed_again(text, stated, holds):
    (found,) = errors.equations(text)
    assert (found.stated, found.holds) == (stated, holds)


def test_a_chain_is_as_many_equations_as_it_has_steps():
    found = errors.equations("16 - 9 = 7 * 2 = 14")
    assert [(e.stated, e.holds) for e in found] == [(7, True), (14, True)]


LEFT_OUT = ["", "x = 3", "20 = 20", "= = =", "5 / 0 = 0", "2T + 14 = 44", "3r + 5w = 42", "2**3=8"]
LEFT_OUT += ["25 people + his 1 teacher + 1 himself = 27", "50 tall students - 10 - 5 = 35"]
LEFT_OUT += ["$350 000 x 5/100 = 17500", "(3 + 4 = 7", "1 1/2 + 1 = 2 1/2", "3 * * 4 = 12"]


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_cannot_be_read_is_left_out(text):
    assert errors.equations(text) == []


def test_an_answer_is_put_in_for_the_unknown():
    assert [e.holds for e in errors.equations(VIGGO, Fraction(3))] == [False, False]
    right = "10x + 20(x + 1) = 80, so 30x = 60"
    assert [e.holds for e in errors.equations(right, Fraction(2))] == [True, True]
    assert errors.equations(right) == []
    text = written(VIGGO, "3")
    assert errors.content(text, "2", "<<80-20=60>>60 <<60/30=2>>2 #### 2") == "arithmetic slip"


@settings(deadline=None)
@given(
    st.text()
    | st.none()
    | st.binary()
    | st.text(alphabet="0123456789+-*/=().,x%$ \n", max_size=200)
)
@example("0x=-")
@example("(" * 50_000)
@example("1+" * 50_000 + "1=2")
@example("9" * 100_000 + "+1=2")
@example("2*" * 30 + "2=" + "9" * 5_000)
@example("=" * 100_000)
@example("1e999999999 + 1 = 2\n#### 1e999999999")
def test_nothing_a_model_writes_raises(text):
    assert errors.form(text) in errors.FORMS
    assert errors.content(text, "17", SOLUTION) in errors.CONTENTS
    assert all(e.text for e in errors.equations(text, Fraction(3)))


def test_the_equations_of_people_hold():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    read = [e for s in problem_sets.read("gsm8k", "test")["answer"] for e in errors.equations(s)]
    kept = studies.read("baseline")["taxonomy"]
    assert len(read) == kept["equations"]
    assert sum(not equation.holds for equation in read) == kept["false"]
