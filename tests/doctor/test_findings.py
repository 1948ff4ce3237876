"""Each finding names a run that has the failure, and leaves one without alone."""

import json
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook.cases import problem_sets
from casebook.doctor import FINDINGS, diagnose, read_log, table

STEPS = 60
UP, NOISE = np.linspace(0, 1, STEPS), np.random.default_rng(0).standard_normal(STEPS)


def log_of(texts=None, asked=None, held_out=True, **columns):
    """A run that learns, in TRL's names; any column may be replaced, `None` takes it away."""
    logged = {
        **{"step": np.arange(1, STEPS + 1), "loss": 0.01 * NOISE, "grad_norm": 0.3 + 0.02 * NOISE},
        **{"reward": 0.6 + 0.6 * UP + 0.03 * NOISE, "reward_std": 0.5 - 0.1 * UP, "kl": 0.1 * UP},
        **{"frac_reward_zero_std": 0.35 * UP, "entropy": 0.5 - 0.2 * UP},
        **{"completions/mean_length": 23 + 3 * UP, "completions/clipped_ratio": 0.14 - 0.12 * UP},
        **{"rewards/correct/mean": 0.5 + 0.4 * UP + 0.03 * NOISE, "rewards/correct/std": 0.4},
        **{"rewards/tag_format/mean": 0.1 + 0.1 * UP, "rewards/tag_format/std": 0.1 - 0.05 * UP},
    }
    logged |= {name.replace("__", "/"): value for name, value in columns.items()}
    rows = pd.DataFrame({n: v for n, v in logged.items() if v is not None}).to_dict("records")
    if held_out:
        rows += [{"step": s, "eval_accuracy": 0.4 + 0.4 * s / STEPS} for s in range(0, 61, 10)]
    return table(rows, texts, asked)


def texts_of(rate=(0.5, 0.8), steps=10, groups=8, size=4, **columns):
    """Recorded completions; the share of right ones goes from the first rate to the second."""
    rng, rows = np.random.default_rng(1), []
    for step, group, _ in product(range(steps), range(groups), range(size)):
        right = bool(rng.random() < rate[0] + (rate[1] - rate[0]) * step / (steps - 1))
        row = {"step": step + 1, "prompt": f"hand {step} {group}", "answer": f"label {group}"}
        row |= {"completion": f"{' '.join(rng.choice(list('CDHS'), 5))} so it is {group}"}
        row |= {"extracted": f"label {group if right else 'x'}", "correct": right}
        rows.append(row | {"truncated": False, "well_formed": True, "reward": float(right)})
    return pd.DataFrame(rows).assign(**columns)


def named(log):
    return {one.name for one in diagnose(log).findings}


