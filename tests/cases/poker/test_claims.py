"""The figures that the claims' notes quote, computed again."""

from itertools import product

import numpy as np
import pytest

from casebook.cases.poker import oracle
from casebook.cases.poker.rewards import CLASS_WEIGHTS, grade
from casebook.models import pretrained
from casebook.records import committed, figures_at, load_claims, studies

NOTES = {row["id"]: row["note"] for row in load_claims("poker")}
WEIGHTS = np.array([CLASS_WEIGHTS[label] for label in oracle.LABELS])


def quotes(claim, *figures):
    return all(figure in NOTES[claim] for figure in figures)


def test_the_oracle_is_wrong_on_wheels_only():
    hands = oracle.all_hands()
    theirs, ours = oracle.source_classify(hands), oracle.labels_of(hands)
    wrong = theirs[theirs != ours]
    by_label = dict(zip(*np.unique(wrong, return_counts=True), strict=True))
    assert by_label == {oracle.LABELS.index("high card"): 1020, oracle.LABELS.index("flush"): 4}
    assert quotes("oracle", "1,024", f"{len(hands):,}", "1,020", "4 flush")
    shares = [100 * oracle.FREQUENCIES[0] / len(hands), 100 * (theirs == 0).mean()]
    assert quotes("imbalance", *(f"{share:.1f} %" for share in shares))


def test_what_constants_earn():
    balanced = WEIGHTS / 8
    assert (balanced[0], balanced[7]) == (0.125, 0.375)
    assert round(WEIGHTS.sum() / 64, 3) == 0.234
    assert quotes("balancing", "0.125", "0.234", "0.375")
    # 50 rows of each of the three commonest classes among the first 200
    assert (50 * WEIGHTS[0] / 200, 50 * WEIGHTS[2] / 200) == (0.25, 0.375)
    assert quotes("constant-answer", "0.2500", "0.375", "200")


def test_quads_are_too_rare_for_the_sampler_and_for_independent_sets():
    assert 300 * sum(oracle.FREQUENCIES) / oracle.FREQUENCIES[7] == pytest.approx(1_249_500)
    assert quotes("balanced-training", "238", "1,249,500", "1,000,000")
    assert round(50 * (1 - (1 - 1 / 624) ** 238)) == 16
    assert quotes("balanced-training", "2,338 of the 2,400")
    assert quotes("held-out", "624", "about 16")


def test_the_constraint_admits_72_strings():
    words = [label.split() for label in oracle.LABELS]
    allowed = set()
    for length in range(1, 5):
        if not any(len(label) == length for label in words):
            continue  # the end is allowed only where some label ends
        choices = [{label[i] for label in words if len(label) > i} for i in range(length)]
        allowed |= set(map(" ".join, product(*choices)))
    assert len(allowed) == 72
    assert set(oracle.LABELS) < allowed
    assert {"flush of a kind", "four"} <= allowed
    assert quotes("constrained-decoding", "72 strings", "8 are", "flush of a kind", '"four"')


def test_most_groups_of_the_log_have_no_gradient():
    losses = [-0.8482, -0.4865, -0.3979, -0.1087, 0, -0.0718, -0.2898, 0, 0, 0]
    rewards = [0.1094, 0.1719, 0.0938, 0.1437, 0.2, 0.1187, 0.2375, 0.1, 0.2, 0.175]
    groups = 10 * 4  # in a window: steps and prompts, each with four completions
    silent = groups * losses.count(0)
    others = [reward * 4 * groups for reward, loss in zip(rewards, losses, strict=True) if loss]
    earned = round(sum(others), 1)
    assert (silent, earned) == (160, 140.0)
    # A group that disagrees has a right answer, and none earns less than 1.
    assert WEIGHTS.min() == 1.0
    at_least = silent + len(others) * groups - earned
    assert (at_least, at_least / (groups * len(losses))) == (260, 0.65)
    parts = ("260 of its 400", "65 %", "160 silent groups", "140", "100 of their 240")
    assert quotes("budget", *parts)


@pytest.mark.parametrize("arm", ["label_published", "label_kl_0.1"])
def test_which_labels_are_lost_on_the_way(arm):
    def recall(when):
        tables = [np.array(run[when]["also"]["trie"]["confusion"])[:8] for run in runs]
        shares = np.mean([table.diagonal() / table.sum(axis=1) for table in tables], axis=0)
        return dict(zip(oracle.LABELS, shares, strict=True))

    runs = committed("poker", "nano", arm)
    before, after = recall("before"), recall("after")
    assert after["three of a kind"] < 0.01
    assert after["full house"] < 0.05
    if arm == "label_published":
        assert after["full house"] == 0
        assert all(after[name] < before[name] / 3 for name in ("high card", "one pair"))
    assert quotes("accuracy-rises", "mostly lost", "kind and full house are hardly ever")
    assert quotes("kl-improves", "kind and full house are hardly ever")


def test_runs_of_the_real_model_name_one_label_or_two():
    for claim, arm, who, labels in (
        ("accuracy-rises-real", "published", "each seed names", [1] * 10),
        ("corrected-setup-real", "sound", "three of five seeds name", [1, 1, 1, 2, 2]),
    ):
        assert quotes(claim, f"{who} one and the same label for every hand")
        named = [run["after"]["also"]["trie"] for run in committed("poker", "smol", arm)]
        assert sorted(len(one["label_histogram"]) for one in named) == labels


def test_runs_of_the_real_model_end_on_the_reward_that_the_write_up_reports():
    at = "published/{}/also/source/class_weighted"
    before, after = (figures_at("poker", at.format(it), None, "smol") for it in ("before", "after"))
    ends = [figure["value"] for figure in after.values()]
    assert (before[0]["value"], ends.count(0.25), len(ends), max(ends)) == (0.245, 6, 10, 0.375)
    assert quotes("version-2-figure-real", "six of the ten runs end at exactly 0.2500", "0.245")


def test_several_ways_to_ask_give_zero_and_one_of_them_is_constrained_as_published():
    ways = [
        (way, figures["accuracy"]["value"])
        for asked in studies.read("smol_poker")["found"]["source"].values()
        for way, figures in asked.items()
    ]
    zero = [way for way, accuracy in ways if accuracy < 0.01]
    assert len(zero) > 2
    assert zero.count("position") == 1


def test_what_the_untrained_real_model_answered_is_graded_as_its_record_says():
    record = studies.read("smol_poker")
    for kind, asked in record["found"].items():
        right = [oracle.LABELS[int(label)] for label in record["rows"][kind]["right"].split()]
        for found in (way for ways in asked.values() for way in ways.values()):
            texts = [found["kept"]["texts"][int(number)] for number in found["kept"]["of"].split()]
            grades = [grade(*pair, "label") for pair in zip(texts, right, strict=True)]
            assert np.mean([one.strict for one in grades]) == found["accuracy"]["value"]
            assert np.mean([one.correct for one in grades]) == found["lenient_accuracy"]["value"]


def test_the_converted_model_is_as_close_to_llama_cpp_as_was_asked_for():
    record = studies.read("conversion")
    assert record["file"]["sha256"] == pretrained.MODELS["smollm2"].sha256
    assert record["same_token_ids"] == len(record["prompts"]) >= 20
    for found in (record["as published"], record["expanded"]):
        assert found["kl"] <= found["bounds"]["kl"]
        assert found["same_token"] >= found["bounds"]["same_token"]
