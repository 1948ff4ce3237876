"""Attacks on whole trainings: drawn configurations, kills, small disks, damaged folders.

Each attack ends in the figures of a training that was left alone, or in one sentence. A training
is a fork of this process, which has imported what takes long.
"""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import traceback

import pytest

from casebook import paths, training
from casebook.case import CasebookError
from casebook.experiments import arms as experiments
from casebook.settings import FIELDS, checked
from casebook.training import loop, measure

pytestmark = pytest.mark.heavy

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
QUICK = {
    **{"max_steps": 6, "save_steps": 2, "evaluate_every": 3, "evaluate_rows": 2},
    **{"test_limit": 4, "train_limit": 32, "completions_every": 2},
    **{"per_device_train_batch_size": 8, "max_completion_length": 30},
}
TIMED = {
    *("train_seconds", "measure_seconds", "samples_per_second", "peak_memory_mb", "provenance"),
    *("seconds", "step_time"),
}
SENTENCE, BUG = 2, 3
KILLS = 20


# Drawn configurations ----------------------------------------------------------------------

# What one process on a CPU cannot vary: the case, the model, the GPU, and how long it takes.
FIXED = {
    *("case", "profile", "variant", "method", "model_name_or_path", "reward_funcs"),
    *("reward_weights", "reward_kwargs", "max_steps", "max_seq_length", "logging_steps"),
    *("per_device_train_batch_size", "report_to", "test_samples", "test_limit", "evaluate_rows"),
    *("pass_at_k_rows", "pass_at_k_samples", "also_evaluate", "fast_inference", "load_in_4bit"),
    *(name for name in FIELDS if "vllm" in name),
}


def right_value(field, draw):
    """A value that a field takes, small enough for a training of a second."""
    if field.none and draw.random() < 0.2:
        return None
    if field.kind == "flag":
        return draw.random() < 0.5
    if field.kind == "word":
        return draw.choice(field.choices)
    if field.kind == "whole":
        return draw.choice([int(field.low), int(field.low) + 1, int(field.low) + 3])
    if field.kind == "number":
        values = [max(field.low, -1.0), 1e-6, 0.3, min(field.high, 1.0), min(field.high, 2.0)]
        return draw.choice([value for value in values if field.takes(value)])
    return {"modules": draw.choice(["all-linear", ["q_proj", "v_proj"]]), "mapping": {}}.get(
        field.kind, "a name"
    )


def drawn(seed):
    """A configuration of one step in which some fields take another right value."""
    draw = random.Random(seed)
    method = draw.choice(["grpo"] * 6 + [name for name in training.METHODS if name != "grpo"])
    while True:
        names = draw.sample(sorted(set(FIELDS) - FIXED), draw.randint(1, 6))
        overrides = {name: right_value(FIELDS[name], draw) for name in names}
        overrides |= {"max_steps": 1, "train_limit": 64, "evaluate_every": 0, "method": method}
        try:
            checked(SMOKE, overrides)
        except CasebookError:
            continue  # two right values that cannot go together
        return overrides


@pytest.mark.parametrize("part", range(10))
def test_right_configurations_train_one_step(part, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "measure_test", lambda *arguments: {})
    monkeypatch.setattr(loop, "measure_test", lambda *arguments: {})
    refused = []
    for seed in range(20 * part, 20 * part + 20):
        overrides = drawn(seed)
        try:
            run = training.train(training.read_config(SMOKE, overrides), tmp_path / str(seed))
        except CasebookError as error:
            refused.append((str(error), overrides))
            continue
        except Exception as error:
            raise AssertionError(f"{overrides}: {error!r}") from error
        assert run.record()["steps"] == 1, overrides
        assert math.isfinite(run.metrics()["loss"].iloc[-1]), overrides
        shutil.rmtree(run.path)
    assert not any("\n" in sentence for sentence, _ in refused)
    assert len(refused) <= 8, refused  # by TRL or the plain loops, for what they do not know


# A training in a process of its own ----------------------------------------------------------