FLAT = {"reward": 0.6 + 0.03 * NOISE, "rewards__correct__mean": 0.5 + 0.03 * NOISE}
FORM_ONLY = {"rewards__correct__mean": 0.1 + 0.01 * NOISE, "reward": 0.2 + 0.8 * UP}
LOOP = [f"a b c {i}" if i < 160 else f"{'1 1 2 2 3 ' * 8} {i}" for i in range(320)]
GONE = ["a b c"] * 160 + [f"zq{i}x vw{'abcdefgh'[i % 8]} {'klmnop'[i % 6]}uu" for i in range(160)]
SICK = {
    "not_a_number": log_of(grad_norm=np.where(UP > 0.5, np.nan, 0.3)),
    "silent_groups": log_of(frac_reward_zero_std=0.8, **FLAT),
    "truncation": log_of(completions__clipped_ratio=0.7),
    "dead_reward": log_of(rewards__tag_format__mean=0.0, rewards__tag_format__std=0.0),
    "saturated_reward": log_of(
        reward=np.minimum(1, 0.2 + 4 * UP), reward_std=np.maximum(0.01, 0.5 - 2 * UP)
    ),
    "form_over_answer": log_of(**FORM_ONLY, rewards__tag_format__mean=0.1 + 0.8 * UP),
    "reward_hacking": log_of(texts_of((0.7, 0.2))),
    "length_runaway": log_of(completions__mean_length=20 + 80 * UP, **FLAT),
    "length_collapse": log_of(completions__mean_length=90 - 80 * UP, held_out=False, **FLAT),
    "repetition": log_of(texts_of(completion=LOOP)),
    "gibberish": log_of(texts_of((0.7, 0.1), completion=GONE)),
    "kl_runaway": log_of(kl=6 * UP**2),
    "kl_too_strong": log_of(kl=2e-3 * UP + 0.04 * (UP == 1), asked={"beta": 1.0}, **FLAT),
    "label_collapse": log_of(texts_of(extracted="flush")),
    "rate_too_high": log_of(reward=1 - 0.9 * np.abs(2 * UP - 0.8) + 0.02 * NOISE),
    "tiny_differences": log_of(reward_std=2e-3, reward=0.6 + 1e-3 * UP),
    "no_progress": log_of(held_out=False, **FLAT),
    "eos_never_learned": log_of(texts_of(truncated=True), completions__clipped_ratio=0.95),
    "evaluation_missing": log_of(held_out=False),
    "evaluation_too_small": table(
        [{"step": i, "reward": 1.0 + i} for i in range(30)]
        + [{"step": i, "eval_accuracy": a} for i, a in enumerate((0.5, 0.3, 0.6, 0.4, 0.6, 0.5))]
    ),
    "loss_zero_is_fine": log_of(loss=1e-7),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_a_run_with_the_failure_is_named_and_one_without_is_not(name):
    found = next(one for one in diagnose(SICK[name]).findings if one.name == name)
    assert all((0 < found.sure <= 1, found.message, found.evidence, "To confirm:" in found.advice))
    assert name not in named(log_of(texts_of()))


def test_a_run_that_learns_is_left_in_peace():
    for texts in (None, texts_of()):
        assert diagnose(log_of(texts)).findings == []
    assert not diagnose(SICK["no_progress"]).healthy
    softly_right = log_of(**FORM_ONLY, rewards__soft_correctness__mean=0.1 + 0.8 * UP)
    assert "form_over_answer" not in named(softly_right)
    rose, sharp = 0.6 + 0.6 * np.minimum(UP, 1.6 - UP), np.where(UP < 0.5, 0.5, 0.01)
    assert "label_collapse" in named(log_of(entropy=sharp, reward=rose))
    assert diagnose(log_of(entropy=sharp, reward=rose)).healthy
    assert "not_a_number" not in named(log_of(grad_norm=np.where(UP == 0, np.inf, 0.3)))
    still = [named(log_of(loss=0.0, grad_norm=0.0, reward_std=spread)) for spread in (0.5, 0.0)]
    assert ["not_a_number" in one for one in still] == [True, False]  # silent groups have none


def test_what_cannot_be_told_is_said_with_the_column_that_is_missing():
    lacking = diagnose(log_of(kl=None, held_out=False)).not_told
    assert lacking["kl_runaway"] == "kl"
    assert "100 recorded completions" in lacking["repetition"]
    assert "silent_groups" not in lacking
    assert not diagnose(log_of(texts_of())).not_told


def test_evidence_shows_at_most_three_completions_and_the_groups_that_would_do():
    texts = texts_of((0.1, 0.1))
    said = diagnose(log_of(texts, frac_reward_zero_std=0.7, **FLAT)).findings
    assert "groups of 1" in next(f for f in said if f.name == "silent_groups").evidence
    pairs, fours = (log_of(texts_of((0.9, 0.9), size=n), frac_reward_zero_std=0.7) for n in (2, 4))
    assert ["silent_groups" in named(log) for log in (pairs, fours)] == [True, False]
    hacked = next(f for f in diagnose(SICK["reward_hacking"]).findings if "hack" in f.name)
    assert hacked.evidence.count("so it is") == 3


def test_a_run_that_breaks_at_its_first_steps_went_too_fast_and_one_without_a_start_did_not():
    for start, names in (([0.4, 0.1], {"rate_too_high"}), ([0.02, 0.0], set())):
        paid = np.array([*start, *[0.0] * (STEPS - 2)])
        spread = (paid * (1 - paid)) ** 0.5
        log = log_of(reward=paid, reward_std=spread, rewards__correct__mean=None, held_out=False)
        assert named(log) & {"rate_too_high"} == names


def test_a_number_where_a_text_was_cut_off_is_no_answer():
    cut = {"truncated": True, "extracted": "18", "correct": False}
    working = log_of(texts_of(completion="3 * 6 = 18\n", **cut), completions__clipped_ratio=0.9)
    assert {"truncation", "eos_never_learned"} & named(working) == {"truncation"}
    large = texts_of(completion="so 3 * 400 = 1,200\n", **cut | {"extracted": "1200"})
    assert "eos_never_learned" not in named(log_of(large, completions__clipped_ratio=0.9))
    rambling = log_of(texts_of(completion="<answer>18</answer> so 3 *", **cut))
    assert {"truncation", "eos_never_learned"} & named(rambling) == {"eos_never_learned"}
    lengths = ({"completions__mean_length": n, "completions__clipped_ratio": None} for n in (5, 40))
    assert ["truncation" in named(log_of(**one)) for one in lengths] == [False, True]


def test_a_part_that_is_only_logged_is_not_dead_and_a_spike_of_the_kl_no_runaway():
    asked = {"reward_funcs": ["correct", "tag_format"], "reward_weights": [1.0, 0.0]}
    zero = {"rewards__tag_format__mean": 0.0, "rewards__tag_format__std": 0.0}
    for weights in ({}, {"reward_weights": 1.0}):  # one weight is no list, and ends nothing
        assert ("dead_reward" in named(log_of(asked=asked | weights, **zero))) is bool(weights)
    assert "kl_runaway" not in named(log_of(kl=np.where(np.arange(STEPS) == 40, 4e3, 0.1 * UP)))


@pytest.mark.parametrize("rows", [9, 15])  # as a run logs that keeps means of eight steps
def test_noise_alone_is_no_rate_that_is_too_high(rows):
    rng = np.random.default_rng(0)
    runs = [[{"step": 8 * n + 8, "reward": rng.random()} for n in range(rows)] for _ in range(40)]
    assert sum("rate_too_high" in named(table(run)) for run in runs) <= 2


def evaluated(name, start, end, **columns):
    rows = log_of(held_out=False, rewards__correct__mean=None, **columns).steps.to_dict("records")
    return table(rows + [{"step": 5 * n, name: v} for n, v in enumerate(np.linspace(start, end))])


def test_a_held_out_reward_that_falls_is_named_and_one_that_rises_is_progress():
    half = {"reward": 0.5 - 0.02 * NOISE, "frac_reward_zero_std": 0.0}
    for name in ("eval_reward", "eval_rewards/shaped/mean"):
        fell = next(f for f in diagnose(evaluated(name, 1.5, 0.6)).findings if "hack" in f.name)
        assert name in fell.evidence
        assert 0.5 < fell.sure < 0.7
        assert "no_progress" not in named(evaluated(name, 0.3, 0.6, **half))
    told = diagnose(evaluated("none", 1, 1, **half))
    assert told.healthy
    assert "cannot be told" in next(f.message for f in told.findings if f.name == "no_progress")
    assert diagnose(evaluated("eval_rewards/tag_format/mean", 0.9, 0.2)).healthy


VALUES = st.one_of(st.none(), st.floats(), st.integers(), st.booleans(), st.text(max_size=5))
COLUMNS = ["step", "reward", "reward_std", "kl", "loss", "rewards/a/mean", "rewards/format/mean"]
COLUMNS += ["eval_accuracy", "completions/mean_length", "completions/clipped_ratio", "entropy"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), VALUES), max_size=40))
def test_any_table_gets_a_report(rows):
    diagnosis = diagnose(table(rows))
    json.dumps(diagnosis.to_dict())
    assert all(0 < one.sure <= 1 for one in diagnosis.findings)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([*texts_of(steps=2)]), st.lists(VALUES, min_size=1, max_size=4))
