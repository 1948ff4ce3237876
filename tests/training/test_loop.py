"""One training: its configuration, its folder, and what a kill or a full disk leaves of it."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoTokenizer

from casebook import load_case, models, paths, training
from casebook.case import PROFILES, CasebookError, Grade
from casebook.models import generation
from casebook.models.decoding import constraint_for
from casebook.paths import alone_in
from casebook.settings import METHODS, PLAIN, marked
from casebook.training import loop, measure

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
WHOLE = models.read_settings("poker", "smoke") | {"use_peft": False}


def trained(path, **overrides):
    """A run of two steps, with a smoke configuration in which `overrides` take another value."""
    return training.train(training.read_config(SMOKE, SHORT | overrides), path)


def command(*arguments, **options):
    program = [sys.executable, "-m", "casebook.cli", *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, cwd=paths.ROOT, **options)


@pytest.fixture
def unmeasured(monkeypatch):
    """Training alone: nothing is measured before and after."""
    nothing = {"before": {}, "after": {}, "completions": []}
    monkeypatch.setattr(loop, "measure", lambda *arguments: nothing)


# Configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(paths.CONFIGS.glob("*/*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_configuration_parses(path, monkeypatch):
    if path.stem == "experiments":
        pytest.skip("a file of arms, not of one training")
    settings = yaml.safe_load(path.read_text())
    # Whether a GPU has bf16 or fp16 is asked when the arguments are made; here there is none.
    config = training.read_config(path, {"bf16": False, "fp16": False, "use_cpu": True})
    assert config.case == path.parent.name
    own = path.stem if path.stem in PROFILES else path.stem.partition("_")[0]
    assert config.profile == own
    assert config.max_steps == settings["max_steps"]


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
    assert training.read_config(tmp_path / "config.yaml").learning_rate == 0.001


def test_prompts_that_leave_no_room_are_dropped_and_counted():
    tokenizer = AutoTokenizer.from_pretrained(paths.DATA / "nano" / "poker")
    config = training.read_config(SMOKE, {"train_limit": 32})
    kept, dropped = training.training_rows(config, tokenizer)
    assert (len(kept), dropped) == (32, 0)
    config = training.read_config(SMOKE, {"train_limit": 32, "max_seq_length": 45})
    with pytest.raises(CasebookError, match="max_seq_length"):
        training.training_rows(config, tokenizer)


def test_the_mark_is_that_of_the_arm_not_of_the_seed():
    mark = training.settings_mark(training.read_config(SMOKE, {"seed": 1}))
    assert mark == training.settings_mark(training.read_config(SMOKE, {"seed": 2}))
    assert mark != training.settings_mark(training.read_config(SMOKE, {"beta": 0.1}))


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "sft"},
        {"constraint": "trie"},
        {"score_constrained": False},
        {"pass_at_k_rows": 8},
        {"also_evaluate": {"label": {"variant": "label"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_an_arm_may_change_is_in_its_mark(changes):
    mark = training.settings_mark(training.read_config(SMOKE))
    assert mark != training.settings_mark(training.read_config(SMOKE, changes))


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


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_again(run, tmp_path):
    config = training.read_config(SMOKE, FEW | {"max_steps": 4, "save_steps": 2})
    again = training.train(config, tmp_path / "again")
    columns = ["reward", "grad_norm", "entropy"]
    pd.testing.assert_frame_equal(again.metrics()[columns], run.metrics()[columns])


# Methods -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[n for n in METHODS if n != "grpo"])
def other(request, tmp_path_factory):
    """A finished run of each method but TRL's."""
    path = tmp_path_factory.mktemp("methods") / request.param
    return request.param, trained(path, method=request.param, evaluate_every=2)


@pytest.mark.slow
def test_every_method_leaves_a_whole_record(other):
    method, run = other
    record = run.record()
    assert record["config"]["method"] == method
    assert (record["steps"], record["samples"]) == (2, 2 * 16)
    assert record["adapter_largest_change"] > 0
    for when in ("before", "after"):
        for name in ("greedy_accuracy", "sampled_accuracy", "other_prompt_perplexity"):
            figure = record[when][name]
            assert figure["low"] <= figure["value"] <= figure["high"]
    assert "kl_from_base" in record["after"]


