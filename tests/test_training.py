"""One training: its configuration, its folder, and what a kill or a full disk leaves of it."""

import json
import resource
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import yaml
from transformers import AutoTokenizer

from casebook import models, paths, training
from casebook.case import CasebookError

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
FEW = {"test_limit": 8, "evaluate_rows": 4, "max_completion_length": 32}


def command(*arguments, **options):
    program = [sys.executable, "-m", "casebook.cli", *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, cwd=paths.ROOT, **options)


# Configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(paths.CONFIGS.glob("*/*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_configuration_parses(path, monkeypatch):
    if path.stem == "experiments":
        pytest.skip("a file of arms, not of one training")
    settings = yaml.safe_load(path.read_text())
    # Whether a GPU has bf16 or fp16 is asked when the arguments are made; here there is none.
    config = training.read_config(path, {"bf16": False, "fp16": False, "use_cpu": True})
    assert config.case.case == path.parent.name
    assert config.case.profile == path.stem
    assert config.grpo.max_steps == settings["max_steps"]


def test_shipped_configurations_name_every_algorithmic_setting():
    explicit = {
        *("loss_type", "scale_rewards", "beta", "num_iterations", "epsilon", "epsilon_high"),
        *("importance_sampling_level", "mask_truncated_completions", "use_bias_correction_kl"),
        *("top_entropy_quantile", "entropy_coef", "multi_objective_aggregation"),
        *("num_generations", "steps_per_generation", "gradient_accumulation_steps"),
        *("per_device_train_batch_size", "max_completion_length", "temperature", "top_p", "top_k"),
        *("repetition_penalty", "use_vllm", "shuffle_dataset", "disable_dropout", "max_steps"),
        *("learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "weight_decay"),
        *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "bf16", "fp16", "seed"),
        *("gradient_checkpointing", "reward_funcs", "reward_weights", "report_to"),
    }
    for path in paths.CONFIGS.glob("*/*.yaml"):
        if path.stem != "experiments":
            assert explicit <= set(yaml.safe_load(path.read_text())), path


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path):
    text = SMOKE.read_text().replace("learning_rate: 1.5e-3", "learning_rate: 1e-3")
    (tmp_path / "config.yaml").write_text(text)
    assert training.read_config(tmp_path / "config.yaml").grpo.learning_rate == 0.001


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learning_rat": 1}, "unknown field 'learning_rat': did you mean 'learning_rate'"),
        ({"num_generations": 3}, "num_generations|divisible"),
        ({"num_generations": 0}, "num_generations is 0, and must be at least 2"),
        ({"max_steps": -1}, "max_steps is -1"),
        ({"completions_every": 0}, "completions_every is 0"),
        ({"use_peft": None}, "the field 'use_peft' is missing"),
        ({"reward_funcs": "correct"}, "must be a list of different names"),
        ({"reward_funcs": ["correct", "correct", "correct"]}, "list of different names"),
        ({"scale_rewards": "bogus"}, "unknown scale_rewards 'bogus'"),
        ({"reward_funcs": ["corect"]}, "unknown reward 'corect'"),
        ({"reward_weights": [1.0]}, "3 reward_funcs, but 1 reward_weights"),
        ({"case": "pokr"}, "unknown case 'pokr'"),
        ({"profile": "t5"}, "unknown profile 't5'"),
        ({"variant": "both"}, "unknown variant 'both'"),
        ({"max_steps": "many"}, "wrong type"),
        ({"loss_type": "grpoo"}, "loss_type|grpoo"),
    ],
)
def test_a_field_that_cannot_be_is_one_sentence(overrides, message):
    with pytest.raises(CasebookError, match=message):
        training.reward_functions(training.read_config(SMOKE, overrides))


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "", "case: poker\n"])
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(CasebookError, match=r"config.yaml"):
        training.read_config(tmp_path / "config.yaml")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(CasebookError, match="cannot be read"):
        training.read_config(tmp_path / "nothing.yaml")


