"""Attacks on whole trainings: drawn configurations, kills in any phase, a full disk.

Each attack ends in the figures of a command that was left alone, or in one sentence. A command is
a fork of this process, which has imported what takes long. `-s` shows how often each was hit.
"""

import gc
import itertools
import json
import math
import os
import random
import resource
import select
import shutil
import signal
import time
import traceback
from collections import Counter, defaultdict

import pytest
import transformers
import yaml
from tqdm.std import TqdmDefaultWriteLock

from casebook import evaluation, paths, training
from casebook.case import CasebookError, known_cases, load_case
from casebook.settings import FIELDS, METHODS, check_present, checked, marked
from casebook.training import log, loop, measure

pytestmark = pytest.mark.heavy

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
QUICK = {  # the label alone: a few tokens
    **{"max_steps": 6, "save_steps": 2, "evaluate_every": 3, "evaluate_rows": 2},
    **{"test_limit": 4, "train_limit": 32, "completions_every": 2},
    **{"per_device_train_batch_size": 8, "max_completion_length": 8, "variant": "label"},
    **{"reward_funcs": ["class_weighted"], "reward_weights": None, "temperature": 2.0},
    "reward_kwargs": {"class_weighted": {"strict": True, "variant": "label"}},
}
TIMED = {
    *("train_seconds", "measure_seconds", "samples_per_second", "peak_memory_mb", "provenance"),
    *("seconds", "step_time"),
}
SENTENCE, BUG = 2, 3
# Forks share this lock: one that is killed while it holds it would stop all that come after it.
TqdmDefaultWriteLock.mp_lock = None


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """One training in this process: what it imports, its forks need not."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (evaluation, measure):  # most of the time that measuring takes
            patch.setattr(module, "OTHER_ROWS", 16)
        run = train(tmp_path_factory.mktemp("warm") / "run")()
        assert run.record()["adapter_largest_change"] > 0
        assert (run.metrics()["grad_norm"] > 0).any()
        measure._MEASURED.clear()
        gc.collect()
        gc.freeze()  # a collection in a fork would look at, and so copy, all of this
        yield


# Drawn configurations ----------------------------------------------------------------------

# What is drawn otherwise or decides how long a step takes, and what one CPU cannot vary.
FIXED = {
    *("case", "profile", "variant", "method", "model_name_or_path", "reward_funcs"),
    *("reward_weights", "reward_kwargs", "max_steps", "max_seq_length", "logging_steps"),
    *("per_device_train_batch_size", "report_to", "test_samples", "test_limit", "evaluate_rows"),
    *("pass_at_k_rows", "pass_at_k_samples", "also_evaluate", "fast_inference", "load_in_4bit"),
    *("use_cpu", "fp16", "train_limit", "evaluate_every"),
    *(name for name in FIELDS if "vllm" in name),
}
DRAWN = sorted(set(FIELDS) - FIXED)


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


def drawn(seed, file):
    """Write a configuration of one step in which some fields take another value, or none at all.

    What the check refuses is drawn again: two right values that cannot go together.
    """
    draw = random.Random(seed)
    others = [name for name in METHODS if name != "grpo"]
    while True:
        # Drawn again, too: not every case knows every method.
        case, method = draw.choice(known_cases()), draw.choice(["grpo"] * 5 + others)
        parts = [*load_case(case).rewards, "kl_penalty"]
        settings = yaml.safe_load((paths.CONFIGS / case / "smoke.yaml").read_text())
        changed = draw.sample(DRAWN, draw.randint(1, 6))
        settings |= {name: right_value(FIELDS[name], draw) for name in changed}
        for name in draw.sample(sorted(set(DRAWN) - set(marked("needed"))), draw.randint(0, 4)):
            settings.pop(name, None)
        if draw.random() < 0.5:
            rewards = draw.sample(parts, draw.randint(1, 3))
            weights = draw.choice([None, [draw.choice([0, 0.5, 1, -1]) for _ in rewards]])
            settings |= {"reward_funcs": rewards, "reward_weights": weights, "reward_kwargs": None}
        settings |= {"max_steps": 1, "train_limit": 64, "evaluate_every": 0, "method": method}
        file.write_text(yaml.safe_dump(settings))
        try:
            check_present(checked(file))
        except CasebookError:
            continue
        return settings


@pytest.mark.parametrize("part", range(10))
def test_right_configurations_train_one_step(part, tmp_path, monkeypatch):
    """Whatever the check takes is trained: 200 configurations, of all cases and methods."""
    nothing = {"before": {}, "after": {}, "completions": []}
    monkeypatch.setattr(loop, "measure", lambda *arguments: nothing)
    file, trained = tmp_path / "config.yaml", Counter()
    for seed in range(20 * part, 20 * part + 20):
        settings = drawn(seed, file)
        try:
            run = training.train(training.read_config(file), tmp_path / str(seed))
        except Exception as error:
            # Which samples are right depends on the model, and not on the settings.
            if settings["method"] == "rejection" and "was accepted" in str(error):
                trained["nothing accepted"] += 1
                continue
            raise AssertionError(f"{settings}: {error!r}") from error
        assert run.record()["steps"] == 1, settings
        assert math.isfinite(run.metrics()["loss"].iloc[-1]), settings
        trained[settings["case"], settings["method"]] += 1
        shutil.rmtree(run.path)
    print("configurations:", dict(trained))
    assert trained["nothing accepted"] <= 3


# A command in a process of its own, and the moments of its phases ------------------------------


class Moments:
    """Says which phase a process is in, and ends it at a moment of one.

    A moment of a phase begins with the call of a function that is marked, and with the return from
    one that it called. `file` gets a line for each: its phase and when it began. `kill` is a phase,
    how many of its moments come before, and seconds after that: then the kernel ends the process.
    """

    def __init__(self, file, kill):
        self.file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.kill, self.seen = kill, Counter()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.begin("beginning")

    def begin(self, phase):
        self.phase = phase
        os.write(self.file, f"{phase}\t{time.monotonic()}\n".encode())
        if self.kill and self.kill[:2] == (phase, self.seen[phase]):
            signal.setitimer(signal.ITIMER_REAL, max(self.kill[2], 1e-6))
        self.seen[phase] += 1

    def mark(self, owner, name, phase):
        function = getattr(owner, name)

        def marked(*arguments, **options):
            outer = self.phase
            self.begin(phase if isinstance(phase, str) else phase(*arguments))
            try:
                return function(*arguments, **options)
            finally:
                self.begin(outer)

        setattr(owner, name, marked)


def of_a_training(moments):
    """Mark the phases of a training."""
    moments.mark(loop, "prepare", "making the folder ready")
    moments.mark(loop, "beginning", "loading")
    moments.mark(loop, "_fit", "training")
    moments.mark(loop.supervised, "accepted", "sampling what is learned")
    moments.mark(
        log.RunCallback,
        "_evaluate",
        lambda callback, step, model: "measuring on the way" if step else "first measuring",
    )
    moments.mark(transformers.Trainer, "_save_checkpoint", "saving a checkpoint")
    moments.mark(training.Run, "seal", "sealing a checkpoint")
    moments.mark(loop, "save_policy", "saving the policy")
    moments.mark(loop, "measure", "final measuring")
    moments.mark(loop, "write_json", "writing the record")


class Child:
    """A function in a fork; a `CasebookError` of one line is exit code `SENTENCE`.

    `log` gets what it prints, no file may outgrow `limit` bytes, `mark` marks the phases.
    """

    def __init__(self, function, log, limit=None, mark=lambda moments: None, kill=None):
        self.log, self.file = log, log.with_suffix(".moments")
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
            mark(Moments(self.file, kill))
            function()
            code = 0
        except CasebookError as error:
            code = SENTENCE if "\n" not in str(error) else BUG
            os.write(2, f"casebook: {error}\n".encode())
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def wait(self):
        """Its exit code, or minus the signal that ended it, after ten minutes by this process."""
        if not select.select([os.pidfd_open(self.pid)], [], [], 600)[0]:
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def killed_in(self):
        """The phase in which it was killed, or `None` where it came to its end."""
        code = self.wait()
        assert code in (0, -signal.SIGALRM), self.log.read_text()
        return self.moments()[-1][0] if code else None

    def moments(self):
        """The phases it went through, and when each began."""
        lines = [line.split("\t") for line in self.file.read_text().splitlines()]
        return [(phase, float(began)) for phase, began in lines]


def done(function, log, **options):
    """The seconds of each moment, by phase, of a function that comes to its end."""
    child = Child(function, log, **options)
    assert child.wait() == 0, log.read_text()
    moments, seconds = child.moments(), defaultdict(list)
    for (phase, began), (_, ended) in itertools.pairwise(moments):
        seconds[phase].append(ended - began)
    return dict(seconds)


def kill_in(phase, seconds, draw, start):
    """Kill what `start` begins at a random moment of a phase; in which phase it was then."""
    number = draw.randrange(len(seconds[phase]))
    return start(kill=(phase, number, draw.uniform(0, seconds[phase][number]))).killed_in()


# Kills -----------------------------------------------------------------------------------------


def train(path, **overrides):
    return lambda: training.train(training.read_config(SMOKE, QUICK | overrides), path, resume=True)


def timeless(value):
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMED and k != "code"}
    return value


def figures(run):
    """All that a run measured, without times."""
    return {
        "record": timeless(run.record()),
        "metrics": [timeless(json.loads(line)) for line in open(run.metrics_file)],
        "weights": [file.read_bytes() for file in run.adapter.glob("*.safetensors")],
        "completions": run.completions().to_csv(index=False),
    }


def check_equal(run, whole):
    found, wanted = figures(run), figures(whole)
    for name in wanted:
        assert found[name] == wanted[name], name


@pytest.mark.parametrize(
    "overrides",
    [
        {"lr_scheduler_type": "constant"},
        {"num_iterations": 2, "save_steps": 1},
        {"beta": 0.1, "save_total_limit": 1},
        {"use_peft": False},
        {"method": "sft"},
        {"method": "rejection"},
        {"method": "plain_grpo"},
    ],
    ids=lambda overrides: ",".join(f"{name}={value}" for name, value in overrides.items()),
)
def test_a_training_killed_in_any_phase_goes_on_to_equal_figures(overrides, tmp_path):
    """Half of the runs are killed a second time."""
    whole = training.Run(tmp_path / "whole")
    marked = {"log": tmp_path / "log", "mark": of_a_training}
    seconds = done(train(whole.path, **overrides), **marked)
    draw, hit = random.Random(str(overrides)), Counter()
    phases = list(seconds) if "lr_scheduler_type" in overrides else draw.sample(list(seconds), 3)
    for number, phase in enumerate(phases):
        path = tmp_path / str(number)

        def start(kill, path=path):
            return Child(train(path, **overrides), **marked, kill=kill)

        hit[kill_in(phase, seconds, draw, start)] += 1
        if number % 2:
            hit[kill_in(draw.choice(list(seconds)), seconds, draw, start)] += 1
        done(train(path, **overrides), **marked)
        check_equal(training.Run(path), whole)
    print("killed in:", dict(hit))
    assert hit.total() - hit[None] >= len(phases) - 1  # the last moment may be over before


# A full disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kilobytes", [3, 100, 1000])
def test_a_file_that_may_not_grow_is_one_sentence_and_loses_nothing(kilobytes, tmp_path):
    whole, run = training.Run(tmp_path / "whole"), training.Run(tmp_path / "run")
    log = tmp_path / "log"
    child = Child(train(run.path), log, limit=1000 * kilobytes)
    assert child.wait() == SENTENCE
    assert "Traceback" not in log.read_text()
    assert "--resume" in log.read_text().splitlines()[-1]
    done(train(run.path), log)
    done(train(whole.path), log)
    check_equal(run, whole)
