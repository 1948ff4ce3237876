"""The generated word problems: solutions that are right, splits that share no sums."""

import re
from collections import Counter

import numpy as np
import pytest

from casebook.cases.gsm8k import templates
from casebook.cases.gsm8k.templates import Step


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
