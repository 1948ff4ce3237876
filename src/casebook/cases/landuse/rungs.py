"""Small questions about one parcel that lie inside the planning of a landscape."""

import numpy as np

from casebook.cases.landuse.fields import CROPS
from casebook.cases.rungs import Problem, Rung

HIGHEST = 99  # tenths of a tonne a hectare
ONE_WORD = "Which crop has the highest yield? Answer with one word only."
FLOOR = (
    "The plan still lacks {short}: plant {short} if its yield is at least half of the highest, "
    "else plant the crop with the highest yield. Answer with one word only."
)
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


def floor(rng: np.random.Generator, kind: int) -> Problem:
    """The same parcel, and a crop whose production is short of its floor: its harvest is worth
    twice as much. It is planted where `kind` is odd; number `kind // 2` is right.

    That crop is the first of the choices: to the gate, always to name it is a constant answer.
    """
    while True:
        top, short = rng.choice(4, 2, replace=False).tolist()
        told = crop(rng, top)
        planted = 2 * told.operands[short] >= told.operands[top]
        right = short if planted else top
        if (right, planted) == (kind // 2, kind % 2 == 1):
            break
    text = told.question.replace(ONE_WORD, FLOOR.format(short=CROPS[short]))
    choices = tuple(sorted(CROPS, key=lambda name: name != CROPS[short]))
    return Problem(told.operands, text, CROPS[right], choices)


def advice(rng: np.random.Generator, kind: int) -> Problem:
    """The same parcel, and a question that is answered in free text."""
    told = crop(rng, kind)
    return told._replace(question=told.question.replace(ONE_WORD, FREELY))


NAMED = "|".join(CROPS)
NOTHING = "(?!)"  # advice may weigh every crop, so no answer is read in it
RUNGS = {
    "crop": Rung(crop, 4, 4, NAMED),
    "floor": Rung(floor, 8, 8, NAMED),
    "advice": Rung(advice, 4, 0, NOTHING),
}