def test_reward_parameters_that_do_not_fit_are_one_sentence():
    with pytest.raises(CasebookError, match="reward_kwargs"):
        training.read_config(SMOKE, {"reward_kwargs": {"tag_format": {"tagz": 1}}})


def test_prompts_that_leave_no_room_are_dropped_and_counted():
    tokenizer = AutoTokenizer.from_pretrained(paths.DATA / "nano" / "poker")
    config = training.read_config(SMOKE, {"train_limit": 32})
    kept, dropped = training.training_rows(config, tokenizer)
    assert (len(kept), dropped) == (32, 0)
    config = training.read_config(SMOKE, {"train_limit": 32, "max_seq_length": 45})
    with pytest.raises(CasebookError, match="max_seq_length"):
        training.training_rows(config, tokenizer)


def test_the_fingerprint_is_that_of_the_arm_not_of_the_seed():
    mark = training.run_fingerprint(training.read_config(SMOKE, {"seed": 1}))
    assert mark == training.run_fingerprint(training.read_config(SMOKE, {"seed": 2}))
    assert mark != training.run_fingerprint(training.read_config(SMOKE, {"beta": 0.1}))


# A whole run -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    return training.train(config, tmp_path_factory.mktemp("runs") / "whole")


def test_a_run_leaves_its_metrics_validation_and_completions(run):
    assert run.metrics()["step"].tolist() == [1, 2, 3, 4]
    assert run.validation()["step"].tolist() == [0, 2, 4]
    assert run.validation()["kl_from_base"].iloc[0] == pytest.approx(0, abs=1e-6)
    completions = run.completions()
    assert len(completions) == 4 * 16
    parts = [f"reward/{name}" for name in ("correct", "tag_format", "answer_grammar")]
    total = (completions[parts] * [1.0, 0.2, 0.2]).sum(axis=1)
    assert total.to_numpy() == pytest.approx(completions["reward"].to_numpy())


def test_recorded_rewards_are_those_that_trl_saw(run):
    logged = run.metrics().set_index("step")["reward"]
    written = run.completions().groupby("step")["reward"].mean()
    assert written.to_numpy() == pytest.approx(logged.to_numpy(), abs=1e-4)


