"""Attacks on whole commands: drawn configurations, kills, small disks, damaged folders.

Each attack ends in the figures of a command that was left alone, or in one sentence. A command is
a fork of this process, which has imported what takes long. `-s` shows how often each was hit.
"""

import gc
import hashlib
import itertools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
import traceback
from collections import Counter, defaultdict

import nbformat
import pytest
import transformers
import yaml
from nbformat.v4 import new_code_cell, new_notebook

from casebook import evaluation, execute, paths, training
from casebook.case import CasebookError, known_cases, load_case
from casebook.execute import series
from casebook.experiments import arms
from casebook.settings import FIELDS, METHODS, check_present, checked, marked
from casebook.training import log, loop, measure
from casebook.training.run import prepare

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

    A moment of a phase begins with the call of a function that is marked, and with the return
    from one that it called.

    Args:
        file: gets a line for each moment: its phase and when it began.
        kill: a phase, how many of its moments come before, and seconds after the beginning of that
            moment. The kernel ends the process then, as by SIGKILL: nothing of it runs any more.
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


def of_experiments(moments):
    """Mark the phases of experiments, those of a training among them."""
    of_a_training(moments)
    moments.mark(arms, "chosen_runs", "finding the arms")
    moments.mark(arms, "_keep", "keeping adapter and completions")
    moments.mark(arms, "write_json", "keeping the record")


def of_a_series(moments):
    """Mark the phases of a series of notebooks."""
    moments.mark(series, "check_parameters", "reading notebooks")
    moments.mark(series, "_material", "reading code and data")
    moments.mark(series._Series, "papermill", "running cells")
    moments.mark(series._Series, "note", "writing the status")
    moments.mark(os, "replace", "moving a file")


