"""The taxonomy of mistakes: every kind by hand, hostile text, and solutions broken on purpose."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.case import CasebookError
from casebook.cases.gsm8k.studies import errors

SOLUTION = "He buys 3*4=<<3*4=12>>12 pens, then has 12+5=<<12+5=17>>17.\n#### 17"
VIGGO = (  # in the source's words cut down to its equations
    "Let x be the bills. 0.10x + 20(x + 1) = 80. Subtract 20 to get 20.10x = 60, then x = 3."
)


def written(working, answer="17"):
    return f"<reasoning>\n{working}\n</reasoning>\n<answer>\n{answer}\n</answer>"


@pytest.mark.parametrize(
    ("completion", "kind"),
    [
        (written("3*4=12\n12+5=17"), "as asked"),
        (written("3*4=12", "17 pens"), "dressed answer"),
        (written("3*4=12", ""), "dressed answer"),
        (written("3*4=12") + " Done.", "broken tags"),
        ("<reasoning>\n3*4=12", "broken tags"),
        ("3*4=12\n12+5=17\n#### 17", "no tags"),
        ("", "no tags"),
        (None, "no tags"),
    ],
)
def test_forms(completion, kind):
    assert errors.form(completion) == kind


@pytest.mark.parametrize(
    ("completion", "kind"),
    [
        (written("3*4=12\n12+5=17"), "right"),
        (written("3*4=12\n12+5=17", "17 pens"), "right"),
        ("3*4=12\n12+5=17\n#### 17", "right"),
        (written("17"), "right, not by its working"),
        (written("3*4=13\n12+5=17"), "right, not by its working"),
        (written("3*4=12", "many"), "no answer"),
        (written("3*4=13\n13+5=18", "18"), "arithmetic slip"),
        (written("about twenty", "20"), "guess"),
        (written("3*4=12\n12+5=17", "12"), "not its own result"),
        (written("3*4=12\n12-5=7", "7"), "wrong operation"),
        (written("3*4=12", "12"), "dropped step"),
        ("", "no answer"),
        (None, "no answer"),
    ],
)
def test_contents(completion, kind):
    assert errors.content(completion, "17", SOLUTION) == kind


def test_every_kind_is_described():
    assert set(errors.MADE) <= set(errors.CONTENTS)
    assert all(errors.CONTENTS.values())
    assert all(errors.FORMS.values())


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("20 * 1.3 = 26", 26, 26),
        ("John's claims = 20 x 1.3 = 26.", 26, 26),
        ("4 boxes * 3 pens = 12 pens", 12, 12),
        ("$1,200 - $200 = $1,000", 1000, 1000),
        ("(2 + 3) × 4 = 20", 20, 20),
        ("2(3 + 4) = 14", 14, 14),
        ("10 − 14 = -4", -4, -4),
        ("20% * 50 = 10", 10, 10),
        ("<<16-3-4=9>>", 9, 9),
        ("1 – 3/4 = 1/4", Fraction(1, 4), Fraction(1, 4)),
    ],
)
def test_an_equation_that_holds(text, value, stated):
    (found,) = errors.equations(text)
    assert (found.value, found.stated, found.holds) == (value, stated, True)


def test_a_chain_is_as_many_equations_as_it_has_steps():
    found = errors.equations("16 - 9 = 7 * 2 = 14")
    assert [(e.value, e.stated) for e in found] == [(7, 7), (14, 14)]


@pytest.mark.parametrize("text", ["3*4=13", "8.50 * 8 = 69", "10/3=3", "10/3=3.4", "5-3=-2"])
def test_an_equation_that_does_not_hold(text):
    assert [e.holds for e in errors.equations(text)] == [False]


def test_decimals_may_be_rounded_where_they_are_shown():
    assert [e.holds for e in errors.equations("10/3=3.33 and 2/3=0.667")] == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 3",
        "20 = 20",
        "= = =",
        "5 / 0 = 0",
        "25 people + his 1 teacher + 1 himself = 27",
        "50 tall students - 10 - 5 = 35",
        "2T + 14 = 44",
        "3r + 5w = 42",
        "$350 000 x 5/100 = 17500",
        "(3 + 4 = 7",
        "1 1/2 + 1 = 2 1/2",
        "3 * * 4 = 12",
    ],
)
def test_what_cannot_be_read_is_left_out(text):
    assert errors.equations(text) == []


def test_a_dash_may_be_a_sign_or_begin_a_list():
    assert [e.holds for e in errors.equations("- 20*3=60\n-5+3=-2")] == [True, True]


def test_an_answer_is_put_in_for_the_unknown():
    assert [e.holds for e in errors.equations(VIGGO, Fraction(3))] == [False, False]
    right = "10x + 20(x + 1) = 80, so 30x = 60"
    assert [e.holds for e in errors.equations(right, Fraction(2))] == [True, True]
    assert errors.equations(right) == []


def test_the_sources_last_example_has_the_form_and_a_slip():
    text = written(VIGGO, "3")
    assert errors.form(text) == "as asked"
    assert errors.content(text, "2", "<<80-20=60>>60 <<60/30=2>>2 #### 2") == "arithmetic slip"


def test_algebra_that_is_right_is_right():
    text = written("10x + 20(x + 1) = 80, so x = 2", "2")
    assert errors.content(text, "2", "#### 2") == "right"


@given(st.text() | st.none() | st.binary() | st.integers())
def test_nothing_a_model_writes_raises(text):
    assert errors.form(text) in errors.FORMS
    assert errors.content(text, "17", SOLUTION) in errors.CONTENTS


@given(st.text(alphabet="0123456789+-*/=().,x%$ \n", max_size=200))
@example("0x=-")
def test_no_arithmetic_raises(text):
    for said in (None, Fraction(3)):
        assert all(e.text for e in errors.equations(text, said))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "1+" * 50_000 + "1=2",
        "9" * 100_000 + "+1=2",
        "2*" * 30 + "2=" + "9" * 5_000,
        "=" * 100_000,
        "x" * 100_000,
        "1e999999999 + 1 = 2\n#### 1e999999999",
    ],
)
def test_hostile_text_is_read_in_bounded_time(text):
    assert errors.content(text, "17", SOLUTION) in errors.CONTENTS


@given(st.integers(2, 99), st.integers(2, 99), st.integers(2, 99))
def test_made_faults_are_found(a, b, c):
    solution = f"<<{a}*{b}={a * b}>>{a * b}, <<{a * b}+{c}={a * b + c}>>{a * b + c}"
    for fault in errors.MADE:
        completion = errors.break_solution(solution, fault)
        found = errors.content(completion, str(a * b + c), solution)
        if fault == "wrong operation" and a * b - c < 0:
            continue  # a completion of this case has no negative results
        if fault == "dropped step" and a * b - c == a * b + c:
            continue
        assert found == fault


def test_what_has_no_step_cannot_be_broken():
    assert errors.break_solution("#### 17", "arithmetic slip") is None
    assert errors.break_solution("<<3*4=12>>12", "dropped step") is None
    assert errors.break_solution("<<3*4-2=10>>10", "wrong operation") is None
    with pytest.raises(CasebookError, match="arithmetic slip"):
        errors.break_solution(SOLUTION, "typo")


def test_a_probe_counts_what_is_found():
    found = errors.probe([SOLUTION, "He has 3+4=<<3+4=8>>8 pens.\n#### 8"])
    assert (found["equations"], found["false"]) == (3, 1)
    assert found["found"]["dropped step"]["n"] == 1
    assert found["found"]["arithmetic slip"]["value"] == 1
    assert errors.probe(["#### 3"])["found"]["dropped step"] is None


def test_solutions_of_people_and_solutions_broken():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    found = errors.probe(list(problem_sets.read("gsm8k", "test")["answer"][:400]))
    assert found["equations"] > 1_200
    assert found["false"] < 4
    for figure in found["found"].values():
        assert figure["value"] > 0.88
        assert figure["n"] > 250
