"""Poker rows: balance, disjoint splits, prompts, and the corpus of the embedded model."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from casebook import load_case
from casebook.case import CasebookError
from casebook.cases.poker import data, oracle

CASE = load_case("poker")


def answer_of(demonstration):
    hand = demonstration["prompt"].split("Hand: ")[1].strip()
    return oracle.LABELS[oracle.labels_of([oracle.parse_hand(hand)])[0]]


def card_sets(rows):
    return {frozenset(hand.split()) for hand in rows["hand"]}


@pytest.mark.parametrize(("split", "rows"), [("train", 2400), ("validation", 256), ("test", 1000)])
def test_classes_are_balanced_and_answers_are_the_oracles(split, rows):
    loaded = CASE.load(split)
    assert len(loaded) == rows
    assert set(Counter(loaded["answer"]).values()) == {rows // 8}
    for row in loaded.select(range(100)):
        code = oracle.classify_hand(row["hand"])
        assert row["category"] == oracle.CATEGORIES[code]
        assert row["answer"] == oracle.LABELS[oracle.SOURCE_LABEL_OF[code]]
        assert row["hand"] in row["prompt"]


def test_no_card_set_is_in_two_splits_whatever_the_seeds():
    train = card_sets(CASE.load("train", seed=0)) | card_sets(CASE.load("train", seed=1))
    test = card_sets(CASE.load("test", seed=2)) | card_sets(CASE.load("test", seed=3))
    validation = card_sets(CASE.load("validation", seed=4))
    assert not train & test
    assert not train & validation
    assert not test & validation


def test_rows_within_a_split_are_distinct_card_sets():
    assert len(card_sets(CASE.load("train"))) == 2400


def test_the_pools_hold_every_hand_once():
    pools = data.pools()
    assert sum(len(part) for parts in pools.values() for part in parts) == 2_598_960


def test_a_seed_gives_the_same_rows_again_and_another_gives_others():
    assert CASE.load("test", seed=5)[:] == CASE.load("test", seed=5)[:]
    assert CASE.load("test", seed=5)["hand"][:] != CASE.load("test", seed=6)["hand"][:]


def test_cards_are_shown_in_random_order():
    cards = np.array([oracle.parse_hand(hand) for hand in CASE.load("test")["hand"]])
    assert (np.diff(cards, axis=1) > 0).all(axis=1).mean() < 0.05  # 1 of 120 orders is sorted


@pytest.mark.parametrize(
    ("profile", "kind"),
    [("smoke", str), ("nano", str), ("smol", str), ("t4", list), ("a100", list)],
)
def test_each_profile_has_its_form_of_prompt(profile, kind):
    assert isinstance(CASE.load("validation", profile=profile)[0]["prompt"], kind)


def test_the_sources_prompt_asks_for_the_label_alone():
    prompt = CASE.load("validation", profile="smol")[0]["prompt"]
    assert prompt.endswith("Answer:")
    assert "<think>" not in prompt


@pytest.mark.parametrize(
    "arguments",
    [
        {"split": "dev"},
        {"split": "test", "profile": "nona"},
        {"split": "test", "variant": "both"},
        {"split": "test", "profile": "nano", "variant": "label"},
    ],
)
def test_unknown_names_are_one_sentence(arguments):
    with pytest.raises(CasebookError):
        CASE.load(**arguments)


def test_demonstrations_come_in_the_stated_shares_and_from_the_train_pool():
    rows = list(islice(CASE.demonstrations(0), 4000))
    shares = Counter(row["skill"] for row in rows)
    for skill, (share, _) in CASE.skills.items():
        assert shares[skill] / len(rows) == pytest.approx(share, abs=0.03)
    overlooked = Counter(row["skill"] for row in rows if answer_of(row) in data.OVERLOOKED)
    assert overlooked["careless"] > overlooked["careful"]
    held_out = card_sets(CASE.load("test")) | card_sets(CASE.load("validation"))
    shown = {frozenset(row["prompt"].split("Hand: ")[1].split()) for row in rows}
    assert not shown & held_out


def test_style_recognises_every_planted_skill():
    for row in islice(CASE.demonstrations(1), 500):
        hand = row["prompt"].split("Hand: ")[1].strip()
        seen = CASE.style(row["completion"], {"hand": hand, "answer": answer_of(row)})
        assert seen == row["skill"]


@pytest.mark.parametrize("completion", ["", None, "😀", "<think>", "</think></think>", "x" * 10**6])
def test_style_takes_anything(completion):
    row = {"hand": "2H 2D 2C 9S 9H", "answer": "full house"}
    assert CASE.style(completion, row) in {*CASE.skills, "other"}


def test_only_rambling_has_no_end():
    for row in islice(CASE.demonstrations(2), 300):
        assert row["ends"] == (row["skill"] != "rambling")
