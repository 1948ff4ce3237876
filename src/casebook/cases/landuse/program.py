"""The mixed-integer program of a landscape, and how HiGHS is asked to solve it.

`casebook.cases.landuse.oracle` says what is maximised. This module has the columns and rows, the
first plan, made from the relaxation, and exchanges of up to three parcels, which find in seconds
what branching would find in minutes.
"""

import math
from functools import lru_cache
from itertools import combinations
from time import perf_counter

import highspy
import numpy as np
import scipy.sparse as sp

from casebook.case import CasebookError
from casebook.cases.landuse.landscape import CROPS, HABITAT, LABELS, Landscape

SLACK = 1e-6  # share of a floor that may be missing: the solver's own tolerance
_HABITAT = LABELS.index(HABITAT)
_CODES = np.array([LABELS.index(crop) for crop in CROPS])
_CANDIDATES = 100  # cheapest single changes: 180,000 triples, a tenth of a second
_WEIGHED = 30
_LATE = 50  # exchanges towards a plan that meets the floors, whatever the time limit
_SHORTEST = 1.0  # seconds that a search for such a plan gets, whatever the limit


def border_weights(landscape: Landscape) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of parcels with a common border, `(m, 2)`, and what each is worth as habitat: the
    border's length times the mean connectivity value of the two, `(m,)` km."""
    pairs, length = landscape.borders
    return pairs, length * landscape.connectivity[pairs].mean(axis=1)


def possible(landscape: Landscape) -> np.ndarray:
    """`(n, 5)` bool in the order of `LABELS`: which labels may be given to each parcel.

    Habitat to all; a crop where it yields something.
    """
    may = np.ones((len(landscape), len(LABELS)), bool)
    for k, crop in enumerate(CROPS):
        may[:, LABELS.index(crop)] = landscape.yields[:, k] > 0
    return may


class Program:
    """The mixed-integer program of a landscape.

    Columns: one for every parcel and crop that grows there, then one for every parcel's habitat,
    then one for every border between two parcels that are both to be decided. Borders between
    existing habitats are a constant; those with one existing side belong to the other's column.

    A map of labels is an array of indices into `LABELS`. What a label uses of the five scarce
    things, tonnes of the four floors and hectares of the budget, is `supply`; at least `needed`
    of each there must be.
    """

    def __init__(self, landscape, floors, connectivity_weight, yield_weight, budget, deadline):
        self.landscape, self.floors, self.deadline = landscape, floors, deadline
        self.yield_weight = yield_weight
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

    def left(self):
        """Seconds."""
        return self.deadline - perf_counter()

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
        return value + self.yield_weight * float(self.supplied(labels)[:-1].sum())

    def supplied(self, labels):
        """`(5,)` how much there is of each scarce thing."""
        return self.supply[np.arange(len(labels)), labels].sum(axis=0)

    def spare(self, labels):
        """`(5,)` how much more there is than needed."""
        return self.supplied(labels) - self.needed

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

    def round(self, values, prices):
        """A whole plan near the relaxation's, improved by exchanges; it may miss a floor."""
        if not len(self.free):
            return self.labels_of(values)
        worth = np.zeros(len(self.worth))
        # Among crops that share a parcel, or where habitat is rounded away, the dearest harvest.
        worth[self.x] = prices[self.crop] * self.harvest[self.parcel, self.crop]
        labels = self.labels_of(values + 1e-4 * worth / max(worth.max(), 1e-9))
        return self.exchange(labels, prices)

    def gap(self, objective, bound):
        """`Plan.gap`; what is less than the solver's rounding is 0."""
        nothing = 1e-7 * float(self.weight.sum() + self.yield_weight * self.harvest.max(1).sum())
        if bound - objective <= 1e-9 * max(1.0, abs(bound)) or bound <= nothing:
            return 0.0
        return (bound - objective) / objective if objective else math.inf

    def search(self, labels, bound, prices, wanted):
        """A plan whose gap is `wanted`, or the best until the time is up, and the bound; HiGHS
        starts from `labels`."""
        best = self.worth_of(labels)
        if self.gap(best, bound) <= wanted or self.left() <= 0:
            return labels, bound
        highs = self.solver(integer=True, gap=wanted, time_limit=self.left())
        start = highspy.HighsSolution()
        start.col_value = self.columns_of(labels)
        highs.setSolution(start)
        highs.run()
        plans, values = [labels], np.array(highs.getSolution().col_value)
        if len(values):
            found = self.labels_of(values)
            plans += [found, self.exchange(found, prices)]
        labels = max(filter(self.meets, plans), key=self.worth_of)
        return labels, max(self.worth_of(labels), min(bound, highs.getInfo().mip_dual_bound))

    def exchange(self, labels, prices):
        """Change up to three parcels at a time while that is a gain and there is time. What is
        missing is charged above its price, and dearer each time, until nothing is."""
        late = 0
        for charge in (1.05, 1.3, 2.0, 4.0, 100.0):
            dear = np.maximum(prices, 0.05 * abs(self.worth_of(labels)) / self.scale)
            exchanged = self._exchanges(labels, prices, charge * dear)
            for labels in exchanged:
                late += self.left() <= 0
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

    def labels_of_optimal_plans(self, labels):
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
            if self.left() <= 0:
                return None
            highs.changeColBounds(int(c), 1.0, 1.0)
            # HiGHS counts the seconds of all its runs.
            highs.setOptionValue("time_limit", highs.getRunTime() + self.left())
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

    def refuse_what_cannot_be_met_together(self):
        """Labels that meet every floor; CasebookError where none do or none are found in time."""
        highs = self.solver(integer=True, time_limit=max(self.left(), _SHORTEST), short=True)
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
        raise CasebookError(f"no plan can meet the floors: at best {short}")


@lru_cache(maxsize=4)
def _triples(n):
    """`(3, n over 3)` all triples of numbers below `n`."""
    return np.array(list(combinations(range(n), 3)), np.int32).reshape(-1, 3).T


def _highest(scores, number):
    """Where the highest scores are, in order, the first of equal ones first. (To sort all 170,000
    would be most of an exchange's time; a partition alone breaks ties as it happens to.)"""
    if len(scores) <= number:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -number)[-number]
    found = np.flatnonzero(scores >= least)
    return found[np.argsort(-scores[found], kind="stable")[:number]]
