"""The batch files: what they would start, with Slurm's commands replaced by ones that print.

`slurm/try_locally.sh` runs them on a real Slurm; what it said is in `slurm/try_locally.txt`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
import yaml

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
    """Slurm's and accelerate's commands as stubs: `srun` runs here, launchers print their words."""
    stubs = {
        "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
        "scontrol": 'echo "scontrol $*" >>"$CALLS"; if [ "$1" = requeue ]; then touch "$STOPS"; '
        "else echo node7; fi",
        "accelerate": 'printf "%s\\n" accelerate "$@"',
        "torchrun": 'if [ -n "${STOPS:-}" ]; then touch "$CALLS.up"; until [ -e "$STOPS" ]; '
        'do sleep 0.1; done; exit "${ENDS:-0}"; fi; printf "%s\\n" torchrun "$@"',
    }
    for name, text in stubs.items():
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/bash\n{text}\n")
        stub.chmod(0o755)
    job = {"JOB_ID": 7, "JOB_NUM_NODES": 2, "JOB_NODELIST": "node[7-8]", "NODEID": 1}
    # Submitted where no .venv is, which would come before the stubs.
    job |= {"SUBMIT_DIR": str(tmp_path), "GPUS_ON_NODE": 4}
    job |= {"ARRAY_JOB_ID": 7, "ARRAY_TASK_ID": 1}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    # `python` is the one of these tests.
    here = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{here}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path


def submitted(*words):
    return subprocess.run(["bash", *map(str, words)], capture_output=True, text=True, timeout=300)


def value_of(words, option):
    return words[words.index(option) + 1]


@pytest.mark.parametrize("name", ["multi_gpu", "zero2"])
def test_a_configuration_of_trl_is_named_and_the_nodes_meet(name, cluster, monkeypatch):
    monkeypatch.setenv("ACCELERATOR", name)
    words = submitted(SLURM / "train.sbatch", "runs/x", *OPTIONS).stdout.splitlines()[1:]
    assert words[:2] == ["accelerate", "launch"]
    assert yaml.safe_load(Path(value_of(words, "--config_file")).read_text())
    assert value_of(words, "--num_machines") == "2"
    assert value_of(words, "--num_processes") == "8"
    assert value_of(words, "--machine_rank") == "1"
    assert value_of(words, "--main_process_ip") == "node7"
    assert value_of(words, "--mixed_precision") == "no"
    options = parsed(words[words.index("casebook.cli") + 1 :])
    assert (str(options["output"]), options["resume"]) == ("runs/x", True)
    from accelerate.commands.launch import launch_command_parser

    assert launch_command_parser().parse_args(words[2:]).training_script == "casebook.cli"


def test_with_a_server_the_last_node_serves_and_the_others_learn(cluster, monkeypatch):
    (cluster / "bin" / "scontrol").write_text("#!/bin/bash\nprintf 'node7\\nnode8\\n'\n")
    (cluster / "bin" / "apptainer").write_text('#!/bin/bash\nexec "${@:4}"\n')
    (cluster / "bin" / "apptainer").chmod(0o755)
    (cluster / "bin" / "srun").write_text('#!/bin/bash\nprintf "%s\\n" srun "$@" >>"$CALLS"\n')
    monkeypatch.setenv("SERVER_MODEL", "Qwen/Qwen2.5-3B-Instruct")
    (cluster / "slurm").mkdir()
    (cluster / "slurm" / "train.sbatch").symlink_to(SLURM / "train.sbatch")
    (cluster / "slurm" / "site.sh").write_text("container=(apptainer exec --nv image.sif)\n")
    assert submitted(SLURM / "train_with_server.sbatch", "runs/x", *OPTIONS).returncode == 0
    calls = cluster / "calls"  # the server's step is started in the background
    while len(steps := calls.read_text().split("srun\n")[1:]) < 2:
        time.sleep(0.1)
    serving, learning = sorted((step.splitlines() for step in steps), key=len)
    assert "--nodelist=node8" in serving
    assert value_of(serving, "vllm-serve") == "--model"
    assert value_of(serving, "--data_parallel_size") == "4"
    assert {"--nodes=1", "--ntasks=1", "--exclude=node8"} <= set(learning)
    assert value_of(learning, "--num_processes") == "4"
    for words in (serving, learning):
        assert words[words.index("apptainer") : words.index("apptainer") + 4][-1] == "image.sif"
    changed = parsed(learning[learning.index("casebook.cli") + 1 :])["setting"]
    assert {"use_vllm=true", "vllm_mode=server", "vllm_server_host=node8"} <= set(changed)


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
def test_a_training_of_a_sweep_that_could_not_go_on_is_refused(line, starts, cluster, monkeypatch):
    stub = cluster / "bin" / "python"
    stub.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
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
    for name, value in {"ACCELERATOR": "cpu", "STOPS": stop, "ENDS": 1}.items():
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
