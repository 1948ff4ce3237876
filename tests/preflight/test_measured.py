"""How a measured step becomes the time of a training, and what is counted of it."""

from types import SimpleNamespace

import pytest

from casebook.preflight import measured
from casebook.preflight.memory import Phase, Texts
from casebook.settings import checked


def phase_seconds(gpu=True, **changes):
    """Of 10 steps; a batch of completions takes 20 s, a step's learning 13 s."""
    few = {"max_steps": 10, "evaluate_every": 5, "evaluate_rows": 16, "test_limit": 32}
    settings = checked(("math", "t4"), few | {"test_samples": 1} | changes)
    at_once = settings["per_device_train_batch_size"] * settings["steps_per_generation"]
    times = {"load_seconds": 7.0, "rollout_seconds": 20.0, "learning_seconds": 13.0}
    found = {name: Phase(name, {}, 1, batch=at_once) for name in ("evaluation", "final test")}
    texts = Texts(100, 100, test_rows=32)
    return measured.phase_seconds(settings, texts, found, times, gpu), at_once


BATCH = {"per_device_train_batch_size": 8, "num_generations": 8, "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    ("together", "iterations", "rollouts"),
    [(4, 1, 10), (1, 1, 40), (2, 1, 20), (8, 1, 5), (4, 2, 5)],
)
def test_a_training_writes_as_often_as_its_batches_say_and_learns_in_each_step(
    together, iterations, rollouts
):
    found, _ = phase_seconds(**BATCH, steps_per_generation=together, num_iterations=iterations)
    assert found["rollout"] == rollouts * 20
    assert found["backward"] == 10 * 13
    assert found["load"] == 7


def test_another_batch_takes_as_long_on_a_gpu_and_as_long_as_its_completions_on_a_cpu():
    on_gpu, at_once = phase_seconds(True, **BATCH, steps_per_generation=4)
    assert at_once == 32
    # Three evaluations of 16 rows twice; 32 rows before and after, greedily and sampled once.
    assert (on_gpu["evaluation"], on_gpu["final test"]) == (3 * 20, 4 * 20)
    on_gpu, _ = phase_seconds(True, **BATCH, steps_per_generation=4, evaluate_rows=17)
    assert on_gpu["evaluation"] == 3 * 2 * 20
    on_cpu, _ = phase_seconds(False, **BATCH, steps_per_generation=4, evaluate_rows=17)
    assert on_cpu["evaluation"] == round(3 * 34 / 32 * 20, 1)


class Trainer:
    """A trainer whose clock is the test's: a batch takes 20 s, learning 13 s a step."""

    def __init__(self, clock):
        self.clock, self.callbacks = clock, []

    def _generate_and_score_completions(self, inputs):
        self.clock.now += 20

    def remove_callback(self, callback): ...

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def step(self, batches):
        control = SimpleNamespace(should_training_stop=False)
        (callback,) = self.callbacks
        callback.on_step_begin(None, None, control)
        for _ in range(batches):
            self._generate_and_score_completions([])
        self.clock.now += 13
        callback.on_step_end(None, None, control)
        return control.should_training_stop


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_a_step_is_learning_without_the_batches_that_it_wrote(batches, monkeypatch, tmp_path):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measured.time, "perf_counter", lambda: clock.now)
    watch = measured._Watch(SimpleNamespace(path=tmp_path), None, lambda line: None)
    trainer = Trainer(clock)
    watch.attach(trainer)
    trainer._generate_and_score_completions([])  # of the prompts before the step
    stops = trainer.step(batches)
    assert watch.steps == [13 + 20 * batches]
    assert watch.learning == 13
    assert stops == (watch.steps[0] >= measured.QUICK)
