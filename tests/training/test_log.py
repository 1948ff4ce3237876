"""Which steps' completions are written down, and with which advantages."""

import numpy as np
import pandas as pd
import pytest
import torch

from casebook import training
from casebook.models import load
from casebook.training.log import CompletionLog, RunCallback, curve, skipped_steps
from casebook.training.progress import Progress

EVERY = {"completions_every": 10, "max_steps": 32}


def log_of(tmp_path, **changes):
    config = training.read_config(("poker", "smoke"), {**EVERY, "beta": 0.0, **changes})
    return CompletionLog(config, tmp_path / "completions", ends=[0])


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, [1, 10, 20, 30, 32]),
        # One batch serves two steps: that of step 9 is the one that step 10 learns from.
        ({"num_iterations": 2}, [1, 9, 19, 29, 31]),
        ({"num_iterations": 2, "method": "plain_grpo"}, [1, 10, 20, 30, 32]),
    ],
    ids=["each step", "every other step", "the plain loop counts batches"],
)
def test_completions_are_written_at_the_steps_asked_for(tmp_path, changes, steps):
    log = log_of(tmp_path, **changes)
    span = 2 if "num_iterations" in changes and "method" not in changes else 1
    assert [step for step in range(1, 33, span) if log._due(step)] == steps


def test_advantages_of_parts_that_are_scaled_apart_are_those_of_trl(tmp_path):
    weights = [3.0, 0.5]
    names = ["correct", "random_reward"]
    asked = {"reward_funcs": names, "reward_weights": weights, "reward_kwargs": {}}
    log = log_of(tmp_path, multi_objective_aggregation="normalize_then_sum", **asked)
    size = log.group_size
    values = np.random.default_rng(0).random((3 * size, 2))
    table = pd.DataFrame({f"reward/{name}": values[:, i] for i, name in enumerate(names)})
    table["reward"] = values @ weights

    grouped = torch.tensor(values).view(-1, size, 2)
    scaled = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    total = (scaled.view(-1, 2) * torch.tensor(weights, dtype=torch.float64)).sum(1)
    expected = (total - total.mean()) / (total.std() + 1e-4)
    assert log._advantages(table) == pytest.approx(expected.numpy())
    plain = log_of(tmp_path, **asked)._advantages(table)
    assert not np.allclose(plain, expected)


def test_a_step_whose_gradient_is_no_number_is_counted_as_skipped():
    # The first steps in fp16 on a T4: the loss is scaled too far, and the notebook asserted > 0.
    steps = pd.DataFrame({"step": [1, 2, 3, 4], "grad_norm": [float("nan"), np.inf, 0.0, 0.3]})
    assert skipped_steps(steps) == 2
    assert skipped_steps(steps.drop(columns="grad_norm")) == 0


@pytest.mark.parametrize("no_number", [float("nan"), np.inf, -np.inf, None])
def test_a_step_whose_gradient_is_no_number_is_left_out_of_its_window(no_number):
    norms = [no_number, 0.5, *[0.25] * 6, *[no_number] * 8]
    steps = pd.DataFrame({"step": range(1, 17), "reward": 1, "grad_norm": norms})
    first, second = curve(steps)["grad_norm"]
    assert first == round((0.5 + 6 * 0.25) / 7, 4)
    assert np.isnan(second)
    never = curve(steps.assign(grad_norm=no_number))
    assert np.isnan(never["grad_norm"]).all()
    assert (never["step"], never["reward"]) == ([8, 16], [1.0, 1.0])


@pytest.mark.parametrize(("profile", "shown"), [("nano", False), ("t4", True)])
def test_an_evaluation_that_takes_minutes_is_seen(profile, shown, tmp_path, monkeypatch):
    overrides = {"use_cpu": True, "fp16": False, "bf16": False}
    config = training.read_config(("poker", profile), overrides)
    asked = {}

    class Measured:
        def summary(self):
            return {"greedy_accuracy": {"value": 0.5}}

    def evaluate(*_, progress, **__):
        asked["progress"] = progress
        return Measured()

    monkeypatch.setattr("casebook.training.log.evaluate", evaluate)
    monkeypatch.setattr("casebook.training.log.read_lines", lambda path: [])
    run = training.Run(tmp_path)
    callback = RunCallback(run, config, None, Progress("poker"))
    callback.started = 0.0
    callback._evaluate(0, None)
    assert (asked["progress"] is not None) is shown


def test_a_model_of_the_hub_is_not_downloaded_in_silence(monkeypatch):
    shown = []

    class Nothing:
        @staticmethod
        def from_pretrained(**_):
            raise load.CasebookError("out of reach")

    monkeypatch.setattr(load, "FastLanguageModel", Nothing)
    monkeypatch.setattr(load, "enable_progress_bars", lambda: shown.append(True))
    for profile, count in (("nano", 0), ("t4", 1)):
        with pytest.raises(load.CasebookError):
            load.load_policy("poker", profile)
        assert len(shown) == count