class Child:
    """A function in a fork of this process."""

    def __init__(self, function, log, limit=None):
        self.pid = os.fork()
        if self.pid:
            return
        code = BUG
        try:
            for stream in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            if limit:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            function()
            code = 0
        except CasebookError as error:
            code = SENTENCE if "\n" not in str(error) else BUG
            os.write(2, f"casebook: {error}\n".encode())
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def kill_after(self, seconds):
        """Kill it after so many seconds; whether it was still running."""
        time.sleep(seconds)
        ended, _ = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        return not ended

    def wait(self):
        """Its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def train(path, **overrides):
    return lambda: training.train(training.read_config(SMOKE, QUICK | overrides), path, resume=True)


def figures(run):
    """All that a run measured, without times."""

    def timeless(value):
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in TIMED and k != "code"}
        return value

    completions = run.completions()
    return {
        "record": timeless(run.record()),
        "metrics": [timeless(json.loads(line)) for line in open(run.metrics_file)],
        "adapter": (run.adapter / "adapter_model.safetensors").read_bytes(),
        "completions": completions.to_csv(index=False),
    }


def check_equal(run, whole):
    found, wanted = figures(run), figures(whole)
    for name in wanted:
        assert found[name] == wanted[name], name


METHODS = {
    "grpo": {"lr_scheduler_type": "constant"},
    "two steps a batch": {"num_iterations": 2, "save_steps": 1},
    "kl": {"beta": 0.1},
    "sft": {"method": "sft"},
    "rejection": {"method": "rejection"},
}


@pytest.fixture(scope="module", params=METHODS)
def whole(request, tmp_path_factory):
    """A training that was left alone: what it was asked, its run, and how long it took."""
    folder, started = tmp_path_factory.mktemp("whole"), time.monotonic()
    assert Child(train(folder / "run", **METHODS[request.param]), folder / "log").wait() == 0
    run = training.Run(folder / "run")
    return METHODS[request.param], run, time.monotonic() - started


def test_a_killed_training_goes_on_to_equal_figures(whole, tmp_path):
    overrides, run, seconds = whole
    draw = random.Random(str(overrides))
    killed = 0
    for number in range(KILLS // len(METHODS)):
        path, log = tmp_path / str(number), tmp_path / f"{number}.log"
        while Child(train(path, **overrides), log).kill_after(draw.uniform(0, seconds)):
            killed += 1
            if draw.random() < 0.5:
                break
        assert Child(train(path, **overrides), log).wait() == 0, log.read_text()
        check_equal(training.Run(path), run)
    assert killed


# Small disks and folders that cannot be written --------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """Mounts a small disk: `disk(megabytes)` is its folder."""
    mounted = []

    def mount(megabytes):
        folder = tmp_path / f"disk{megabytes}"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(["mount", *options], capture_output=True).returncode:
            pytest.skip("no small disk can be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A training by GRPO that was left alone."""
    folder = tmp_path_factory.mktemp("alone")
    assert Child(train(folder / "run"), folder / "log").wait() == 0
    return training.Run(folder / "run")


def check_stopped(code, log):
    """It ended well, or in one sentence of where it stopped."""
    text = log.read_text()
    assert code in (0, SENTENCE), text
    assert "Traceback" not in text
    if code:
        assert "--resume" in text.splitlines()[-1]


@pytest.mark.parametrize("megabytes", [1, 2, 4, 8])
def test_a_small_disk_is_one_sentence_and_loses_nothing(megabytes, disk, alone, tmp_path):
    folder, log = disk(megabytes), tmp_path / "log"
    check_stopped(Child(train(folder / "run"), log).wait(), log)
    shutil.copytree(folder / "run", tmp_path / "run")
    assert Child(train(tmp_path / "run"), log).wait() == 0, log.read_text()
    check_equal(training.Run(tmp_path / "run"), alone)


