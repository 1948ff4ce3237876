"""The land-use oracle: the best plan for a whole landscape, by mixed-integer optimisation.

The write-up's optimiser, the Global Land Manager, finds the optimum of yield and connectivity; no
model, solver or gap was published. In the author's public code the task for the language model is:
as much ecological connectivity as possible, with every crop's production at a baseline. That is
the model here. Parcel i is planted with one crop k (x_ik = 1) or becomes habitat (h_i = 1);
parcels that yield nothing are habitat already.

    maximise    a * sum over borders (i, j) of w_ij h_i h_j  +  b * sum of A_i Y_ik x_ik
    subject to  sum over k of x_ik + h_i = 1     one use per parcel
                sum over i of A_i Y_ik x_ik >= Q_k   a floor of Q_k tonnes for every crop
                sum of A_i h_i <= B                  (optional) hectares of new habitat

with w_ij = the border's length in km times the mean connectivity value of the two parcels. A
product h_i h_j becomes a variable z_ij with z_ij <= h_i and z_ij <= h_j: the usual linearisation
of pairwise connectivity in reserve selection (Onal and Briers, Proc. R. Soc. B 269, 2002). Since
w_ij >= 0, no lower bound on z_ij is needed, and z_ij may be continuous.

HiGHS solves it (through highspy), on one thread. The relaxation is tight: with a price on every
floor instead of the floor, what remains is a minimum cut, which linear programming solves in whole
numbers. So the *shadow prices*, km for a tonne of a floor, nearly decide every parcel: plant k
where price_k * A_i * Y_ik is largest, unless the habitat around is worth more (`Plan.values`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import pandas as pd

from casebook.case import CasebookError, check_name
from casebook.cases.landuse.landscape import CROPS, HABITAT, LABELS, Landscape
from casebook.cases.landuse.program import SLACK, Program, border_weights, possible

FLOOR_SHARE = 0.85  # of the reference map's production, where no floors are named
TOLERANCE = 0.02  # labels within this share of a parcel's best count as right
EXACT = 16  # parcels to decide up to which the accepted labels are exact

Labels = Sequence[str | None]


@dataclass(frozen=True)
class Plan:
    """A plan for a landscape, with a proven bound.

    Attributes:
        labels: a use for every parcel, one of `LABELS`; existing habitat stays habitat.
        objective: the value of the plan: `connectivity_weight` x km of connectivity
            + `yield_weight` x tonnes harvested.
        bound: no plan is worth more.
        gap: (bound - objective) / objective; 0.0 where both are 0, inf where only the objective is.
        status: "optimal" (within the gap asked for), "time limit", or "from the table".
        seconds: wall-clock time, once the borders of the parcels are known.
        shadow_prices: crop -> km gained if its floor is one tonne lower: duals of the linear
            relaxation, never negative.
        optimal_labels: for every parcel the labels that count as right, sorted.
        exact: these are all labels that occur in some optimal plan. Otherwise they are those worth
            at least 98 % of the parcel's best in `values`, and the plan's own.
        floors: crop -> tonnes that had to be met.
        values: `(n, 5)` in the order of `LABELS`: what a label is worth on this parcel (km at
            weight 1) at the shadow prices, all other parcels as in the plan.
        possible: `(n, 5)` bool: the label may be given there at all, since the crop grows.
        connectivity_weight, yield_weight: the weights of the objective.
    """

    labels: list[str]
    objective: float
    bound: float
    gap: float
    status: str
    seconds: float
    shadow_prices: dict[str, float]
    optimal_labels: list[tuple[str, ...]]
    exact: bool
    floors: dict[str, float] = field(default_factory=dict)
    values: np.ndarray | None = field(default=None, repr=False)
    possible: np.ndarray | None = field(default=None, repr=False)
    connectivity_weight: float = 1.0
    yield_weight: float = 0.0


@dataclass(frozen=True)
class Regret:
    """What is lost with other labels than the plan's.

    Attributes:
        kept: the labels' objective as a share of the plan's; may be above 1 where floors are
            missed, and is 1.0 where the plan's objective is 0.
        connectivity: km.
        shortfall: crop -> share of its floor that is missing.
        priced_km: the plan's objective less the labels' objective, plus every missing tonne at
            its shadow price. Below zero by no more than the plan's distance from its relaxation.
    """

    kept: float
    connectivity: float
    shortfall: dict[str, float]
    priced_km: float


# What a map of labels is worth


def connectivity(landscape: Landscape, labels: Labels) -> float:
    """Connectivity of the habitat in a map of labels, in km: the sum of `border_weights` over
    the borders with habitat on both sides, existing habitat included."""
    habitat = np.array([label == HABITAT for label in _checked(landscape, labels)], bool)
    pairs, weight = border_weights(landscape)
    return float(weight[habitat[pairs].all(axis=1)].sum())


def production(landscape: Landscape, labels: Labels) -> dict[str, float]:
    """Tonnes of every crop that a map of labels produces."""
    labels = np.array(_checked(landscape, labels), dtype=object)
    return {
        crop: float((landscape.area * landscape.yields[:, k])[labels == crop].sum())
        for k, crop in enumerate(CROPS)
    }


def reference_labels(landscape: Landscape) -> list[str]:
    """The map whose production defines the floors: crops only.

    Every parcel that is not habitat already gets the crop of the highest *relative* yield: t/ha
    divided by that crop's mean where it grows. By t/ha alone, corn would take nearly every parcel.
    """
    yields = landscape.yields
    grown = (yields > 0).sum(axis=0)
    mean = yields.sum(axis=0) / np.maximum(grown, 1)
    relative = yields / np.where(grown > 0, mean, 1)
    best = np.array(CROPS)[relative.argmax(axis=1)]
    return np.where(landscape.habitat, HABITAT, best).tolist()


def regret(landscape: Landscape, plan: Plan, labels: Labels) -> Regret:
    """What is lost with `labels` instead of `plan`.

    A parcel's label may be None: no use could be read, and it is neither harvested nor habitat.
    """
    made = production(landscape, labels)
    linked = connectivity(landscape, labels)
    objective = plan.connectivity_weight * linked + plan.yield_weight * sum(made.values())
    missing = {crop: max(0.0, floor - made[crop]) for crop, floor in plan.floors.items()}
    missing = {c: t if t > SLACK * plan.floors[c] else 0.0 for c, t in missing.items()}
    priced = sum(plan.shadow_prices[crop] * tonnes for crop, tonnes in missing.items())
    return Regret(
        kept=objective / plan.objective if plan.objective else 1.0,
        connectivity=linked,
        shortfall={c: t / plan.floors[c] if t else 0.0 for c, t in missing.items()},
        priced_km=plan.objective - objective + priced,
    )


def accepted(plan: Plan, tolerance: float = TOLERANCE) -> list[tuple[str, ...]]:
    """For every parcel, sorted, the labels that count as right at a tolerance.

    Those worth at least (1 - tolerance) of the parcel's best in `plan.values`, the plan's own,
    and, where these are known (`plan.exact`), all that occur in some optimal plan.
    """
    best = plan.values.max(axis=1, keepdims=True)
    close = (plan.values >= best - tolerance * np.abs(best) - 1e-9) & plan.possible
    certain = plan.optimal_labels if plan.exact else [()] * len(plan.labels)
    return [
        tuple(sorted({own, *sure, *(LABELS[k] for k in np.flatnonzero(row))}))
        for own, sure, row in zip(plan.labels, certain, close, strict=True)
    ]


def plan_from_table(landscape: Landscape, parcels: pd.DataFrame) -> Plan:
    """The plan in a table of `data.table`, or in one landscape's rows of `data.pool`.

    Floors and weights are the defaults of `solve`; the prices follow from the table's `values`,
    which are price x harvest. Nothing is proven again: bound and gap are nan. `parcels` has a row
    for each parcel of the landscape, in their order.
    """
    labels = _checked(landscape, parcels["plan_label"])
    values = np.array(parcels["values"].tolist(), float)
    harvest = (landscape.area[:, None] * landscape.yields).sum(axis=0)
    worth = values[:, [LABELS.index(crop) for crop in CROPS]].sum(axis=0)
    prices = np.divide(worth, harvest, out=np.zeros(len(CROPS)), where=harvest > 0)
    return Plan(
        labels=labels,
        objective=float(parcels["objective"].iloc[0]),
        bound=math.nan,
        gap=math.nan,
        status="from the table",
        seconds=0.0,
        shadow_prices=dict(zip(CROPS, prices.tolist(), strict=True)),
        optimal_labels=[tuple(answer.split("|")) for answer in parcels["answer"]],
        exact=False,
        floors=_floors(landscape, None),
        values=values,
        possible=possible(landscape),
    )


def solve(
    landscape: Landscape,
    floors: Mapping[str, float] | None = None,
    connectivity_weight: float = 1.0,
    yield_weight: float = 0.0,
    budget: float | None = None,
    gap: float = 1e-3,
    time_limit: float = 60.0,
) -> Plan:
    """The plan of greatest connectivity that meets the floors, up to a proven gap.

    Args:
        floors: crop -> tonnes that must be harvested at least; a crop that is not named has
            none. Default: 0.85 of what `reference_labels` brings in.
        connectivity_weight: weight of a km of connectivity.
        yield_weight: weight of a tonne of harvest, whatever the crop.
        budget: most ha of new habitat; None: no limit.
        gap: stop when no plan can be better by more than this share. With at most 16 parcels to
            decide, the optimum itself is found.
        time_limit: seconds; then the best plan so far, with its gap. Whatever the limit, the
            linear relaxation is solved to its end (5 seconds for 9,000 parcels), and a first plan
            that meets the floors is looked for (some seconds at most).

    Returns:
        The plan; its floors are met to a millionth.

    Raises:
        CasebookError: an argument makes no sense, or no plan can meet the floors; the message
            names the crops and how many tonnes are missing.
    """
    wanted = _floors(landscape, floors)
    if not (min(connectivity_weight, yield_weight, budget or 0) >= 0 < min(gap, time_limit)):
        raise CasebookError("weights and budget are 0 or more, gap and time limit above 0")
    if connectivity_weight == yield_weight == 0:
        raise CasebookError("with both weights 0 every plan is worth the same")
    _ = landscape.borders  # kept by the landscape; the first time libpysal is imported, too
    started = perf_counter()
    weights = connectivity_weight, yield_weight
    model = Program(landscape, wanted, *weights, budget, deadline=started + time_limit)
    relaxed = model.relax()
    if relaxed is None:
        model.refuse_what_cannot_be_met_together()
        raise CasebookError(
            "the floors are met only within the solver's rounding: lower them by a millionth"
        )
    values, bound, prices = relaxed
    labels = model.round(values, prices)
    if not model.meets(labels):
        feasible = model.refuse_what_cannot_be_met_together()
        labels = model.exchange(feasible, prices)
        labels = labels if model.meets(labels) else feasible
    small = len(landscape.decidable) <= EXACT
    asked = 0.0 if small else gap
    labels, bound = model.search(labels, max(bound, model.worth_of(labels)), prices, asked)

    objective = model.worth_of(labels)
    left = model.gap(objective, bound)
    sets = model.labels_of_optimal_plans(labels) if small and left <= asked else None
    plan = Plan(
        labels=[LABELS[code] for code in labels],
        objective=objective,
        bound=float(bound),
        gap=float(left),
        status="optimal" if left <= asked else "time limit",
        seconds=0.0,
        shadow_prices=dict(zip(CROPS, prices[:-1].tolist(), strict=True)),
        optimal_labels=sets or [],
        exact=sets is not None,
        floors=wanted,
        values=model.values(labels, prices),
        possible=model.possible,
        connectivity_weight=connectivity_weight,
        yield_weight=yield_weight,
    )
    return replace(plan, optimal_labels=sets or accepted(plan), seconds=perf_counter() - started)


def _checked(landscape, labels):
    labels = list(labels)
    if len(labels) != len(landscape):
        raise CasebookError(
            f"there must be a label for every parcel: {len(landscape)}, not {len(labels)}"
        )
    for i, (label, existing) in enumerate(zip(labels, landscape.habitat, strict=True)):
        if label not in (HABITAT,) if existing else label not in (None, *LABELS):
            may = HABITAT if existing else ", ".join(LABELS)
            raise CasebookError(f"parcel {i} cannot become {label!r}, only {may}")
    return labels


def _floors(landscape, floors):
    if floors is None:
        made = production(landscape, reference_labels(landscape))
        return {crop: FLOOR_SHARE * tonnes for crop, tonnes in made.items()}
    for crop, tonnes in floors.items():
        check_name("crop", crop, CROPS)
        if not 0 <= tonnes < math.inf:
            raise CasebookError(f"the floor of {crop} must be tonnes, 0 or more, not {tonnes!r}")
    return {crop: float(floors.get(crop, 0.0)) for crop in CROPS}