@pytest.mark.slow
def test_every_method_logs_its_steps_and_its_validation(other):
    _, run = other
    assert run.metrics()["step"].tolist() == [1, 2]
    assert run.metrics()["loss"].notna().all()
    assert run.validation()["step"].tolist() == [0, 2]
    assert run.validation()["kl_from_base"].iloc[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_only_what_the_policy_wrote_is_kept_as_completions(other):
    method, run = other
    assert len(run.completions()) == (2 * 16 if method in PLAIN else 0)


@pytest.mark.slow
def test_rejection_says_how_many_samples_it_learned_from(other):
    method, run = other
    if method == "rejection":
        assert 0 < run.record()["accepted"] < run.record()["samples"]
    else:
        assert "accepted" not in run.record()


def test_rejection_with_nothing_accepted_is_one_sentence(tmp_path, unmeasured):
    with pytest.raises(CasebookError, match="none of 32 samples was accepted"):
        trained(tmp_path / "run", method="rejection", max_completion_length=1)


def test_rejection_makes_do_with_fewer_rows_than_it_would_ask(tmp_path, unmeasured):
    run = trained(tmp_path / "run", method="rejection", train_limit=3)  # eight prompts otherwise
    assert 0 < run.record()["accepted"] <= 3 * 4


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "rejection"])
def test_a_supervised_run_goes_on_where_it_was_stopped(method, tmp_path, unmeasured):
    overrides = {"method": method, "max_steps": 4, "save_steps": 2}
    config = training.read_config(SMOKE, SHORT | overrides)
    whole = trained(tmp_path / "whole", **overrides)

    class Stop(Exception):
        pass

    def stop(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.RunCallback, "on_step_end", stop)
        with pytest.raises(Stop):
            training.train(config, tmp_path / "run")
    config = training.read_config(SMOKE, SHORT | overrides)
    run = training.train(config, tmp_path / "run", resume=True)
    assert run.metrics()["step"].tolist() == [1, 2, 3, 4]
    columns = ["loss", "grad_norm", "learning_rate"]
    pd.testing.assert_frame_equal(run.metrics()[columns], whole.metrics()[columns], rtol=1e-4)


# A constraint ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def constrained_run(tmp_path_factory):
    also = {
        "free": {"variant": "label", "constraint": "none"},
        "few": {"variant": "label-source", "constraint": "position", "limit": 5},
    }
    options = {"also_evaluate": also, "pass_at_k_rows": 3, "pass_at_k_samples": 4}
    return trained(tmp_path_factory.mktemp("runs") / "trie", **LABEL, **options)


@pytest.mark.slow
def test_under_the_trie_the_policy_writes_labels_and_nothing_else(constrained_run):
    completions = constrained_run.completions()
    assert len(completions) == 2 * 16
    assert set(completions["completion"]) <= LABELS
    assert not completions["truncated"].any()
    assert completions["well_formed"].all()


def test_it_is_measured_under_the_constraint_it_was_trained_with(constrained_run):
    record = constrained_run.record()
    for when in ("before", "after"):
        assert record[when]["well_formed"]["value"] == 1
    assert models.load_saved(constrained_run.adapter)[2]["constraint"] == "trie"


def test_more_evaluations_are_made_before_and_after_with_their_own_settings(constrained_run):
    record = constrained_run.record()
    for when in ("before", "after"):
        also = record[when]["also"]
        assert set(also) == {"free", "few"}
        assert (also["free"]["greedy_accuracy"]["n"], also["few"]["greedy_accuracy"]["n"]) == (8, 5)
        assert "sampled_accuracy" not in also["free"]
    assert "also" not in record["before"]["also"]["free"]


def test_pass_at_k_is_measured_before_and_after(constrained_run):
    for when in ("before", "after"):
        figures = constrained_run.record()[when]["pass_at_k"]
        assert list(figures) == ["1", "2", "4"]
        assert all(figure["n"] == 3 for figure in figures.values())
        values = [figure["value"] for figure in figures.values()]
        assert values == sorted(values)


def allowed_shares(model, tokenizer, prompt, completion, temperature):
    """Log-probabilities and entropies of a label's tokens, from a table of what may follow.

    Written without `casebook.models.decoding`, on one unpadded sequence.
    """
    end = tokenizer.eos_token_id
    texts = [[*tokenizer(label).input_ids, end] for label in LABELS]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logps, entropies = [], []
    for position, token in enumerate(completion):
        so_far = completion[:position]
        follow = sorted({t[position] for t in texts if t[:position] == so_far})
        shares = (logits[position, follow] / temperature).log_softmax(-1)
        logps.append(float(shares[follow.index(token)]))
        entropies.append(float(-(shares.exp() * shares).sum()))
    return logps, entropies


