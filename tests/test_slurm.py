"""The batch files: what they would start, with Slurm's commands replaced by ones that print.

`slurm/try_locally.sh` runs them on a real Slurm; what it said is in `slurm/try_locally.txt`.
"""

import os
import subprocess
from pathlib import Path

import pytest
import typer

from casebook import cli
from casebook.settings import chosen_runs

SLURM = Path(__file__).parents[1] / "slurm"
OPTIONS = ["--config", "configs/poker/nano.yaml", "--set", "max_steps=12"]


def parsed(words):
    """What the command line makes of a `casebook` command; an unknown option ends in an error."""
    group = typer.main.get_command(cli.app)
    name, rest = words[0], words[1:]
    while hasattr(group.commands[name], "commands"):
        group, (name, *rest) = group.commands[name], rest
    return group.commands[name].make_context(name, rest).params


PLANNED = (SLURM / "sweep.txt").read_text() + (SLURM / "sweep_gpu.txt").read_text()


@pytest.mark.parametrize("line", PLANNED.splitlines())
def test_each_line_of_the_plan_is_a_command_with_arms_that_there_are(line):
    words = line.split()
    options = parsed(words)
    if words[0] == "experiments":
        seeds = [int(seed) for seed in options["seeds"].split(",")]
        assert chosen_runs(options["case"], options["profile"], options["arm"], seeds)


# What they start ---------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Slurm's command and Python as stubs: Python prints its words, or waits to be stopped."""
    stubs = {
        "scontrol": 'echo "scontrol $*" >>"$CALLS"; touch "$STOPS"',
        "python": 'if [ -n "${STOPS:-}" ]; then touch "$CALLS.up"; until [ -e "$STOPS" ]; '
        'do sleep 0.1; done; exit "${ENDS:-0}"; fi; printf "%s\\n" "$@"',
        "apptainer": 'echo in "${3}"; exec "${@:4}"',
    }
    for name, text in stubs.items():
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/bash\n{text}\n")
        stub.chmod(0o755)
    # Submitted where no .venv is, which would come before the stubs.
    job = {"JOB_ID": 7, "SUBMIT_DIR": str(tmp_path), "ARRAY_JOB_ID": 7, "ARRAY_TASK_ID": 1}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (calls := tmp_path / "calls").touch()
    monkeypatch.setenv("CALLS", str(calls))
    return tmp_path


def submitted(*words):
    return subprocess.run(["bash", *map(str, words)], capture_output=True, text=True, timeout=300)


def test_a_job_is_one_training_that_can_go_on_in_the_sites_container(cluster):
    (cluster / "slurm").mkdir()
    (cluster / "slurm" / "site.sh").write_text("container=(apptainer exec --nv image.sif)\n")
    words = submitted(SLURM / "train.sbatch", "runs/x", *OPTIONS).stdout.splitlines()[1:]
    assert words[:3] == ["in image.sif", "-m", "casebook.cli"]
    options = parsed(words[3:])
    assert (str(options["output"]), options["resume"]) == ("runs/x", True)
    assert options["setting"] == ["max_steps=12"]


@pytest.mark.parametrize("words", [["runs/x"], ["--config", "configs/poker/nano.yaml"]])
def test_without_a_run_folder_it_says_what_is_missing(words, cluster):
    done = submitted(SLURM / "train.sbatch", *words)
    assert done.returncode == 2
    assert "say the run folder" in done.stderr


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        (["train", *OPTIONS, "--output", "runs/x"], False),
        (["train", *OPTIONS, "--resume"], True),
        (["execute", "10"], True),
    ],
    ids=["no --resume", "default folder", "notebooks"],
)
def test_a_training_of_a_sweep_that_could_not_go_on_is_refused(line, starts, cluster):
    plan = cluster / "plan.txt"
    plan.write_text(" ".join(line) + "\n")
    done = submitted(SLURM / "sweep.sbatch", plan)
    assert done.returncode == (0 if starts else 2)
    assert ("goes on only with --resume" in done.stderr) == (not starts)
    assert done.stdout.splitlines()[1:] == (["-m", "casebook.cli", *line] if starts else [])


# What comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize("signalled", [True, False])
def test_only_a_training_whose_time_is_up_goes_back(signalled, cluster, monkeypatch):
    calls, stop = cluster / "calls", cluster / "stop"
    for name, value in {"STOPS": stop, "ENDS": 1}.items():
        monkeypatch.setenv(name, str(value))
    job = subprocess.Popen(["bash", SLURM / "train.sbatch", cluster / "run", *OPTIONS], text=True)
    while not Path(f"{calls}.up").exists():
        assert job.poll() is None
    if signalled:
        job.send_signal(10)  # SIGUSR1, as --signal=B:USR1@60 has it sent
    else:
        stop.touch()  # it fails
    assert job.wait(120) == 1
    assert ("scontrol requeue 7" in calls.read_text()) == signalled
