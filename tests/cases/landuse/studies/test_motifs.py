"""The tagger that finds the heuristics in texts, and how far it can be trusted."""

import math

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from casebook.cases.landuse.studies import motifs
from casebook.cases.landuse.studies.motifs import MOTIFS, tags

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
    "The average wheat yield of the surrounding fields is 2.1.": "neighbour_mean",
    "Supply is not a concern.": "global_baseline",
    "Score(wheat) = 3.1 + 0.2.": "score",
    "Habitat to the west, good connectivity to the east: this would bridge them.": "corridor",
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


@settings(deadline=None)  # nothing here is about the clock
@given(st.one_of(st.text(), st.none(), st.integers(), st.binary(), st.lists(st.integers())))
@example("\ud800 corn \x00")
@example("corn 1.1 " * 50_000)
@example("north east west south " * 20_000)
def test_any_input_gives_motifs(text):
    assert tags(text) <= set(MOTIFS)


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
    found = motifs.precision_recall(lambda text: frozenset(said[text]), table)
    assert tuple(found.index) == MOTIFS
    assert found.loc["score", ["precision", "recall", "tagged", "labelled", "n"]].tolist() == [
        *(0.5, 0.5, 2, 2, 4)
    ]
    assert 0 < found.loc["score", "recall_low"] < 0.5 < found.loc["score", "recall_high"] < 1
    assert found.loc["corridor", "recall"] == found.loc["yield_max", "precision"] == 0
    assert math.isnan(found.loc["corridor", "precision"])
    assert math.isnan(found.loc["yield_max", "recall"])


def test_the_tagger_is_trusted_as_far_as_the_pages_say():
    found = motifs.precision_recall()
    assert (found["precision"] >= 0.85).all()
    assert (found["recall"] >= 0.65).all()
    assert (found["labelled"] >= 15).all()
