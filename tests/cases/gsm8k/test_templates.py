"""The generated word problems: solutions that are right, splits that share no sums."""

import re
from collections import Counter

import numpy as np
import pytest

from casebook.case import UnknownName
from casebook.cases.gsm8k import templates
from casebook.cases.gsm8k.templates import FRAMES, Step


@pytest.fixture(scope="module")
def problems():
    rng = np.random.default_rng(3)
    return [templates.draw(rng, split) for split in ("train", "test") for _ in range(1000)]


def counted(note):
    """The value of `3*4=12` and whether it holds, without the code under test."""
    left, sign, right, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", note).groups()
    by_hand = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: sum([a] * b),
        "/": lambda a, b: next(n for n in range(a + 1) if n * b == a),
    }
    return int(result), by_hand[sign](int(left), int(right)) == int(result)


def test_every_note_of_every_solution_is_right(problems):
    for problem in problems:
        notes = re.findall(r"<<(.*?)>>", problem.solution)
        assert len(notes) == len(problem.steps)
        assert all(counted(note)[1] for note in notes), problem.solution
        assert str(counted(notes[-1])[0]) == problem.answer


def test_a_solution_has_the_form_of_gsm8k(problems):
    for problem in problems:
        *lines, last = problem.solution.split("\n")
        assert last == f"#### {problem.answer}"
        for line in lines:
            assert re.fullmatch(r"[A-Z][a-z ]+ is |[A-Z].* (\S+)=<<\1=(\d+)>>\2\.", line), line


def test_every_number_lies_where_the_embedded_model_has_tokens(problems):
    for problem in problems:
        numbers = map(int, re.findall(r"\d+", f"{problem.question} {problem.solution}"))
        assert all(templates.SMALLEST <= n <= templates.LARGEST for n in numbers)


def test_every_step_uses_a_number_of_the_question_or_a_result_before(problems):
    for problem in problems:
        known = {2, *map(int, re.findall(r"\d+", problem.question))}  # 2: twice, half
        for step in problem.steps:
            assert {step.left, step.right} <= known
            known.add(step.result)


def test_a_wrong_way_never_gives_the_right_answer_by_chance(problems):
    for problem in problems:
        earlier = {step.result for step in problem.steps[:-1]}
        assert problem.steps[-1].result not in earlier | set(problem.numbers)


def test_one_to_three_steps_come_in_the_stated_shares(problems):
    steps = Counter(len(problem.steps) for problem in problems)
    for number, share in templates.STEP_SHARES.items():
        assert steps[number] / len(problems) == pytest.approx(share, abs=0.04)


def test_some_problems_hold_a_number_that_has_nothing_to_do_with_the_answer(problems):
    marks = ("years old. How", "shop opens", "to the park")
    distracted = sum(any(mark in problem.question for mark in marks) for problem in problems)
    assert distracted / len(problems) == pytest.approx(templates.DISTRACTED, abs=0.05)


def test_every_frame_can_be_told_in_every_split():
    for split in templates.SPLIT_SHARES:
        rng = np.random.default_rng(0)
        frames = {templates.draw(rng, split).frame for _ in range(500)}
        assert frames == set(range(len(FRAMES)))


def test_no_gap_stays_open_and_no_word_is_missing(problems):
    for problem in problems:
        assert not re.search(r"[{}#]|  ", problem.question)
        assert problem.question.endswith("?")
        assert re.fullmatch(r"[a-z]+", problem.unit)


def test_names_do_not_move_a_problem_to_another_split():
    rng = np.random.default_rng(1)
    drawn = [templates.draw(rng, "validation") for _ in range(300)]
    for problem in drawn:
        assert templates.split_of(problem.frame, problem.numbers) == "validation"
    keys = Counter((problem.frame, problem.numbers) for problem in drawn)
    asked = {problem.question for problem in drawn}
    assert len(asked) > len(keys)  # the same sum under other names was drawn, and stayed


def test_the_splits_have_their_shares():
    splits = Counter(templates.split_of(0, (a, b)) for a in range(100) for b in range(50))
    for split, share in templates.SPLIT_SHARES.items():
        assert splits[split] / 5000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("plan", "numbers", "steps"),
    [
        ("a+b", {"a": 5, "b": 7}, [(5, "+", 7, 12)]),
        ("a*b #-c", {"a": 4, "b": 6, "c": 5}, [(4, "*", 6, 24), (24, "-", 5, 19)]),
        (
            "a*b c+d #1+#",
            {"a": 2, "b": 3, "c": 4, "d": 5},
            [(2, "*", 3, 6), (4, "+", 5, 9), (6, "+", 9, 15)],
        ),
        ("a/2", {"a": 18}, [(18, "/", 2, 9)]),
    ],
)
def test_a_plan_is_carried_out(plan, numbers, steps):
    frame = templates.Frame("", plan, "pens", "-")
    assert frame.solve(numbers) == tuple(Step(*step) for step in steps)


@pytest.mark.parametrize(
    ("plan", "numbers"),
    [
        ("a/b", {"a": 7, "b": 2}),  # not whole
        ("a-b", {"a": 5, "b": 5}),  # zero
        ("a-b", {"a": 5, "b": 9}),  # negative
        ("a*b", {"a": 9, "b": 9}),  # above 24
        ("a+b", {"a": 11, "b": 12}),  # a sum the corpus does not teach
        ("a*b #-c", {"a": 2, "b": 3, "c": 6}),
    ],
)
def test_numbers_that_do_not_fit_are_refused(plan, numbers):
    assert templates.Frame("", plan, "pens", "-").solve(numbers) is None


def test_a_draw_repeats_with_its_seed():
    drawn = [templates.draw(np.random.default_rng(5)) for _ in range(2)]
    assert drawn[0] == drawn[1] != templates.draw(np.random.default_rng(6))


def test_an_unknown_split_is_one_sentence():
    with pytest.raises(UnknownName, match="split 'dev': known are train"):
        templates.draw(np.random.default_rng(0), "dev")
