"""Several processes that train one policy: real ones, started by torchrun, over gloo."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from casebook import paths, training
from casebook.case import CasebookError
from casebook.training import processes

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
FEW = {
    **{"max_steps": 3, "save_steps": 1, "test_limit": 4, "evaluate_rows": 2, "evaluate_every": 3},
    **{"max_completion_length": 16, "completions_every": 1, "per_device_train_batch_size": 8},
}
TIMED = ("seconds", "step_time")


def start(count, *arguments, **options):
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program += ["--nproc_per_node", str(count), *map(str, arguments)]
    return subprocess.Popen(
        program, text=True, cwd=paths.ROOT, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options,
    )  # fmt: skip


def train(folder, *more, count=2, **settings):
    chosen = [f"--set={name}={value}" for name, value in (FEW | settings).items()]
    command = ["-m", "casebook.cli", "train", "--config", SMOKE, "--output", folder]
    return start(count, *command, *chosen, *more)


def finished(process):
    """What a launcher and its processes said, and the exit code."""
    said, _ = process.communicate(timeout=900)
    return said, process.returncode


def lines(run):
    """All of a run's metrics but the times."""
    frames = pd.concat([run.metrics(), run.validation()])
    return frames.drop(columns=[name for name in TIMED if name in frames])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    said, code = finished(train(folder))
    assert code == 0, said
    return training.Run(folder), said


# One writer --------------------------------------------------------------------------------


def shape(folder):
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    numbers = {name for name in files if "rng_state" in name}  # each process has random numbers
    return files - numbers, len(numbers)


@pytest.mark.slow
def test_two_processes_leave_a_run_of_the_shape_of_one(two, tmp_path):
    config = training.read_config(SMOKE, FEW | {"per_device_train_batch_size": 16})
    one = training.train(config, tmp_path / "one")
    files, states = shape(two[0].path)
    assert (files, states) == (shape(one.path)[0], 2 * shape(one.path)[1])
    assert set(lines(two[0])) == set(lines(one))
    assert two[0].metrics()["step"].tolist() == one.metrics()["step"].tolist() == [1, 2, 3]
    assert two[0].validation()["step"].tolist() == one.validation()["step"].tolist() == [0, 3]
    record, alone = two[0].record(), one.record()
    assert set(record) - set(alone) == {"processes"}
    assert record["processes"] == 2
    for name in ("before", "inputs", "samples", "steps"):
        assert record[name] == alone[name], name
    assert two[1].count("step 3/3") == two[1].count("record.json") == 1  # one process speaks


@pytest.mark.slow
def test_completions_of_both_processes_are_written_once_with_the_rewards_trl_saw(two):
    completions = two[0].completions()
    assert completions.groupby("step").size().tolist() == [16, 16, 16]
    for _, step in completions.groupby("step"):
        groups = step.reset_index(drop=True).groupby(lambda i: i // 4)
        assert (groups["prompt"].nunique() == 1).all()
        assert groups["advantage"].mean().abs().max() < 1e-6
    written = completions.groupby("step")["reward"].mean().to_numpy()
    assert written == pytest.approx(two[0].metrics()["reward"].to_numpy(), abs=1e-4)


# What cannot be trained so -----------------------------------------------------------------


@pytest.fixture
def several(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")  # is set by `check`, and put back here
    return monkeypatch


ALONE = {"method": "grpo", "fast_inference": False, "prompts_once": False}
ALONE |= {"rollout_weights": "trained", "drop_silent_groups": False}


def configured(**changes):
    """What `processes.check` asks of a configuration."""
    usual = {"use_cpu": True, "bf16": False, "fp16": False}
    return SimpleNamespace(**usual | ALONE | changes)


@pytest.mark.parametrize(("gpus", "refused"), [(1, True), (2, False), (0, False)])
def test_two_processes_on_one_gpu_are_refused(several, gpus, refused):
    several.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    several.setattr(torch.cuda, "device_count", lambda: gpus)
    if not refused:
        return processes.check(configured(use_cpu=False))
    with pytest.raises(CasebookError, match="2 processes on this machine, and it shows 1 GPU"):
        processes.check(configured(use_cpu=False))


@pytest.mark.parametrize(
    ("changes", "variables", "message"),
    [
        ({"method": "rejection"}, {}, "method is 'rejection', and several processes"),
        ({"prompts_once": True}, {}, "prompts_once is True, and several processes"),
        ({}, {"ACCELERATE_USE_FSDP": "true"}, "multi_gpu, zero1 or zero2"),
        ({}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, "multi_gpu, zero1 or zero2"),
        ({}, {"ACCELERATE_MIXED_PRECISION": "bf16"}, "--mixed_precision no"),
    ],
)
def test_what_several_processes_cannot_train_is_refused(several, changes, variables, message):
    processes.check(configured())
    for name, value in variables.items():
        several.setenv(name, value)
    with pytest.raises(CasebookError, match=message):
        processes.check(configured(**changes))


def test_a_number_of_processes_without_a_launcher_is_a_sentence(several):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        several.delenv(name, raising=False)
    with pytest.raises(CasebookError, match="accelerate launch or torchrun"):
        processes.begin()


@pytest.mark.slow
def test_a_run_goes_on_with_as_many_processes_as_it_was_begun_with(two, tmp_path):
    shutil.copytree(two[0].path, tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    config = training.read_config(SMOKE, FEW)
    with pytest.raises(CasebookError, match=r"another number of processes \(2\)"):
        training.train(config, tmp_path / "run", resume=True)


@pytest.mark.heavy
def test_two_processes_go_on_at_a_checkpoint_as_if_nothing_had_been(two, tmp_path):
    folder = shutil.copytree(two[0].path, tmp_path / "run")
    (folder / "record.json").unlink()
    for part in ("adapter", "measured", "checkpoints/checkpoint-3"):
        shutil.rmtree(folder / part)
    said, code = finished(train(folder, "--resume"))
    assert code == 0, said
    run = training.Run(folder)
    pd.testing.assert_frame_equal(lines(run), lines(two[0]), rtol=1e-4)
    assert run.record()["after"] == two[0].record()["after"]


# Learning ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_have_the_gradient_of_one_on_the_same_completions(tmp_path):
    script = Path(__file__).with_name("one_gradient.py")
    files = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for count, file in enumerate(files, start=1):
        said, code = finished(start(count, script, file))
        assert code == 0, said
    one, two = (torch.load(file) for file in files)
    for loss in ("dapo", "grpo", "dr_grpo"):
        assert one[loss]["gradients"].keys() == two[loss]["gradients"].keys()
        for name, gradient in one[loss]["gradients"].items():
            assert gradient.abs().max() > 1e-4, name
            torch.testing.assert_close(two[loss]["gradients"][name], gradient, atol=1e-5, rtol=0)
        for name in ("reward", "reward_std", "completions/mean_length"):
            assert one[loss]["log"][name] == pytest.approx(two[loss]["log"][name], rel=1e-5)