def test_any_completions_get_a_report(column, values):
    diagnose(log_of(texts_of(**{column: (values * 320)[:320]})))


def test_a_long_run_takes_seconds():
    rng, started = np.random.default_rng(0), time.perf_counter()
    steps = [{"step": n, "reward": rng.random(), "kl": 0.1, "loss": 0.1} for n in range(10_000)]
    texts = pd.concat([texts_of(steps=100, groups=10, size=10)] * 10, ignore_index=True)
    diagnose(table(steps, texts))
    assert time.perf_counter() - started < 10


RUNS = Path(problem_sets.data_dir() or "none") / "runs"


@pytest.mark.skipif(not RUNS.is_dir(), reason="needs the published logs")
def test_the_published_logs_are_read_and_most_of_their_sure_findings_named():
    hits = sure = alarms = fine = 0
    for folder in sorted(path for path in RUNS.iterdir() if path.is_dir()):
        truth = json.loads((folder / "diagnosis.json").read_text())
        log = next(f for f in folder.iterdir() if f.stem not in ("diagnosis", "origin"))
        said = diagnose(read_log(log))
        known = {one["name"] for one in truth["findings"] if one["sure"] >= 0.5}
        hits, sure = hits + len(known & {one.name for one in said.findings}), sure + len(known)
        fine, alarms = fine + truth["healthy"], alarms + (truth["healthy"] and not said.healthy)
    assert hits > 2 / 3 * sure
    assert alarms <= fine / 6
