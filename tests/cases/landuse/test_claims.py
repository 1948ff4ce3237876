"""The figures that the claims' notes quote, computed again."""

import dataclasses
from itertools import product

import pytest

from casebook.case import load_case
from casebook.cases.landuse.fields import HABITAT, LABELS
from casebook.cases.landuse.heuristics import HEURISTICS
from casebook.records import committed, figures_at, load_claims
from casebook.rewards import repetition_penalty

CLAIMS = {row["id"]: row for row in load_claims("landuse")}


def quotes(claim, *figures):
    return all(figure in CLAIMS[claim]["note"] for figure in figures)


def mean(where):
    figures = figures_at("landuse", where)
    return sum(figure["value"] for figure in figures.values()) / len(figures)


# What is left of a total reward for the label (3 for it, 2 for the form); orders of magnitude
@pytest.mark.parametrize(
    ("claim", "quoted", "computed"),
    [
        ("saturated", "70 %", f"{100 * (4.1 - 2) / 3:.0f} %"),
        ("saturated", "67 %", f"{100 * (4.0 - 2) / 3:.0f} %"),
        ("saturated", "40 %", f"{100 * (3.2 - 2) / 3:.0f} %"),
        ("saturated", "53 %", f"{100 * (3.6 - 2) / 3:.0f} %"),
        ("learns-by-65", "70 %", f"{100 * (4.1 - 2) / 3:.0f} %"),
        ("inline-answer", "55 %", f"{100 * (4.1 - 3) / 2:.0f} %"),
        ("trees-cheaper", "9 × 10¹¹", f"{2 * 1.5 * 300 / 100:.0f} × 10¹¹"),
        ("trees-cheaper", "1.6 × 10¹³", f"{2 * 1.5 * 5300 / 1e4:.1f} × 10¹³"),
        ("gpu-time", "384 GPU hours", f"{4 * 4 * 24} GPU hours"),
        ("two-classes", "five answers", {5: "five answers"}[len(LABELS)]),
    ],
)
def test_what_a_note_quotes_is_what_it_comes_to(claim, quoted, computed):
    assert computed == quoted
    assert quotes(claim, quoted)


def test_the_penalty_is_for_what_is_not_unique():
    penalty = repetition_penalty(3, -1.0)
    assert penalty(["a b c d", "a a a a"]) == [0.0, -0.5]
    texts = [text.split() for text in ("a b c d", "a a a a")]
    unique = [len({tuple(words[i : i + 3]) for i in range(2)}) for words in texts]
    assert unique == [2, 1]
    assert quotes("repetition-formula", "first would cost 2", "second 1", "-0.5")


def test_the_untrained_base_asked_for_the_label_alone_is_nearly_as_good():
    places = ("grpo/before", "label_sft/before", "grpo/after")
    reasoning, label, trained = (mean(f"{it}/greedy_accuracy") for it in places)
    assert label - reasoning > 0.4
    assert quotes("accuracy-rises", f"reaches {100 * label:.0f} %", f"{100 * trained:.0f} %")


def test_large_steps_lose_most_of_what_was_gained_with_the_kl_term_too():
    places = ("hot_0.1/after", "hot_0.1/before", "beta_0.1/after")
    ends, starts, calm = (mean(f"{it}/sampled_accuracy") for it in places)
    assert 0 < ends - starts < 0.1 < 0.3 < calm - ends
    curves = [r["validation"]["greedy_accuracy"] for r in committed("landuse", "nano", "hot_0.1")]
    lost = [max(curve) - curve[-1] > (max(curve) - curve[0]) / 2 for curve in curves]
    assert sorted(lost) == [False, False, True, True, True]
    pushed = committed("landuse", "nano", "hot_0")
    bare = sorted(run["after"]["sampled_accuracy"]["value"] for run in pushed)
    assert bare[2] == 0 < 0.1 < bare[3]
    assert quotes("no-kl-falls-hot", "of its gain, with the term and without", "the two that")


def test_the_embedded_model_begins_with_most_of_the_form():
    ways = load_case("landuse").skills["reason"]
    faults = ("rambling", "bare label", "missing answer tag")
    assert sum(share for way, (share, _) in ways.items() if way not in faults) > 0.5
    assert quotes("reward-curve", "most of the form")


def test_two_equal_parcels_have_two_optimal_plans():
    area = yields = floor = 1.0
    plans = [
        plan
        for plan in product((HABITAT, "wheat"), repeat=2)
        if sum(area * yields for label in plan if label == "wheat") >= floor
    ]
    most = max(plan.count(HABITAT) for plan in plans)
    best = [plan for plan in plans if plan.count(HABITAT) == most]
    assert [{plan[i] for plan in best} for i in (0, 1)] == [{HABITAT, "wheat"}] * 2
    assert quotes("one-label", "two optimal plans")


def test_the_shares_of_the_motifs_add_up():
    assert round(sum(heuristic.frequency for heuristic in HEURISTICS.values()), 2) == 2.23
    assert quotes("motifs-co-occur", "223 %", "2.23")
    said = [f"{100 * heuristic.frequency:.0f} %" for heuristic in HEURISTICS.values()]
    assert all(share in CLAIMS["motif-shares"]["claim"] for share in said)


def test_prompts_of_neighbours_overlap():
    def window(x, y):
        return {(x + i, y + j) for i in range(-2, 3) for j in range(-2, 3)}

    assert len(window(0, 0)) == 25
    assert len(window(0, 0) & window(1, 0)) == 20
    assert quotes("accuracy-65", "20 of 25 records")


def test_the_kl_term_is_fixed_and_off_by_default():
    trl = pytest.importorskip("trl")
    fields = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    assert fields["beta"] == 0.0
    assert not [name for name in fields if "kl" in name.lower() and "target" in name.lower()]
    assert quotes("kl-anchor-set", "0.04", "default is 0")
