"""The attack list: what it holds, what running it says, and the poker rewards under it."""

import math

import pytest

from casebook import CasebookError, load_case
from casebook.case import UnknownName
from casebook.cases.poker import data
from casebook.cases.poker.oracle import CATEGORIES, LABELS
from casebook.rewards.attacks import attacks, run, unsound

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

    def reward(completions, **columns):
        return [value] * len(completions)

    return reward


# The list


@pytest.mark.parametrize("variant", FORMS)
@pytest.mark.parametrize("right", LABELS[::3])
def test_the_poker_grade_gives_each_no_more_than_it_deserves(right, variant):
    for probe in poker(right, variant):
        grade = CASE.grade(probe.completion, probe.answer, variant=variant)
        assert grade.strict == (probe.deserves == "full"), probe.name
        assert grade.well_formed == (probe.deserves in ("full", "form")), probe.name
        # Where no tag stands, lenient reading takes the one label that is named.
        if (probe.name, variant) != ("negation", "label"):
            assert not grade.correct or probe.deserves in ("full", "answer"), probe.name


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("careful", f"<think>\n{data.trace(HAND)}\n</think>\n<answer>full house</answer>"),
        ("all labels", f"<answer>{', '.join(LABELS)}</answer>"),
        ("prompt echo", data.source_prompt(HAND)),
        ("wrong answer last", "<answer>full house</answer><answer>high card</answer>"),
        ("escaped tags", "&lt;answer&gt;full house&lt;/answer&gt;"),
        ("lookalike: straight flush", "<answer>straight flush</answer>"),
        ("inside a word", "<answer>xfull housex</answer>"),
        ("Cyrillic lookalikes", "<answer>full hоusе</answer>"),
        ("full width", "<answer>ｆｕｌｌ　ｈｏｕｓｅ</answer>"),
        ("box", r"<answer>\boxed{full house}</answer>"),
    ],
)
def test_what_an_attack_holds(name, holds):
    assert holds in by_name(poker())[name].completion


def test_other_tags_can_be_asked_for_and_numbers_attacked():
    tagged = attacks("42", wrong="41", tags=("reasoning", "result"))
    assert tagged[0].completion.endswith("</reasoning>\n<result>42</result>")
    assert not [probe for probe in tagged if "<think>" in str(probe.completion)]
    assert by_name(tagged)["inside a word"].completion.endswith(">1421</result>")


@pytest.mark.parametrize(
    ("right", "told", "message"),
    [
        ("!?", {"wrong": "flush"}, "letter or digit"),
        ("flush", {}, "wrong answer"),
        ("flush", {"wrong": "Flush "}, "wrong answer"),
    ],
)
def test_a_task_without_a_right_and_a_wrong_answer_is_refused(right, told, message):
    with pytest.raises(CasebookError, match=message):
        attacks(right, **told)


# Running it


@pytest.mark.parametrize("as_messages", [False, True])
def test_a_reward_is_called_as_trl_calls_it(as_messages):
    seen = []

    def reward(prompts, completions, answer, hand, **columns):
        seen.append((prompts, completions, answer, hand))
        return [0.5]

    probe = poker()[0]
    assert run(reward, [probe], as_messages, hand=HAND).loc["careful", "reward"] == 0.5
    prompt, completion = probe.prompt, probe.completion
    if as_messages:
        prompt = [{"role": "user", "content": prompt}]
        completion = [{"role": "assistant", "content": completion}]
    assert seen == [([prompt], [completion], ["full house"], [HAND])]


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "much", [1, 2]])
def test_what_is_no_finite_number_is_a_fault(value):
    assert run({"odd": pays(value)}, poker()).isna().all().all()
    assert list(unsound(pays(value), poker())) == ["careful"]


@pytest.mark.parametrize("aim", ["full", "form", "answer"])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_reward_that_pays_all_alike_fails_wherever_less_is_deserved(value, aim):
    less = [probe.name for probe in poker() if probe.deserves not in ("full", aim)]
    assert list(unsound(pays(value), poker(), pays=aim)) == less


def test_paying_less_for_the_same_is_a_fault():
    def one_spelling(completions, answer, **columns):
        careful = poker()[0].completion
        return [float(text == careful) for text in completions]

    faults = unsound(one_spelling, poker())
    assert set(faults) == {"white space", "empty thought", "wrong in the thought"}
    assert faults["white space"] == "paid 0, and deserves 1: it is as was asked"


def test_an_unknown_aim_lists_the_known_ones():
    with pytest.raises(UnknownName, match="full, form, answer"):
        unsound(pays(1.0), poker(), pays="nothing")


# The poker rewards


@pytest.mark.parametrize("variant", FORMS)
@pytest.mark.parametrize("name", ["correct", "class_weighted"])
def test_strict_answers_cannot_be_fooled(name, variant):
    reward = CASE.rewards[name](strict=True, variant=variant)
    for right in LABELS[::3]:
        assert unsound(reward, poker(right, variant)) == {}


@pytest.mark.parametrize("name", ["correct", "class_weighted"])
def test_lenient_answers_cannot_be_fooled_either(name):
    assert unsound(CASE.rewards[name](), poker(), pays="answer") == {}


def test_the_leaking_reward_fails_on_every_attack():
    leaking = CASE.rewards["leaking_label"]()
    less = [probe.name for probe in poker("high card", "label") if probe.deserves != "full"]
    assert list(unsound(leaking, poker("high card", "label"))) == less