class Child:
    """A function in a fork of this process.

    Args:
        function: what runs; a `CasebookError` of one line is exit code `SENTENCE`.
        log: a file that gets what it prints.
        limit: bytes that no file may outgrow.
        mark: marks the phases that are told apart.
        kill: as for `Moments`.
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
        """Its exit code, or minus the signal that ended it."""
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
    """Kill a command at a random moment of a phase; in which phase it was then.

    Args:
        seconds: from `done`.
        start: begins the command, with the keyword `kill`.
    """
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


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory):
    """`two_arms(folder)`: how a `Child` makes the records of two short experiments there."""
    configs = tmp_path_factory.mktemp("arms")
    (configs / "poker").mkdir()
    shutil.copy(SMOKE, configs / "poker")
    arm = {"question": "Does it run?", "profile": "smoke", "seeds": [0], "overrides": QUICK}
    both = {"grpo": arm, "sft": arm | {"overrides": {**QUICK, "method": "sft"}}}
    (configs / "poker" / "experiments.yaml").write_text(json.dumps(both))

    def start(folder, runs=None):
        def function():  # in a process of its own: nothing is put back
            paths.CONFIGS, paths.RESULTS = configs, folder / "results"
            os.environ["RUNS_DIR"] = str(runs or folder / "runs")
            arms.provenance = lambda: {"git": {"dirty": False}}
            arms.run_experiments("poker", "smoke")

        return {"function": function, "log": configs / f"{folder.name}.log"}

    return start


@pytest.fixture(scope="module")
def arms_alone(two_arms, tmp_path_factory):
    """What experiments that were left alone have kept, and the seconds of their phases."""
    folder = tmp_path_factory.mktemp("arms_alone")
    seconds = done(**two_arms(folder), mark=of_experiments)
    assert {"grpo/seed0.json", "sft/seed0.json"} < set(kept(folder))
    return kept(folder), seconds


def kept(folder):
    """The records of experiments without times, and the bytes of what lies beside them."""
    results = folder / "results" / "poker" / "smoke"
    return {
        str(file.relative_to(results)): timeless(json.loads(file.read_text()))
        if file.name.startswith("seed")
        else file.read_bytes()
        for file in sorted(results.rglob("*"))
        if file.is_file()
    }


def test_experiments_killed_in_any_phase_go_on_to_equal_records(two_arms, arms_alone, tmp_path):
    whole, seconds = arms_alone
    draw, hit = random.Random(0), Counter()
    for number, phase in enumerate(seconds):
        folder = tmp_path / f"killed{number // 2}"
        asked = two_arms(folder)

        def start(kill, asked=asked):
            return Child(**asked, mark=of_experiments, kill=kill)

        hit[kill_in(phase, seconds, draw, start)] += 1
        if number % 2 or number + 1 == len(seconds):
            done(**asked)
            assert kept(folder) == whole
    print("killed in:", dict(hit))
    assert hit.total() - hit[None] >= len(seconds) * 3 / 4  # a second kill may find its phase over


@pytest.fixture
def notebooks(checkout):
    """`notebooks()` executes two notebooks; `notebooks.copies()` is what they printed."""
    for number in (10, 11):
        source = ["print(SEED)", f"print({number} * SEED)"]
        cells = [new_code_cell('PROFILE = "nano"\nSEED = 0', metadata={"tags": ["parameters"]})]
        notebook = new_notebook(cells=cells + [new_code_cell(line) for line in source])
        python = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.metadata["kernelspec"] = python
        nbformat.write(notebook, checkout / "notebooks" / f"{number}_alpha_oracle.ipynb")

    class Series:
        reports = checkout / "reports"

        def __call__(self):
            assert all(result.status == "ok" for result in execute.execute(seed=7))

        def copies(self):
            assert {entry["status"] for entry in execute.read_status().values()} == {"ok"}
            files = sorted((self.reports / "executed").iterdir())
            books = [nbformat.read(file, as_version=4) for file in files]
            return [[cell.outputs for cell in book.cells if cell.outputs] for book in books]

    return Series()


def test_a_series_killed_in_any_phase_goes_on_to_equal_copies(notebooks, tmp_path):
    marked = {"log": tmp_path / "log", "mark": of_a_series}
    seconds = done(notebooks, **marked)
    whole = notebooks.copies()
    draw, hit = random.Random(0), Counter()
    for number, phase in enumerate(seconds):
        if number % 2 == 0:
            shutil.rmtree(notebooks.reports)
        hit[kill_in(phase, seconds, draw, lambda kill: Child(notebooks, **marked, kill=kill))] += 1
        if number % 2 or number + 1 == len(seconds):
            done(notebooks, **marked)
            assert notebooks.copies() == whole
    print("killed in:", dict(hit))
    assert hit.total() - hit[None] >= len(seconds) * 3 / 4  # a second kill may find its phase over


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
    done(train(folder / "run"), folder / "log")
    return training.Run(folder / "run")


def sentence(child):
    """The one in which a command stopped."""
    code, text = child.wait(), child.log.read_text()
    assert code == SENTENCE, text
    assert "Traceback" not in text
    print(text.splitlines()[-1])
    return text.splitlines()[-1]


def check_goes_on(run, alone, tmp_path):
    """A copy of it goes on, where there is room, and comes to the same figures."""
    shutil.copytree(run, tmp_path / "room")
    done(train(tmp_path / "room"), tmp_path / "room.log")
    check_equal(training.Run(tmp_path / "room"), alone)


@pytest.mark.parametrize("megabytes", [1, 2, 4])
def test_a_small_disk_is_one_sentence_and_loses_nothing(megabytes, disk, alone, tmp_path):
    run = disk(megabytes) / "run"
    assert "--resume" in sentence(Child(train(run), tmp_path / "log"))
    check_goes_on(run, alone, tmp_path)


def test_a_disk_of_8_mb_is_enough(disk, alone, tmp_path):
    run = disk(8) / "run"
    done(train(run), tmp_path / "log")
    check_equal(training.Run(run), alone)


@pytest.mark.parametrize("kilobytes", [3, 8, 100, 1000])
def test_a_file_that_may_not_grow_is_one_sentence_and_loses_nothing(kilobytes, alone, tmp_path):
    run = tmp_path / "run"
    child = Child(train(run), tmp_path / "log", limit=1000 * kilobytes)
    assert "--resume" in sentence(child)
    check_goes_on(run, alone, tmp_path)


@pytest.mark.parametrize("megabytes", [1, 2, 4, 8])
def test_experiments_on_a_small_disk_are_one_sentence_and_lose_nothing(
    megabytes, disk, two_arms, arms_alone, tmp_path
):
    folder = disk(megabytes)
    assert "cannot be written" in sentence(Child(**two_arms(folder)))
    shutil.copytree(folder, tmp_path / "larger")
    done(**two_arms(tmp_path / "larger"))
    assert kept(tmp_path / "larger") == arms_alone[0]


@pytest.mark.parametrize("kilobytes", [0, 4])
def test_a_series_on_a_full_disk_is_one_sentence_and_loses_nothing(
    kilobytes, disk, notebooks, tmp_path, monkeypatch
):
    done(notebooks, tmp_path / "log")
    whole = notebooks.copies()
    monkeypatch.setattr(paths, "REPORTS", disk(1) / "reports")
    filler = paths.REPORTS.parent / "filler"
    filler.write_bytes(bytes(2**20 - 1024 * kilobytes))
    monkeypatch.setattr(notebooks, "reports", paths.REPORTS, raising=False)
    child = Child(lambda: execute.execute(seed=7), tmp_path / "full.log")
    assert "cannot be written" in sentence(child)
    filler.unlink()
    done(notebooks, tmp_path / "log")
    assert notebooks.copies() == whole


def test_a_disk_that_is_read_only_is_one_sentence(disk, alone, two_arms, tmp_path):
    folder, log = disk(64), tmp_path / "log"
    shutil.copytree(alone.path, folder / "run")
    (folder / "run" / "record.json").unlink()
    read_only = r" cannot be written.*Read-only file system"
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for path in (folder / "run", folder / "new"):
        assert re.search(str(path) + read_only, sentence(Child(train(path), log)))
    elsewhere = tmp_path / "results elsewhere"
    for asked in (two_arms(folder), two_arms(elsewhere, runs=folder / "runs")):
        assert re.search(str(folder) + ".*" + read_only, sentence(Child(**asked)))


def test_a_series_on_a_read_only_disk_is_one_sentence(disk, notebooks, monkeypatch, tmp_path):
    folder = disk(1)
    monkeypatch.setattr(paths, "REPORTS", folder / "reports")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    said = sentence(Child(notebooks, tmp_path / "read_only.log"))
    assert re.search(str(folder) + ".* cannot be written.*Read-only file system", said)


# Damage ----------------------------------------------------------------------------------


def killed_after(owner, name, last):
    """Marks a function for a `Child`, which is killed after the first call that is `last`."""

    def mark(moments):
        function = getattr(owner, name)

        def marked(*arguments):
            function(*arguments)
            if last(*arguments):
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, marked)

    return mark


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was killed in the step after its second checkpoint."""
    folder = tmp_path_factory.mktemp("stopped")
    mark = killed_after(log.RunCallback, "_append", lambda callback, kind, step, figures: step == 5)
    assert Child(train(folder / "run"), folder / "log", mark=mark).wait() == -signal.SIGKILL
    assert training.Run(folder / "run").checkpoint().name == "checkpoint-4"
    return training.Run(folder / "run")