@pytest.mark.parametrize("kilobytes", [1, 4, 20, 60, 150, 400, 700, 1400, 1500])
def test_a_file_that_may_not_grow_is_one_sentence_and_loses_nothing(kilobytes, alone, tmp_path):
    log = tmp_path / "log"
    check_stopped(Child(train(tmp_path / "run"), log, limit=1000 * kilobytes).wait(), log)
    assert Child(train(tmp_path / "run"), log).wait() == 0, log.read_text()
    check_equal(training.Run(tmp_path / "run"), alone)


def test_a_disk_that_is_read_only_is_one_sentence(disk, alone, tmp_path):
    folder, log = disk(64), tmp_path / "log"
    shutil.copytree(alone.path, folder / "run")
    (folder / "run" / "record.json").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for path in (folder / "run", folder / "new"):
        assert Child(train(path), log).wait() == SENTENCE, log.read_text()


# Damage ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was killed after its second checkpoint and before its end."""
    folder = tmp_path_factory.mktemp("stopped")
    run, child = training.Run(folder / "run"), Child(train(folder / "run"), folder / "log")
    while run.checkpoint() is None or run.checkpoint().name != "checkpoint-4":
        time.sleep(0.01)
    assert child.kill_after(0)
    return run


@pytest.mark.parametrize("how", ["cut", "zeroed", "removed"])
def test_every_file_of_a_stopped_run_damaged_in_turn(how, stopped, alone, tmp_path):
    files = sorted(path for path in stopped.path.rglob("*") if path.is_file())
    assert len(files) > 20
    outcomes = {0: 0, SENTENCE: 0}
    for number, file in enumerate(files):
        path, log = tmp_path / str(number), tmp_path / f"{number}.log"
        shutil.copytree(stopped.path, path)
        damaged = path / file.relative_to(stopped.path)
        content = file.read_bytes()
        if how == "removed":
            damaged.unlink()
        else:
            damaged.write_bytes(content[: len(content) // 2] if how == "cut" else b"\0" * 64)
        code = Child(train(path), log).wait()
        assert code in outcomes, f"{damaged}: {log.read_text()}"
        outcomes[code] += 1
        if code == 0:
            check_equal(training.Run(path), alone)
        shutil.rmtree(path)
    assert all(outcomes.values())


# Experiments -------------------------------------------------------------------------------


def test_killed_experiments_go_on_to_equal_records(tmp_path, monkeypatch):
    (tmp_path / "configs" / "poker").mkdir(parents=True)
    shutil.copy(SMOKE, tmp_path / "configs" / "poker")
    arm = {"question": "Does it run?", "profile": "smoke", "seeds": [0, 1], "overrides": QUICK}
    arms = {"grpo": arm, "sft": arm | {"overrides": {**QUICK, "method": "sft"}}}
    (tmp_path / "configs" / "poker" / "experiments.yaml").write_text(json.dumps(arms))
    monkeypatch.setattr(paths, "CONFIGS", tmp_path / "configs")
    monkeypatch.setattr(experiments, "provenance", lambda: {"git": {"dirty": False}})

    def run(name):
        monkeypatch.setattr(paths, "RESULTS", tmp_path / name / "results")
        monkeypatch.setenv("RUNS_DIR", str(tmp_path / name / "runs"))
        (tmp_path / name).mkdir(exist_ok=True)
        return Child(
            lambda: experiments.run_experiments("poker", "smoke"), tmp_path / f"{name}.log"
        )

    def kept(name):
        files = sorted((tmp_path / name / "results").rglob("*"))
        return {
            str(file.relative_to(tmp_path / name)): {
                key: value
                for key, value in json.loads(file.read_text()).items()
                if key not in TIMED and key not in ("code", "validation")
            }
            if file.name.startswith("seed")
            else file.read_bytes()
            for file in files
            if file.is_file()
        }

    started = time.monotonic()
    assert run("whole").wait() == 0
    seconds, draw, killed = time.monotonic() - started, random.Random(0), 0
    while killed < KILLS:
        name = f"killed{killed}"
        while run(name).kill_after(draw.uniform(0, seconds)):
            killed += 1
            if draw.random() < 0.4:
                break
        assert run(name).wait() == 0, (tmp_path / f"{name}.log").read_text()
        assert kept(name) == kept("whole")
        killed += 1
