"""The heuristics as rules, the tagger that finds them in texts, and how far it can be trusted."""

import math

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from casebook import CasebookError
from casebook.cases.landuse import heuristics
from casebook.cases.landuse.fields import CROPS
from casebook.cases.landuse.heuristics import HEURISTICS, MOTIFS, conformance, flow, tags

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


def test_there_are_the_source_s_seven_in_its_order():
    assert [rule.frequency for rule in HEURISTICS.values()] == [
        *(0.85, 0.60, 0.25, 0.20, 0.15, 0.10, 0.08)
    ]
    assert tuple(HEURISTICS) == tuple(rule.name for rule in HEURISTICS.values()) == MOTIFS


@given(parcels())
def test_every_rule_decides_every_parcel_and_plants_only_what_grows(records):
    grown = heuristics.yields_of(records[0])
    for rule in HEURISTICS.values():
        label = rule.decide(records)
        assert label in {*grown, "habitat"}, rule.name
        assert isinstance(rule.fires(records), bool)
    assert flow(records).label in {*grown, "habitat"}
    assert len(flow(records).steps) == 7


@given(parcels())
def test_a_rule_that_does_not_fire_falls_back_to_the_highest_yield(records):
    for rule in HEURISTICS.values():
        if not rule.fires(records):
            assert rule.decide(records) == heuristics.highest_yield(records), rule.name


@given(parcels())
def test_a_rule_that_makes_habitat_fires(records):
    for name in ("zero_belt", "corridor"):
        rule = HEURISTICS[name]
        if rule.fires(records):
            assert rule.decide(records) == "habitat"


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("records", [[], [record("north")]])
def test_records_without_a_centre_are_refused(name, records):
    with pytest.raises(CasebookError, match="central"):
        HEURISTICS[name].decide(records)


def test_a_parcel_where_nothing_grows_is_habitat():
    assert {rule.decide([barren("central")]) for rule in HEURISTICS.values()} == {"habitat"}


def test_the_highest_yield_is_in_tonnes_and_the_relative_one_is_not():
    here = [record(wheat=4.0, corn=8.0)]
    means = {"wheat": 3.4, "oat": 3.3, "corn": 8.5, "soy": 2.7}
    assert heuristics.highest_yield(here) == "corn"
    assert heuristics.highest_relative_yield(here, means) == "wheat"
    assert heuristics.highest_relative_yield([barren("central")], means) == "habitat"


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


def test_the_literal_belt_fires_on_a_parcel_that_is_habitat_already():
    assert heuristics.zero_belt([barren("central"), barren("north")], literal=True)


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
    close = record(wheat=3.0, oat=2.9, links=0.65)
    assert flow(parcel(close, north=oats)).label == "oat"
    assert flow(parcel(north=barren("north"), south=record("south", links=0.7))).label == "habitat"
    assert flow([record(), barren("north")]).steps[4] == "zero-yield belt"


# The tagger

NANO = {
    "top corn in tonnes": "yield_max",
    "close yields , oat links": "tie_breaker",
    "zero belt , habitat": "zero_belt",
    "no zero belt , corn": "zero_belt",
    "near mean wheat": "neighbour_mean",
    "supply first , corn": "global_baseline",
    "score soy": "score",
    "corridor , habitat": "corridor",
    "no corridor , corn": "corridor",
}
PROSE = {
    "Of the crops, corn gives the most tonnes per hectare, so corn.": "yield_max",
    "Wheat 0.7, oat 0.5; nothing else grows, ignore the rest.": "yield_max",
    "Wheat and oat are comparable. Oat has better connected fields beside it.": "tie_breaker",
    "At least four of the eight neighbours yield nothing: a belt of barren land.": "zero_belt",
    "Fewer than half of the neighbors are zero-yield.": "zero_belt",
    "The average wheat yield of the surrounding fields is 2.1.": "neighbour_mean",
    "Soy would be a sharp break with the fields beside it.": "neighbour_mean",
    "Supply is not a concern.": "global_baseline",
    "The whole landscape has production floors to meet.": "global_baseline",
    "Score(wheat) = 3.1 + 0.2.": "score",
    "Half the connectivity is added to each yield.": "score",
    "Habitat to the west, good connectivity to the east: this would bridge them.": "corridor",
    "There is no corridor to extend here.": "corridor",
}


