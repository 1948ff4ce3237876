"""The land-use oracle: the best plan for a whole landscape, by mixed-integer optimisation.

The source calls its optimiser the Global Land Manager and says of it that it finds the optimum
of yield and connectivity; no model, solver or gap was published. The task its author's public
code states to a language model is: as much ecological connectivity as possible, while every
crop's production stays at a baseline. That is the model here. Parcel i is planted with one
crop k (x_ik = 1) or left to habitat (h_i = 1); parcels that yield nothing are habitat already.

    maximise    a * sum over borders (i, j) of w_ij h_i h_j  +  b * sum of A_i Y_ik x_ik
    subject to  sum over k of x_ik + h_i = 1     one use a parcel
                sum over i of A_i Y_ik x_ik >= Q_k   a floor of Q_k tonnes for every crop
                sum of A_i h_i <= B                  (optional) hectares of new habitat

with w_ij = the border's length in km times the mean connectivity value of the two parcels. A
product h_i h_j becomes a variable z_ij with z_ij <= h_i and z_ij <= h_j: the usual linearisation
of pairwise connectivity in reserve selection (Onal and Briers, Proc. R. Soc. B 269, 2002). Since
w_ij >= 0, nothing needs to keep z_ij up to the product, and z_ij may be continuous.

HiGHS solves it (through highspy), on one thread. It is a small model with a tight relaxation:
with a price on every floor instead of the floor, what remains is a minimum cut, which linear
programming solves in whole numbers. So the relaxation's *shadow prices*, km of connectivity for a
tonne of a floor, nearly decide every parcel: plant k where price_k * A_i * Y_ik is largest, unless
the habitat around is worth more. `Plan.values` holds these figures.
"""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from time import perf_counter
from typing import Any

import highspy
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from casebook.case import CasebookError, check_name
from casebook.cases.landuse.landscape import CROPS, HABITAT, LABELS, YIELDS, Landscape

FLOOR_SHARE = 0.85  # of the reference map's production, where no floors are named
TOLERANCE = 0.02  # labels within this share of a parcel's best count as right
EXACT = 16  # parcels to decide up to which the accepted labels are exact
SLACK = 1e-6  # share of a floor that may be missing: the solver's own tolerance
LOG_EVERY = 2.0  # seconds between progress lines

Labels = Sequence[str | None]


@dataclass(frozen=True)
class Plan:
    """A plan for a landscape, and how good it is proven to be.

    Attributes:
        labels: a use for every parcel, one of `LABELS`; what is habitat already stays so.
        objective: what the plan is worth: `connectivity_weight` x km of connectivity
            + `yield_weight` x tonnes harvested.
        bound: no plan is worth more.
        gap: (bound - objective) / objective; 0.0 where both are 0, inf where only the objective is.
        status: "optimal" (within the gap asked for), "time limit", or "from the table".
        seconds: wall-clock time of the solution, once the borders of the parcels are known.
        shadow_prices: crop -> what a tonne less of its floor is worth (km per tonne at weight 1):
            duals of the linear relaxation, never negative.
        optimal_labels: for every parcel the labels that count as right, sorted.
        exact: these are all labels that occur in some optimal plan. Otherwise they are those worth
            at least 98 % of the parcel's best in `values`, and the plan's own.
        floors: crop -> tonnes that had to be met.
        values: `(n, 5)` in the order of `LABELS`: what a label is worth on this parcel (km at
            weight 1) at the shadow prices, all other parcels as in the plan.
        possible: `(n, 5)` bool: the label may be given there at all, since the crop grows.
        connectivity_weight, yield_weight: the weights of the objective.
        budget: most ha of new habitat, or None.
        budget_price: what one ha more of the budget is worth, never negative.
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
    budget: float | None = None
    budget_price: float = 0.0


@dataclass(frozen=True)
class Regret:
    """What is lost when other labels than the plan's are followed.

    Attributes:
        kept: the labels' objective as a share of the plan's; above 1 where floors are missed,
            and 1.0 for whatever labels where the plan's objective is 0: there is no share of it.
        connectivity: km.
        shortfall: crop -> share of its floor that is missing.
        missing: crop -> tonnes of its floor that are missing.
        priced_km: the plan's objective less the labels' objective, plus every missing tonne at
            its shadow price. Below zero by no more than the plan's distance from its relaxation.
    """

    kept: float
    connectivity: float
    shortfall: dict[str, float]
    missing: dict[str, float]
    priced_km: float


# What a map of labels is worth


def border_weights(landscape: Landscape) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of parcels with a common border, `(m, 2)`, and what each is worth as habitat: the
    border's length times the mean connectivity value of the two, `(m,)` km."""
    pairs, length = landscape.borders
    return pairs, length * landscape.connectivity[pairs].mean(axis=1)