def whole_softmax(model, tokenizer, prompt, completion, temperature):
    """The same with every token allowed everywhere."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    shares = (logits / temperature).log_softmax(-1)
    logps = shares[range(len(completion)), completion]
    return logps.tolist(), (-(shares.exp() * shares).sum(-1)).tolist()


@pytest.mark.parametrize(("scored", "expected"), [(True, allowed_shares), (False, whole_softmax)])
def test_old_new_and_reference_log_probabilities_are_of_what_was_sampled_from(
    scored, expected, tmp_path
):
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
    assert len(seen) == 4  # old, reference and new of the first step; new of the second
    for (_, ids, attention, length), (logps, entropies, _) in seen[:3]:
        for i in range(len(ids)):
            mask = attention[i].bool()
            completion = ids[i, -length:][mask[-length:]].tolist()
            prompt = ids[i, :-length][mask[:-length]].tolist()
            want = expected(base, tokenizer, prompt, completion, 0.7)
            assert logps[i, : len(completion)].tolist() == pytest.approx(want[0], abs=1e-4)
            if entropies is not None:
                assert entropies[i, : len(completion)].tolist() == pytest.approx(want[1], abs=1e-4)


def test_an_entropy_bonus_under_the_trie_has_a_finite_gradient(tmp_path, unmeasured):
    run = trained(tmp_path / "run", **LABEL, entropy_coef=0.01)
    assert run.metrics()["grad_norm"].between(0, 100, inclusive="neither").all()


# The KL inside the reward ------------------------------------------------------------------


@pytest.fixture
def policy():
    return models.load_policy("poker", "smoke")


def batch_of(tokenizer, completions):
    prompts = CASE.load("train", variant="label")["prompt"][: len(completions)]
    ids = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in completions]
    return {"prompts": prompts, "completions": completions, "completion_ids": ids}


def test_the_penalty_is_zero_where_the_adapter_has_changed_nothing(policy):
    penalty = training.KlPenalty()
    penalty.bind(*policy)
    assert penalty(**batch_of(policy[1], [" flush", " four of a kind"])) == [0.0, 0.0]


def test_the_penalty_is_the_base_minus_the_policy_in_nats_a_token(policy):
    model, tokenizer = policy
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1 * torch.randn_like(parameter)
    batch = batch_of(tokenizer, [" flush", " four of a kind", " 2C 3D", " one pair"])
    penalty = training.KlPenalty()
    penalty.bind(model, tokenizer)
    base = models.load_base(models.read_settings("poker", "smoke"))[0]
    expected = []
    for prompt, ids in zip(batch["prompts"], batch["completion_ids"], strict=True):
        prompt = tokenizer(prompt).input_ids
        moved, still = (whole_softmax(m, tokenizer, prompt, ids, 1.0)[0] for m in (model, base))
        expected.append((sum(still) - sum(moved)) / len(ids))
    assert max(map(abs, expected)) > 0.1
    assert min(expected) < 0 < max(expected)  # k1 has both signs
    assert penalty(**batch) == pytest.approx(expected, abs=1e-4)


def test_where_all_weights_are_trained_the_base_is_a_copy_that_does_not_move():
    model, tokenizer = models.load_policy("poker", "smoke", settings=WHOLE)
    penalty = training.KlPenalty()
    penalty.bind(model, tokenizer)
    batch = batch_of(tokenizer, [" flush", " four of a kind", " 2C 3D", " one pair"])
    assert penalty(**batch) == [0.0] * 4
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights += 0.02 * torch.randn_like(weights)
    base = models.load_base(WHOLE)[0]
    expected = []
    for prompt, ids in zip(batch["prompts"], batch["completion_ids"], strict=True):
        prompt = tokenizer(prompt).input_ids
        moved, still = (whole_softmax(m, tokenizer, prompt, ids, 1.0)[0] for m in (model, base))
        expected.append((sum(still) - sum(moved)) / len(ids))
    assert max(map(abs, expected)) > 0.1
    assert penalty(**batch) == pytest.approx(expected, abs=1e-4)
    assert not any(weights.requires_grad for weights in penalty.frozen.parameters())


def test_a_resumed_training_of_all_weights_keeps_its_base(tmp_path, unmeasured, monkeypatch):
    parts = {"reward_funcs": ["class_weighted", "kl_penalty"], "reward_weights": [1.0, 0.1]}
    changes = LABEL | parts | {"use_peft": False, "learning_rate": 1e-3, "max_steps": 3}
    whole = trained(tmp_path / "whole", **changes)

    class Stop(Exception):
        pass

    def stop(self, args, state, control, **more):
        if state.global_step == 2:
            raise Stop

    config = training.read_config(SMOKE, SHORT | changes)
    with monkeypatch.context() as patch:
        patch.setattr(loop.RunCallback, "on_step_begin", stop)
        with pytest.raises(Stop):
            training.train(config, tmp_path / "stopped")
    resumed = training.train(config, tmp_path / "stopped", resume=True)
    last = [run.completions().query("step == 3") for run in (whole, resumed)]
    assert last[0]["reward/kl_penalty"].abs().max() > 1e-3
    assert last[0].equals(last[1])


def test_a_penalty_that_was_bound_to_no_policy_says_so():
    with pytest.raises(CasebookError, match="bound to no policy"):
        training.KlPenalty()(["Hand:"], [" flush"], [[3, 1]])


def test_the_weight_of_the_penalty_is_its_beta(tmp_path, unmeasured):
    parts = {"reward_funcs": ["class_weighted", "kl_penalty"], "reward_weights": [1.0, 0.1]}
    run = trained(tmp_path / "run", **(LABEL | parts))
    completions = run.completions()
    first, second = (completions[completions["step"] == step] for step in (1, 2))
    assert (first["reward/kl_penalty"] == 0).all()
    assert (second["reward/kl_penalty"] != 0).any()
    total = second["reward/class_weighted"] + 0.1 * second["reward/kl_penalty"]
    assert second["reward"].to_numpy() == pytest.approx(total.to_numpy())


def test_a_groups_prompt_that_is_computed_once_is_completed_and_learned_from_alike(
    tmp_path, unmeasured
):
    parts = {"reward_funcs": ["class_weighted", "kl_penalty"], "reward_weights": [1.0, 0.1]}
    settings = LABEL | parts | {"evaluate_every": 1, "evaluate_rows": 8}
    runs = [trained(tmp_path / str(once), **settings, prompts_once=once) for once in (False, True)]
    one, other = (run.completions() for run in runs)
    assert one["completion"].tolist() == other["completion"].tolist()
    assert one["completion"].nunique() > 1
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


@pytest.fixture
def measured(monkeypatch):
    """`measure_base` without a model; what it measured, one entry for each time."""
    times = []
    monkeypatch.setattr(measure, "_MEASURED", {})
    monkeypatch.setattr(measure, "load_base", lambda settings: (torch.nn.Identity(), None))
    monkeypatch.setattr(measure, "kept_before", lambda rows: [])
    once = lambda *arguments: (times.append(0) or len(times), None)  # noqa: E731
    monkeypatch.setattr(measure, "measure_test", once)
    return times


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"learning_rate": 1e-4},
        {"reward_funcs": ["random_reward"], "reward_weights": [1.0]},
        {"max_steps": 1, "beta": 0.1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_arms_that_start_from_the_same_base_measure_it_once(measured, changes):
    before = measure.measure_base(training.read_config(SMOKE))
    assert measure.measure_base(training.read_config(SMOKE, changes)) == before
    assert len(measured) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "label"},
        {"constraint": "trie"},
        {"temperature": 0.5},
        {"top_k": 5},
        {"max_completion_length": 8},
        {"test_limit": 4},
        {"test_samples": 2},
        {"pass_at_k_rows": 4},
        {"also_evaluate": {"label": {"variant": "label"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_arms_that_measure_otherwise_do_not_share(measured, changes):
    measure.measure_base(training.read_config(SMOKE))
    measure.measure_base(training.read_config(SMOKE, changes))
    assert len(measured) == 2


def test_arms_with_another_base_do_not_share(measured, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(paths.DATA / "nano" / "poker", copy)
    measure.measure_base(training.read_config(SMOKE))
    config = training.read_config(SMOKE, {"model_name_or_path": str(copy)})
    measure.measure_base(config)
    assert len(measured) == 2


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


def watched(path, share, steps):
    """What a run's watch says that logs this share of groups without gradient."""
    run, said = training.Run(path), []
    watch = training.WatchCallback(run, {"num_generations": 4}, said.append)
    for step in range(1, steps + 1):
        line = {"kind": "train", "step": step, "loss": 0.0, "frac_reward_zero_std": share}
        with open(path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        watch.on_log(None, SimpleNamespace(global_step=step), None, logs=line)
    return said


def test_a_run_without_gradient_is_warned_of_once(tmp_path):
    said = watched(tmp_path, share=1.0, steps=24)
    assert len(said) == 1
    assert said[0].startswith("step 8: In the last 8 logged steps 100% of the groups")


def test_a_healthy_run_hears_nothing(tmp_path):
    assert watched(tmp_path, share=0.2, steps=24) == []


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


@pytest.mark.parametrize("changes", [{}, {"beta": 0.1}, {"method": "sft"}, {"use_peft": False}])
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


@pytest.mark.parametrize("output", ["file", "file/run", "/proc/run"])
def test_a_folder_that_cannot_be_written_is_one_sentence(output, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CasebookError, match=r"cannot be written: "):
        training.train(training.read_config(SMOKE, SHORT), tmp_path / output)
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


def test_checkpoints_stand_where_no_batch_of_completions_is_under_way(tmp_path, unmeasured):
    more = {"max_steps": 5, "save_steps": 1, "save_total_limit": 9, "num_iterations": 2}
    run = trained(tmp_path / "run", **more)
    names = sorted(path.name for path in (run.path / "checkpoints").glob("checkpoint-*"))
    assert names == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]  # and the end
    assert all(fault is None for _, fault in run.checkpoints())


