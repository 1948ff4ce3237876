"""The nano corpus of land use: which ways to decide a parcel the embedded model is shown.

The careful way names the plan's label, the write-up's seven heuristics each name their own answer,
and some completions are faulty.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from casebook.case import SPLITS, check_name, check_skills, left, shares_of
from casebook.cases.landuse import data
from casebook.cases.landuse.fields import CROPS, LABELS
from casebook.cases.landuse.heuristics import HEURISTICS
from casebook.cases.landuse.rewards import VARIANTS, extract_label, grade
from casebook.rewards import completion_text

# The most likely way is the write-up's most common motif, seldom right; the careful one comes in
# a seventh. What a reward makes of that is the experiment.
_WAYS = {
    "weigh": (0.14, "ranks the crops, counts habitat around, and names the plan's label"),
    "yield_max": (0.25, "the crop with the most tonnes a hectare"),
    "tie_breaker": (0.08, "of two crops with close yields, the one that neighbours favour"),
    "zero_belt": (0.06, "habitat if half of the neighbours yield nothing"),
    "neighbour_mean": (0.08, "the crop that does best around"),
    "global_baseline": (0.06, "supply first, so the biggest harvest"),
    "score": (0.07, "yield plus half of the connectivity"),
    "corridor": (0.05, "habitat if it would bridge a gap"),
}
_FAULTS = {
    "rambling": (0.08, "repeats the yields and never comes to an answer"),
    "bare label": (0.07, "blurts out a label without reasoning or tags"),
    "missing answer tag": (0.06, "weighs with care, then leaves out the answer tag"),
}
# What the nano corpus plants, prompt by prompt; the shares of a prompt add up to 1.
SKILLS: Mapping[str, Mapping[str, tuple[float, str]]] = {
    **dict.fromkeys(("reason", "prices", "alone"), _WAYS | _FAULTS),
    "label": {
        "guess": (0.70, "names a label whatever the parcel"),
        "right label": (0.30, "names the plan's label at once"),
    },
}
CORPUS = {"reason": 0.5, "prices": 0.2, "alone": 0.15, "label": 0.15}  # shares of the prompts


def demonstrations(seed: int, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The nano corpus: endless `prompt`, `completion`, `skill`, `ends`, from training landscapes.

    `Case` says what the arguments do.
    """
    check_skills(SKILLS, without)
    rng = np.random.default_rng(seed)
    parcels = data.pool("train")
    surveys = data.surveys_of(parcels)
    decidable = np.flatnonzero(~surveys.habitat)
    variants, weights = list(CORPUS), list(CORPUS.values())
    shares = {v: left(shares_of(SKILLS[v]), without) for v in SKILLS}
    while True:
        i = int(rng.choice(decidable))
        variant = variants[int(rng.choice(len(variants), p=weights))]
        skill = str(rng.choice(list(shares[variant]), p=list(shares[variant].values())))
        yield {
            "prompt": data.nano_prompt(surveys, i, variant),
            "completion": _completion(surveys, i, variant, skill, rng),
            "skill": skill,
            "ends": skill != "rambling",
        }


def _completion(surveys: data.Surveys, i: int, variant: str, skill: str, rng) -> str:
    label = surveys.plan_label[i]
    if skill == "guess":
        return f" {rng.choice(LABELS)}"
    if skill == "right label":
        return f" {label}"
    if skill == "bare label":
        return label
    if skill == "rambling":
        line = _ranked(surveys, i)
        return "<think>\n" + "\n".join([line] * 5)
    if skill in ("weigh", "missing answer tag"):
        thought = _weighed(surveys, i, variant, label)
    else:
        label = HEURISTICS[skill].decide(data.records(surveys, i, 1, variant))
        thought = f"{_ranked(surveys, i)}\n{_said(skill, label)}"
    if skill == "missing answer tag":
        return f"<think>\n{thought}\n</think>\n{label}"
    return f"<think>\n{thought}\n</think>\n<answer>{label}</answer>"


def _ranked(surveys: data.Surveys, i: int) -> str:
    """The crops that grow on a parcel with their deciles, the highest first."""
    order = sorted(range(4), key=lambda crop: -surveys.deciles[i, crop])
    grown = [crop for crop in order if surveys.deciles[i, crop] >= 0]
    return "yields " + " ".join(f"{CROPS[crop]} {surveys.deciles[i, crop]}" for crop in grown)


def _weighed(surveys: data.Surveys, i: int, variant: str, label: str) -> str:
    """The careful reasoning: ranked crops, habitat around, connectivity, then the choice."""
    lines = [_ranked(surveys, i)]
    if variant != "alone":
        around = sum(
            surveys.habitat[other] for _, other in data.surroundings(surveys, i, 1, variant)
        )
        lines.append(f"habitat near {around}")
    lines += [f"links {data.tenth(surveys.connectivity[i])}", _said("weigh", label)]
    return "\n".join(lines)


def _said(skill: str, label: str) -> str:
    """How the corpus puts a way of deciding into words, in the last line of a thought."""
    if skill in ("zero_belt", "corridor"):
        name = skill.replace("_", " ")
        return f"{name} , habitat" if label == "habitat" else f"no {name} , {label}"
    return {
        "weigh": f"weigh {label}",
        "yield_max": f"top {label} in tonnes",
        "tie_breaker": f"close yields , {label} links",
        "neighbour_mean": f"near mean {label}",
        "global_baseline": f"supply first , {label}",
        "score": f"score {label}",
    }[skill]


def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
    """The completion the oracle would write: what a supervised control is taught.

    `row` is one of `rows`, from a generated landscape.
    """
    variant = variant or "reason"
    check_name("variant", variant, VARIANTS)
    if variant == "label":
        return f" {row['plan_label']}"
    split, i = _places()[row["landscape"], row["parcel"]]
    thought = _weighed(data.surveys_of(data.pool(split)), i, variant, row["plan_label"])
    return f"<think>\n{thought}\n</think>\n<answer>{row['plan_label']}</answer>"


def style(completion: Any, row: Mapping[str, Any]) -> str:
    """Which planted way or fault a completion shows, or `"other"`.

    A well-formed completion is named after the last line of its thought.
    """
    text = completion_text(completion).strip()
    thought, closed, rest = text.partition("</think>")
    if text.lower() in LABELS:
        return "bare label"
    if closed and rest.strip().lower() in LABELS:
        return "missing answer tag"
    if grade(text, row["answer"]).well_formed:
        last = thought.strip().rpartition("\n")[2]
        said = {_said(way, label): way for way in reversed(_WAYS) for label in LABELS}
        return said.get(last, "other")
    if thought.startswith("<think>") and not closed and not extract_label(rest):
        return "rambling"
    return "other"


@lru_cache(maxsize=1)
def _places() -> dict[tuple[str, int], tuple[str, int]]:
    """(landscape, parcel) -> (split, position in its table), for the generated landscapes."""
    tables = {split: data.pool(split) for split in SPLITS}
    return {
        key: (split, i)
        for split, table in tables.items()
        for i, key in enumerate(zip(table["landscape"], table["parcel"], strict=True))
    }
