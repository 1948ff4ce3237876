"""The land-use oracle: every plan of small landscapes, known indices, and bad input."""

import math
from itertools import product

import geopandas as gpd
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import CasebookError
from casebook.cases.landuse import data
from casebook.cases.landuse.landscape import CROPS, LABELS, YIELDS, Landscape, generate
from casebook.cases.landuse.oracle import (
    accepted,
    border_weights,
    connectivity,
    plan_from_table,
    production,
    reference_labels,
    regret,
    solve,
)

KM = 1000.0


def made(yields, at, value=0.5, side=KM) -> Landscape:
    """Square parcels of a km by default; `yields` a row of four a parcel, `at` (x, y) in sides."""
    at = np.asarray(at, float)
    shapes = shapely.box(*(at.T * side), *((at.T + 1) * side))
    parcels = gpd.GeoDataFrame(
        dict(zip(YIELDS, np.array(yields, float).T, strict=True)), geometry=shapes, crs="EPSG:3347"
    )
    parcels["ecological_connectivity"] = value
    parcels["area_ha"] = parcels.area / 1e4
    parcels["habitat"] = (parcels[list(YIELDS)] == 0).all(axis=1)
    return Landscape(parcels, "made by hand")


def row_of(*yields, **options) -> Landscape:
    return made(yields, [(i, 0) for i in range(len(yields))], **options)


def every_plan(landscape, floors, connectivity_weight=1.0, yield_weight=0.0, budget=None):
    """The best objective and the labels of the best plans, by trying them all."""
    n, shapes = len(landscape), landscape.parcels.geometry.to_numpy()
    value, area = landscape.connectivity, landscape.area
    choices = [
        [LABELS.index("habitat")]
        if landscape.habitat[i]
        else [LABELS.index("habitat")]
        + [LABELS.index(crop) for crop in CROPS if landscape.parcels[f"{crop}_yield"][i] > 0]
        for i in range(n)
    ]
    plans = np.array(list(product(*choices)), np.int8)
    habitat = plans == LABELS.index("habitat")
    worth = np.zeros(len(plans))
    for i in range(n):
        for j in range(i):
            km = shapely.intersection(shapes[i], shapes[j]).length / 1000
            weight = connectivity_weight * km * (value[i] + value[j]) / 2
            worth += weight * (habitat[:, i] & habitat[:, j])
    fits = np.ones(len(plans), bool)
    for crop in CROPS:
        tonnes = (plans == LABELS.index(crop)) @ (area * landscape.parcels[f"{crop}_yield"])
        fits &= tonnes >= floors.get(crop, 0) * (1 - 1e-6)
        worth += yield_weight * tonnes
    if budget is not None:
        fits &= (habitat & ~landscape.habitat) @ area <= budget * (1 + 1e-6)
    if not fits.any():
        return None
    best = worth[fits].max()
    optimal = plans[fits & (worth >= best - 1e-6 * max(1, abs(best)))]
    return best, [tuple(sorted({LABELS[k] for k in column})) for column in optimal.T], optimal


# The optimum


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("size", "irregular"), [((2, 3), False), ((3, 3), False), ((2, 3), True), ((3, 3), True)]
)
def test_small_plans_are_the_best_of_all_and_their_labels_all_that_are_right(size, irregular, seed):
    landscape = generate(*size, seed, irregular)
    rng = np.random.default_rng(seed)
    made_there = production(landscape, reference_labels(landscape))
    floors = {crop: rng.uniform(0.3, 0.9) * tonnes for crop, tonnes in made_there.items()}
    options = {
        "yield_weight": (0.0, 1e-3)[seed % 2],
        "connectivity_weight": (1.0, 2.5)[seed % 3 == 2],
        "budget": None if seed < 3 else landscape.area.sum() * 0.3,
    }
    best, labels, plans = every_plan(landscape, floors, **options)
    plan = solve(landscape, floors, **options)
    assert plan.exact
    assert plan.status == "optimal"
    assert plan.objective == pytest.approx(best, rel=1e-6)
    assert plan.gap <= 1e-6
    assert [LABELS.index(label) for label in plan.labels] in plans.tolist()
    assert plan.optimal_labels == labels


@settings(max_examples=40, deadline=None)
@given(
    yields=st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.5]), min_size=4, max_size=4),
        min_size=4,
        max_size=4,
    ),
    shares=st.lists(st.sampled_from([0.0, 0.3, 0.6, 1.0]), min_size=4, max_size=4),
    value=st.sampled_from([0.0, 0.4]),
)
def test_four_parcels_with_many_ties_agree_with_enumeration(yields, shares, value):
    landscape = made(yields, [(0, 0), (1, 0), (0, 1), (1, 1)], value=value)
    made_there = production(landscape, reference_labels(landscape))
    floors = {c: s * made_there[c] for c, s in zip(CROPS, shares, strict=True)}
    best, labels, _ = every_plan(landscape, floors)
    plan = solve(landscape, floors)
    assert plan.objective == pytest.approx(best, abs=1e-6)
    assert plan.optimal_labels == labels


