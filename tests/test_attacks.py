"""The attack list: what it holds, what running it says, and the poker rewards under it."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import CasebookError, load_case
from casebook.attacks import DESERVES, MEGABYTE, Attack, attacks, run, unsound
from casebook.case import UnknownName
from casebook.cases.poker import data
from casebook.cases.poker.oracle import CATEGORIES, LABELS

CASE = load_case("poker")
HAND = "2H 2D 2C 9S 9H"
FORMS = {"reason": ("think", "answer"), "label": ()}


def poker(right="full house", variant="reason"):
    return attacks(
        right,
        labels=LABELS,
        prompt=data.source_prompt(HAND),
        reasoning=data.trace(HAND),
        tags=FORMS[variant],
        lookalikes=CATEGORIES[8:],
    )


def by_name(probes):
    return {probe.name: probe for probe in probes}


def pays(value):
    """A reward that pays every completion the same."""
    return lambda completions, **columns: [value] * len(completions)


# The list


@pytest.mark.parametrize("variant", FORMS)
@pytest.mark.parametrize("right", LABELS)
def test_the_poker_grade_gives_each_what_it_deserves(right, variant):
    for probe in poker(right, variant):
        grade = CASE.grade(probe.completion, probe.answer, variant=variant)
        assert grade.strict == (probe.deserves == "full"), probe.name
        assert grade.well_formed == (probe.deserves in ("full", "form")), probe.name
        assert grade.correct == (probe.deserves in ("full", "answer")), probe.name


@pytest.mark.parametrize("variant", FORMS)
def test_names_and_completions_are_all_different(variant):
    probes = poker(variant=variant)
    assert len({probe.name for probe in probes}) == len(probes)
    assert len({repr(probe.completion) for probe in probes}) == len(probes)
    assert {probe.deserves for probe in probes} == set(DESERVES)
    assert (probes[0].name, probes[0].deserves) == ("careful", "full")


def test_the_completion_that_is_meant_is_in_the_form_that_was_asked_for():
    trace = data.trace(HAND)
    assert poker()[0] == Attack(
        "careful",
        f"<think>\n{trace}\n</think>\n<answer>full house</answer>",
        "full",
        data.source_prompt(HAND),
        "full house",
    )
    assert poker(variant="label")[0].completion == "full house"


def test_other_tags_can_be_asked_for():
    tagged = attacks("42", wrong="41", tags=("reasoning", "result"))
    assert tagged[0].completion.endswith("</reasoning>\n<result>42</result>")
    assert not [probe for probe in tagged if "<think>" in str(probe.completion)]


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("all labels", ", ".join(LABELS)),
        ("prompt echo", data.source_prompt(HAND)),
        ("right answer last", "<answer>high card</answer><answer>full house</answer>"),
        ("answer inside the thought", "<think><answer>full house</answer></think>"),
        ("escaped tags", "&lt;answer&gt;full house&lt;/answer&gt;"),
        ("attribute in the tag", '<answer type="label">full house</answer>'),
        ("lookalike: straight flush", "<answer>straight flush</answer>"),
        ("inside a word", "<answer>xfull housex</answer>"),
        ("Cyrillic lookalikes", "<answer>full hоusе</answer>"),
        ("full width", "<answer>ｆｕｌｌ　ｈｏｕｓｅ</answer>"),
    ],
)
def test_what_an_attack_holds(name, holds):
    assert holds in by_name(poker())[name].completion


def test_there_are_very_long_ones_and_ones_that_are_no_text():
    completions = [probe.completion for probe in poker()]
    assert max(len(text) for text in completions if isinstance(text, str)) >= MEGABYTE
    assert {type(completion) for completion in completions} == {str, int, bytes, type(None)}


def test_a_number_is_hidden_in_a_longer_number():
    assert by_name(attacks("42", wrong="41"))["inside a word"].completion.endswith(">1421</answer>")


def test_a_named_wrong_answer_comes_before_the_labels():
    wrong = by_name(attacks("flush", labels=["flush", "straight"], wrong="a hand"))["wrong answer"]
    assert wrong.completion.endswith("<answer>a hand</answer>")


@given(
    right=st.text(max_size=20).filter(lambda text: any(map(str.isalnum, text))),
    labels=st.lists(st.text(max_size=10), max_size=5),
    tags=st.sampled_from(list(FORMS.values())),
)
@settings(max_examples=50, deadline=None)
def test_a_list_comes_of_any_answer_and_labels(right, labels, tags):
    wrong = "something else" if right != "something else" else "another"
    probes = attacks(right, labels, wrong=wrong, prompt=right, tags=tags, lookalikes=labels)
    assert probes[0].completion.count(right) >= 1
    assert {probe.deserves for probe in probes} == set(DESERVES)
    assert {probe.answer for probe in probes} == {right}


@pytest.mark.parametrize("right", ["", "  ", "!?", None, 5])
def test_the_right_answer_has_to_be_one(right):
    with pytest.raises(CasebookError, match="letter or digit"):
        attacks(right, wrong="flush")


@pytest.mark.parametrize(
    "given_", [{}, {"wrong": "Flush "}, {"labels": ["flush"]}, {"labels": "flush"}, {"wrong": 3}]
)
def test_there_must_be_a_wrong_answer(given_):
    with pytest.raises(CasebookError, match="wrong answer"):
        attacks("flush", **given_)


@pytest.mark.parametrize("tags", ["think", ("think",), ("a", "b", "c")])
def test_tags_are_two_or_none(tags):
    with pytest.raises(CasebookError, match="tags"):
        attacks("flush", wrong="straight", tags=tags)


# Running it


def test_a_reward_is_called_as_trl_calls_it():
    seen = []

    def reward(prompts, completions, answer, hand, **columns):
        seen.append((prompts, completions, answer, hand))
        return [0.5]

    probes = poker()[:1]
    assert run(reward, probes, hand=HAND).loc["careful", "reward"] == 0.5
    assert seen == [([probes[0].prompt], [probes[0].completion], ["full house"], [HAND])]


def test_a_reward_is_called_with_messages_where_asked():
    seen = []

    def reward(prompts, completions, **columns):
        seen.append((prompts, completions))
        return [1]

    probe = poker()[0]
    run(reward, [probe], as_messages=True)
    assert seen == [
        (
            [[{"role": "user", "content": probe.prompt}]],
            [[{"role": "assistant", "content": probe.completion}]],
        )
    ]


def test_several_rewards_are_columns_of_one_table():
    paid = run({"one": pays(1.0), "none": pays(0.0)}, poker())
    assert list(paid.columns) == ["one", "none"]
    assert list(paid.index) == [probe.name for probe in poker()]
    assert paid["one"].eq(1).all()
    assert paid["none"].eq(0).all()


def test_what_raises_is_no_number_and_hides_no_other():
    def fragile(completions, **columns):
        return [float(len(text) > 0) for text in completions]

    paid = run(fragile, poker())["fragile"]
    assert list(paid.index[paid.isna()]) == ["a number for text", "None"]
    assert unsound(fragile, poker())["None"].startswith("raised TypeError: object of type")


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "much", [1, 2]])
def test_what_is_no_finite_number_is_a_fault(value):
    assert run({"odd": pays(value)}, poker()).isna().all().all()
    assert list(unsound(pays(value), poker())) == ["careful"]


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_reward_that_pays_all_alike_fails_wherever_less_is_deserved(value):
    less = [probe.name for probe in poker() if probe.deserves != "full"]
    assert list(unsound(pays(value), poker())) == less


@pytest.mark.parametrize(("aim", "also"), [("form", "form"), ("answer", "answer")])
def test_a_reward_for_one_thing_may_pay_for_it(aim, also):
    less = [probe.name for probe in poker() if probe.deserves not in ("full", also)]
    assert list(unsound(pays(1.0), poker(), pays=aim)) == less


def test_paying_less_for_the_same_is_a_fault():
    def one_spelling(completions, answer, **columns):
        careful = poker()[0].completion
        return [float(text == careful) for text in completions]

    faults = unsound(one_spelling, poker())
    assert set(faults) == {"white space", "empty thought", "wrong in the thought"}
    assert faults["white space"] == "paid 0, and deserves 1: it is as was asked"


def test_negative_payments_are_compared_and_not_their_sign():
    def fine(completions, answer, **columns):
        return [-1.0 + CASE.grade(c, a).strict for c, a in zip(completions, answer, strict=True)]

    assert unsound(fine, poker()) == {}


def test_an_unknown_aim_lists_the_known_ones():
    with pytest.raises(UnknownName, match="full, form, answer"):
        unsound(pays(1.0), poker(), pays="nothing")
    with pytest.raises(CasebookError, match="no attacks"):
        unsound(pays(1.0), [])


def test_attacking_needs_neither_torch_nor_trl():
    code = "import sys, casebook.attacks; print({'torch', 'trl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


# The poker rewards


@pytest.mark.parametrize("as_messages", [False, True])
@pytest.mark.parametrize("name", CASE.rewards)
@pytest.mark.parametrize("variant", FORMS)
def test_poker_rewards_pay_every_attack_a_bounded_number(name, variant, as_messages):
    reward = CASE.rewards[name]()
    for right in ("high card", "four of a kind"):
        paid = run({name: reward}, poker(right, variant), as_messages)[name]
        assert paid.between(-1, 3).all()


@pytest.mark.parametrize("as_messages", [False, True])
@pytest.mark.parametrize("variant", FORMS)
@pytest.mark.parametrize("name", ["correct", "class_weighted"])
def test_strict_answers_cannot_be_fooled(name, variant, as_messages):
    reward = CASE.rewards[name](strict=True, variant=variant)
    for right in LABELS:
        assert unsound(reward, poker(right, variant), as_messages=as_messages) == {}


@pytest.mark.parametrize("name", ["correct", "class_weighted"])
def test_lenient_answers_cannot_be_fooled_either(name):
    assert unsound(CASE.rewards[name](), poker(), pays="answer") == {}


def test_tags_alone_pay_for_what_is_no_answer():
    faults = unsound(CASE.rewards["tag_format"](), poker(), pays="form")
    assert {"empty blocks", "all labels", "lookalike: straight flush"} <= set(faults)


@pytest.mark.parametrize("right", ["high card", "full house"])
def test_the_leaking_reward_fails_on_every_attack(right):
    leaking = CASE.rewards["leaking_label"]()
    less = [probe.name for probe in poker(right, "label") if probe.deserves != "full"]
    assert list(unsound(leaking, poker(right, "label"))) == less


def test_the_published_sum_of_parts_is_ordered():
    parts = {"correct": 1.0, "tag_format": 0.2, "answer_grammar": 0.2}
    paid = run({name: CASE.rewards[name]() for name in parts}, poker())
    total = sum(weight * paid[name] for name, weight in parts.items())
    deserved = {probe.name: probe.deserves for probe in poker()}
    best = {
        deserves: total[[n for n in deserved if deserved[n] == deserves]].max()
        for deserves in DESERVES
    }
    assert best["full"] > best["answer"] > best["form"]
