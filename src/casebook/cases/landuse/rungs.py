"""Small questions about one parcel that lie inside the planning of a landscape."""

import numpy as np

from casebook.cases.landuse.fields import CROPS
from casebook.cases.rungs import Problem, Rung

HIGHEST = 99  # tenths of a tonne a hectare
ONE_WORD = "Which crop has the highest yield? Answer with one word only."
FREELY = "What would you plant here, and why? Answer in two or three sentences."


def crop(rng: np.random.Generator, kind: int) -> Problem:
    """Four yields, of which number `kind` is the highest."""
    top = int(rng.integers(13, HIGHEST))
    yields = rng.choice(np.arange(5, top), 4, replace=False).tolist()
    yields = rng.permutation(sorted(yields)[:3]).tolist()
    yields.insert(kind, top)
    told = ", ".join(f"{name} {y / 10}" for name, y in zip(CROPS, yields, strict=True))
    text = f"Yields of a parcel in tonnes a hectare: {told}. {ONE_WORD}"
    return Problem(tuple(yields), text, CROPS[kind], CROPS)


def advice(rng: np.random.Generator, kind: int) -> Problem:
    """The same parcel, and a question that is answered in free text."""
    told = crop(rng, kind)
    return told._replace(question=told.question.replace(ONE_WORD, FREELY))


RUNGS = {"crop": Rung(crop, 4, 4, "|".join(CROPS)), "advice": Rung(advice, 4, 0, "|".join(CROPS))}
