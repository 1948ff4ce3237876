"""Detectors: each on runs made to fail on purpose, all of them on healthy ones and on nonsense.

The short trainings are real: the embedded model, seconds each. What takes longer than that, or
no embedded model does, is written by hand.
"""

import numpy as np
import pandas as pd
import pytest

from casebook import detectors
from casebook.detectors import RunWatch, diagnose

NOTHING = pd.DataFrame()
PARTS = ("correct", "tag_format")
SETTINGS = {
    "reward_funcs": list(PARTS),
    "reward_weights": [1.0, 0.2],
    "beta": 0.0,
    "max_completion_length": 32,
}


def metrics_of(steps=40, **columns):
    """A run that learns, in TRL's names; any column may be replaced by a value or a list."""
    rng = np.random.default_rng(0)
    progress = np.linspace(0, 1, steps)
    table = {
        "step": np.arange(1, steps + 1),
        "reward": 0.6 + 0.6 * progress + 0.03 * rng.standard_normal(steps),
        "reward_std": 0.5 - 0.1 * progress,
        "frac_reward_zero_std": 0.35 * progress,
        "completions/mean_length": 23 + 3 * progress,
        "completions/clipped_ratio": 0.14 - 0.12 * progress,
        "rewards/correct/mean": 0.5 + 0.4 * progress,
        "rewards/correct/std": 0.5 - 0.2 * progress,
        "rewards/tag_format/mean": np.minimum(0.6 + 0.6 * progress, 1.0),
        "rewards/tag_format/std": np.maximum(0.49 - 0.8 * progress, 0.0),
    }
    table |= {name.replace("__", "/"): value for name, value in columns.items()}
    return pd.DataFrame(table)


