"""One training: its configuration, its folder, and what a kill or a full disk leaves of it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoTokenizer

from casebook import load_case, models, paths, training
from casebook.case import PROFILES, CasebookError
from casebook.doctor.live import DoctorCallback
from casebook.doctor.logs import read_log
from casebook.models.decoding import constraint_for
from casebook.paths import alone_in
from casebook.settings import METHODS, PLAIN, marked
from casebook.training import loop, measure
from casebook.training.run import step_of

pytestmark = pytest.mark.slow
CASE = load_case("poker")
SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
FEW = {"test_limit": 8, "evaluate_rows": 4, "max_completion_length": 32}
SHORT = FEW | {"max_steps": 2, "evaluate_every": 0, "train_limit": 64}
LABEL = {  # the label alone, among the eight
    "variant": "label",
    "max_completion_length": 8,
    "constraint": "trie",
    "reward_funcs": ["class_weighted"],
    "reward_weights": [1.0],
    "reward_kwargs": {"class_weighted": {"strict": True, "variant": "label"}},
}
LABELS = {f" {label}" for label in CASE.labels}
PENALISED = {"reward_funcs": ["class_weighted", "kl_penalty"], "reward_weights": [1.0, 0.1]}


def trained(path, **overrides):
    """A run of two steps, with a smoke configuration in which `overrides` take another value."""
    return training.train(training.read_config(SMOKE, SHORT | overrides), path)


@pytest.fixture
def unmeasured(monkeypatch):
    """Training alone: nothing is measured before and after."""
    nothing = {"before": {}, "after": {}, "completions": []}
    monkeypatch.setattr(loop, "measure", lambda *arguments: nothing)


# Configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(paths.CONFIGS.glob("*/*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_configuration_parses(path):
    if path.stem == "experiments":
        pytest.skip("a file of arms, not of one training")
    settings = yaml.safe_load(path.read_text())
    # Whether a GPU has bf16 or fp16 is asked when the arguments are made; here there is none.
    config = training.read_config(path, {"bf16": False, "fp16": False, "use_cpu": True})
    assert config.case == path.parent.name
    own = path.stem if path.stem in PROFILES else path.stem.partition("_")[0]
    assert config.profile == own
    assert config.max_steps == settings["max_steps"]


def test_prompts_that_leave_no_room_are_dropped_and_counted():
    tokenizer = AutoTokenizer.from_pretrained(paths.DATA / "nano" / "poker")
    config = training.read_config(SMOKE, {"train_limit": 32})
    kept, dropped = training.training_rows(config, tokenizer)
    assert (len(kept), dropped) == (32, 0)
    config = training.read_config(SMOKE, {"train_limit": 32, "max_seq_length": 45})
    with pytest.raises(CasebookError, match="max_seq_length"):
        training.training_rows(config, tokenizer)


@pytest.mark.parametrize(
    "changes",
    [{"beta": 0.1}, {"method": "sft"}, {"score_constrained": False}, {"pass_at_k_rows": 8}],
    ids=lambda changes: next(iter(changes)),
)
def test_the_mark_is_that_of_the_arm_not_of_the_seed(changes):
    def mark(changes):
        return training.settings_mark(training.read_config(SMOKE, changes))

    assert mark({"seed": 1}) == mark({"seed": 2, "save_minutes": 6})
    assert mark({}) != mark(changes)


def test_policy_rows_and_everything_drawn_begin_with_the_seed():
    def begun(seed):
        config = training.read_config(SMOKE, {"seed": seed, "train_limit": 4})
        model, _, rows, _ = loop.beginning(config)
        weights = [w.flatten() for name, w in model.named_parameters() if "lora_A" in name]
        return torch.cat(weights).tolist(), rows["prompt"][:], torch.rand(4).tolist()

    first = begun(1)
    assert begun(1) == first
    assert all(one != other for one, other in zip(begun(2), first, strict=True))


# A whole run -------------------------------------------------------------------------------


FOUR = FEW | {"max_steps": 4, "save_steps": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = training.read_config(SMOKE, FOUR)
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
    logged = run.metrics().set_index("step")["reward"]
    written = completions.groupby("step")["reward"].mean()
    assert written.to_numpy() == pytest.approx(logged.to_numpy(), abs=1e-4)
    step = completions.query("step == 1").reset_index(drop=True)
    assert step.groupby(step.index // 4)["advantage"].mean().abs().max() < 1e-6


def test_the_record_says_what_was_measured_and_where_it_came_from(run):
    record = json.loads((run.path / "record.json").read_text())
    assert (record["case"], record["profile"], record["seed"]) == ("poker", "smoke", 0)
    for name in ("train_seconds", "samples_per_second", "peak_memory_mb"):
        assert record[name] > 0
    for when in ("before", "after"):
        for name in (
            *("greedy_accuracy", "sampled_accuracy", "lenient_accuracy", "well_formed"),
            "mean_completion_tokens",
        ):
            figure = record[when][name]
            assert figure["low"] <= figure["value"] <= figure["high"]
            assert figure["n"] == 8
    assert record["inputs"] == training.input_digests(training.read_config(SMOKE, FOUR))
    base = models.weights_hash(paths.DATA / "nano" / "poker")
    assert record["provenance"]["model"]["weights"] == base
    answers = CASE.load("test", "smoke")["answer"]
    for entry in (*record["completions_before"], *record["completions"]):
        grade = CASE.grade(entry["completion"], answers[entry["row"]])
        assert (entry["well_formed"], entry["correct"]) == (grade.well_formed, grade.correct)


def test_the_adapter_on_disk_is_not_zero_and_names_no_place_of_this_machine(run):
    assert models.largest_change(run.adapter) > 0
    for file in run.adapter.glob("*.json"):
        assert str(paths.ROOT) not in file.read_text(), file.name
    card = models.load_saved(run.adapter)[2]
    assert (card["case"], card["profile"], card["variant"]) == ("poker", "smoke", "reason")
    assert card["max_completion_length"] == FEW["max_completion_length"]


def test_a_finished_run_is_returned_as_it_is_and_never_overwritten(run):
    config = training.read_config(SMOKE, FOUR)
    before = (run.path / "record.json").stat().st_mtime_ns
    assert training.train(config, run.path, resume=True).finished
    assert (run.path / "record.json").stat().st_mtime_ns == before
    with pytest.raises(CasebookError, match="--resume"):
        training.train(config, run.path)
    with pytest.raises(CasebookError, match=r"configuration .* max_steps was 4 and is 5"):
        training.train(training.read_config(SMOKE, FOUR | {"max_steps": 5}), run.path, resume=True)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_first_steps_and_another_seed_others(run, tmp_path):
    columns = ["reward", "grad_norm", "entropy"]
    same, other = (
        training.first_steps(
            training.read_config(SMOKE, FOUR | {"seed": seed}), tmp_path / str(seed), 2
        ).metrics()[columns]
        for seed in (0, 1)
    )
    pd.testing.assert_frame_equal(same, run.metrics()[columns][:2])
    assert (other["entropy"] != same["entropy"]).all()


# Methods -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "grpo"])
def test_every_method_leaves_a_whole_record(method, tmp_path):
    run = trained(tmp_path / "run", method=method, evaluate_every=2)
    record = run.record()
    assert (record["steps"], record["samples"]) == (2, 2 * 16)
    assert record["adapter_largest_change"] > 0
    assert "kl_from_base" in record["after"]
    assert run.metrics()["step"].tolist() == [1, 2]
    assert run.metrics()["loss"].notna().all()
    assert run.validation()["step"].tolist() == [0, 2]
    assert run.validation()["kl_from_base"].iloc[0] == pytest.approx(0, abs=1e-6)
    assert len(run.completions()) == (2 * 16 if method in PLAIN else 0)  # the policy's own
    assert ("accepted" in record) is (method == "rejection")


def test_rejection_makes_do_with_fewer_rows_than_it_would_ask(tmp_path, unmeasured):
    run = trained(tmp_path / "run", method="rejection", train_limit=3)  # eight prompts otherwise
    assert 0 < run.record()["accepted"] <= 3 * 4


# A constraint ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_trained_and_measured_under_its_constraint(tmp_path):
    also = {
        "free": {"variant": "label", "constraint": "none"},
        "few": {"variant": "label-source", "constraint": "position", "limit": 5},
    }
    options = {"also_evaluate": also, "pass_at_k_rows": 3, "pass_at_k_samples": 4}
    run = trained(tmp_path / "run", **LABEL, **options)
    completions = run.completions()
    assert set(completions["completion"]) <= LABELS
    assert not completions["truncated"].any()
    assert models.load_saved(run.adapter)[2]["constraint"] == "trie"
    for figures in (run.record()["before"], run.record()["after"]):
        assert figures["well_formed"]["value"] == 1
        free, few = figures["also"]["free"], figures["also"]["few"]
        assert (free["greedy_accuracy"]["n"], few["greedy_accuracy"]["n"]) == (8, 5)
        values = [figures["pass_at_k"][k]["value"] for k in ("1", "2", "4")]
        assert values == sorted(values)


def shares_of(model, prompt, completion, temperature=1.0, texts=()):
    """Log-probabilities and entropies of a completion's tokens, where only `texts` are allowed.

    Written without `casebook.models.decoding`, on one unpadded sequence. Without texts every token
    is allowed everywhere.
    """
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logps, entropies = [], []
    for position, token in enumerate(completion):
        so_far, follow = completion[:position], list(range(logits.shape[-1]))
        if texts:
            follow = sorted({t[position] for t in texts if t[:position] == so_far})
        shares = (logits[position, follow] / temperature).log_softmax(-1)
        logps.append(float(shares[follow.index(token)]))
        entropies.append(float(-(shares.exp() * shares).sum()))
    return logps, entropies


@pytest.mark.parametrize("scored", [True, False])
def test_old_new_and_reference_log_probabilities_are_of_what_was_sampled_from(scored, tmp_path):
    more = {"num_iterations": 2, "beta": 0.1, "temperature": 0.7, "save_strategy": "no"}
    config = training.read_config(SMOKE, SHORT | LABEL | more)
    model, tokenizer = models.load_policy("poker", "smoke", settings=config.settings)
    seen = []

    class Listening(training.ConstrainedTrainer):
        def _get_per_token_logps_and_entropies(self, *args, **kwargs):
            result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            seen.append((args, result))
            return result

    trainer = Listening(
        model=model,
        reward_funcs=training.reward_functions(config),
        args=config.trainer_arguments(tmp_path),
        train_dataset=training.training_rows(config, tokenizer)[0],
        processing_class=tokenizer,
        constraint=constraint_for("trie", CASE.labels, tokenizer),
        score_constrained=scored,
    )
    trainer.train()
    base = models.load_base(config.settings)[0]
    end = tokenizer.eos_token_id
    labels = [[*tokenizer(label).input_ids, end] for label in LABELS] if scored else ()
    assert len(seen) == 4  # old, reference and new of the first step; new of the second
    for (_, ids, attention, length), (logps, entropies, _) in seen[:3]:
        for i in range(len(ids)):
            mask = attention[i].bool()
            completion = ids[i, -length:][mask[-length:]].tolist()
            prompt = ids[i, :-length][mask[:-length]].tolist()
            want = shares_of(base, prompt, completion, 0.7, labels)
            assert logps[i, : len(completion)].tolist() == pytest.approx(want[0], abs=1e-4)
            if entropies is not None:
                assert entropies[i, : len(completion)].tolist() == pytest.approx(want[1], abs=1e-4)


# The KL inside the reward ------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [True, False])
def test_the_penalty_is_the_base_minus_the_policy_in_nats_a_token(adapter):
    settings = models.read_settings("poker", "smoke") | {"use_peft": adapter}
    model, tokenizer = models.load_policy("poker", "smoke", settings=settings)
    completions = [" flush", " four of a kind", " 2C 3D", " one pair"]
    prompts = CASE.load("train", variant="label")["prompt"][:4]
    ids = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in completions]
    batch = {"prompts": prompts, "completions": completions, "completion_ids": ids}
    penalty = training.KlPenalty()
    penalty.bind(model, tokenizer)
    assert penalty(**batch) == [0.0] * 4
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name or not adapter:
                weights += (0.1 if adapter else 0.02) * torch.randn_like(weights)
    base = models.load_base(settings)[0]
    expected = []
    for prompt, written in zip(prompts, ids, strict=True):
        prompt = tokenizer(prompt).input_ids
        moved, still = (shares_of(m, prompt, written)[0] for m in (model, base))
        expected.append((sum(still) - sum(moved)) / len(written))
    assert min(expected) < 0 < max(expected) or not adapter  # k1 has both signs
    assert max(map(abs, expected)) > 0.1
    assert penalty(**batch) == pytest.approx(expected, abs=1e-4)


def test_a_resumed_training_of_all_weights_keeps_its_base(tmp_path, unmeasured, monkeypatch):
    changes = LABEL | PENALISED | {"use_peft": False, "learning_rate": 1e-3, "max_steps": 3}
    whole = trained(tmp_path / "whole", **changes)

    def stop(self, args, state, control, **more):
        if state.global_step == 2:
            raise KeyboardInterrupt

    config = training.read_config(SMOKE, SHORT | changes)
    with monkeypatch.context() as patch:
        patch.setattr(loop.RunCallback, "on_step_begin", stop)
        with pytest.raises(KeyboardInterrupt):
            training.train(config, tmp_path / "stopped")
    resumed = training.train(config, tmp_path / "stopped", resume=True)
    last = [run.completions().query("step == 3") for run in (whole, resumed)]
    assert last[0]["reward/kl_penalty"].abs().max() > 1e-3
    assert last[0].equals(last[1])


def test_a_groups_prompt_that_is_computed_once_is_completed_and_learned_from_alike(
    tmp_path, unmeasured
):
    """The first run shows, too, that the weight of the penalty is its beta."""
    settings = LABEL | PENALISED | {"evaluate_every": 1, "evaluate_rows": 8}
    runs = [trained(tmp_path / str(once), **settings, prompts_once=once) for once in (False, True)]
    one, other = (run.completions() for run in runs)
    assert one["completion"].tolist() == other["completion"].tolist()
    assert one["completion"].nunique() > 1
    first, second = (one[one["step"] == step] for step in (1, 2))
    assert (first["reward/kl_penalty"] == 0).all()
    assert (second["reward/kl_penalty"] != 0).any()
    total = second["reward/class_weighted"] + 0.1 * second["reward/kl_penalty"]
    assert second["reward"].to_numpy() == pytest.approx(total.to_numpy())
    for name in ("reward", "grad_norm"):
        plain, once = (run.metrics()[name].to_numpy() for run in runs)
        assert plain == pytest.approx(once, rel=1e-3)
        assert (plain != 0).any()
    moved = [run.validation()["kl_from_base"].iloc[-1] for run in runs]
    assert moved[0] == pytest.approx(moved[1], rel=1e-2)
    assert moved[0] > 0


# A reward that does not depend on the completion -------------------------------------------


def test_the_published_bug_trains_nothing_at_all(tmp_path, unmeasured):
    leak = {"variant": "label-dealt", "reward_funcs": ["leaking_label"], "reward_kwargs": {}}
    run = trained(tmp_path / "run", **(LABEL | leak | {"constraint": "none"}))
    metrics = run.metrics()
    assert (metrics["grad_norm"] == 0).all()
    assert (metrics["frac_reward_zero_std"] == 1).all()
    assert metrics["reward"].max() > 0  # half of the hands are what the prompt names first
    assert run.record()["adapter_largest_change"] == 0


# What arms share ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({"seed": 1, "max_steps": 1, "beta": 0.1, "learning_rate": 1e-4}, 1),
        ({"variant": "label"}, 2),
        ({"constraint": "trie"}, 2),
        ({"test_samples": 2}, 2),
        ({"model_name_or_path": "data/nano/../nano/poker"}, 2),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_arms_share_the_base_that_they_measure_alike(changes, times, monkeypatch):
    seen = []
    monkeypatch.setattr(measure, "_MEASURED", {})
    monkeypatch.setattr(measure, "load_base", lambda settings: (torch.nn.Identity(), None))
    monkeypatch.setattr(measure, "kept_rows", lambda *_: [])
    rows = pd.DataFrame({"prompt": []})
    monkeypatch.setattr(measure, "measure_test", lambda *_: (seen.append(0) or len(seen), rows))
    measure.measure_base(training.read_config(SMOKE))
    measure.measure_base(training.read_config(SMOKE, changes))
    assert len(seen) == times


def test_every_setting_that_a_measurement_reads_keeps_arms_apart(monkeypatch):
    read, plain = set(), measure.evaluate

    class Listening(dict):
        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

        def get(self, name, default=None):
            read.add(name)
            return super().get(name, default)

    def listening(*arguments, settings, **more):
        return plain(*arguments, settings=Listening(settings), **more)

    monkeypatch.setattr(measure, "evaluate", listening)
    config = training.read_config(SMOKE, FEW | {"pass_at_k_rows": 2, "pass_at_k_samples": 2})
    measure.measure_test(config, *models.load_base(config.settings))
    assert {"temperature", "constraint"} <= read <= set(marked("card", "base", "test"))


# Warnings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "warnings"), [(1.0, 1), (0.2, 0)])
def test_a_run_without_gradient_is_warned_of_once(share, warnings, tmp_path):
    run, said = training.Run(tmp_path), []
    watch = DoctorCallback(said.append, read=lambda: read_log(run.path))
    for step in range(1, 25):
        line = {"kind": "train", "step": step, "loss": 0.1, "frac_reward_zero_std": share}
        with open(run.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")
        watch.on_log(None, SimpleNamespace(global_step=step), None, logs=line)
    assert len(said) == warnings
    assert all("silent_groups: Most of what is generated teaches nothing" in s for s in said)


# Interruptions -----------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"beta": 0.1}, {"use_peft": False}])
def test_a_run_that_was_stopped_while_measuring_is_measured_and_not_trained_on(
    changes, tmp_path, unmeasured
):
    overrides = {"lr_scheduler_type": "constant", "test_limit": 4, **changes}
    whole = trained(tmp_path / "whole", **overrides)
    stopped = training.Run(tmp_path / "stopped")
    shutil.copytree(whole.path, stopped.path)
    (stopped.path / "record.json").unlink()
    shutil.rmtree(stopped.adapter)
    config = training.read_config(SMOKE, SHORT | overrides)
    assert training.train(config, stopped.path, resume=True).record()["steps"] == 2
    for file in filter(Path.is_file, whole.adapter.rglob("*")):
        saved = stopped.adapter / file.relative_to(whole.adapter)
        # A training writes the one token that ends a text as a list of one.
        if file.name != "generation_config.json":
            assert saved.read_bytes() == file.read_bytes(), file.name
    assert stopped.metrics_file.read_bytes() == whole.metrics_file.read_bytes()
    timed = {"train_seconds", "measure_seconds", "samples_per_second", "peak_memory_mb"}
    one, other = whole.record(), stopped.record()
    for name in set(one) - timed - {"provenance"}:
        assert one[name] == other[name], name


def test_two_trainings_into_one_folder_are_one_and_a_sentence(tmp_path):
    config = training.read_config(SMOKE, SHORT)
    with (
        alone_in(tmp_path / "run", "busy"),
        pytest.raises(CasebookError, match="another process trains into"),
    ):
        training.train(config, tmp_path / "run")


@pytest.mark.parametrize("output", ["", "file", "file/run", "/proc/run"])
def test_a_folder_that_holds_other_things_or_cannot_be_written_is_one_sentence(output, tmp_path):
    (tmp_path / "file").write_text("mine")
    message = "cannot be written: " if output else "contains no run"
    with pytest.raises(CasebookError, match=message):
        training.train(training.read_config(SMOKE, SHORT), tmp_path / output, resume=not output)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train_limit": 1}, "1 training prompts do not fill a step, which takes 4"),
        ({"train_limit": 1, "method": "plain_grpo"}, "1 training prompts do not fill a step"),
        ({"lora_target_modules": ["nope"]}, "these settings cannot be trained: .*nope"),
    ],
)
def test_what_only_the_model_or_the_rows_can_refuse_is_one_sentence(overrides, message, tmp_path):
    with pytest.raises(CasebookError, match=message):
        trained(tmp_path / "run", **overrides)


@pytest.mark.parametrize(
    ("minutes", "changes", "steps"),
    [
        (0, {"save_steps": 1, "num_iterations": 2, "max_steps": 5}, [2, 4, 5]),  # and the end
        (5, {"max_steps": 7}, [3, 6, 7]),
        (1, {"num_iterations": 2, "max_steps": 5}, [2, 4, 5]),
    ],
    ids=["by steps", "by time", "by time, but whole batches"],
)
def test_checkpoints_are_where_no_batch_of_completions_is_under_way(
    minutes, changes, steps, tmp_path, unmeasured, monkeypatch
):
    clock = iter(range(0, 100_000, 100))  # a look at it every 100 seconds, so four steps in 400
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    more = {"save_steps": 100, "save_total_limit": 9, "save_minutes": minutes}
    run = trained(tmp_path / "run", **more | changes)
    assert sorted(map(step_of, run.checkpoints())) == steps
    assert run.checkpoint().name == f"checkpoint-{steps[-1]}"


@pytest.mark.parametrize("hook", ["on_step_begin", "on_step_end", "on_log"])
def test_a_folder_that_is_deleted_while_it_trains_is_one_sentence(hook, tmp_path, monkeypatch):
    def delete(self, args, state, control, **more):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    monkeypatch.setattr(training.RunCallback, hook, delete, raising=False)
    with pytest.raises(CasebookError, match="the run stopped, "):
        trained(tmp_path / "run", save_steps=1)


def test_a_mistake_before_the_first_step_does_not_block_the_folder(tmp_path):
    overrides = FEW | {"max_steps": 1, "evaluate_every": 0}
    missing = training.read_config(SMOKE, overrides | {"model_name_or_path": "nobody/nothing"})
    with pytest.raises(CasebookError, match="no model could be loaded"):
        training.train(missing, tmp_path / "run")
    assert training.train(training.read_config(SMOKE, overrides), tmp_path / "run").finished


@pytest.mark.slow
def test_wandb_is_offline_without_a_login_and_gets_the_held_out_figures(tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    import wandb

    logged, log = [], wandb.Run.log
    monkeypatch.setattr(
        wandb.Run, "log", lambda run, values, **more: (logged.append(values), log(run, values))
    )
    run = trained(tmp_path / "run", evaluate_every=1, report_to="wandb")
    assert wandb.run is None
    assert list(run.path.glob("wandb/offline-run-*"))
    seen = [v["eval/greedy_accuracy"] for v in logged if "eval/greedy_accuracy" in v]
    assert seen == run.validation()["greedy_accuracy"].tolist()
    assert sum("train/reward" in values for values in logged) == 2
    second = training.Run(tmp_path / "second")
    second.path.mkdir()
    with loop._tracked(second, training.read_config(SMOKE, {"report_to": "wandb"})):
        assert wandb.run is not None
    assert list(second.path.glob("wandb/offline-run-*"))
    assert len(list(run.path.glob("wandb/offline-run-*"))) == 1


# Chat models -------------------------------------------------------------------------------

CHAT = {
    **{"dtype": "float32", "fast_inference": False, "load_in_4bit": False, "use_cpu": True},
    **{"fp16": False, "bf16": False, "optim": "adamw_torch", "gradient_checkpointing": False},
    **{"max_steps": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1},
    **{"num_generations": 4, "max_completion_length": 8, "evaluate_every": 0, "report_to": "none"},
    **{"test_limit": 3, "test_samples": 1, "pass_at_k_rows": 0, "save_steps": 2, "beta": 0.0},
    **{"train_limit": 16, "reward_kwargs": {}, "steps_per_generation": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "sft", "plain_grpo"])
def test_a_chat_model_is_trained_by_every_method(method, tmp_path, chat_model):
    chosen = {"model_name_or_path": str(chat_model("llama3_1")), "method": method}
    changes = CHAT | PENALISED | chosen
    run = training.train(training.read_config(("poker", "t4"), changes), tmp_path / "run")
    assert run.record()["steps"] == 2
    assert len(run.record()["completions"]) == 3