def connectivity(landscape: Landscape, labels: Labels) -> float:
    """Connectivity of the habitat in a map of labels, in km: the sum of `border_weights` over
    the borders with habitat on both sides, existing habitat included."""
    habitat = np.array([label == HABITAT for label in _checked(landscape, labels)], bool)
    pairs, weight = border_weights(landscape)
    return float(weight[habitat[pairs].all(axis=1)].sum())


def production(landscape: Landscape, labels: Labels) -> dict[str, float]:
    """Tonnes of every crop that a map of labels brings in."""
    labels = np.array(_checked(landscape, labels), dtype=object)
    return {
        crop: float((landscape.area * landscape.yields[:, k])[labels == crop].sum())
        for k, crop in enumerate(CROPS)
    }


def possible(landscape: Landscape) -> np.ndarray:
    """`(n, 5)` bool in the order of `LABELS`: which labels may be given to each parcel.

    Habitat to all; a crop where it yields something.
    """
    may = np.ones((len(landscape), len(LABELS)), bool)
    for k, crop in enumerate(CROPS):
        may[:, LABELS.index(crop)] = landscape.yields[:, k] > 0
    return may


def reference_labels(landscape: Landscape) -> list[str]:
    """The map whose production the floors are taken from: nothing but crops.

    Every parcel that is not habitat already gets the crop of the highest *relative* yield: t/ha
    divided by that crop's mean where it grows. By t/ha alone, corn would take nearly every
    parcel, since it weighs two and a half to three times as much as the others, and the others'
    floors would vanish.
    """
    yields = landscape.yields
    grown = (yields > 0).sum(axis=0)
    mean = yields.sum(axis=0) / np.maximum(grown, 1)
    relative = yields / np.where(grown > 0, mean, 1)
    best = relative.argmax(axis=1)
    return [
        HABITAT if is_habitat else CROPS[k]
        for is_habitat, k in zip(landscape.habitat, best, strict=True)
    ]


def iic(landscape: Landscape, labels: Labels) -> float:
    """The integral index of connectivity of the habitat in a map of labels, 0 to 1.

    IIC = sum over ordered pairs (i, j), i = j included, of a_i a_j / (1 + nl_ij) / A_L^2, where
    nl_ij is the number of links on the shortest path between i and j, pairs without a path count
    nothing, and A_L is the landscape's whole area (Pascual-Hortal and Saura, Landscape Ecology
    21, 2006). Here a node is a habitat parcel and a link a common border: with whole patches as
    nodes, two parcels side by side would not differ from one of twice the size.
    """
    labels = _checked(landscape, labels)
    nodes = np.flatnonzero([label == HABITAT for label in labels])
    number = np.full(len(landscape), -1)
    number[nodes] = np.arange(len(nodes))
    ends = number[landscape.borders[0]]
    ends = ends[(ends >= 0).all(axis=1)]
    graph = sp.csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (len(nodes),) * 2)
    area = landscape.area[nodes]
    total = 0.0
    for start in range(0, len(nodes), 512):  # a full matrix of 8,724 parcels would be 600 MB
        rows = np.arange(start, min(start + 512, len(nodes)))
        links = shortest_path(graph, directed=False, unweighted=True, indices=rows)
        total += float(area[rows] @ (1 / (1 + links)) @ area)  # no path: infinitely many links
    return total / float(landscape.area.sum()) ** 2