def test_a_mistake_before_the_first_step_does_not_block_the_folder(tmp_path):
    overrides = FEW | {"max_steps": 1, "evaluate_every": 0}
    missing = training.read_config(SMOKE, overrides | {"model_name_or_path": "nobody/nothing"})
    with pytest.raises(CasebookError, match="no model could be loaded"):
        training.train(missing, tmp_path / "run")
    assert training.train(training.read_config(SMOKE, overrides), tmp_path / "run").finished


def test_a_checkpoint_comes_by_time_where_that_is_asked_for(tmp_path, unmeasured, monkeypatch):
    # GSM8K once saved every 50 steps: a machine of Colab's that was lost took 55 minutes along.
    clock = iter(range(0, 100_000, 100))  # a look at it every 100 seconds, so four steps in 400
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    more = {"max_steps": 7, "save_steps": 100, "save_total_limit": 9}
    run = trained(tmp_path / "run", save_minutes=5, **more)
    kept = sorted(path.name for path in (run.path / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-3", "checkpoint-6", "checkpoint-7"]  # and the end
    assert all(fault is None for _, fault in run.checkpoints())


def test_a_checkpoint_by_time_waits_for_the_end_of_a_batch(tmp_path, unmeasured, monkeypatch):
    clock = iter(range(0, 100_000, 100))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    more = {"max_steps": 5, "save_steps": 100, "num_iterations": 2, "save_total_limit": 9}
    run = trained(tmp_path / "run", save_minutes=1, **more)
    kept = sorted(path.name for path in (run.path / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]


def test_how_often_a_run_saves_does_not_make_it_another_arm():
    marks = {
        training.settings_mark(training.read_config(SMOKE, {"save_minutes": minutes}))
        for minutes in (0, 6)
    }
    assert marks == {training.settings_mark(training.read_config(SMOKE))}


def test_a_training_split_without_rows_says_so(tmp_path, monkeypatch):
    # It was once told as prompts that do not fit.
    empty = CASE.load("train", "smoke").select([])
    monkeypatch.setattr(loop, "load_case", lambda name: replace(CASE, load=lambda *_: empty))
    with pytest.raises(CasebookError, match=r"^the training split of poker/reason has no rows$"):
        trained(tmp_path / "run")


@pytest.mark.slow
def test_wandb_is_offline_without_a_login_and_gets_the_held_out_figures(tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    import wandb

    logged, log = [], wandb.log
    monkeypatch.setattr(wandb, "log", lambda values: (logged.append(values), log(values)))
    run = trained(tmp_path / "run", evaluate_every=1, report_to="wandb")
    assert wandb.run is None
    assert list(run.path.glob("wandb/offline-run-*"))
    seen = [values["eval/greedy_accuracy"] for values in logged]
    assert seen == run.validation()["greedy_accuracy"].tolist()


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
@pytest.mark.parametrize("method", ["grpo", "sft", "rejection", "plain_grpo"])
def test_a_chat_model_is_trained_by_every_method(tmp_path, chat_model, method, monkeypatch):
    if method == "rejection":  # random weights are never right
        right = generation.completed

        def lucky(tokenizer, prompt, ids, ends):
            return right(tokenizer, prompt, ids, ends) | {"truncated": False}

        monkeypatch.setattr(generation, "completed", lucky)
        monkeypatch.setattr(
            loop.supervised, "load_case", lambda name: replace(CASE, grade=always_right)
        )
    changes = CHAT | {"model_name_or_path": str(chat_model("llama3_1")), "method": method}
    changes |= {"reward_funcs": ["class_weighted", "kl_penalty"], "reward_weights": [1.0, 0.1]}
    run = training.train(training.read_config(("poker", "t4"), changes), tmp_path / "run")
    assert run.record()["steps"] == 2
    assert len(run.record()["completions"]) == 3


def always_right(completion, answer, variant=None):
    return Grade(True, str(answer), True)
