"""Reading labels: what an answer keeps its worth under, and what spoils it, for both cases."""

from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from casebook import Grade, load_case
from casebook.cases.landuse import rewards as landuse
from casebook.cases.poker import rewards as poker
from casebook.labels import LabelReader

READ = LabelReader({"corn": "corn", "maize": "corn", "soy": "soy", "rye": "rye"}, ("corn", "soy"))
CASES = {"poker": poker, "landuse": landuse}

# How an answer may be put, ...
FRAMES = (
    *("{}", " {}\n", "{}.", "**{}**", "a {}", "It is a {}.", "I think it is a {}", "Answer: {}"),
    *("The answer is {}.", r"\boxed{{{}}}", '{{"answer": "{}"}}', "I would say {}", "It's {}!"),
    *("<answer>{}</answer>", "<answer>It is a {}.</answer>", "<answer>{}", "7 5</think>\n{}"),
    *("<think>7 5</think>\n{}", "<think>7 5</think><answer>{}</answer>", "7</think>It is {}"),
    *("<think>or {other}</think><answer>{}</answer>", "<think>not {}</think><answer>{}</answer>"),
    *("<think>7 5 <answer>{}</answer>", "{other} has 7: <answer>{}</answer>"),
)
# ... what may follow it, in its place or at the end, and leaves it right, ...
REASONS = (
    *(" because the numbers say so", ", since {other} is less", " as it beats {other}", "!"),
    *(" (no {other})", ", not {other}", " rather than {other}", " and no {other}", " (7 5 3)"),
    *(": a {other} would need more", ", because a {other} would need more", ", no {other}"),
    *(" given that {other} and {other} are less", " (the {other} is lower)", " - not a {other}"),
    *(", which is better than {other}", " since {other} is impossible", " with no {other}"),
    *(". A {other} would need more", "\nNot {other}.", ". Because a {other} would need more."),
)
# ... and what makes it none.
HEDGES = (
    *(" or {other}", ", or a {other}", " or maybe {other}", " or {other}.", "/{other}", "|{other}"),
    *(" and {other}", ", {other}", "; {other}", ". {other}", "\n{other}", " ({other})"),
    *(": {other}", " - {other}", ", also {other}", ", a {other} is also possible"),
    *(", maybe {other}", ", perhaps a {other}", " but {other}", ", no, {other}"),
    *(", unless it is {other}", ". No, {other}.", ". Actually, {other}", ". It is a {other}."),
    *(". Wait, it is {other}", "\nThe answer is {other}", ". Or {other}?", ", I mean {other}"),
    *(", alternatively {other}", ". It could also be a {other}.", ". On second thought, {other}"),
    *("\nFinal answer: {other}", ", possibly even a {other}", "? {other}!"),
    *("\n<answer>{other}</answer>", "</answer><answer>{other}</answer>", " or {other} because 7"),
    *(" or something else", ", or not", " and also {other}", ". Correction: {other}"),
)
DENIALS = (
    *("not {}", "not a {}", "cannot be {}", "It is not {}.", "It isn't a {}", "It isn’t a {}"),
    *("no {}", "never {}", "neither {} nor {other}", "I do not think it is a {}", "{} is wrong"),
    *("{} is not right", "{}? No.", "{}, no", "{} is impossible", "not {}, {other}", "not a {}."),
    *("at least a {}", "better than {}", "almost a {}", "anything but {}", "rule out {}", "non-{}"),
    *("{} can be ruled out", "not {} or {other}", "It cannot be {}, it cannot be {other}"),
    *(
        "<think>7</think><answer>not {}</answer>",
        "It is not <answer>{}</answer>",
        "{} does not fit",
    ),
)
THOUGHTS = ("<think>{}", "<think>7 5</think><think>{}", "<think>I think it is a {}", "7 <think>{}")
WORDS = (
    *("<think>", "</think>", "<answer>", "</answer>", "not", "no", "or", "because", "but", "it"),
    *("is", "a", "than", "maybe", "with", "7", "hearts", "\n", ".", ",", ":", "(", ")", "-", "?"),
)


class Told(NamedTuple):
    """A text in pieces: a right label, another one, and how both are put."""

    case: str
    label: str
    other: str
    name: str
    other_name: str
    frame: str
    reasons: tuple[str, ...]
    inside: bool

    def put(self, template, *names):
        return template.format(*(names or (self.name, self.name)), other=self.other_name)

    def text(self, *after):
        """The framed name with these templates after it, in its place or at the end."""
        after = "".join(map(self.put, after))
        if self.inside:
            return self.put(self.frame, self.name + after, self.name + after)
        return self.put(self.frame) + after

    def answer(self, text):
        return load_case(self.case).grade(text, self.label).answer


@st.composite
def told(draw, frames=FRAMES):
    case = draw(st.sampled_from(sorted(CASES)))
    module = CASES[case]
    label, other = draw(st.permutations(module.LABELS))[:2]
    frame = draw(st.sampled_from(frames))
    return Told(
        case,
        label,
        other,
        *(draw(st.sampled_from(_names(module, one))) for one in (label, other)),
        frame,
        tuple(draw(st.lists(st.sampled_from(REASONS), max_size=1))),
        draw(st.booleans()),
    )


def _names(module, label):
    return [label, *(name for name, meant in module.SYNONYMS.items() if meant == label)]


soup = st.lists(
    st.sampled_from([*WORDS, *poker.LABELS, *landuse.LABELS]) | st.text(max_size=5), max_size=14
).map(" ".join)


