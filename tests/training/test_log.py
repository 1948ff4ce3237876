"""Which steps' completions are written down, and with which advantages."""

import numpy as np
import pandas as pd
import pytest
from transformers import TrainerState

from casebook import plots, training
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


@pytest.mark.parametrize("no_number", [float("nan"), np.inf, -np.inf, None])
def test_a_step_whose_gradient_is_no_number_is_counted_and_left_out(no_number):
    norms = [no_number, 0.5, *[0.25] * 6, *[no_number] * 8]
    steps = pd.DataFrame({"step": range(1, 17), "reward": 1, "grad_norm": norms})
    assert skipped_steps(steps) == 9
    first, second = curve(steps)["grad_norm"]
    assert first == round((0.5 + 6 * 0.25) / 7, 4)
    assert np.isnan(second)
    assert curve(steps)["step"] == [8, 16]


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_a_kl_that_the_loss_lacks_is_neither_kept_nor_drawn(tmp_path, beta):
    # Unsloth's trainer logs 0.0 for it, and no entropy.
    config = training.read_config(("poker", "smoke"), {"beta": beta})
    run = training.Run(tmp_path)
    callback = RunCallback(run, config, None, Progress("", quiet=True))
    callback.on_train_begin(None, TrainerState(global_step=1, max_steps=2), None)
    callback.on_log(None, TrainerState(global_step=2), None, logs={"loss": 0, "reward": 1, "kl": 0})
    metrics = run.metrics()
    assert ("kl" in metrics) == ("kl" in curve(metrics)) == (beta > 0)
    validation = pd.DataFrame({"step": [0, 2], "kl_from_base": [0.0, 0.1]})
    panel = plots.dashboard(metrics, "x", validation).axes[3]
    assert [text.get_text() for text in panel.texts] == ["KL" if beta else "KL, held out"]
