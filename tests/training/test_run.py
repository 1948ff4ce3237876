"""Finding a run again, and what is left of one that was damaged."""

import json

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


@pytest.mark.parametrize(("whole", "step"), [([2, 3], 3), ([2], 2), ([], 0)])
def test_a_run_goes_on_at_its_newest_whole_checkpoint_with_what_was_written_up_to_there(
    begun, whole, step
):
    folder = begun.path / "checkpoints"
    for cut in {2, 3} - set(whole):  # killed while writing it
        (folder / f"checkpoint-{cut}" / "whole").unlink()
    assert prepare(begun, training.read_config(("poker", "smoke")))
    steps = list(range(1, step + 1))
    assert state(begun) == (step, steps, steps)
    assert {path.name for path in folder.iterdir()} == {f"checkpoint-{n}" for n in whole}


def test_the_first_setting_that_differs_is_named(begun):
    with pytest.raises(CasebookError, match=r"another configuration .* beta was .* and is 0\.5"):
        prepare(begun, training.read_config(("poker", "smoke"), {"beta": 0.5}))


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