def regret(landscape: Landscape, plan: Plan, labels: Labels) -> Regret:
    """What is lost when `labels` are followed instead of `plan`.

    A parcel's label may be None: no use could be read, and it is neither harvested nor habitat.

    Raises:
        CasebookError: not one known label a parcel, or existing habitat is put to another use.
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
        missing=missing,
        priced_km=plan.objective - objective + priced,
    )


def accepted(plan: Plan, tolerance: float = TOLERANCE) -> list[tuple[str, ...]]:
    """For every parcel the labels that count as right at a tolerance, sorted.

    Those worth at least (1 - tolerance) of the parcel's best in `plan.values`, the plan's own,
    and, where these are known (`plan.exact`), all that occur in some optimal plan.

    Raises:
        CasebookError: the tolerance is not between 0 and 1.
    """
    if not _is_number(tolerance) or not 0 <= tolerance < 1:
        raise CasebookError(f"a tolerance is a share from 0 to below 1, not {tolerance!r}")
    best = plan.values.max(axis=1, keepdims=True)
    close = (plan.values >= best - tolerance * np.abs(best) - 1e-9) & plan.possible
    certain = plan.optimal_labels if plan.exact else [()] * len(plan.labels)
    return [
        tuple(sorted({own, *sure, *(LABELS[k] for k in np.flatnonzero(row))}))
        for own, sure, row in zip(plan.labels, certain, close, strict=True)
    ]


def plan_from_table(landscape: Landscape, parcels: pd.DataFrame) -> Plan:
    """The plan in a table of `data.table`, or in one landscape's rows of `data.pool`.

    A table holds no floors, prices or bound. The floors are the default ones of `solve`, the
    weights are its defaults, too, without a budget; the prices follow from the table's `values`,
    which are price x harvest. Nothing is proven anew: bound and gap are nan.

    Args:
        landscape: the parcels that the table is of.
        parcels: its rows, one a parcel in the order of the parcels.

    Raises:
        CasebookError: it is not of this landscape.
    """
    known = parcels.reindex(columns=list(YIELDS)).to_numpy(float)
    if known.shape != landscape.yields.shape or not np.allclose(known, landscape.yields):
        raise CasebookError(
            f"this is no table of all {len(landscape):,} parcels of {landscape.name}: its yields "
            "are not those"
        )
    labels = _checked(landscape, parcels["plan_label"])
    values = np.array(parcels["values"].tolist(), float)
    harvest = (landscape.area[:, None] * landscape.yields).sum(axis=0)
    worth = values[:, _CODES].sum(axis=0)
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


# The plan


def solve(
    landscape: Landscape,
    floors: Mapping[str, float] | None = None,
    connectivity_weight: float = 1.0,
    yield_weight: float = 0.0,
    budget: float | None = None,
    gap: float = 1e-3,
    time_limit: float = 60.0,
    log: Callable[[str], Any] | None = None,
) -> Plan:
    """The plan of greatest connectivity that meets the floors, up to a proven gap.

    Args:
        floors: crop -> tonnes that must be harvested at least; a crop that is not named has
            none. Default: 0.85 of what `reference_labels` brings in.
        connectivity_weight: weight of a km of connectivity.
        yield_weight: weight of a tonne of harvest, whatever the crop.
        budget: at most so many ha of new habitat; None: no limit.
        gap: stop when no plan can be better by more than this share. With at most 16 parcels to
            decide, the optimum itself is found.
        time_limit: seconds; then the best plan so far, with its gap. Two things are done whatever
            the limit: the linear relaxation is solved to its end (5 seconds for 9,000 parcels), and
            a first plan that meets the floors is looked for (some seconds at most). Finding which
            parcels have a common border is not counted: it is done once for a landscape.
        log: called with a line of progress every two seconds, for instance `print`.

    Returns:
        The plan; its floors are met to a millionth.

    Raises:
        CasebookError: an argument makes no sense, or no plan can meet the floors; the message
            names the crops and how many tonnes are missing.
    """
    wanted = _floors(landscape, floors)
    _check_arguments(connectivity_weight, yield_weight, budget, gap, time_limit)
    _ = landscape.borders  # kept by the landscape; the first time libpysal is imported, too
    started = perf_counter()
    clock = _Clock(started + time_limit, log)
    model = _Model(landscape, wanted, connectivity_weight, yield_weight, budget)
    model.refuse_what_no_land_can_grow()
    relaxed = model.relax()
    if relaxed is None:
        model.refuse_what_cannot_be_met_together(clock)
        raise CasebookError(
            "the floors are met only within the solver's rounding: lower them by a millionth"
        )
    values, bound, prices = relaxed
    labels = model.round(values, prices, clock)
    if not model.meets(labels):
        feasible = model.refuse_what_cannot_be_met_together(clock)
        labels = model.exchange(feasible, prices, clock)
        labels = labels if model.meets(labels) else feasible
    small = len(landscape.decidable) <= EXACT
    asked = 0.0 if small else gap
    labels, bound = model.search(labels, max(bound, model.worth_of(labels)), prices, asked, clock)

    objective = model.worth_of(labels)
    left = model.gap(objective, bound)
    sets = model.labels_of_optimal_plans(labels, clock) if small and left <= asked else None
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
        budget=budget,
        budget_price=float(prices[-1]),
    )
    return replace(plan, optimal_labels=sets or accepted(plan), seconds=perf_counter() - started)


class _Clock:
    """How much time is left, and when to say something."""

    def __init__(self, deadline, log):
        self.deadline, self.log, self.spoken = deadline, log, perf_counter()

    def left(self):
        return self.deadline - perf_counter()

    def say(self, objective, bound, gap):
        if self.log is not None and perf_counter() - self.spoken >= LOG_EVERY:
            self.spoken = perf_counter()
            self.log(
                f"{self.left():6.1f} s left   best plan {objective:,.3f}   "
                f"none above {bound:,.3f}   gap {gap:.3%}"
            )


class _Model:
    """The mixed-integer program of a landscape.

    Columns: one for every parcel and crop that grows there, then one for every parcel's habitat,
    then one for every border between two parcels that are both to be decided. Borders between
    existing habitats are a constant; those with one existing side belong to the other's column.

    A map of labels is an array of indices into `LABELS`. What a label uses of the five scarce
    things, tonnes of the four floors and hectares of the budget, is `supply`; at least `needed`
    of each there must be.
    """

    def __init__(self, landscape, floors, connectivity_weight, yield_weight, budget):
        self.landscape, self.floors = landscape, floors
        self.connectivity_weight, self.yield_weight = connectivity_weight, yield_weight
        self.pairs, weight = border_weights(landscape)
        self.weight = connectivity_weight * weight
        self.free = landscape.decidable
        self.possible = possible(landscape)
        self.harvest = landscape.area[:, None] * landscape.yields  # (n, 4) tonnes

        self.supply = np.zeros((len(landscape), len(LABELS), len(CROPS) + 1))
        for k, crop in enumerate(CROPS):
            self.supply[:, LABELS.index(crop), k] = self.harvest[:, k]
        self.supply[self.free, _HABITAT, -1] = -landscape.area[self.free]
        self.needed = np.array([*floors.values(), -math.inf if budget is None else -budget])
        # Rows are divided by this: the solver's tolerances then mean the same share for each.
        self.scale = np.array([*(t or 1.0 for t in floors.values()), budget or 1.0])

        # Columns of crops, habitat and borders, and the row of each parcel to decide.
        self.parcel, self.crop = np.nonzero(landscape.yields > 0)
        row = np.full(len(landscape), -1)
        row[self.free] = np.arange(len(self.free))
        ends = row[self.pairs]
        inner = (ends >= 0).all(axis=1) & (self.weight > 0)
        ends = ends[inner]
        sizes = np.array([len(self.parcel), len(self.free), len(ends)])
        self.x, self.h, z = np.split(np.arange(sizes.sum()), sizes.cumsum()[:-1])
        existing = self.linked(landscape.habitat)
        self.fixed = existing[landscape.habitat].sum() / 2
        harvested = yield_weight * self.harvest[self.parcel, self.crop]
        self.worth = np.concatenate([harvested, existing[self.free], self.weight[inner]])

        one_use = (np.r_[row[self.parcel], row[self.free]], np.r_[self.x, self.h])
        grown = self.harvest[self.parcel, self.crop] / self.scale[self.crop]
        taken = -landscape.area[self.free] / self.scale[-1]
        scarce = (np.r_[self.crop, np.full(len(self.h), len(CROPS))], one_use[1])
        blocks = [(np.ones(sizes[:2].sum()), one_use), (np.r_[grown, taken], scarce)]
        both = np.tile(np.arange(len(ends)), 2)
        for side in (0, 1):  # z_ij <= h_i and z_ij <= h_j
            halves = np.repeat([1.0, -1.0], len(ends))
            blocks.append((halves, (both, np.r_[z, self.h[ends[:, side]]])))
        heights = [len(self.free), len(self.needed), len(ends), len(ends)]
        self.matrix = sp.vstack(
            [
                sp.coo_matrix(block, (height, sizes.sum()))
                for block, height in zip(blocks, heights, strict=True)
            ]
        ).tocsr()
        self.scarce = slice(len(self.free), len(self.free) + len(self.needed))
        self.lower = np.full(sum(heights), -math.inf)
        self.upper = np.zeros(sum(heights))
        self.lower[: len(self.free)] = self.upper[: len(self.free)] = 1
        self.lower[self.scarce] = self.needed / self.scale
        self.upper[self.scarce] = math.inf
        self.integer = np.arange(sizes.sum()) < sizes[:2].sum()

    # Maps of labels

    def linked(self, habitat):
        """`(n,)` what the borders of each parcel with habitat are worth, `habitat` being bool."""
        around = np.zeros(len(habitat))
        for one, other in (self.pairs.T, self.pairs.T[::-1]):
            np.add.at(around, one, self.weight * habitat[other])
        return around

    def worth_of(self, labels):
        """The objective."""
        habitat = labels == _HABITAT
        value = float(self.weight[habitat[self.pairs].all(axis=1)].sum())
        return value + self.yield_weight * self.spare(labels, harvested=True)

    def spare(self, labels, harvested=False):
        """`(5,)` how much more there is than needed, of each scarce thing (or: all tonnes)."""
        supply = self.supply[np.arange(len(labels)), labels].sum(axis=0)
        return float(supply[:-1].sum()) if harvested else supply - self.needed

    def meets(self, labels):
        return bool((self.spare(labels) >= -SLACK * self.scale).all())

    def values(self, labels, prices):
        """`Plan.values`."""
        values = self.supply[..., :-1] @ (prices[:-1] + self.yield_weight)
        charge = prices[-1] * self.supply[:, _HABITAT, -1]
        values[:, _HABITAT] = self.linked(labels == _HABITAT) + charge
        return values

    def labels_of(self, values):
        """The labels in whole column values: the largest of each parcel's."""
        shares = np.zeros((len(self.landscape), len(LABELS)))
        shares[self.landscape.habitat, _HABITAT] = 1
        shares[self.parcel, _CODES[self.crop]] = values[self.x]
        shares[self.free, _HABITAT] = values[self.h]
        return shares.argmax(axis=1)

    def columns_of(self, labels):
        """The column values of a map of labels."""
        inner = ~self.landscape.habitat[self.pairs].any(axis=1) & (self.weight > 0)
        habitat = labels == _HABITAT
        both = habitat[self.pairs[inner]].all(axis=1)
        crops = labels[self.parcel] == _CODES[self.crop]
        return np.concatenate([crops, habitat[self.free], both]).astype(float)

    # Solutions

    def solver(self, integer, gap=0.0, time_limit=math.inf, short=False):
        """HiGHS with the whole model in it; `short`: the least shares of the floors that are
        missing are looked for, one more column for each, and nothing else."""
        matrix, worth = self.matrix, self.worth
        lower, upper = np.zeros(len(worth)), np.ones(len(worth))
        kinds = self.integer.astype(int)
        if short:
            rows = np.arange(self.scarce.start, self.scarce.start + len(CROPS))
            missing = sp.coo_matrix((np.ones(4), (rows, range(4))), (matrix.shape[0], 4))
            matrix = sp.hstack([matrix, missing]).tocsr()
            worth = np.r_[np.zeros(len(worth)), -np.ones(4)]
            lower, upper = np.r_[lower, np.zeros(4)], np.r_[upper, np.full(4, math.inf)]
            kinds = np.r_[kinds, np.zeros(4, int)]
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_, lp.offset_ = worth, 0.0 if short else self.fixed
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_, lp.row_upper_ = self.lower, self.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
        lp.a_matrix_.value_ = matrix.data
        if integer:
            names = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [names[kind] for kind in kinds]
        highs = highspy.Highs()
        for option, value in {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": gap,
            "mip_abs_gap": 0.0,
            "time_limit": max(time_limit, 0.0),
            # Measured on generated landscapes: neither symmetry nor restarts pay here.
            "mip_detect_symmetry": False,
            "mip_allow_restart": False,
            "mip_heuristic_effort": 0.3,  # plans, not bounds, are what comes late
        }.items():
            highs.setOptionValue(option, value)
        highs.passModel(lp)
        return highs

    def relax(self):
        """The linear relaxation: column values, bound and the five prices; None: infeasible."""
        if not len(self.free):
            return np.zeros(0), self.fixed, np.zeros(len(self.needed))
        highs = self.solver(integer=False)
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = highs.getSolution()
        dual = np.array(solution.row_dual)[self.scarce]
        prices = np.maximum(-dual, 0) / self.scale
        return np.array(solution.col_value), highs.getInfo().objective_function_value, prices

    def round(self, values, prices, clock):
        """A whole plan near the relaxation's, improved by exchanges; it may miss a floor."""
        if not len(self.free):
            return self.labels_of(values)
        worth = np.zeros(len(self.worth))
        # Among crops that share a parcel, or where habitat is rounded away, the dearest harvest.
        worth[self.x] = prices[self.crop] * self.harvest[self.parcel, self.crop]
        labels = self.labels_of(values + 1e-4 * worth / max(worth.max(), 1e-9))
        return self.exchange(labels, prices, clock)

    def gap(self, objective, bound):
        """`Plan.gap`; what is less than the solver's rounding is 0."""
        nothing = 1e-7 * float(self.weight.sum() + self.yield_weight * self.harvest.max(1).sum())
        if bound - objective <= 1e-9 * max(1.0, abs(bound)) or bound <= nothing:
            return 0.0
        return (bound - objective) / objective if objective else math.inf

    def search(self, labels, bound, prices, wanted, clock):
        """A plan whose gap is `wanted`, or the best until the time is up, and the bound; HiGHS
        starts from `labels`."""
        best = self.worth_of(labels)
        if self.gap(best, bound) <= wanted or clock.left() <= 0:
            return labels, bound
        highs = self.solver(integer=True, gap=wanted, time_limit=clock.left())
        start = highspy.HighsSolution()
        start.col_value = self.columns_of(labels)
        highs.setSolution(start)
        failures = []

        def tell(event):
            found, none_above = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
            try:
                clock.say(found, none_above, self.gap(found, none_above))
            except BaseException as error:  # it must not pass through the solver
                failures.append(error)
                event.interrupt()

        highs.cbMipInterrupt.subscribe(tell)
        highs.run()
        if failures:
            raise failures[0]
        plans, values = [labels], np.array(highs.getSolution().col_value)
        if len(values):
            found = self.labels_of(values)
            plans += [found, self.exchange(found, prices, clock)]
        labels = max(filter(self.meets, plans), key=self.worth_of)
        return labels, max(self.worth_of(labels), min(bound, highs.getInfo().mip_dual_bound))

    def exchange(self, labels, prices, clock):
        """Change up to three parcels at a time while that is a gain and there is time.

        With prices on what is scarce, a single change costs little where two labels are nearly
        worth the same. Of the cheapest changes all triples are weighed at once: a triple can trade
        one crop's surplus for another's shortage. What is missing is charged above its price,
        and dearer each time, until nothing is. With something missing it may go on for a few more
        exchanges when the time is up: a plan that misses a floor is none.
        """
        late = 0
        for charge in (1.05, 1.3, 2.0, 4.0, 100.0):
            dear = np.maximum(prices, 0.05 * abs(self.worth_of(labels)) / self.scale)
            exchanged = self._exchanges(labels, prices, charge * dear)
            for labels in exchanged:
                late += clock.left() <= 0
                if late and (late > _LATE or self.meets(labels)):
                    return labels
            if self.meets(labels):
                break
        return labels

    def _exchanges(self, labels, prices, charge):
        """The labels, and again after every exchange that is a gain."""

        def scored(worth, spare):
            return worth - np.maximum(-spare, 0) @ charge

        value = scored(self.worth_of(labels), self.spare(labels))
        while True:
            yield labels
            spare, around = self.spare(labels), self.linked(labels == _HABITAT)
            change = self.possible & (np.arange(len(LABELS)) != labels[:, None])
            change[self.landscape.habitat] = False
            parcel, to = np.nonzero(change)
            if not len(parcel):
                return
            old = labels[parcel]
            gain = around[parcel] * ((to == _HABITAT) * 1.0 - (old == _HABITAT))
            more = self.supply[parcel, to] - self.supply[parcel, old]
            gain += self.yield_weight * more[:, :-1].sum(axis=1)
            cheap = _highest(gain + more @ prices, _CANDIDATES)
            nothing = [-1, -2]  # two changes of nothing: pairs and single changes are triples too
            parcel, to = np.r_[parcel[cheap], nothing], np.r_[to[cheap], nothing]
            gain, more = np.r_[gain[cheap], 0, 0], np.vstack([more[cheap], np.zeros((2, 5))])
            one, two, three = _triples(len(parcel))
            together = scored(
                gain[one] + gain[two] + gain[three],
                np.nan_to_num(spare, posinf=1e300) + more[one] + more[two] + more[three],
            )
            twice = (parcel[one] == parcel[two]) | (parcel[two] == parcel[three])
            together[twice | (parcel[one] == parcel[three])] = -math.inf
            # The gains of neighbours do not add up exactly: the best few are weighed in full.
            for triple in _highest(together, _WEIGHED):
                moves = [t[triple] for t in (one, two, three) if parcel[t[triple]] >= 0]
                new = labels.copy()
                new[parcel[moves]] = to[moves]
                new_value = scored(self.worth_of(new), self.spare(new))
                if new_value > value + 1e-9:
                    labels, value = new, new_value
                    break
            else:
                return

    def labels_of_optimal_plans(self, labels, clock):
        """For every parcel, all labels that occur in some plan as good as `labels`; None where
        the time is up before they are known."""
        best = self.worth_of(labels)
        enough = best - 1e-6 * max(1.0, abs(best))
        seen = np.zeros_like(self.possible)
        seen[np.arange(len(labels)), labels] = True
        highs = self.solver(integer=True)
        column = {(i, _HABITAT): h for i, h in zip(self.free, self.h, strict=True)}
        crops = zip(self.parcel, _CODES[self.crop], strict=True)
        column |= dict(zip(crops, self.x, strict=True))
        for (i, label), c in column.items():
            if seen[i, label]:
                continue
            if clock.left() <= 0:
                return None
            highs.changeColBounds(int(c), 1.0, 1.0)
            # HiGHS counts the seconds of all its runs.
            highs.setOptionValue("time_limit", highs.getRunTime() + clock.left())
            highs.run()
            status = highs.getModelStatus()
            if status == highspy.HighsModelStatus.kOptimal:
                found = self.labels_of(np.array(highs.getSolution().col_value))
                if self.worth_of(found) >= enough:
                    seen[np.arange(len(found)), found] = True
            elif status != highspy.HighsModelStatus.kInfeasible:
                return None
            highs.changeColBounds(int(c), 0.0, 1.0)
        return [tuple(sorted(LABELS[k] for k in np.flatnonzero(row))) for row in seen]

    # Floors that cannot be met

    def refuse_what_no_land_can_grow(self):
        most = self.harvest[self.free].sum(axis=0)
        for (crop, floor), t in zip(self.floors.items(), most, strict=True):
            if t < floor * (1 - SLACK):
                raise CasebookError(
                    f"no plan can meet the floor of {crop} ({floor:,.1f} t, at most {t:,.1f} t if "
                    f"all land grew it, {floor - t:,.1f} t short)"
                )

    def refuse_what_cannot_be_met_together(self, clock):
        """Labels that meet every floor; CasebookError where none do or none are found in time."""
        highs = self.solver(integer=True, time_limit=max(clock.left(), _SHORTEST), short=True)
        highs.run()
        values = np.array(highs.getSolution().col_value)
        missing = np.full(len(CROPS), math.inf)
        if len(values):
            labels = self.labels_of(values[: len(self.worth)])
            if self.meets(labels):
                return labels
            missing = np.maximum(-self.spare(labels), 0)[:-1]
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise CasebookError(
                "no plan that meets the floors was found within the time limit: allow more time, "
                "or lower the floors"
            )
        short = " and ".join(
            f"{crop} is {t:,.1f} t ({t / floor:.2%}) short of its floor of {floor:,.1f} t"
            for (crop, floor), t in zip(self.floors.items(), missing, strict=True)
            if t > SLACK * floor
        )
        raise CasebookError(f"the floors cannot be met together: at best {short}")