def completions_of(rate=0.6, steps=10, groups=8, size=4, seed=0, **columns):
    """Recorded completions of prompts that are solved with probability `rate` (or its list)."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(1, steps + 1):
        for group in range(groups):
            p = rng.choice(np.atleast_1d(rate))
            for _ in range(size):
                right = bool(rng.random() < p)
                formed = bool(rng.random() < 0.8)
                suits = " ".join(rng.choice(list("CDHS"), 5))
                rows.append(
                    {
                        "step": step,
                        "prompt": f"hand {step} {group}",
                        "answer": f"label {group}",
                        "completion": f"{suits} so {'right' if right else 'wrong'} {group}",
                        "tokens": 24,
                        "truncated": False,
                        "extracted": "some label",
                        "correct": right,
                        "reward/correct": float(right),
                        "reward/tag_format": float(formed),
                        "reward": right + 0.2 * formed,
                    }
                )
    return pd.DataFrame(rows).assign(**columns)


def only(findings):
    assert len(findings) == 1, findings
    return findings[0]


# Healthy runs and frames that lack things ------------------------------------------------------


def test_a_run_that_learns_is_left_in_peace():
    assert diagnose(metrics_of(), completions_of([0.5, 0.7, 0.9]), SETTINGS) == []


def test_a_run_that_ends_well_is_left_in_peace():
    solved = metrics_of(frac_reward_zero_std=0.7)
    good = completions_of(0.99)
    good["reward/tag_format"] = 1.0
    good.loc[0, "reward/tag_format"] = 0.0  # it was learned, early on
    good["reward"] = good["reward/correct"] + 0.2 * good["reward/tag_format"]
    assert diagnose(solved, good, SETTINGS) == []


def test_a_watch_lets_each_detector_speak_once():
    watch = RunWatch(SETTINGS)
    metrics, completions = metrics_of(frac_reward_zero_std=1.0), completions_of(0.02)
    completions["reward"] = completions["correct"].astype(float)
    assert watch.look(metrics.head(4), completions) == []
    first = only(watch.look(metrics.head(8), completions))
    assert (first.detector, first.step) == ("no_gradient", 10)
    again = watch.look(metrics.assign(kl=9.0), completions)
    assert [finding.detector for finding in again] == ["kl"]
    assert [finding.detector for finding in watch.findings] == ["no_gradient", "kl"]


@pytest.mark.parametrize("column", {**metrics_of(1), **completions_of(steps=1, groups=1)})
def test_a_column_that_is_missing_or_empty_is_no_finding(column):
    healthy = metrics_of(), completions_of([0.5, 0.7, 0.9])
    assert diagnose(*(f.drop(columns=column, errors="ignore") for f in healthy), SETTINGS) == []
    if column not in ("step", "prompt", "completion"):
        empty = (f.assign(**{column: np.nan}) if column in f else f for f in healthy)
        assert diagnose(*empty, SETTINGS) == []


# Groups without gradient -----------------------------------------------------------------------


def stuck(rate, size=4, share=0.8, **columns):
    """What `no_gradient` says where completions are rewarded for being right and nothing else."""
    completions = completions_of(rate, size=size, **columns)
    if "reward" not in columns:
        completions["reward"] = completions["correct"].astype(float)
    return detectors.no_gradient(metrics_of(frac_reward_zero_std=share), completions, SETTINGS)


def test_too_small_groups_are_told_their_size():
    rate = 0.12  # of the published run: 0.12 right, groups of 4, mostly without gradient
    finding = stuck(rate, size=4, share=0.6)
    assert "60% of the groups had no gradient" in finding.message
    size = int(finding.advice.split()[2])
    # 1 - 0.88^G - 0.12^G >= 0.67 from G = 9 on
    assert 8 <= size <= 12


def test_solved_prompts_are_too_easy():
    finding = stuck(0.995, share=0.9)
    assert "all right and 0% all wrong" in finding.message
    assert "harder prompts" in finding.advice


def test_prompts_nobody_solves_are_too_hard():
    finding = stuck(0.0, share=1.0)
    assert "0% were all right and 100% all wrong" in finding.message
    assert "Not even groups of 64" in finding.advice


def test_what_was_lost_is_not_called_too_hard():
    early, late = completions_of(0.6, steps=5), completions_of(0.0, steps=5)
    lost = pd.concat([early, late.assign(step=late["step"] + 5)])
    lost["reward"] = lost["correct"].astype(float)
    falling = metrics_of(frac_reward_zero_std=1.0, reward=np.linspace(0.6, 0.0, 40))
    assert "lost what it could do" in detectors.no_gradient(falling, lost, SETTINGS).advice
    rising = metrics_of(frac_reward_zero_std=1.0, reward=np.linspace(0.6, 1.0, 40))
    assert "pays for something else" in detectors.no_gradient(rising, lost, SETTINGS).advice


def test_a_reward_blind_to_right_and_wrong_is_found_out():
    assert "mend it" in stuck(0.5, share=1.0, reward=1.0).advice


# Truncation ------------------------------------------------------------------------------------

CUT = {"truncated": True, "extracted": None}


def cut_short(clipped=0.6, **columns):
    return detectors.truncation(
        metrics_of(completions__clipped_ratio=clipped), completions_of(**columns), SETTINGS
    )


def test_completions_cut_before_the_answer_need_room():
    finding = cut_short(**CUT)
    assert "60% of the completions were cut off at the limit of 32 tokens" in finding.message
    assert "Raise max_completion_length" in finding.advice


def test_completions_cut_after_the_answer_lose_nothing():
    assert cut_short(truncated=True) is None


# Reward parts ----------------------------------------------------------------------------------


def dead(metrics=NOTHING, completions=NOTHING, asked=SETTINGS):
    return detectors.dead_reward(metrics, completions, asked)


def test_a_part_that_never_fires_is_named():
    metrics = metrics_of(**{"rewards__tag_format__mean": 0.0, "rewards__tag_format__std": 0.0})
    silent = {"reward/tag_format": 0.0}
    message = dead(metrics, completions_of(**silent)).message
    assert message == "Reward parts that teach nothing: tag_format never fired in 1280 completions."
    assert "never fired in 320 completions" in dead(completions=completions_of(**silent)).message


def test_a_part_that_only_knows_the_prompt_cancels_in_its_group():
    completions = completions_of()
    completions["reward/correct"] = completions["answer"].str[-1].astype(float)
    message = dead(metrics_of(), completions).message
    assert "correct was the same within each of 80 groups" in message


def test_a_part_of_weight_zero_is_only_logged():
    metrics = metrics_of(**{"rewards__tag_format__mean": 0.0, "rewards__tag_format__std": 0.0})
    asked = SETTINGS | {"reward_weights": [1.0, 0.0]}
    assert dead(metrics, completions_of(), asked) is None


# Length, one text, repetition ------------------------------------------------------------------


def degenerate(metrics=NOTHING, completions=NOTHING):
    return detectors.degenerate_text(metrics, completions, SETTINGS)


@pytest.mark.parametrize(("start", "end"), [(24, 3), (24, 120)])
def test_a_length_that_collapses_or_explodes_is_seen(start, end):
    metrics = metrics_of(completions__mean_length=np.linspace(start, end, 40))
    message = degenerate(metrics, completions_of()).message
    assert "mean length went from" in message
    assert "right answers went from" in message
    assert "right answers" not in degenerate(metrics).message


def test_a_new_length_that_comes_with_right_answers_is_progress():
    early, late = completions_of(0.3, steps=5), completions_of(0.8, steps=5)
    better = pd.concat([early, late.assign(step=late["step"] + 5)])
    for end in (10, 60):
        metrics = metrics_of(completions__mean_length=np.linspace(24, end, 40))
        assert degenerate(metrics, better) is None


def test_one_answer_to_every_prompt_is_seen():
    message = degenerate(completions=completions_of(completion=" flush")).message
    assert message == "100% of the newest 128 completions read 'flush'."


def test_repetition_is_seen():
    text = "1 1 2 2 3 " * 8
    texts = [f"{text} {i}" for i in range(320)]
    assert "word trigrams" in degenerate(completions=completions_of(completion=texts)).message


# KL --------------------------------------------------------------------------------------------


def too_much(metrics, completions=NOTHING, **asked):
    return detectors.kl(metrics, completions, SETTINGS | asked)


def test_a_policy_far_from_its_base_is_seen():
    finding = too_much(metrics_of(kl=np.linspace(0, 6, 40)), beta=0.04)
    assert "nats a token" in finding.message
    assert "learning rate" in finding.advice


def held(**changes):
    columns = {"kl": 5e-4, "reward": 0.7} | changes
    return too_much(metrics_of(**columns), beta=50.0)


def test_a_penalty_that_holds_everything_is_seen():
    finding = held()
    assert "At beta 50 the reward moved by +0.000" in finding.message
    assert "smaller beta" in finding.advice


@pytest.mark.parametrize(
    "changes",
    [
        {"kl": np.geomspace(1e-6, 1e-2, 40)},  # slow, but on its way
        {"reward": np.linspace(0.5, 1.0, 40)},  # learning
        {"kl": 0.0},  # nothing was trained: not the penalty's doing
    ],
    ids=["grows", "learns", "still"],
)
def test_a_penalty_under_which_something_moves_is_not_too_strong(changes):
    assert held(**changes) is None


IN_REWARD = {"reward_funcs": ["correct", "kl_penalty"], "reward_weights": [1.0, 0.1]}


def with_penalty(rate):
    completions = completions_of(rate).drop(columns="reward/tag_format")
    noise = np.random.default_rng(0).normal(0, 0.05, len(completions))
    completions["reward/kl_penalty"] = noise
    completions["reward"] = completions["reward/correct"] + 0.1 * noise
    return completions


def test_a_kl_that_is_all_the_reward_of_hopeless_prompts_is_seen():
    finding = too_much(metrics_of(), with_penalty(0.02), **IN_REWARD)
    assert "the KL inside the reward" in finding.message
    assert "into the loss" in finding.advice


def test_a_kl_beside_answers_that_differ_is_not_drowning_them():
    assert too_much(metrics_of(), with_penalty(0.5), **IN_REWARD) is None


# Real runs: the embedded model, made to fail ---------------------------------------------------

QUICK = {"test_limit": 4, "test_samples": 1, "evaluate_rows": 16, "save_steps": 1000}
FAST = {"learning_rate": 0.1, "lr_scheduler_type": "constant", "max_steps": 12}
FAILING = {
    "two completions a group, few of them right": (
        {
            **{"num_generations": 2, "max_completion_length": 16, "max_steps": 8},
            **{"reward_funcs": ["correct"], "reward_weights": [1.0]},
        },
        {"no_gradient": "Groups of", "truncation": "Raise max_completion_length"},
    ),
    "sampled too coldly": ({"temperature": 0.05, "max_steps": 8}, {"no_gradient": "temperature"}),
    "no room for an answer": (
        {"max_completion_length": 4, "max_steps": 8},
        {"truncation": "Raise max_completion_length", "dead_reward": "tag_format never fired"},
    ),
    "steps far too large": ({**FAST, "beta": 0.04}, {"kl": "nats a token", "no_gradient": "lost"}),
    "a penalty far too strong": ({"beta": 50.0, "max_steps": 20}, {"kl": "At beta 50"}),
    "paid for repeating": (
        {
            **{"reward_funcs": ["repetition"], "reward_weights": [-1.0]},
            **{"learning_rate": 4e-3, "max_steps": 20},
        },
        {"degenerate_text": "word trigrams"},
    ),
}


def trained(folder, overrides):
    from casebook import training

    asked = QUICK | {"evaluate_every": overrides.get("max_steps", 12)} | overrides
    run = training.train(training.read_config(("poker", "smoke"), asked), folder)
    metrics = pd.concat([run.metrics(), run.validation()])
    return diagnose(metrics, run.completions(), run.settings())


@pytest.mark.heavy
@pytest.mark.parametrize(("overrides", "expected"), FAILING.values(), ids=FAILING)
def test_a_training_made_to_fail_is_seen_through(tmp_path, overrides, expected):
    said = {finding.detector: str(finding) for finding in trained(tmp_path / "run", overrides)}
    for detector, words in expected.items():
        assert words in said.get(detector, f"{detector} kept silent"), said
