"""The generated problems: disjoint splits, golds decided right, and working that adds up."""

import re
from fractions import Fraction

import pytest

from casebook.cases.math import templates
from casebook.cases.math.verify import equivalent
from casebook.experiments.nano import PIECES

ALL = templates.problems()
FAMILIES = sorted({problem.family for problem in ALL})


def of_family(family, most=25):
    """Some problems of a family, spread over all its numbers."""
    kin = [problem for problem in ALL if problem.family == family]
    return kin[:: max(1, len(kin) // most)]


def value(line_side):
    """The number that one side of a line of working stands for."""
    text = re.sub(r"(\d)\(", r"\1*(", line_side)
    assert re.fullmatch(r"[\d+\-*/() ]+", text), text
    # Only digits and operators are left: whole numbers become exact fractions.
    return eval(re.sub(r"\d+", lambda m: f"Fraction({m[0]})", text), {"Fraction": Fraction})


@pytest.mark.parametrize("family", FAMILIES)
def test_gold_forms_and_slip_are_decided_right(family):
    for problem in of_family(family, 8):
        assert equivalent(problem.gold, problem.gold)
        assert not equivalent(problem.slip, problem.gold), problem
        for form in problem.other:
            assert form != problem.gold
            assert equivalent(form, problem.gold), (form, problem.gold)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_calculation_ends_in_the_answer(family):
    for problem in of_family(family):
        assert "=" in problem.calculation
        last = problem.calculation.rpartition("=")[2]
        plain = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", problem.gold)
        assert last == plain


@pytest.mark.parametrize("family", FAMILIES)
def test_the_working_adds_up(family):
    for problem in of_family(family):
        for line in problem.work:
            sides = line.split("=")
            if not any("x" in side for side in sides):
                assert len({value(side) for side in sides}) == 1, (problem.text, line)


def test_a_solution_solves_its_equation():
    for problem in ALL:
        if problem.text.startswith("Solve"):
            left, right = problem.text[len("Solve $") : -len("$.")].split("=")
            x = problem.work[-1].removeprefix("x=") if "x" in problem.work[-1] else problem.gold
            put = re.sub(r"(\d)x", rf"\1*({x})", left).replace("x", f"({x})")
            assert value(put) == value(right), problem


def test_numbers_are_few_and_whole_tokens():
    numbers = {int(n) for p in ALL for n in re.findall(r"\d+", p.text + p.gold)}
    assert max(numbers) <= 90
    assert all(len(re.findall(PIECES, str(n))) == 1 for n in numbers)
