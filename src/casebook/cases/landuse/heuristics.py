"""The write-up's seven heuristics and its reasoning flow, as rules that can be run.

The write-up lists seven recurring motifs of its model's reasoning with rough frequencies and
sketches a flow of seven steps. Neither was ever run as a rule: here each motif decides a parcel
from what a prompt shows. `casebook.cases.landuse.studies.motifs` finds them in texts.

A parcel is a list of records, the centre first, as `data.records` makes them. A heuristic whose
condition does not hold falls back to the first of the seven, the most tonnes per hectare.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from casebook.cases.landuse import data
from casebook.cases.landuse.data import CLOCKWISE
from casebook.cases.landuse.fields import CONNECTIVITY, CROPS, HABITAT

Records = Sequence[Mapping[str, Any]]

COMPARABLE = 0.10  # two yields this close, as a share of the higher, are "comparable"
SHARP = 0.25  # a jump this far from the neighbours' mean is a "sharp discontinuity"
BELT = 0.5  # share of the neighbours that make a zero-yield belt (the write-up's)
HIGH = 0.65  # "high connectivity": the lower end of the write-up's 0.65 to 0.70
FIRM = 0.70  # the upper end
ALPHA, BETA = 1.0, 0.5  # the write-up's weights of yield and connectivity


@dataclass(frozen=True)
class Heuristic:
    """One of the write-up's seven motifs as a rule.

    Attributes:
        frequency: the share of completions in which the write-up saw it (no sample size given).
        decide: `decide(records)` -> label.
        fires: `fires(records)` -> whether the motif's own condition holds.
    """

    frequency: float
    decide: Callable[[Records], str]
    fires: Callable[[Records], bool]


@dataclass(frozen=True)
class Flow:
    """A decision by the reasoning flow: the label and what each step found, in order."""

    label: str
    steps: tuple[str, ...]


def yields_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The crops that yield anything in one record -> t/ha, in the order of `CROPS`."""
    found = {crop: float(record.get(f"{crop}_yield") or 0) for crop in CROPS}
    return {crop: tonnes for crop, tonnes in found.items() if tonnes > 0}


def touching(records: Records) -> list[Mapping[str, Any]]:
    """The records of the parcels that touch the centre."""
    return [record for record in records[1:] if ">" not in record["position"]]


def highest_yield(records: Records) -> str:
    """The crop with the most tonnes per hectare; habitat where nothing grows.

    >>> highest_yield([{"position": "central", "wheat_yield": 3.1, "oat_yield": 3.3}])
    'oat'
    """
    grown = yields_of(records[0])
    return max(grown, key=grown.__getitem__) if grown else HABITAT


def highest_relative_yield(records: Records, means: Mapping[str, float]) -> str:
    """The crop whose yield is highest relative to `means`, crop -> t/ha where it grows.

    >>> parcel = [{"position": "central", "wheat_yield": 4.0, "corn_yield": 8.0}]
    >>> highest_relative_yield(parcel, {"wheat": 3.4, "corn": 8.5})
    'wheat'
    """
    grown = yields_of(records[0])
    return max(grown, key=lambda crop: grown[crop] / means[crop]) if grown else HABITAT


# --- the seven ---


def comparable_crops(records: Records) -> list[str]:
    """The crops whose yield lies within `COMPARABLE` of the highest, the highest first.

    Tonnes decide, as in the write-up: where corn grows well nothing is comparable to it.
    """
    grown = yields_of(records[0])
    best = max(grown.values(), default=0.0)
    close = [crop for crop in grown if grown[crop] >= (1 - COMPARABLE) * best]
    return sorted(close, key=lambda crop: -grown[crop])


def tie_breaker(records: Records) -> str:
    """Of crops with comparable yields, the one whose neighbours are best connected.

    A crop's neighbours are those where it yields the most of the crops compared; the crop is
    chosen only if their mean connectivity is not below the centre's.
    """
    close = comparable_crops(records)
    if len(close) < 2:
        return highest_yield(records)
    links: dict[str, list[float]] = {crop: [] for crop in close}
    for record in touching(records):
        grown = {crop: t for crop, t in yields_of(record).items() if crop in links}
        if grown:
            links[max(grown, key=grown.__getitem__)].append(float(record[CONNECTIVITY]))
    means = {crop: sum(values) / len(values) for crop, values in links.items() if values}
    kept = {c: mean for c, mean in means.items() if mean >= float(records[0][CONNECTIVITY])}
    return max(kept, key=kept.__getitem__) if kept else close[0]


def zero_belt(records: Records, share: float = BELT, literal: bool = False) -> bool:
    """Whether at least `share` of the touching parcels yield nothing.

    The write-up also asks that the centre itself yields nothing (`literal`). Such a parcel is
    habitat already and never up for decision: `HEURISTICS` leaves that half out.
    """
    if literal and yields_of(records[0]):
        return False
    near = touching(records)
    return bool(near) and sum(not yields_of(record) for record in near) >= share * len(near)