TRIES = pytest.mark.parametrize("tries", [200, pytest.param(10_000, marks=pytest.mark.heavy)])


def hold(tries, *strategies):
    """Runs the check below on so many examples, always the same ones."""
    return lambda check: settings(max_examples=tries, derandomize=True, deadline=None)(
        given(*strategies)(check)
    )()


@TRIES
def test_an_answer_is_read_with_a_reason_and_without(tries):
    @hold(tries, told())
    def check(told):
        assert told.answer(told.text(*told.reasons)) == told.label, told.text(*told.reasons)


@TRIES
def test_another_answer_after_it_leaves_none(tries):
    @hold(tries, told(), st.sampled_from(HEDGES))
    def check(told, hedge):
        # What stands before a tag may be a thought about another label; "rather than oat and corn"
        # and "because it says so or something" offer none.
        assume("<answer>" not in hedge or "<answer>" in told.frame)
        assume(not told.reasons or ("{other}" in hedge and hedge != " and {other}"))
        text = told.text(*told.reasons, hedge)
        assert told.answer(text) is None, text


@TRIES
def test_another_answer_before_the_reason_leaves_none(tries):
    @hold(tries, told(), st.sampled_from(HEDGES))
    def check(told, hedge):
        text = told.text(hedge, *told.reasons)
        assert told.answer(text) is None, text


@TRIES
def test_what_is_denied_is_no_answer(tries):
    @hold(tries, told(DENIALS))
    def check(told):
        text = told.put(told.frame)
        assert told.answer(text) is None, text


@TRIES
def test_not_before_it_never_makes_a_wrong_answer_right(tries):
    @hold(tries, soup, told())
    def check(soup, told):
        for text in (soup, told.text(*told.reasons)):
            before = load_case(told.case).grade(text, told.other)
            after = load_case(told.case).grade(f"not {text}", told.other)
            assert before.correct or before.answer is None or not after.correct, text


@TRIES
def test_an_or_after_it_never_makes_a_wrong_answer_right(tries):
    @hold(tries, soup, told())
    def check(soup, told):
        case = load_case(told.case)
        for text in (f"{soup} or {told.other_name}", f"{told.other_name} or {soup}"):
            read = case.grade(soup, told.other).answer
            if read not in (None, told.other):
                assert case.grade(text, told.other).answer != told.other, text


@TRIES
def test_a_thought_that_never_ends_holds_no_answer(tries):
    @hold(tries, told(THOUGHTS))
    def check(told):
        text = told.text(*told.reasons)
        assert told.answer(text) is None, text


@TRIES
def test_any_text_gets_a_grade(tries):
    @hold(tries, soup | st.text(), st.sampled_from(sorted(CASES)), st.booleans())
    def check(text, name, chat):
        completion = [{"role": "assistant", "content": text}] if chat else text
        grade = load_case(name).grade(completion, CASES[name].LABELS[0])
        assert isinstance(grade, Grade)
        assert grade.answer in (None, *CASES[name].LABELS)
        assert grade.answer is not None or not grade.well_formed


# Some by hand, which the tables of the cases do not have


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("maize", "corn"),
        ("MAIZE, not soy", "corn"),
        ("rye", None),  # a name that is no label
        ("corn, rye", None),
        ("corn (no rye)", "corn"),
        ("corncob", None),
        ("corn_1", None),
        ("corn\u200bsoy", None),
        ("un\u200bcorn", None),
        ("It isn’t corn", None),
        ("I don't know, corn", "corn"),
        ("corn, I don't know why", "corn"),
        ("corn, I don't think soy pays", "corn"),
        ("The north is rye and the south is soy, so corn", None),  # in doubt
        ("no doubt corn", "corn"),
        ("Nothing beats corn. I recommend corn.", "corn"),
        ("Corn is best. Is another one close? No, so it is settled.", "corn"),
        ("Corn? No, so it is settled.", None),
        ("corn: soy 4, rye 2", "corn"),
        ("corn, because soy, rye and the like yield less", "corn"),
        ("corn because the yield is high, soy", None),
        ("Not soy. Corn.", None),
        ("Not soy. It is corn.", "corn"),
        ("Not soy, because it is next to corn.", None),
        ("<answer></answer> corn", "corn"),
        ("<answer>none</answer> corn", "corn"),
        ("the tag <answer> and </answer> hold it: corn", "corn"),
        ("<answer>corn</answer><think>or soy?", None),
        ("<answer>corn</answer><think>or soy?</think>", "corn"),
        ("This parcel should not be <answer>corn</answer>", None),
        ("Soy?\n<answer>corn</answer>", None),
        ("Soy has 4.\n<answer>corn</answer>", "corn"),
        ("</think>corn", "corn"),
        ("corn</answer>", "corn"),
        ("<think>in <answer> and </answer> tags: corn", None),
        (None, None),
        (5, None),
        ([{"role": "user", "content": "corn"}], None),
    ],
)
def test_by_hand(text, label):
    assert READ(text) == label


def test_parts_of_an_answer_may_describe_it():
    read = LabelReader({n: n for n in ("full", "set", "pair")}, ("full", "pair"), {"full": ["set"]})
    assert read("full, a set of kings and more") == "full"
    assert read("a set of kings makes it full") == "full"
    assert read("full, set") is None
    assert read("full or a set of kings") is None
    assert read("full, a pair of kings") is None
