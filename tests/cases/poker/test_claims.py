"""The figures that the claims' notes quote, computed again."""

from itertools import product

import numpy as np
import pytest

from casebook.cases.poker import oracle
from casebook.cases.poker.rewards import CLASS_WEIGHTS
from casebook.records import load_claims

NOTES = {row["id"]: row["note"] for row in load_claims("poker")}
WEIGHTS = np.array([CLASS_WEIGHTS[label] for label in oracle.LABELS])


def quotes(claim, *figures):
    return all(figure in NOTES[claim] for figure in figures)


def test_no_claim_is_called_reproduced_by_the_embedded_model():
    assert {row["evidence"] for row in load_claims("poker")} <= {"computation", "nano", "none"}


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
    share = oracle.FREQUENCIES[7] / sum(oracle.FREQUENCIES)
    assert 300 / share == pytest.approx(1_249_500)
    assert quotes("balanced-training", "238", "1,249,500", "1,000,000")
    assert round(50 * (1 - (1 - 1 / 624) ** 238)) == 16
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


def test_half_of_the_small_groups_have_no_gradient():
    logged = [0.1094, 0.1719, 0.0938, 0.1437, 0.2, 0.1187, 0.2375, 0.1, 0.2, 0.175]
    at_most = sum(logged) / len(logged)  # no weight is below 1
    assert round(at_most, 3) == 0.155
    assert at_most**4 + (1 - at_most) ** 4 > 0.5
    assert quotes("budget", "15.5 %", "half of its groups")
