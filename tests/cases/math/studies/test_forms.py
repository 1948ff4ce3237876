"""Other writings of an answer, the kinds of answers, and the figures about MATH-500."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.cases.math.studies.forms import (
    KINDS,
    WRITINGS,
    describe,
    kind_of,
    missed,
    paid,
    writings,
)
from casebook.cases.math.verify import equivalent
from casebook.records import studies

REWARDS = ("exact", "documentation", "equivalence")


@pytest.mark.parametrize(
    ("answer", "writing", "text"),
    [
        (r"\frac{1}{2}", r"\dfrac for \frac", r"\dfrac{1}{2}"),
        (r"\frac{1}{2}", r"\frac12 for \frac{1}{2}", r"\frac12"),
        (r"\frac{3}{56}", "a slash", "3/56"),
        (r"-\frac{3}{4}", "a slash", "-3/4"),
        (r"\frac43", "a slash", "4/3"),
        (r"-\frac{3}{4}", "a decimal", "-0.75"),
        ("p - q", "other spaces", "p-q"),
        ("3, 5, 7", "other spaces", "3,5,7"),
        (r"\left(3, 4\right)", r"brackets without \left", "(3, 4)"),
        ("(3,4)", r"brackets with \left", r"\left(3,4\right)"),
        (r"90^\circ", "without its unit", "90"),
        (r"5.4 \text{ cents}", "without its unit", "5.4"),
        (r"864 \mbox{ inches}^2", "without its unit", "864"),
        (r"\text{Evelyn}", r"words without \text", "Evelyn"),
        ("58,500", "no thousands comma", "58500"),
        (r"10,\!080", "no thousands comma", "10080"),
        ("x=5", "without its name", "5"),
        (r"x \in [-2,7]", "without its name", "[-2,7]"),
    ],
)
def test_each_rule_writes_what_it_says(answer, writing, text):
    assert writings(answer)[writing] == text


@pytest.mark.parametrize(
    ("answer", "writing"),
    [
        (r"\frac{1}{3}", "a decimal"),  # does not end
        (r"\frac{1}{0}", "a slash"),
        ("3, 5, 7", "no thousands comma"),
        ("(1,234)", "no thousands comma"),  # a pair
        (r"y = 2x + 3 = 5", "without its name"),
        (r"\sqrt{3}", "a slash"),
    ],
)
def test_a_rule_leaves_alone_what_it_would_change(answer, writing):
    assert writing not in writings(answer)


@settings(deadline=None)
@given(st.text(max_size=30) | st.lists(st.sampled_from(list("-123,.x={} \\frac"))).map("".join))
def test_any_text_has_writings_and_a_kind(text):
    made = writings(text)
    assert set(made) <= set(WRITINGS)
    assert all(other and other != text for other in made.values())
    assert kind_of(text) in {*KINDS, "decimal", "other"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("42", "integer"),
        ("-50", "integer"),
        (r"10,\!080", "integer"),
        (".35625", "decimal"),
        (r"\frac{14}{3}", "fraction"),
        (r"3\sqrt{13}", "root or other constant"),
        ("6 - 5i", "root or other constant"),
        ("p - q", "expression"),
        ("3, 5, 7", "several numbers"),
        (r"\left( 3, \frac{\pi}{2} \right)", "tuple"),
        (r"(-\infty, 0]", "interval or set"),
        ("y = 2x + 3", "equation"),
        (r"\text{ellipse}", "words"),
        (r"120^\circ", "with a unit"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "matrix or vector"),
        ("", "other"),
    ],
)
def test_kinds(answer, kind):
    assert kind_of(answer) == kind


def test_paid_and_missed_on_two_answers():
    table = paid(["5", "x=5"])
    assert list(table["writing"]) == ["as it stands", "as it stands", "without its name"]
    assert list(table["exact"]) == [True, True, False]
    assert list(table["equivalence"]) == [True] * 3
    each = missed(table)
    assert list(each["writings"]) == [1, 2]
    assert list(each["exact"]) == [0.0, 0.5]
    assert list(each["equivalence"]) == [0.0, 0.0]


def test_the_record_holds_numbers_of_all_500_answers():
    found = studies.read("forms")
    assert found["provenance"]["checksum"] == problem_sets.SETS["math500"].checksums["test"]
    assert sum(found["kinds"].values()) == found["provenance"]["rows"] == 500
    assert set(found["by_writing"]) == set(WRITINGS)
    # no rewriting is the reference to the letter, so letters pay none of them
    assert all(row["exact"] == 0 for row in found["by_writing"].values())
    for name in REWARDS:
        assert 0 <= found["missed"][name] <= 1


# The real answers


@pytest.fixture(scope="module")
def math500():
    if not problem_sets.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with math/math500.jsonl")
    return problem_sets.read("math500", "test")


def test_every_writing_of_a_real_answer_means_the_same(math500):
    wrong = [
        (name, text, answer)
        for answer in math500["answer"]
        for name, text in writings(answer).items()
        if not equivalent(text, answer)
    ]
    assert wrong == []


def test_the_record_is_what_the_real_answers_give(math500):
    kept = studies.read("forms")
    del kept["code"]
    assert describe(math500) == kept