_HABITAT = LABELS.index(HABITAT)
_CODES = np.array([LABELS.index(crop) for crop in CROPS])
_CANDIDATES = 100  # cheapest single changes: 180,000 triples, a tenth of a second
_WEIGHED = 30
_LATE = 50  # exchanges towards a plan that meets the floors, whatever the time limit
_SHORTEST = 1.0  # seconds that a search for such a plan gets, whatever the limit


@lru_cache(maxsize=4)
def _triples(n):
    """`(3, n over 3)` all triples of numbers below `n`."""
    return np.array(list(combinations(range(n), 3)), np.int32).reshape(-1, 3).T


def _highest(scores, number):
    """Where the highest scores are, in order, the first of equal ones first.

    A sort of all 170,000 to take 30 would be most of an exchange's time, and a partition alone
    breaks ties as it happens to.
    """
    if len(scores) <= number:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -number)[-number]
    found = np.flatnonzero(scores >= least)
    return found[np.argsort(-scores[found], kind="stable")[:number]]


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
    if not isinstance(floors, Mapping):
        raise CasebookError(f"floors are tonnes by crop, like {{'wheat': 900}}, not {floors!r}")
    for crop, tonnes in floors.items():
        check_name("crop", crop, CROPS)
        if not _is_number(tonnes) or tonnes < 0:
            raise CasebookError(f"the floor of {crop} must be tonnes, 0 or more, not {tonnes!r}")
    return {crop: float(floors.get(crop, 0.0)) for crop in CROPS}


def _check_arguments(connectivity_weight, yield_weight, budget, gap, time_limit):
    numbers = {
        "connectivity_weight": connectivity_weight,
        "yield_weight": yield_weight,
        "budget": 0 if budget is None else budget,
        "gap": gap,
        "time_limit": time_limit,
    }
    for name, value in numbers.items():
        if not _is_number(value) or value < 0 or (value == 0 and name in ("gap", "time_limit")):
            raise CasebookError(f"{name} must be a number above 0, not {value!r}")
    if connectivity_weight == yield_weight == 0:
        raise CasebookError("with both weights 0 every plan is worth the same")


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
