"""Finding a run again, and what is left of one that was damaged."""

import json
import shutil

import pytest
import yaml

from casebook import training
from casebook.case import CasebookError
from casebook.training.run import prepare

RECORD = {"case": "poker", "profile": "smoke", "provenance": {}, "config": {}}


def finished(folder, seed=0, **changes):
    settings = training.read_config(("poker", "smoke"), {"seed": seed, **changes}).settings
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(settings)))
    (folder / "record.json").write_text(json.dumps(RECORD | {"seed": seed}))
    return folder


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"test_limit": 4, "report_to": "none"}, True),
        ({"beta": 0.5}, False),  # another experiment
        ({"measure": "validation", "evaluate_every": 1}, False),  # measured on no test row
    ],
)
def test_a_run_by_the_profiles_settings_is_found(tmp_path, changes, found):
    folder = finished(tmp_path / "poker" / "smoke" / "one", **changes)
    run = training.find_run("poker", "smoke", 0, tmp_path)
    assert (run and run.path) == (folder if found else None)
    assert training.find_run("poker", "smoke", 1, tmp_path) is None


# Going on -----------------------------------------------------------------------------------

PARTS = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")
PARTS += ("trainer_state.json",)


def go_on(run):
    """Make a run ready to go on."""
    assert prepare(run, training.read_config(("poker", "smoke")))


@pytest.fixture
def begun(tmp_path):
    """A run that was stopped in its fourth step, with checkpoints of the second and third."""
    run = training.Run(tmp_path / "run")
    prepare(run, training.read_config(("poker", "smoke")))
    (run.path / "completions").mkdir()
    for step in range(1, 5):
        line = {"kind": "train", "step": step, "loss": step / 7, "seconds": step}
        with open(run.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")
        (run.path / "completions" / f"train_{step:05d}.parquet").write_bytes(bytes([step] * 50))
        checkpoint = run.path / "checkpoints" / f"checkpoint-{step}"
        if step in (2, 3):
            checkpoint.mkdir()
            for number, name in enumerate(PARTS):
                (checkpoint / name).write_bytes(bytes([step, number] * 50))
            run.seal(checkpoint)
    return run


def state(run):
    """The step a run goes on from, the steps of its metrics, and those of its completions."""
    files = sorted((run.path / "completions").glob("*"))
    steps = run.metrics().get("step", []) if len(run.metrics()) else []
    checkpoint = run.checkpoint()
    step = int(checkpoint.name[11:]) if checkpoint else 0
    return step, list(steps), [int(file.stem[6:]) for file in files]


def test_a_run_goes_on_at_its_newest_checkpoint_with_what_was_written_up_to_there(begun):
    go_on(begun)
    assert state(begun) == (3, [1, 2, 3], [1, 2, 3])


def test_a_checkpoint_that_was_not_written_to_its_end_is_passed_over(begun):
    (begun.path / "checkpoints" / "checkpoint-3" / "whole").unlink()
    go_on(begun)
    assert state(begun) == (2, [1, 2], [1, 2])
    assert not (begun.path / "checkpoints" / "checkpoint-3").exists()


def test_the_first_setting_that_differs_is_named(begun):
    with pytest.raises(CasebookError, match=r"another configuration .* beta was .* and is 0\.5"):
        prepare(begun, training.read_config(("poker", "smoke"), {"beta": 0.5}))


def test_without_a_checkpoint_a_run_begins_anew(begun):
    shutil.rmtree(begun.path / "checkpoints" / "checkpoint-2")
    (begun.path / "checkpoints" / "checkpoint-3" / "whole").unlink()  # killed while writing it
    go_on(begun)
    assert state(begun) == (0, [], [])
    assert not list((begun.path / "checkpoints").iterdir())


@pytest.mark.parametrize("content", [b"", b"PAR1" + bytes(40) + b"PAR1"])
def test_damaged_completions_are_named(begun, content):
    (begun.path / "completions" / "train_00001.parquet").write_bytes(content)
    with pytest.raises(CasebookError, match=r"train_00001\.parquet is damaged"):
        begun.completions()


@pytest.mark.parametrize("line", ['{"kind": "train", "st', '{"kind"', "\0\0"])
def test_lines_from_one_that_was_cut_on_are_left_out(tmp_path, line):
    good = '{"kind": "train", "step": 1, "reward": 1.0}'
    (tmp_path / "metrics.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    assert training.Run(tmp_path).metrics()["step"].tolist() == [1]
