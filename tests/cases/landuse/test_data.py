"""Land-use rows: splits by landscape, what a prompt shows, and the corpus of the nano model."""

import re
from collections import Counter

import numpy as np
import pytest

from casebook import load_case
from casebook.cases.landuse import data
from casebook.cases.landuse.fields import CROPS, LABELS, YIELDS
from casebook.cases.landuse.landscape import generate
from casebook.cases.landuse.rewards import VARIANTS
from casebook.experiments.nano import PIECES

CASE = load_case("landuse")
PROMPT_OF = {(skill, v) for v, skills in CASE.skills.items() for skill in skills}


def pieces(text):
    return len(re.findall(PIECES, text))


def decidable(table):
    return np.flatnonzero(~table["habitat"].to_numpy())


def inner(table):
    """The first decidable parcel that has eight neighbours and sixteen beyond."""
    full = (table["near"].str.len() == 8) & (table["far"].str.len() == 16) & ~table["habitat"]
    return int(np.flatnonzero(full)[0])


@pytest.fixture(scope="module")
def table():
    return data.pool("validation")


# Splits


@pytest.mark.parametrize(("split", "rows"), [("train", 2400), ("validation", 256), ("test", 1000)])
def test_a_split_has_its_rows_and_only_parcels_that_can_be_decided(split, rows):
    loaded = CASE.load(split)
    assert len(loaded) == rows
    assert len(set(zip(loaded["landscape"], loaded["parcel"], strict=True))) == rows
    for row in loaded.select(range(50)):
        assert row["plan_label"] in row["answer"].split("|")
        assert set(row["answer"].split("|")) <= set(LABELS)


def test_no_landscape_is_in_two_splits():
    names = {split: set(data.pool(split)["landscape"]) for split in data.SEEDS}
    assert not names["train"] & (names["test"] | names["validation"])
    assert not names["validation"] & names["test"]
    assert {split: len(found) for split, found in names.items()} == {
        split: len(seeds) for split, seeds in data.SEEDS.items()
    }


def test_the_shipped_table_is_that_of_the_generated_landscapes(table):
    landscape = generate(data.SIDE, data.SIDE, data.SEEDS["validation"][0])
    shipped = table[table["landscape"] == landscape.name]
    assert len(shipped) == len(landscape)
    np.testing.assert_allclose(shipped[list(YIELDS)], landscape.yields, atol=0.011)
    assert shipped["habitat"].tolist() == landscape.habitat.tolist()
    near = [list(parcels) for parcels in shipped["near_parcels"]]
    assert [sorted(parcels) for parcels in near] == [list(n) for n in landscape.neighbours]


# Tables


def test_a_label_that_counts_is_worth_what_the_tolerance_says(table):
    for row in table.loc[~table["habitat"]].head(200).itertuples():
        best = max(row.values)
        for label in set(row.answer.split("|")) - {row.plan_label}:
            assert row.values[LABELS.index(label)] >= 0.98 * best - 1e-4


def test_a_crop_that_does_not_grow_is_never_right(table):
    for row in table.loc[~table["habitat"]].itertuples():
        for crop in CROPS:
            if getattr(row, f"{crop}_yield") == 0:
                assert crop not in row.answer_5.split("|")


# What a prompt shows


def test_a_position_says_where_the_neighbour_lies(table):
    i = inner(table)
    by_position = dict(zip(table["near"][i], table["near_parcels"][i], strict=True)) | dict(
        zip(table["far"][i], table["far_parcels"][i], strict=True)
    )
    parcel = table["parcel"][i]
    steps = {"north": -30, "east": 1, "south": 30, "west": -1, "north-west": -31}
    for position, step in steps.items():
        assert by_position[position] == parcel + step
    assert by_position["north>north"] == parcel - 60
    assert by_position["east>east"] == parcel + 2


def test_nano_prompts_are_short_and_name_every_yield_in_a_token(corpus):
    assert max(pieces(row["prompt"]) for row in corpus) <= 70
    assert max(pieces(row["prompt"] + row["completion"]) for row in corpus) < 128


def test_a_nano_prompt_shows_the_record_in_tenths(table):
    i = inner(table)
    lines = data.rows(table, chosen=[i])["prompt"][0].splitlines()
    assert len(lines) == 9
    position, *digits = lines[0].split()
    assert position == "parcel"
    surveys = data.surveys_of(table)
    expected = ["-" if d < 0 else str(d) for d in surveys.deciles[i]]
    assert digits == [*expected, str(min(int(surveys.connectivity[i] * 10), 9))]


def test_a_shuffle_moves_the_neighbours_and_keeps_them(table):
    i = inner(table)
    plain, shuffled = (data.records(table, i, order=1, variant=v) for v in (None, "shuffled"))

    def places(shown):
        return [tuple(record.values()) for record in shown[1:]]

    def neighbours(shown):
        return sorted(tuple(record.values())[1:] for record in shown[1:])

    assert places(plain) != places(shuffled)
    assert neighbours(plain) == neighbours(shuffled)
    assert data.records(table, i, variant="shuffled") == data.records(table, i, variant="shuffled")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("profile", ["nano", "smol", "t4", "a100"])
def test_every_profile_has_a_prompt_for_every_variant(table, profile, variant):
    prompt = data.rows(table, profile, variant, [inner(table)])["prompt"][0]
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]
    assert text.strip()
    assert isinstance(prompt, list) == (profile in ("t4", "a100") and variant != "source")
    if profile != "nano":
        assert text.count("'position'") == (
            1 if variant == "alone" else 25 if profile == "a100" else 9
        )


# The corpus


def test_skills_come_in_the_planted_shares(corpus):
    asked = [row for row in corpus if row["prompt"].count("\n") > 1]
    asked = [row for row in asked if not row["prompt"].startswith("prices")]
    asked = [row for row in asked if not row["prompt"].endswith("label:")]
    found = Counter(row["skill"] for row in asked)
    for name, (share, _) in CASE.skills["reason"].items():
        assert found[name] / len(asked) == pytest.approx(share, abs=0.03)


def test_a_style_is_what_was_planted(corpus):
    for row in corpus:
        if (row["skill"], "label") not in PROMPT_OF:
            assert CASE.style(row["completion"], {"answer": "corn"}) == row["skill"]
