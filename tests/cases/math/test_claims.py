"""The figures that the claims' notes quote, computed again."""

import dataclasses
import inspect
from math import comb

import numpy as np
import pytest

from casebook.case import load_case
from casebook.grpo import group_advantages
from casebook.records import figures_at, load_claims
from casebook.settings import read_arms
from casebook.stats import mean_interval

CLAIMS = {row["id"]: row for row in load_claims("math")}


def quotes(claim, *figures):
    return all(figure in CLAIMS[claim]["note"] for figure in figures)


def test_how_many_groups_teach_nothing():
    def share(p, size):
        return p**size + (1 - p) ** size

    assert [round(100 * share(0.3, g), 1) for g in (2, 16)] == [58.0, 0.3]
    assert [round(100 * share(0.05, g), 1) for g in (2, 16)] == [90.5, 44.0]
    assert quotes("zero-gradient-groups", "58 %", "0.3 %", "90.5 %", "44 %")


def test_groups_of_two_learn_and_the_collapse_was_built():
    before, after = (
        figures_at("math", f"group_2/{when}/sampled_accuracy").values()
        for when in ("before", "after")
    )
    assert all(b["high"] < a["low"] for b, a in zip(before, after, strict=True))
    assert quotes("zero-gradient-groups", "groups of two learn")
    overrides = read_arms("math")["hot"]["overrides"]
    assert (float(overrides["learning_rate"]), overrides["warmup_steps"]) == (0.015, 40)
    assert quotes("large-steps-gibberish", "0.006 to 0.015", "climb of 40 steps")


def test_what_is_generated_is_called_so():
    said = [r["measured"] for r in CLAIMS.values() if "accuracy" in r.get("measured", "")]
    assert said
    assert all("generated" in text for text in said)


def test_a_group_of_two_keeps_the_sign_and_nothing_else():
    for rewards in ([1.0, 0.0], [10.0, 0.0], [0.4, 0.39]):
        advantages = np.asarray(group_advantages(rewards, 2))
        assert advantages == pytest.approx([0.707, -0.707], abs=0.01)
    assert quotes("group-of-two", "0.707")


def test_how_far_the_mean_of_a_step_is_off():
    chances = [comb(16, k) * 0.3**k * 0.7 ** (16 - k) for k in range(17)]
    off = sum(c for k, c in enumerate(chances) if abs(k / 16 - 0.3) >= 0.11)
    assert round(10 * off) == 4
    assert quotes("training-reward-beside-the-point", "0.11", "four steps of ten")


def test_the_pinned_trl_has_no_ppo_trainer_and_an_optional_kl_term():
    trl = pytest.importorskip("trl")
    assert not hasattr(trl, "PPOTrainer")
    fields = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    assert fields["beta"] == 0.0
    assert fields["importance_sampling_level"] == "token"
    assert fields["loss_type"] == "dapo"
    assert not {"value_model", "reward_model"} & set(
        inspect.signature(trl.GRPOTrainer.__init__).parameters
    )


def test_the_sources_hours_and_steps():
    hours = {"first": 31 / 1, "second": 18 / (1000 / 750)}
    assert round(hours["first"] / hours["second"], 1) == 2.3
    assert quotes("faster-second", "2.3 times")
    assert round(1000 / 750, 2) == 1.33
    assert 7500 / 750 == 10
    assert quotes("just-over-one-epoch", "1.33 epochs", "ten")


def test_how_sure_a_rate_on_500_problems_is():
    figure = mean_interval([1] * 150 + [0] * 350)
    assert round(100 * (figure["high"] - figure["low"]) / 2) == 4
    assert quotes("eval-improves", "about four points")


def test_the_embedded_model_has_seen_think_tags():
    shown = [
        row["completion"]
        for row, _ in zip(load_case("math").demonstrations(0), range(200), strict=False)
    ]
    assert sum("<think>" in text for text in shown) > 50
    assert quotes("think-format-helps", "was shown such tags before")
