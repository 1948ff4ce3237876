"""Reading labels: one span is read, it must match whole, and nothing around it counts."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import Grade, load_case
from casebook.cases.landuse import rewards as landuse
from casebook.cases.poker import rewards as poker
from casebook.rewards.labels import LabelReader

READ = LabelReader({"corn": "corn", "maize": "corn", "soy-bean": "soy", "soy": "soy"}, ["rye"])
CASES = {"poker": poker, "landuse": landuse}
VARIANTS = st.sampled_from(["reason", "label"])

# What an answer keeps its worth under, ...
DRESS = ("{}", " {}\n", "{}.", "**{}**", '"{}"', "a {}", "The {}.", "'{}'.", "“{}”", "\t{} .")
# ... and what makes it none.
HEDGES = (
    *("{} or {other}", "{} and {other}", "{}/{other}", "{}|{other}", "{}, {other}", "{} ({other})"),
    *("not {}", "no {}", "hardly {}", "{}?", "{} 60 %", "{} unless {other}", "nicht {}"),
    *("{} {}", "It is {}", "x{}x", "{}\n{other}", "{}: {other}", "non-{}", "better than {}"),
)
WORDS = (
    *("<think>", "</think>", "<answer>", "</answer>", "not", "or", "because", "a", "7", "\n", "."),
    *poker.LABELS,
    *landuse.LABELS,
)
SOUP = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=14).map(" ".join)
OUTSIDE = SOUP.map(lambda text: text.replace("</answer>", ""))


@st.composite
def told(draw):
    """A case, the name of one of its labels, that label, and another one."""
    module = CASES[case := draw(st.sampled_from(sorted(CASES)))]
    label, other = draw(st.permutations(module.LABELS))[:2]
    names = [label, *(name for name, meant in module.ALIASES.items() if meant == label)]
    return load_case(case), draw(st.sampled_from(names)), label, other


@given(told(), st.sampled_from(DRESS), SOUP, OUTSIDE)
def test_the_last_closed_tag_is_read_whatever_stands_around_it(told, dress, before, after):
    case, name, label, _ = told
    text = f"{before}<answer>{dress.format(name)}</answer>{after}"
    assert case.grade(text, label).correct


@given(told(), st.sampled_from(HEDGES), SOUP, OUTSIDE)
def test_a_hedge_within_the_tag_is_never_paid(told, hedge, before, after):
    case, name, label, other = told
    text = f"{before}<answer>{hedge.format(name, name, other=other)}</answer>{after}"
    assert case.grade(text, label).answer is None


@given(told(), st.sampled_from(DRESS), SOUP)
def test_of_a_label_alone_the_first_line_is_read(told, dress, after):
    case, name, label, _ = told
    assert case.grade(f"{dress.format(name)}\n{after}", label, "label").correct


@given(told(), st.sampled_from(HEDGES), VARIANTS)
def test_a_hedge_is_never_strict_and_two_labels_are_none(told, hedge, variant):
    case, name, label, other = told
    grade = case.grade(hedge.format(name, name, other=other), label, variant)
    assert not grade.strict
    assert "{other}" not in hedge or grade.answer is None or "\n" in hedge


@given(SOUP | st.text(), st.sampled_from(sorted(CASES)), VARIANTS, st.booleans())
def test_any_text_gets_a_grade(text, name, variant, chat):
    completion = [{"role": "assistant", "content": text}] if chat else text
    label = CASES[name].LABELS[0]
    grade = load_case(name).grade(completion, label, variant)
    assert grade.answer in (None, *CASES[name].LABELS)
    assert grade.answer is not None or not grade.well_formed
    assert grade.correct == (grade.answer == label)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("MAIZE!", "corn"),
        ("rye", None),  # a name that is no label
        ("corn, rye", None),
        ("corncob", None),
        ("corn_1", None),
        ("corn\u200bsoy", None),
        ("It is corn. Corn, then.", "corn"),
        ("<think>soy or rye</think> corn", "corn"),
        ("</think>corn", "corn"),
        ("corn <think>or soy", "corn"),
        ("<think>corn", None),
        ("<answer>corn", "corn"),
        ("corn</answer>", "corn"),
        ("<answer>corn</answer>soy</answer>", None),
        ("<answer>soy-bean</answer>", "soy"),
        (None, None),
        (5, None),
        ([{"role": "user", "content": "corn"}], None),
    ],
)
def test_by_hand(text, label):
    assert READ(text) == label


@pytest.mark.parametrize("variant", ["reason", "label"])
@pytest.mark.parametrize(
    "piece", ["<answer>", "</answer>", "<answer>flush</answer>", "three ", "flush", "*", "a-", "\n"]
)
def test_a_megabyte_is_graded_in_two_seconds(piece, variant):
    started = time.process_time()
    text = piece * (1_000_000 // len(piece))
    assert isinstance(load_case("poker").grade(text, "flush", variant), Grade)
    assert load_case("poker").grade(f"{text}<answer>flush</answer>", "flush").correct
    assert time.process_time() - started < 4
