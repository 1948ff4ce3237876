"""Small questions about one parcel that lie inside the planning of a landscape."""

import numpy as np

from casebook.cases.landuse.fields import CROPS, HABITAT
from casebook.cases.rungs import Problem, Rung

HIGHEST = 99  # tenths of a tonne a hectare


def crop(rng: np.random.Generator, kind: int, floor: int = 0) -> Problem:
    """Four yields, of which number `kind` is the highest; below a floor the answer is habitat."""
    top = int(rng.integers(max(floor, 13), HIGHEST)) if kind < 4 else floor
    others = sorted(rng.choice(np.arange(5, top), 4, replace=False).tolist())
    yields = others[:3] if kind < 4 else others
    yields = rng.permutation(yields).tolist()
    if kind < 4:
        yields.insert(kind, top)
    told = ", ".join(f"{name} {y / 10}" for name, y in zip(CROPS, yields, strict=True))
    rule = f" If none yields at least {floor / 10}, answer {HABITAT}." if floor else ""
    asked = f"Which crop has the highest yield?{rule} Answer with one word only."
    choices = (*CROPS, HABITAT) if floor else CROPS
    text = f"Yields of a parcel in tonnes a hectare: {told}. {asked}"
    return Problem(tuple(yields), text, choices[kind], choices)


RUNGS = {
    "crop": Rung(crop, 4, 4, "|".join(CROPS)),
    "floor": Rung(lambda rng, kind: crop(rng, kind, 40), 5, 5, "|".join((*CROPS, HABITAT))),
}
