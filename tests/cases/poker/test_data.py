"""Poker rows: balance, disjoint splits, prompts, and the corpus of the embedded model."""

from collections import Counter
from itertools import islice

import pytest

from casebook import load_case
from casebook.case import UnknownName
from casebook.cases.poker import data, oracle

CASE = load_case("poker")
LABEL_VARIANTS = ("label", "label-dealt", "label-source")
PROMPT_OF = {skill: prompt for prompt, skills in CASE.skills.items() for skill in skills}


def hand_of(demonstration):
    return demonstration["prompt"].split("Hand: ")[1].splitlines()[0]


def answer_of(demonstration):
    return oracle.LABELS[oracle.labels_of([oracle.parse_hand(hand_of(demonstration))])[0]]


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
    for variant in LABEL_VARIANTS:
        train |= card_sets(CASE.load("train", variant=variant))
        test |= card_sets(CASE.load("test", variant=variant))
        validation |= card_sets(CASE.load("validation", variant=variant))
    assert not train & (test | validation)
    assert not test & validation


@pytest.mark.parametrize("variant", LABEL_VARIANTS)
def test_rows_of_every_variant_are_the_oracles_in_one_prompt(variant):
    rows = CASE.load("test", variant=variant)
    assert len(card_sets(rows)) == len(rows)
    for row in rows.select(range(50)):
        code = oracle.classify_hand(row["hand"])
        assert row["answer"] == oracle.LABELS[oracle.SOURCE_LABEL_OF[code]]
        assert row["prompt"] == data.nano_label_prompt(row["hand"])


@pytest.mark.parametrize(("split", "rows"), [("train", 2400), ("validation", 256), ("test", 1000)])
def test_hands_as_dealt_come_in_their_natural_shares(split, rows):
    loaded = CASE.load(split, variant="label-dealt")
    shares = Counter(loaded["answer"])
    assert len(loaded) == rows
    for label, share in {"high card": 0.5012, "one pair": 0.4226, "two pair": 0.0475}.items():
        four_sigma = 4 * (share * (1 - share) / rows) ** 0.5
        assert shares[label] / rows == pytest.approx(share, abs=four_sigma)


def test_the_sources_400_rows_are_balanced_but_not_its_first_200():
    answers = CASE.load("test", variant="label-source")["answer"][:]
    assert set(Counter(answers).values()) == {data.SOURCE_PER_LABEL}
    assert set(Counter(answers)) == set(oracle.LABELS)
    first = Counter(answers[:200])
    assert [first[label] for label in oracle.LABELS[:3]] == [50, 50, 50]
    assert max(first[label] for label in oracle.LABELS[3:]) < 50


@pytest.mark.parametrize(
    ("profile", "kind"),
    [("smoke", str), ("nano", str), ("smol", str), ("t4", list), ("a100", list)],
)
def test_each_profile_has_its_form_of_prompt(profile, kind):
    assert isinstance(CASE.load("validation", profile=profile)[0]["prompt"], kind)


@pytest.mark.parametrize("name", ["split", "profile", "variant"])
def test_an_unknown_name_is_one_sentence(name):
    with pytest.raises(UnknownName, match=f"unknown {name} 'dev'"):
        CASE.load(**{"split": "test"} | {name: "dev"})


# The corpus


def test_demonstrations_come_in_the_stated_shares_of_their_prompt(corpus):
    rows = Counter(PROMPT_OF[row["skill"]] for row in corpus)
    assert rows["label"] / len(corpus) == pytest.approx(data.LABEL_SHARE, abs=0.03)
    shares = Counter(row["skill"] for row in corpus)
    for prompt, skills in CASE.skills.items():
        for skill, (share, _) in skills.items():
            assert shares[skill] / rows[prompt] == pytest.approx(share, abs=0.05)


def test_demonstrations_come_from_the_train_pool(corpus):
    held_out = set()
    for split in ("test", "validation"):
        held_out |= card_sets(CASE.load(split)) | card_sets(CASE.load(split, variant="label-dealt"))
    assert not {frozenset(hand_of(row).split()) for row in corpus} & held_out


def test_the_right_label_is_right_and_a_guess_is_mostly_a_common_hand(corpus):
    right = [row for row in corpus if row["skill"] == "right label"]
    assert all(row["completion"] == f" {answer_of(row)}" for row in right)
    guesses = Counter(row["completion"].strip() for row in corpus if row["skill"] == "guess")
    assert set(guesses) == set(oracle.LABELS)
    assert {label for label, _ in guesses.most_common(2)} == {"high card", "one pair"}


@pytest.mark.parametrize("skill", ["careful", "guess"])
def test_a_skill_can_be_left_out_and_the_others_share_what_it_had(skill):
    rows = list(islice(CASE.demonstrations(0, without=[skill]), 2000))
    prompt = PROMPT_OF[skill]
    counts = Counter(row["skill"] for row in rows if PROMPT_OF[row["skill"]] == prompt)
    assert set(counts) == set(CASE.skills[prompt]) - {skill}
    left = {name: share for name, (share, _) in CASE.skills[prompt].items() if name != skill}
    for name, share in left.items():
        assert counts[name] / counts.total() == pytest.approx(share / sum(left.values()), abs=0.06)


@pytest.mark.parametrize("without", [["carefull"], "careful"])
def test_an_unknown_skill_lists_the_known(without):
    with pytest.raises(UnknownName, match=r"unknown skill .*known are careful, .*right label"):
        next(iter(CASE.demonstrations(0, without)))


# Style


def test_style_recognises_every_planted_skill_of_the_reasoning_prompt(corpus):
    for row in corpus[:500]:
        if row["skill"] in CASE.skills["reason"]:
            asked = {"hand": hand_of(row), "answer": answer_of(row)}
            assert CASE.style(row["completion"], asked) == row["skill"]