def test_two_parcels_by_hand():
    # One parcel must grow wheat; the one beside it joins the habitat at the end of the row.
    landscape = row_of([3, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0])
    plan = solve(landscape, {"wheat": 150.0})
    assert plan.labels == ["wheat", "habitat", "habitat"]
    assert plan.objective == pytest.approx(0.5)  # a border of 1 km, mean value 0.5
    assert plan.optimal_labels == [("wheat",), ("habitat",), ("habitat",)]
    assert connectivity(landscape, plan.labels) == pytest.approx(0.5)
    assert regret(landscape, plan, plan.labels).kept == 1
    assert regret(landscape, plan, plan.labels).priced_km == pytest.approx(0)
    assert production(landscape, plan.labels)["wheat"] == pytest.approx(300.0)


def test_a_larger_landscape_keeps_the_rules():
    landscape = generate(12, 12, seed=3)
    plan = solve(landscape, gap=0.02)
    assert not plan.exact
    assert plan.status == "optimal"
    assert plan.gap <= 0.02
    assert plan.bound >= plan.objective
    assert plan.gap == pytest.approx((plan.bound - plan.objective) / plan.objective)
    assert plan.objective == pytest.approx(connectivity(landscape, plan.labels))
    grown = production(landscape, plan.labels)
    for crop, floor in plan.floors.items():
        assert grown[crop] >= floor * (1 - 1e-6)
    for i, label in enumerate(plan.labels):
        may = {"habitat"} | {c for k, c in enumerate(CROPS) if landscape.yields[i, k] > 0}
        assert {label} <= set(plan.optimal_labels[i]) <= may


def test_the_reference_is_not_all_corn():
    landscape = generate(15, 15, seed=0)
    labels = np.array(reference_labels(landscape))
    assert (labels[landscape.habitat] == "habitat").all()
    assert not (labels[~landscape.habitat] == "habitat").any()
    assert min([np.mean(labels[~landscape.habitat] == crop) for crop in CROPS]) > 0.1
    heaviest = landscape.yields[~landscape.habitat].argmax(axis=1)
    assert np.mean(heaviest == CROPS.index("corn")) > 0.6


# Prices and values


def test_a_shadow_price_is_what_the_bound_gains_when_a_floor_falls():
    landscape = generate(8, 8, seed=6)
    plan = solve(landscape, gap=0.5)  # so wide that the relaxation's bound is the plan's
    assert set(plan.shadow_prices) == set(CROPS)
    for crop, price in plan.shadow_prices.items():
        assert price >= 0
        less = plan.floors | {crop: plan.floors[crop] - 0.01}
        gained = solve(landscape, less, gap=0.5).bound - plan.bound
        assert gained == pytest.approx(0.01 * price, rel=0.05, abs=1e-7)


def test_values_are_priced_harvests_and_borders_with_habitat():
    landscape = generate(6, 6, seed=2)
    plan = solve(landscape, gap=0.02, yield_weight=1e-4)
    assert plan.values.shape == (36, 5)
    pairs, weight = border_weights(landscape)
    for i in range(36):
        around = sum(
            w
            for (a, b), w in zip(pairs, weight, strict=True)
            if i in (a, b) and plan.labels[b if a == i else a] == "habitat"
        )
        assert plan.values[i, LABELS.index("habitat")] == pytest.approx(around)
        for k, crop in enumerate(CROPS):
            tonnes = landscape.area[i] * landscape.yields[i, k]
            expected = (plan.shadow_prices[crop] + 1e-4) * tonnes
            assert plan.values[i, LABELS.index(crop)] == pytest.approx(expected)


def test_accepted_labels_grow_with_the_tolerance():
    landscape = generate(10, 10, seed=1)
    plan = solve(landscape, gap=0.01)
    narrow, usual, wide = (accepted(plan, t) for t in (0, 0.02, 0.05))
    assert usual == plan.optimal_labels
    for i, label in enumerate(plan.labels):
        assert {label} <= set(narrow[i]) <= set(usual[i]) <= set(wide[i])
        top = plan.values[i].max()
        for other in set(wide[i]) - {label}:
            assert plan.values[i, LABELS.index(other)] >= 0.95 * top - 1e-8
    assert wide != narrow
    assert all(labels == tuple(sorted(labels)) for labels in wide)


def test_a_budget_limits_new_habitat():
    landscape = generate(7, 7, seed=3)
    free, tight = solve(landscape, gap=0.01), 3 * landscape.area[0]
    plan = solve(landscape, gap=0.01, budget=tight)
    assert 0 < len([i for i in landscape.decidable if plan.labels[i] == "habitat"]) <= 3
    assert plan.objective < free.objective
    none = solve(landscape, budget=0.0)
    assert not [i for i in landscape.decidable if none.labels[i] == "habitat"]


