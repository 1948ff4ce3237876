"""A run in W&B: what it shows is what the run's folder holds."""

import json
from pathlib import Path

import pytest

from casebook import paths, pretrained, training
from casebook.case import CasebookError
from casebook.training import Run, loop
from casebook.training.log import RunCallback
from casebook.training.tracking import Tracking, publish
from casebook.wandb_files import offline_files, read_run, read_runs

wandb = pytest.importorskip("wandb")
SMOKE = paths.CONFIGS / "gsm8k" / "smoke.yaml"
LITTLE = {"max_steps": 3, "evaluate_every": 2, "evaluate_rows": 4, "test_limit": 8}
LITTLE |= {"train_limit": 64, "completions_every": 1}
TRACKED = LITTLE | {"report_to": "wandb"}
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Nobody's own settings, and no run of W&B left over."""
    for name in ("WANDB_DIR", "WANDB_PROJECT", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    assert wandb.run is None, "a run of W&B is left open"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training with W&B and without."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        for name, overrides in (("tracked", TRACKED), ("alone", LITTLE)):
            made[name] = training.train(training.read_config(SMOKE, overrides), folder / name)
    return made


@pytest.fixture(scope="module")
def tracked(runs):
    (read,) = read_runs(runs["tracked"].path, wait=60)
    return read


def test_the_file_is_whole_and_lies_in_the_run_folder(runs, tracked):
    assert (tracked.complete, tracked.damage) == (True, "")
    assert (tracked.name, tracked.project) == ("gsm8k-smoke-seed0", "rlvr-casebook")
    (file,) = offline_files(runs["tracked"].path)
    assert file.parent.name.startswith("offline-run-")


def test_a_server_that_does_not_answer_is_one_sentence(monkeypatch, tmp_path):
    def unreachable(**_):
        raise wandb.errors.CommError("Run initialization has timed out\nmore of it")

    monkeypatch.setattr(wandb, "init", unreachable)
    said = r"W&B cannot begin a run \(Run initialization has timed out\): WANDB_MODE=offline"
    with pytest.raises(CasebookError, match=said):
        training.train(training.read_config(SMOKE, TRACKED), tmp_path / "run")


def test_every_metric_is_there_by_trl_s_own_name(runs, tracked):
    metrics = runs["tracked"].metrics()
    names = [name for name in metrics if name not in ("step", "seconds")]
    assert {"loss", "grad_norm", "completions/mean_length", "kl", "reward"} - set(names) <= {"kl"}
    for name in names:
        curve = tracked.curve(f"train/{name}")
        assert curve.index.tolist() == metrics["step"].tolist()
        assert curve.tolist() == pytest.approx(metrics[name].tolist()), name


def test_each_reward_part_has_its_curve(runs, tracked):
    history = tracked.history()
    for name in runs["tracked"].settings()["reward_funcs"]:
        assert f"train/rewards/{name}/mean" in history
        assert f"train/rewards/{name}/std" in history


def test_evaluations_on_held_out_rows_are_there(runs, tracked):
    validation = runs["tracked"].validation()
    assert validation["step"].tolist() == [0, 2, 3]
    for name in ("greedy_accuracy", "sampled_accuracy", "lenient_accuracy", "kl_from_base"):
        curve = tracked.curve(f"eval/{name}")
        assert curve.index.tolist() == [0, 2, 3]
        assert curve.tolist() == pytest.approx(validation[name].tolist())


def test_the_table_of_completions_is_the_one_in_the_folder(runs, tracked):
    written, table = runs["tracked"].completions(), tracked.table("completions")
    assert list(table) == list(written)
    assert table["completion"].tolist() == written["completion"].tolist()
    assert table["advantage"].tolist() == pytest.approx(written["advantage"].tolist())
    assert table["strict"].tolist() == written["strict"].tolist()


def test_the_test_figures_are_in_the_summary(runs, tracked):
    record = runs["tracked"].record()
    for when in ("before", "after"):
        for name in ("greedy_accuracy", "lenient_accuracy", "well_formed"):
            figure = record[when][name]
            for end, where in (("value", ""), ("low", "/low"), ("high", "/high")):
                assert tracked.summary[f"test/{when}/{name}{where}"] == figure[end]


def test_the_record_is_an_artifact(runs, tracked):
    (artifact,) = (a for a in tracked.artifacts if a["type"] == "record")
    assert artifact["name"] == "record-gsm8k-smoke-seed0"
    assert set(artifact["files"]) == {"record.json", "config.yaml", "metrics.jsonl"}
    size = (runs["tracked"].path / "record.json").stat().st_size
    assert artifact["files"]["record.json"] == size


def test_the_config_is_the_casebook_s(runs, tracked):
    assert tracked.config["casebook"] == runs["tracked"].settings()
    assert tracked.config["loss_type"] == "dapo"  # as TRL's callback logs it


def test_a_training_that_is_watched_is_the_same_training(runs):
    tracked, alone = (runs[name].metrics() for name in ("tracked", "alone"))
    timed = ["seconds", "step_time"]
    assert tracked.drop(columns=timed).equals(alone.drop(columns=timed))
    figures = [runs[name].record()["after"] for name in ("tracked", "alone")]
    assert figures[0] == figures[1]


def test_who_watches_is_no_part_of_the_code_that_was_run(runs):
    modules = runs["tracked"].record()["code"]["modules"]
    assert modules == runs["alone"].record()["code"]["modules"]


def test_a_finished_run_is_published_as_if_it_had_been_watched(runs, tracked):
    run = runs["alone"]
    file = publish(run)
    read = read_run(file, wait=60)
    assert read.complete
    shared = [name for name in tracked.history() if name.startswith(("train/", "eval/"))]
    shared = [name for name in shared if name not in ("train/step_time",)]
    assert set(shared) <= set(read.history())
    for name in shared:
        assert read.curve(name).tolist() == pytest.approx(tracked.curve(name).tolist()), name
    assert read.table("completions").equals(tracked.table("completions"))
    assert [a["name"] for a in read.artifacts][-1] == "record-gsm8k-smoke-seed0"
    again = publish(run)
    assert again != file
    assert len(read_runs(run.path, wait=60)) == 2


def test_the_plain_loops_are_watched_too(tmp_path):
    """transformers' callback is not theirs: their metrics are logged from the folder."""
    changes = {"method": "plain_grpo", "optim": "adamw_torch", "evaluate_every": 0}
    changes |= {"loss_type": "grpo", "reward_kwargs": {}}
    run = training.train(training.read_config(SMOKE, TRACKED | changes), tmp_path / "run")
    (read,) = read_runs(run.path, wait=60)
    assert read.curve("train/reward").tolist() == run.metrics()["reward"].tolist()


def test_a_training_that_fails_ends_its_run_of_wandb(tmp_path, monkeypatch):
    def fails(self, *arguments, **more):
        raise RuntimeError("a bug")

    monkeypatch.setattr(RunCallback, "on_step_end", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        training.train(training.read_config(SMOKE, TRACKED), tmp_path / "run")
    (read,) = read_runs(tmp_path / "run", wait=60)
    assert read.complete
    assert not [a for a in read.artifacts if a["type"] == "record"]


def test_a_resumed_training_goes_on_with_its_run(tmp_path, monkeypatch):
    config = training.read_config(SMOKE, TRACKED)
    with monkeypatch.context() as patch:

        def stopped(*arguments):
            raise KeyboardInterrupt

        patch.setattr(loop, "save_policy", stopped)  # all steps are done, nothing is measured
        with pytest.raises(KeyboardInterrupt):
            training.train(config, tmp_path / "run")
    run = training.train(config, tmp_path / "run", resume=True)
    assert len(offline_files(run.path)) == 2
    (read,) = read_runs(run.path, wait=60)
    assert read.complete
    assert read.curve("train/reward").tolist() == run.metrics()["reward"].tolist()
    assert len(read.tables["completions"]) == 3
    assert [a["name"] for a in read.artifacts if a["type"] == "record"]


def test_a_run_that_somebody_began_is_used_and_left_open(tmp_path):
    quiet = wandb.Settings(silent=True, console="off")
    with wandb.init(mode="offline", dir=tmp_path, project="mine", settings=quiet) as mine:
        training.train(training.read_config(SMOKE, TRACKED), tmp_path / "run")
        assert wandb.run is mine
    (read,) = read_runs(tmp_path, wait=60)
    assert read.project == "mine"
    assert len(read.curve("train/reward")) == 3


def test_an_unfinished_run_is_not_published(tmp_path):
    with pytest.raises(CasebookError, match="there is no record at"):
        publish(Run(tmp_path))


def test_nothing_is_published_into_somebody_s_run(runs, tmp_path):
    quiet = wandb.Settings(silent=True, console="off")
    with (
        wandb.init(mode="offline", dir=tmp_path, settings=quiet),
        pytest.raises(CasebookError, match="is under way in this process"),
    ):
        publish(runs["alone"])


def test_a_run_that_is_measured_on_validation_rows_has_no_test_figures(tmp_path):
    changes = {"measure": "validation", "max_steps": 1}
    run = training.train(training.read_config(SMOKE, TRACKED | changes), tmp_path / "run")
    (read,) = read_runs(run.path, wait=60)
    assert not [name for name in read.summary if name.startswith("test/")]
    assert [a["name"] for a in read.artifacts if a["type"] == "record"]


@pytest.mark.skipif(
    not pretrained.MODELS["smollm2"].folder.exists(), reason="SmolLM2 is not here: make smol"
)
def test_a_real_model_is_watched_as_well(tmp_path):
    changes = {"max_steps": 1, "evaluate_every": 1, "evaluate_rows": 2, "measure": "validation"}
    changes |= {"report_to": "wandb", "train_limit": 16, "completions_every": 1}
    changes |= {"per_device_train_batch_size": 4, "num_generations": 4, "use_peft": True}
    changes |= {
        "lora_r": 4,
        "lora_alpha": 4,
        "lora_dropout": 0.0,
        "lora_target_modules": ["q_proj"],
    }
    config = training.read_config(paths.CONFIGS / "poker" / "smol.yaml", changes)
    run = training.train(config, tmp_path / "run")
    (read,) = read_runs(run.path, wait=60)
    assert read.complete
    assert read.curve("train/reward").tolist() == run.metrics()["reward"].tolist()
    assert read.config["casebook"]["model_name_or_path"] == "smollm2"
    assert len(read.table("completions")) == len(run.completions())
    assert read.curve("eval/greedy_accuracy").index.tolist() == [0, 1]


def test_settings_are_written_as_json_can_hold_them(runs, tracked):
    assert json.loads(json.dumps(tracked.config["casebook"])) == tracked.config["casebook"]
    assert isinstance(runs["tracked"].path, Path)


def test_without_a_training_it_logs_what_the_folder_has(runs):
    tracking = Tracking(runs["alone"], runs["alone"].settings(), trainer_logs=False, again=True)
    tracking.catch_up()
    tracking.catch_up()  # nothing is new
    folder = Path(wandb.run.dir).parent
    tracking.finish()
    read = read_run(next(folder.glob("run-*.wandb")), wait=60)
    assert len(read.rows) == 3 + 3 + 3  # steps, evaluations, tables