@pytest.fixture(scope="module")
def half_measured(tmp_path_factory):
    """A training that was killed while its policy was measured at the end."""
    folder = tmp_path_factory.mktemp("half_measured")
    mark = killed_after(evaluation, "_store", lambda file, *rest: file and "after" in file.parts)
    assert Child(train(folder / "run"), folder / "log", mark=mark).wait() == -signal.SIGKILL
    return training.Run(folder / "run")


def damage(file, how):
    content = file.read_bytes()
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if how == "cut" else bytes(len(content)))


def check_damaged(run, names, how, tmp_path, check):
    """Damage files of a run in turn and go on; how often each outcome came.

    `prepare` makes a folder ready before anything is read from it. Of damages that it leaves
    nothing of, one is trained.
    """
    outcomes, sentences, seen = Counter(), [], set()
    config = training.read_config(SMOKE, QUICK)
    for name in names:
        path, log = tmp_path / "run", tmp_path / "log"
        shutil.copytree(run.path, path)
        damage(path / name, how)
        try:
            unfinished = prepare(training.Run(path), config, resume=True, say=len)
        except CasebookError as error:
            sentences.append(str(error))
        else:
            ready = content(path)
            outcomes["equal to one before" if ready in seen else "equal"] += 1
            if ready not in seen:
                if unfinished:
                    done(train(path), log)
                check(training.Run(path))
            seen.add(ready)
        shutil.rmtree(path)
    assert not any("\n" in sentence for sentence in sentences)
    outcomes["a sentence"] = len(sentences)
    print(how, dict(outcomes))
    return outcomes


def content(folder):
    """What is in a folder, as something that can be compared."""
    names = files_of(training.Run(folder))
    return frozenset((n, hashlib.sha256((folder / n).read_bytes()).digest()) for n in names)


def files_of(run):
    return [file.relative_to(run.path) for file in sorted(run.path.rglob("*")) if file.is_file()]


NAMED = {("record.json", "cut"), ("record.json", "zeroed")}
HOW = pytest.mark.parametrize("how", ["cut", "zeroed", "removed"])


@HOW
def test_every_file_of_a_stopped_run_damaged_in_turn(how, stopped, alone, tmp_path):
    names = files_of(stopped)
    assert len(names) > 20
    equal = check_damaged(stopped, names, how, tmp_path, lambda run: check_equal(run, alone))
    assert equal["equal"]
    assert equal["a sentence"]


@HOW
def test_every_file_of_a_half_measured_run_damaged_in_turn(how, half_measured, alone, tmp_path):
    """Those that a run has only then; what was saved and measured is made again."""
    names = [n for n in files_of(half_measured) if n.parts[0] in ("adapter", "measured")]
    assert {"measured/policy", "measured/before/test.jsonl", "measured/after/test.jsonl"} < {
        name.as_posix() for name in names
    }
    check_damaged(half_measured, names, how, tmp_path, lambda run: check_equal(run, alone))


@HOW
def test_every_file_of_a_finished_run_damaged_in_turn(how, alone, tmp_path):
    """A run that has finished is not made again; a record that is damaged is named."""

    def check(run):
        assert timeless(run.record()) == timeless(alone.record())

    names = [name for name in files_of(alone) if (name.name, how) not in NAMED]
    assert check_damaged(alone, names, how, tmp_path, check)["equal"]


@pytest.mark.parametrize("how", ["cut", "zeroed"])
def test_a_damaged_record_of_a_finished_run_is_named(how, alone, tmp_path):
    shutil.copytree(alone.path, tmp_path / "run")
    damage(tmp_path / "run" / "record.json", how)
    run = train(tmp_path / "run")()
    with pytest.raises(CasebookError, match=r"record\.json is not valid JSON"):
        run.record()