def test_advantages_are_centred_in_each_group(run):
    step = run.completions().query("step == 1").reset_index(drop=True)
    assert step.groupby(step.index // 4)["advantage"].mean().abs().max() < 1e-6


def test_the_record_says_what_was_measured_and_where_it_came_from(run):
    record = json.loads((run.path / "record.json").read_text())
    assert (record["case"], record["profile"], record["seed"]) == ("poker", "smoke", 0)
    assert record["fingerprint"] == training.run_fingerprint(
        training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    )
    for name in ("train_seconds", "samples_per_second", "peak_memory_mb"):
        assert record[name] > 0
    for when in ("before", "after"):
        for name in (
            "greedy_accuracy",
            "sampled_accuracy",
            "lenient_accuracy",
            "well_formed",
            "mean_completion_tokens",
        ):
            figure = record[when][name]
            assert figure["low"] <= figure["value"] <= figure["high"]
            assert figure["n"] == 8


def test_the_adapter_on_disk_is_not_zero_and_names_no_place_of_this_machine(run):
    assert models.largest_change(run.adapter) > 0
    for file in run.adapter.glob("*.json"):
        assert str(paths.ROOT) not in file.read_text(), file.name
    card = models.load_saved(run.adapter)[2]
    assert (card["case"], card["profile"], card["variant"]) == ("poker", "smoke", "reason")
    assert card["max_completion_length"] == FEW["max_completion_length"]


def test_a_finished_run_is_found_and_returned_as_it_is(run):
    config = training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    before = (run.path / "record.json").stat().st_mtime_ns
    assert training.train(config, run.path, resume=True).finished
    assert (run.path / "record.json").stat().st_mtime_ns == before


def test_a_folder_that_holds_a_run_is_not_overwritten(run):
    config = training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    with pytest.raises(CasebookError, match="--resume"):
        training.train(config, run.path)
    with pytest.raises(CasebookError, match="another configuration"):
        training.train(training.read_config(SMOKE, FEW), run.path, resume=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(CasebookError, match="holds no run"):
        training.train(training.read_config(SMOKE, FEW), tmp_path, resume=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_the_same_seed_gives_the_same_run_again(run, tmp_path):
    config = training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    again = training.train(config, tmp_path / "again")
    columns = ["reward", "grad_norm", "entropy"]
    pd.testing.assert_frame_equal(again.metrics()[columns], run.metrics()[columns])


# Interruptions -----------------------------------------------------------------------------


def start(output, *more, **options):
    sets = [f"--set={name}={value}" for name, value in FEW.items()]
    sets += ["--set=max_steps=8", "--set=save_steps=2", "--set=evaluate_every=0"]
    program = ["-m", "casebook.cli", "train", "--config", str(SMOKE), "--output", str(output)]
    return subprocess.Popen(
        [sys.executable, *program, *sets, *more],
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.slow
def test_a_killed_run_stays_readable_and_goes_on(tmp_path):
    output = tmp_path / "run"
    process = start(output)
    while process.poll() is None and training.Run(output).checkpoint() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    run = training.Run(output)
    assert not run.finished
    assert run.checkpoint() is not None
    assert run.metrics()["step"].iloc[0] == 1
    resumed = start(output, "--resume")
    _, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    assert run.metrics()["step"].tolist() == list(range(1, 9))
    assert run.finished
    whole = tmp_path / "whole"
    start(whole).communicate()
    columns = ["reward", "grad_norm"]
    pd.testing.assert_frame_equal(
        run.metrics()[columns], training.Run(whole).metrics()[columns], rtol=1e-4
    )


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    output = tmp_path / "run"

    def small_disk():  # no file may grow beyond 600 kB: the optimizer's state does not fit
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    process = start(output, preexec_fn=small_disk)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "--resume" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert training.Run(output).metrics()["step"].tolist() == [1, 2]
    resumed = start(output, "--resume")
    _, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    assert training.Run(output).metrics()["step"].tolist() == list(range(1, 9))


def test_a_mistake_before_the_first_step_does_not_block_the_folder(tmp_path):
    overrides = FEW | {"max_steps": 1, "evaluate_every": 0}
    missing = training.read_config(SMOKE, overrides | {"model_name_or_path": "data/nano/nothing"})
    with pytest.raises(CasebookError, match="no model could be loaded"):
        training.train(missing, tmp_path / "run")
    assert training.train(training.read_config(SMOKE, overrides), tmp_path / "run").finished


def test_a_run_does_not_go_on_across_a_change_of_code(tmp_path, monkeypatch):
    config = training.read_config(SMOKE, FEW)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(config.settings))
    (run / "fingerprint").write_text("of other code")
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "seconds": 1.0}\n')
    with pytest.raises(CasebookError, match="other code, data or weights"):
        training.train(config, run, resume=True)


def test_half_a_line_of_metrics_is_left_out(tmp_path):
    lines = ['{"kind": "train", "step": 1, "reward": 1.0}', '{"kind": "train", "st']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert training.Run(tmp_path).metrics()["step"].tolist() == [1]


def test_half_a_checkpoint_is_passed_over(tmp_path):
    for step in (2, 10):
        (tmp_path / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
    (tmp_path / "checkpoints" / "checkpoint-2" / "whole").touch()
    assert training.Run(tmp_path).checkpoint().name == "checkpoint-2"


def test_wandb_is_offline_unless_somebody_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    overrides = FEW | {"max_steps": 1, "evaluate_every": 0, "report_to": "wandb"}
    run = training.train(training.read_config(SMOKE, overrides), tmp_path / "run")
    import wandb

    wandb.finish()
    assert list(run.path.glob("wandb/offline-run-*"))