def test_floors_that_cannot_be_met_name_the_crops_and_what_is_missing():
    landscape = row_of([2, 2, 0, 0], [2, 2, 0, 0], [0, 0, 3, 0])
    with pytest.raises(CasebookError, match=r"at best wheat is 200\.0 t \(33.33%\) short"):
        solve(landscape, {"wheat": 600})
    with pytest.raises(CasebookError) as refused:
        solve(landscape, {"wheat": 300, "oat": 300, "corn": 300})
    assert "wheat is" in str(refused.value) or "oat is" in str(refused.value)
    assert "corn" not in str(refused.value)


def test_when_time_is_up_there_is_a_plan_with_its_gap():
    landscape = generate(12, 12, seed=0)
    plan = solve(landscape, gap=1e-9, time_limit=1e-6)
    assert plan.status == "time limit"
    assert plan.gap == pytest.approx((plan.bound - plan.objective) / plan.objective)
    assert 1e-9 < plan.gap < 0.2
    grown = production(landscape, plan.labels)
    assert all(grown[crop] >= floor * (1 - 1e-6) for crop, floor in plan.floors.items())


@pytest.mark.parametrize("free", [0, 1, 1.5])
def test_where_nothing_can_be_connected_a_plan_worth_0_is_proven(free):
    # 25 fields of wheat, no habitat yet: the floor leaves at most one of them.
    landscape = made([[2, 0, 0, 0]] * 25, [divmod(i, 5) for i in range(25)])
    plan = solve(landscape, {"wheat": 200.0 * (25 - free)})
    assert (plan.objective, plan.gap, plan.status) == (0.0, 0.0, "optimal")
    assert plan.bound == pytest.approx(0, abs=1e-6)
    assert regret(landscape, plan, ["wheat"] * 25).kept == 1.0


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"floors": {"barley": 3}}, "unknown crop 'barley': known are wheat, oat, corn, soy"),
        ({"floors": {"wheat": -1}}, "floor of wheat"),
        ({"connectivity_weight": -1}, "weights and budget are 0 or more"),
        ({"connectivity_weight": 0}, "both weights 0"),
        ({"budget": -5}, "weights and budget are 0 or more"),
        ({"gap": 0}, "gap and time limit above 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(bad, says):
    with pytest.raises(CasebookError, match=says):
        solve(row_of([1, 2, 0, 0], [1, 1, 1, 1]), **bad)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["wheat"], "every parcel: 2, not 1"),
        (["barley", "habitat"], "parcel 0 cannot become 'barley', only wheat, oat"),
        (["wheat", "oat"], "parcel 1 cannot become 'oat', only habitat"),
    ],
)
def test_maps_of_labels_are_checked(labels, says):
    with pytest.raises(CasebookError, match=says):
        connectivity(row_of([1, 2, 0, 0], [0, 0, 0, 0]), labels)


def test_a_plan_comes_back_from_its_table():
    landscape = generate(6, 6, seed=3)
    plan = solve(landscape, gap=0.02)
    again = plan_from_table(landscape, data.table(landscape, plan))
    assert again.labels == plan.labels
    assert again.optimal_labels == plan.optimal_labels == accepted(again)
    assert again.objective == pytest.approx(plan.objective)
    assert again.floors == pytest.approx(plan.floors)
    assert again.shadow_prices == pytest.approx(plan.shadow_prices, rel=1e-3)
    assert np.allclose(again.values, plan.values, atol=1e-5)
    assert (again.status, again.seconds, again.exact) == ("from the table", 0.0, False)
    assert [*map(math.isnan, (again.bound, again.gap))] == [True, True]
    labels = reference_labels(landscape)
    lost, known = regret(landscape, again, labels), regret(landscape, plan, labels)
    assert lost.priced_km == pytest.approx(known.priced_km, rel=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_no_labels_beat_the_prices(seed):
    landscape = generate(6, 6, seed=seed)
    plan = solve(landscape, gap=0.5)  # the bound is the relaxation's, whose prices these are
    rng = np.random.default_rng(seed)
    for _ in range(20):
        labels = ["habitat" if existing else rng.choice(LABELS) for existing in landscape.habitat]
        lost = regret(landscape, plan, labels)
        assert lost.priced_km >= plan.objective - plan.bound - 1e-6


def test_a_parcel_without_a_label_is_neither_harvest_nor_habitat():
    landscape = row_of([3, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0])
    plan = solve(landscape, {"wheat": 150.0})
    lost = regret(landscape, plan, [None, None, "habitat"])
    assert (lost.connectivity, lost.kept, lost.shortfall["wheat"]) == (0, 0, 1)


def test_floors_above_the_harvest_by_less_than_the_rounding_are_a_sentence():
    landscape = generate(4, 4, 3)
    most = (landscape.area * landscape.yields[:, 0])[landscape.decidable].sum()
    assert solve(landscape, {"wheat": most}, time_limit=5).status == "optimal"
    with pytest.raises(CasebookError, match="lower them by a millionth"):
        solve(landscape, {"wheat": most * (1 + 5e-7)}, time_limit=5)
