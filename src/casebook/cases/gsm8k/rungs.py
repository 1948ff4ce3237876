"""A small question with numbers that lies inside a word problem."""

import numpy as np

from casebook.cases.rungs import Problem, Rung, numbers

NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo")
THINGS = ("apples", "books", "coins", "stamps", "pencils", "shells", "marbles", "cards")
STORIES = (  # sum, difference, product
    ("{n} has {a} {t} and gets {b} more.", "{n} buys {a} {t} today and {b} {t} tomorrow."),
    ("{n} has {a} {t} and gives {b} away.", "{n} had {a} {t} and lost {b} of them."),
    ("{n} has {a} boxes with {b} {t} each.", "{n} buys {b} {t} a day for {a} days."),
)
SIGNS = "+-*"


def story(rng: np.random.Generator, kind: int) -> Problem:
    """A story of one step, solved in the write-up's tags."""
    a, b, result = numbers(rng, kind)
    name, things, told = (str(rng.choice(some)) for some in (NAMES, THINGS, STORIES[kind]))
    text = told.format(n=name, t=things, a=a, b=b) + f" How many {things} does {name} have"
    text += " left?" if kind == 1 else " in all?"
    thought = f"{a} {SIGNS[kind]} {b} = {result}"
    solved = f"<reasoning>\n{thought}\n</reasoning>\n<answer>\n{result}\n</answer>"
    return Problem((kind, a, b), text, str(result), (), solved)


RUNGS = {"story": Rung(story, 3, 3)}
