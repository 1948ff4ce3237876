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
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from casebook.case import CasebookError
from casebook.cases.landuse.landscape import CROPS, HABITAT, LABELS, Landscape

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
        gap: (bound - objective) / objective.
        status: "optimal" (within the gap asked for) or "time limit".
        seconds: wall-clock time of the solution.
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
    floors: dict[str, float]
    values: np.ndarray = field(repr=False)
    possible: np.ndarray = field(repr=False)
    connectivity_weight: float = 1.0
    yield_weight: float = 0.0
    budget: float | None = None
    budget_price: float = 0.0


@dataclass(frozen=True)
class Regret:
    """What is lost when other labels than the plan's are followed.

    Attributes:
        kept: the labels' objective as a share of the plan's; above 1 where floors are missed.
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
    parcel, since it weighs three times as much as the others, and the others' floors would vanish.
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
    close = _close(plan.values, tolerance) & plan.possible
    certain = plan.optimal_labels if plan.exact else [()] * len(plan.labels)
    return [
        tuple(sorted({own, *sure, *(LABELS[k] for k in np.flatnonzero(row))}))
        for own, sure, row in zip(plan.labels, certain, close, strict=True)
    ]


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
        landscape: the parcels.
        floors: crop -> tonnes that must be harvested at least; a crop that is not named has
            none. Default: 0.85 of what `reference_labels` brings in.
        connectivity_weight: weight of a km of connectivity.
        yield_weight: weight of a tonne of harvest, whatever the crop.
        budget: at most so many ha of new habitat; None: no limit.
        gap: stop when no plan can be better by more than this share. With at most 16 parcels to
            decide, the optimum itself is found.
        time_limit: seconds; then the best plan so far, with its gap.
        log: called with a line of progress every few seconds, for instance `print`.

    Returns:
        The plan; its floors are met to a millionth.

    Raises:
        CasebookError: an argument makes no sense, or no plan can meet the floors; the message
            names the crops and how many tonnes are missing.
    """
    started = perf_counter()
    wanted = _floors(landscape, floors)
    _check_arguments(connectivity_weight, yield_weight, budget, gap, time_limit)
    model = _Model(landscape, wanted, connectivity_weight, yield_weight, budget)
    model.deadline = started + time_limit
    model.log = log
    return model.plan(gap, started)


