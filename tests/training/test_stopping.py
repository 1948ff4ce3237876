"""SIGUSR1: what it does to a training, and what it leaves alone."""

import signal
import subprocess
import sys

import pytest

from casebook import paths, training
from casebook.training import stopping

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
SHORT = {
    **{"max_steps": 4, "save_steps": 4, "evaluate_every": 0, "test_limit": 4, "train_limit": 64},
    **{"max_completion_length": 8},
}


def ask():
    """Send the signal to this thread: of a process's threads any may take it, and later."""
    signal.raise_signal(signal.SIGUSR1)


def test_a_request_is_remembered_until_somebody_looks():
    with stopping.on_request():
        assert not stopping.asked()
        ask()
        assert stopping.asked()
    assert not stopping.asked()


@pytest.mark.parametrize("before", [True, False])
def test_where_files_are_whole_at_any_time_it_ends_at_once(before):
    with stopping.on_request():
        if before:
            ask()
        with pytest.raises(stopping.Stopped):  # noqa: PT012, either may
            stopping.now_at_once()
            ask()


def test_processes_that_a_training_started_outlive_the_signal():
    program = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1); print('alive')"
    command = [sys.executable, "-c", program]
    with stopping.on_request():
        child = subprocess.run(command, capture_output=True, text=True)
    assert child.stdout == "alive\n"
    assert subprocess.run(command).returncode == -signal.SIGUSR1


def test_afterwards_the_signal_means_what_it_did():
    before = signal.getsignal(signal.SIGUSR1)
    with stopping.on_request():
        ask()
    assert signal.getsignal(signal.SIGUSR1) == before
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("step", [1, 2])
def test_a_training_stops_where_it_can_go_on(step, tmp_path, monkeypatch):
    """A batch of completions serves two steps: in between nothing could go on."""
    config = training.read_config(SMOKE, SHORT | {"num_iterations": 2})

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            ask()

    with monkeypatch.context() as patch:
        patch.setattr(training.RunCallback, "on_step_end", on_step_end)
        with pytest.raises(stopping.Stopped), stopping.on_request():
            training.train(config, tmp_path / "run")
    run = training.Run(tmp_path / "run")
    assert run.metrics()["step"].tolist() == [1, 2]
    assert run.checkpoint().name == "checkpoint-2"
    assert training.train(config, run.path, resume=True).finished
    assert run.metrics()["step"].tolist() == [1, 2, 3, 4]
