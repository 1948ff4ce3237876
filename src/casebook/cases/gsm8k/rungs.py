"""Small questions with numbers that lie inside a word problem."""

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


def largest(rng: np.random.Generator, kind: int) -> Problem:
    """Three numbers of two digits, of which number `kind` is the largest."""
    *low, high = sorted(rng.choice(np.arange(10, 100), 3, replace=False).tolist())
    shown = rng.permutation(low).tolist()
    shown.insert(kind, high)
    told = tuple(map(str, shown))
    asked = f"Which is the largest of these numbers: {', '.join(told)}?"
    text = f"{asked} Answer with the number only."
    return Problem((*low, high), text, str(high), told)


def story(rng: np.random.Generator, kind: int) -> Problem:
    """A story of one step, solved in the write-up's tags."""
    a, b, result = numbers(rng, kind)
    name, things, told = (str(rng.choice(some)) for some in (NAMES, THINGS, STORIES[kind]))
    text = told.format(n=name, t=things, a=a, b=b) + f" How many {things} does {name} have"
    text += " left?" if kind == 1 else " in all?"
    thought = f"{a} {SIGNS[kind]} {b} = {result}"
    solved = f"<reasoning>\n{thought}\n</reasoning>\n<answer>\n{result}\n</answer>"
    return Problem((kind, a, b), text, str(result), (), solved)


RUNGS = {
    "largest": Rung(largest, 3, 3, "[0-9]{1,4}"),
    "story": Rung(story, 3, 3),
}