class _Model:
    """The mixed-integer program of a landscape, column by column.

    Columns: one for every parcel and crop that grows there, then one for every parcel's habitat,
    then one for every border between two parcels that are both to be decided. Borders between
    existing habitats are a constant; those with one existing side belong to the other's column.
    """

    def __init__(self, landscape, floors, connectivity_weight, yield_weight, budget):
        self.landscape, self.floors, self.budget = landscape, floors, budget
        self.weights = (connectivity_weight, yield_weight)
        self.deadline, self.log = math.inf, None
        self.pairs, weight = border_weights(landscape)
        self.weight = connectivity_weight * weight
        free = landscape.decidable
        self.harvest = landscape.area[:, None] * landscape.yields  # (n, 4) tonnes
        self.parcel, self.crop = np.nonzero(landscape.yields > 0)  # of each x column
        self.x = np.arange(len(self.parcel))
        self.tonnes = self.harvest[self.parcel, self.crop]
        number = np.full(len(landscape), -1)  # parcel -> its row among the free
        number[free] = np.arange(len(free))
        self.h = len(self.x) + np.arange(len(free))
        ends = number[self.pairs]
        inner = (ends >= 0).all(axis=1) & (self.weight > 0)
        ends, linked = ends[inner], self.weight[inner]
        z = len(self.x) + len(free) + np.arange(len(ends))
        self.fixed = self.weight[landscape.habitat[self.pairs].all(axis=1)].sum()
        self.beside = self._habitat_around(landscape.habitat)[free]
        self.worth = np.concatenate([yield_weight * self.tonnes, self.beside, linked])

        columns, rows = len(self.worth), len(free) + len(CROPS) + 1 + 2 * len(ends)
        use = sp.coo_matrix(
            (
                np.ones(len(self.x) + len(free)),
                (np.r_[number[self.parcel], np.arange(len(free))], np.r_[self.x, self.h]),
            ),
            (len(free), columns),
        )
        # Floors as shares of themselves: the solver's tolerances then mean the same for each.
        self.scale = np.array([floors[crop] or 1.0 for crop in CROPS])
        supply = sp.coo_matrix(
            (self.tonnes / self.scale[self.crop], (self.crop, self.x)), (len(CROPS), columns)
        )
        self.budget_scale = float(landscape.area[free].sum()) or 1.0
        new = sp.coo_matrix(
            (landscape.area[free] / self.budget_scale, (np.zeros(len(free), int), self.h)),
            (1, columns),
        )
        half = np.arange(len(ends))
        links = [
            sp.coo_matrix(
                (
                    np.r_[np.ones(len(ends)), -np.ones(len(ends))],
                    (np.r_[half, half], np.r_[z, self.h[ends[:, side]]]),
                ),
                (len(ends), columns),
            )
            for side in (0, 1)
        ]
        self.matrix = sp.vstack([use, supply, new, *links]).tocsr()
        lower, upper = np.full(rows, -math.inf), np.zeros(rows)
        self.floor_rows = slice(len(free), len(free) + len(CROPS))
        self.budget_row = len(free) + len(CROPS)
        lower[: len(free)] = upper[: len(free)] = 1
        lower[self.floor_rows] = [floors[crop] > 0 for crop in CROPS]
        upper[self.floor_rows] = math.inf
        upper[self.budget_row] = math.inf if budget is None else budget / self.budget_scale
        self.lower, self.upper = lower, upper
        self.integer = np.r_[np.ones(len(self.x) + len(free), bool), np.zeros(len(ends), bool)]

    def _habitat_around(self, habitat):
        """`(n,)` what the borders of each parcel to habitat are worth."""
        around = np.zeros(len(habitat))
        for one, other in (self.pairs.T, self.pairs.T[::-1]):
            np.add.at(around, one, self.weight * habitat[other])
        return around

    def solver(self, integer, gap=0.0):
        """HiGHS with the whole model."""
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = self.matrix.shape
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_, lp.offset_ = self.worth, self.fixed
        lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.ones(lp.num_col_)
        lp.row_lower_, lp.row_upper_ = self.lower, self.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = self.matrix.indptr, self.matrix.indices
        lp.a_matrix_.value_ = self.matrix.data
        if integer:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[i] for i in self.integer.astype(int)]
        highs = _quiet(gap, max(self.deadline - perf_counter(), 0.1))
        highs.passModel(lp)
        return highs

    def labels_of(self, values):
        """The label of every parcel in a solution's column values."""
        labels = [HABITAT] * len(self.landscape)
        best = np.full(len(self.landscape), 0.5)
        for i, k, v in zip(self.parcel, self.crop, np.asarray(values)[self.x], strict=True):
            if v > best[i]:
                labels[i], best[i] = CROPS[k], v
        return labels

    def columns_of(self, labels):
        """Column values of a map of labels."""
        at = np.array([LABELS.index(label) for label in labels])
        habitat = at == LABELS.index(HABITAT)
        crop = np.array([LABELS.index(c) for c in CROPS])[self.crop]
        free = self.landscape.decidable
        inner = ~self.landscape.habitat[self.pairs].any(axis=1) & (self.weight > 0)
        both = habitat[self.pairs[inner]].all(axis=1)
        return np.r_[at[self.parcel] == crop, habitat[free], both].astype(float)

    def objective(self, labels):
        a, b = self.weights
        made = production(self.landscape, labels) if b else {}
        return a * connectivity(self.landscape, labels) + b * sum(made.values())

    def plan(self, gap, started):
        relaxed = self.solver(integer=False)
        relaxed.run()
        dual = np.array(relaxed.getSolution().row_dual)
        prices = np.maximum(-dual[self.floor_rows] / self.scale, 0)
        budget_price = max(dual[self.budget_row] / self.budget_scale, 0.0)
        mip = self.solver(integer=True, gap=gap)
        mip.run()
        labels = self.labels_of(mip.getSolution().col_value)
        objective = self.objective(labels)
        bound = max(mip.getInfo().mip_dual_bound, objective)
        values = self.values(labels, prices, budget_price)
        plan = Plan(
            labels=labels,
            objective=objective,
            bound=bound,
            gap=(bound - objective) / objective if objective else 0.0,
            status="optimal",
            seconds=perf_counter() - started,
            shadow_prices=dict(zip(CROPS, prices.tolist(), strict=True)),
            optimal_labels=[],
            exact=False,
            floors=self.floors,
            values=values,
            possible=possible(self.landscape),
            connectivity_weight=self.weights[0],
            yield_weight=self.weights[1],
            budget=self.budget,
            budget_price=budget_price,
        )
        object.__setattr__(plan, "optimal_labels", accepted(plan))
        return plan

    def values(self, labels, prices, budget_price):
        """`Plan.values`."""
        landscape = self.landscape
        values = np.zeros((len(landscape), len(LABELS)))
        for k, crop in enumerate(CROPS):
            values[:, LABELS.index(crop)] = (prices[k] + self.weights[1]) * self.harvest[:, k]
        around = self._habitat_around(np.array([label == HABITAT for label in labels]))
        charge = np.where(landscape.habitat, 0, budget_price * landscape.area)
        values[:, LABELS.index(HABITAT)] = around - charge
        return values


def _quiet(gap, time_limit):
    highs = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "mip_rel_gap": gap,
        "mip_abs_gap": 0.0,
        "time_limit": time_limit,
        "mip_detect_symmetry": False,
        "mip_allow_restart": False,
    }.items():
        highs.setOptionValue(option, value)
    return highs


def _close(values, tolerance):
    """Which labels are within a share of each parcel's best."""
    best = values.max(axis=1, keepdims=True)
    close = values >= best - tolerance * np.abs(best) - 1e-9
    return close


def _checked(landscape, labels):
    labels = list(labels)
    if len(labels) != len(landscape):
        raise CasebookError(
            f"a label for every parcel is needed: {len(landscape)}, not {len(labels)}"
        )
    for i, (label, existing) in enumerate(zip(labels, landscape.habitat, strict=True)):
        if label is not None and label not in LABELS:
            raise CasebookError(f"parcel {i}: {label!r} is no land use ({', '.join(LABELS)})")
        if existing and label != HABITAT:
            raise CasebookError(f"parcel {i} is habitat already and cannot become {label!r}")
    return labels


def _floors(landscape, floors):
    if floors is None:
        made = production(landscape, reference_labels(landscape))
        return {crop: FLOOR_SHARE * tonnes for crop, tonnes in made.items()}
    return {crop: float(floors.get(crop, 0.0)) for crop in CROPS}


def _check_arguments(connectivity_weight, yield_weight, budget, gap, time_limit):
    pass


def _is_number(value):
    return isinstance(value, numbers.Real) and math.isfinite(value)