def coherent_crops(records: Records) -> list[str]:
    """The centre's crops whose yield lies within a share `SHARP` of the neighbours' mean.

    The mean is over the touching parcels where anything grows: habitat has no crop to rotate.
    """
    near = [grown for grown in map(yields_of, touching(records)) if grown]
    coherent = []
    for crop, tonnes in yields_of(records[0]).items():
        mean = sum(grown.get(crop, 0.0) for grown in near) / max(len(near), 1)
        if abs(tonnes - mean) <= SHARP * mean:
            coherent.append(crop)
    return coherent


def neighbour_mean(records: Records) -> str:
    """The highest yield among the crops that make no sharp jump to the neighbours' mean."""
    grown = yields_of(records[0])
    coherent = coherent_crops(records)
    return max(coherent, key=grown.__getitem__) if coherent else highest_yield(records)


def score(records: Records, alpha: float = ALPHA, beta: float = BETA) -> str:
    """The label with the highest `alpha * yield + beta * connectivity`, as published.

    Every crop gets the same connectivity, that of the parcel, and habitat yields nothing: with
    `alpha > 0` the second term moves no decision, and habitat can never win over a crop.
    """
    grown = yields_of(records[0])
    linked = beta * float(records[0][CONNECTIVITY])
    scores = {crop: alpha * tonnes + linked for crop, tonnes in grown.items()}
    scores[HABITAT] = linked
    return max(scores, key=scores.__getitem__)


def corridor(records: Records, high: float = HIGH) -> bool:
    """Whether a touching parcel is habitat and the opposite one has a connectivity of `high`."""
    near = touching(records)
    habitat = [record["position"] for record in near if not yields_of(record)]
    linked = {record["position"] for record in near if float(record[CONNECTIVITY]) >= high}
    return any(CLOCKWISE[CLOCKWISE.index(side) - 4] in linked for side in habitat)


def _habitat_if(holds: Callable[[Records], bool]) -> Callable[[Records], str]:
    return lambda records: HABITAT if holds(records) else highest_yield(records)


HEURISTICS: Mapping[str, Heuristic] = {
    "yield_max": Heuristic(0.85, highest_yield, lambda records: bool(yields_of(records[0]))),
    "tie_breaker": Heuristic(0.60, tie_breaker, lambda records: len(comparable_crops(records)) > 1),
    "zero_belt": Heuristic(0.25, _habitat_if(zero_belt), zero_belt),
    "neighbour_mean": Heuristic(
        0.20,
        neighbour_mean,
        lambda records: 0 < len(coherent_crops(records)) < len(yields_of(records[0])),
    ),
    # Supply comes first: the crop stays where habitat suggests itself.
    "global_baseline": Heuristic(
        0.15, highest_yield, lambda records: zero_belt(records) or corridor(records)
    ),
    "score": Heuristic(0.10, score, lambda records: bool(yields_of(records[0]))),
    "corridor": Heuristic(0.08, _habitat_if(corridor), corridor),
}


def flow(records: Records) -> Flow:
    """The write-up's seven-step reasoning flow as one rule.

    The fourth step's threshold is left open. The reading here: from a connectivity of 0.70 on a
    parcel becomes habitat, from 0.65 comparable crops are decided by their links, below the crop
    stands. The fifth step applies the zero-yield belt and the corridor.
    """
    grown, label = yields_of(records[0]), score(records)
    linked = float(records[0][CONNECTIVITY])
    steps = [
        f"read {len(touching(records))} neighbours, connectivity {linked:.2f}",
        f"grows: {', '.join(grown) or 'nothing'}",
        f"highest yield: {label}",
    ]
    if grown and linked >= FIRM:
        label = HABITAT
        steps.append(f"connectivity at least {FIRM:.2f}: habitat")
    elif grown and linked >= HIGH:
        label = tie_breaker(records)
        steps.append(f"connectivity at least {HIGH:.2f}, links compared: {label}")
    else:
        steps.append(f"connectivity below {HIGH:.2f}: {label} stands")
    belt, bridge = zero_belt(records), corridor(records)
    if belt or bridge:
        label = HABITAT
    special = "zero-yield belt" if belt else "corridor" if bridge else "no special case"
    return Flow(label, (*steps, special, f"{label}, by the steps above", f"answer: {label}"))


def shares_right() -> dict[str, float]:
    """Each heuristic, and the flow, on the test parcels: the shares it gets right and fires on."""
    table = data.pool("test")
    chosen = np.flatnonzero(~table["habitat"].to_numpy())
    parcels = [data.records(table, int(i), order=1) for i in chosen]
    accepted = [answer.split("|") for answer in table["answer"].iloc[chosen]]

    def share(labels: list[str]) -> float:
        pairs = zip(labels, accepted, strict=True)
        return float(np.mean([label in right for label, right in pairs]))

    shares = {"flow": share([flow(parcel).label for parcel in parcels])}
    for name, rule in HEURISTICS.items():
        shares[name] = share([rule.decide(parcel) for parcel in parcels])
        shares[f"{name} fires"] = float(np.mean([rule.fires(parcel) for parcel in parcels]))
    return shares
