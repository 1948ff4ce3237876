"""The source's heuristics and its flow as rules that decide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook.cases.landuse import heuristics
from casebook.cases.landuse.fields import CROPS
from casebook.cases.landuse.heuristics import HEURISTICS, flow

AROUND = (
    *("north", "north-east", "east", "south-east"),
    *("south", "south-west", "west", "north-west"),
)


def record(position="central", wheat=3.0, oat=2.0, corn=0.0, soy=0.0, links=0.4):
    yields = dict(zip(CROPS, (wheat, oat, corn, soy), strict=True))
    return {
        "position": position,
        **{f"{crop}_yield": t for crop, t in yields.items()},
        "ecological_connectivity": links,
    }


def barren(position, links=0.4):
    return record(position, 0.0, 0.0, 0.0, 0.0, links)


def parcel(centre=None, **others):
    """A centre among eight fields like it, but for those named: `north_east=barren(...)`."""
    others = {name.replace("_", "-"): other for name, other in others.items()}
    return [centre or record(), *(others.get(side, record(side)) for side in AROUND)]


tonnes = st.floats(0, 15).map(lambda x: round(x, 2))
shares = st.floats(0, 1).map(lambda x: round(x, 2))


@st.composite
def parcels(draw):
    sides = draw(st.lists(st.sampled_from(AROUND), max_size=9))
    further = draw(st.lists(st.sampled_from(["north>north", "east>south"]), max_size=3))
    positions = ["central", *sides, *further]
    return [
        record(p, *draw(st.tuples(tonnes, tonnes, tonnes, tonnes)), draw(shares)) for p in positions
    ]


# Rules


@given(parcels())
def test_every_rule_decides_every_parcel_and_plants_only_what_grows(records):
    grown = heuristics.yields_of(records[0])
    for name, rule in HEURISTICS.items():
        label = rule.decide(records)
        assert label in {*grown, "habitat"}, name
        assert isinstance(rule.fires(records), bool)
    assert flow(records).label in {*grown, "habitat"}
    assert len(flow(records).steps) == 7


@given(parcels())
def test_a_rule_that_does_not_fire_falls_back_to_the_highest_yield(records):
    for name, rule in HEURISTICS.items():
        if not rule.fires(records):
            assert rule.decide(records) == heuristics.highest_yield(records), name


def test_a_tie_goes_to_the_crop_with_the_better_connected_neighbours():
    here = record(wheat=3.0, oat=2.9)
    oats = record("north", wheat=2.0, oat=3.0, links=0.72)
    assert heuristics.tie_breaker(parcel(here, north=oats)) == "oat"
    # Beyond ten per cent there is no tie, and below the centre's connectivity no reason.
    assert heuristics.tie_breaker(parcel(record(wheat=3.0, oat=2.6), north=oats)) == "wheat"
    well = record(wheat=3.0, oat=2.9, links=0.8)
    assert heuristics.tie_breaker(parcel(well, north=oats)) == "wheat"


def test_half_of_the_neighbours_make_a_belt():
    three = {side: barren(side) for side in ("north", "east", "south")}
    assert not heuristics.zero_belt(parcel(**three))
    assert heuristics.zero_belt(parcel(**three, west=barren("west")))
    assert not heuristics.zero_belt(parcel(**three, west=barren("west")), share=0.6)
    assert not heuristics.zero_belt([record(), barren("north>north")])


@given(parcels())
def test_the_literal_belt_never_fires_where_anything_grows(records):
    if heuristics.yields_of(records[0]):
        assert not heuristics.zero_belt(records, literal=True)


def test_a_sharp_jump_to_the_neighbours_mean_drops_a_crop():
    here = record(wheat=3.0, oat=2.0)
    poor = {side.replace("-", "_"): record(side, wheat=1.5) for side in AROUND}
    assert heuristics.neighbour_mean(parcel(here)) == "wheat"
    assert heuristics.neighbour_mean(parcel(here, **poor)) == "oat"
    # Where every crop jumps none is dropped.
    lone = {side.replace("-", "_"): record(side, wheat=1.5, oat=0.5) for side in AROUND}
    assert heuristics.neighbour_mean(parcel(here, **lone)) == "wheat"


@given(parcels(), st.floats(0.1, 10), st.floats(0, 10))
def test_the_published_score_is_the_highest_yield_whatever_its_weights(records, alpha, beta):
    grown = heuristics.yields_of(records[0])
    if grown:
        said = heuristics.score(records, alpha, beta)
        assert said != "habitat"
        assert grown[said] == pytest.approx(max(grown.values()))


def test_a_corridor_needs_habitat_here_and_links_on_the_opposite_side():
    habitat = barren("north-east")
    linked = record("south-west", links=0.7)
    assert heuristics.corridor(parcel(north_east=habitat, south_west=linked))
    assert not heuristics.corridor(parcel(north_east=habitat))
    assert not heuristics.corridor(parcel(south_west=linked))
    assert not heuristics.corridor(parcel(north_east=habitat, south=record("south", links=0.7)))
    assert not heuristics.corridor(parcel(north_east=habitat, south_west=linked), high=0.71)


def test_the_flow_prunes_picks_checks_and_applies_edge_cases():
    assert flow(parcel()).label == "wheat"
    assert flow(parcel(record(links=0.70))).label == "habitat"
    oats = record("north", wheat=2.0, oat=3.0, links=0.72)
    assert flow(parcel(record(wheat=3.0, oat=2.9, links=0.65), north=oats)).label == "oat"
    assert flow(parcel(north=barren("north"), south=record("south", links=0.7))).label == "habitat"
    assert flow([record(), barren("north")]).steps[4] == "zero-yield belt"