@pytest.mark.parametrize(("text", "motif"), [*NANO.items(), *PROSE.items()])
def test_one_motif_is_found_and_no_other(text, motif):
    assert tags(text) == {motif}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yields wheat 7 oat 5 corn 3\nhabitat near 3\nlinks 6\nweigh oat",
        "The central parcel yields 3.2 t/ha of wheat. Connectivity is 0.4.",
        "The answer is habitat.",
        "Corn cannot grow here.",
    ],
)
def test_plain_description_shows_no_motif(text):
    assert tags(text) == frozenset()


def test_motifs_add_up():
    text = "\n".join(NANO)
    assert tags(text) == set(MOTIFS)
    assert tags([{"role": "assistant", "content": text}]) == set(MOTIFS)


@settings(deadline=None)  # nothing here is about the clock
@given(st.one_of(st.text(), st.none(), st.integers(), st.binary(), st.lists(st.integers())))
@example("\ud800 corn \x00")
@example("corn 1.1 " * 50_000)
@example("north east west south " * 20_000)
def test_any_input_gives_motifs_and_steps(text):
    assert tags(text) <= set(MOTIFS)
    assert set(map(type, conformance(text).values())) == {bool}


def test_text_beyond_the_limit_is_not_read():
    assert tags("x " * heuristics.LONGEST + "no corridor") == frozenset()


# The flow in a text

FLOWING = """<think>
Central wheat 3.1, oat 2.9, corn 0; neighbours similar.
Drop corn, it is zero.
Wheat is the highest.
Connectivity is 0.4.
No corridor and no belt.
Therefore wheat.
</think>
<answer>wheat</answer>"""


def test_a_completion_that_follows_the_flow_shows_every_step():
    assert set(conformance(FLOWING)) == {
        *("parse", "prune", "highest yield", "connectivity", "edge case", "explain", "close")
    }
    assert all(conformance(FLOWING).values())


def test_steps_out_of_order_do_not_all_count():
    head, *body, tail, answer = FLOWING.splitlines()
    backwards = conformance("\n".join([head, *reversed(body), tail, answer]))
    assert 1 < sum(backwards.values()) < 6
    assert backwards["close"]


def test_a_missing_answer_leaves_the_last_step_out():
    assert not conformance(FLOWING.replace("<answer>", ""))["close"]


# How far it can be trusted


def labelled(*rows):
    return pd.DataFrame(rows, columns=["text", "motifs"])


def test_precision_and_recall_count_hits():
    table = labelled(
        ("a", frozenset({"score"})),
        ("b", frozenset({"score", "corridor"})),
        ("c", frozenset()),
        ("d", frozenset()),
    )
    said = {"a": {"score"}, "b": set(), "c": {"score"}, "d": {"yield_max"}}
    found = heuristics.precision_recall(lambda text: frozenset(said[text]), table)
    assert tuple(found.index) == MOTIFS
    assert found.loc["score", ["precision", "recall", "tagged", "labelled", "n"]].tolist() == [
        *(0.5, 0.5, 2, 2, 4)
    ]
    assert 0 < found.loc["score", "recall_low"] < 0.5 < found.loc["score", "recall_high"] < 1
    assert found.loc["corridor", "recall"] == found.loc["yield_max", "precision"] == 0
    assert math.isnan(found.loc["corridor", "precision"])
    assert math.isnan(found.loc["yield_max", "recall"])


def test_the_tagger_is_trusted_as_far_as_the_pages_say():
    found = heuristics.precision_recall()
    assert (found["precision"] >= 0.85).all()
    assert (found["recall"] >= 0.65).all()
    assert (found["labelled"] >= 15).all()


def test_a_missing_file_or_an_unknown_motif_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(heuristics.paths, "DATA", tmp_path)
    with pytest.raises(CasebookError, match="missing"):
        heuristics.read_labelled()
    (tmp_path / "landuse").mkdir()
    (tmp_path / "landuse" / "motifs.csv").write_text("id,origin,text,motifs\n1,nano,x,score|luck\n")
    with pytest.raises(CasebookError, match="luck"):
        heuristics.read_labelled()
