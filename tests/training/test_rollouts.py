"""Rollouts: under the run's settings alone, the adapter merged, by a sampler that may round."""

import pytest
import torch
from datasets import Dataset
from peft.tuners.lora import LoraLayer
from trl import GRPOConfig, GRPOTrainer

from casebook import models, training
from casebook.training.rollouts import RolloutTrainer, rounded

PROMPT = "Hand: 2H 2D 2C 9S 9H\n"
RULE = {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0}
SAMPLER = RULE | {"rollout_weights": "4bit", "vllm_importance_sampling_correction": False}
NEVER_ENDING = {"min_new_tokens": 8, "no_repeat_ngram_size": 1, "min_p": 0.9}


@pytest.fixture(scope="module")
def policy():
    return models.load_policy("poker", "smoke")


def rollouts(kind, policy, folder):
    """A trainer whose next completions are eight of one prompt."""
    model, tokenizer = policy
    options = {"max_completion_length": 8, "num_generations": 8, "use_cpu": True, "bf16": False}
    trainer = kind(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(str(folder), report_to=[], disable_dropout=True, **options),
        train_dataset=Dataset.from_list([{"prompt": PROMPT}] * 8),
        processing_class=tokenizer,
    )
    torch.manual_seed(0)
    return trainer._generate_single_turn([tokenizer(PROMPT).input_ids] * 8, None, {}, 8)[0]


def test_what_a_model_brings_along_does_not_decide_what_is_trained_on(policy, tmp_path):
    own = policy[0].generation_config
    before = {name: getattr(own, name) for name in NEVER_ENDING}
    plain = rollouts(RolloutTrainer, policy, tmp_path)
    own.update(**NEVER_ENDING)
    try:
        assert rollouts(GRPOTrainer, policy, tmp_path) != plain
        assert rollouts(RolloutTrainer, policy, tmp_path) == plain
    finally:
        own.update(**before)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_adapter_is_merged_while_completions_are_written(policy, monkeypatch, error):
    model, _ = policy
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    seen = []

    def writing(self):
        seen.extend(layer.merged for layer in layers)
        if error:
            raise error
        return "written"

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", writing)
    trainer = RolloutTrainer.__new__(RolloutTrainer)
    trainer.model = model
    if error:
        with pytest.raises(error):
            trainer._generate_single_turn()
    else:
        assert trainer._generate_single_turn() == "written"
    assert seen == [True] * len(layers)
    assert not any(layer.merged for layer in layers)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


@pytest.mark.parametrize(("how", "near"), [("trained", 0.0), ("bfloat16", 0.005), ("4bit", 0.08)])
def test_weights_are_rounded_inside_and_back_outside(how, near):
    model, _ = models.load_base(models.read_settings("math", "smoke"))
    layer = model.model.layers[0].mlp.up_proj
    kept, head = layer.weight.clone(), model.lm_head.weight.clone()
    with rounded(model, how):
        gap = (layer.weight - kept).abs().max() / kept.abs().max()
        assert gap <= near
        assert (gap > 0) == (how != "trained")
        assert torch.equal(model.lm_head.weight, head)
    assert torch.equal(layer.weight, kept)


def test_the_gap_between_sampler_and_trainer_is_logged_and_corrected_for(tmp_path):
    norms = {}
    for corrected in (False, True):
        asked = SAMPLER | {"vllm_importance_sampling_correction": corrected, "evaluate_every": 0}
        config = training.read_config(("math", "smoke"), asked)
        metrics = training.first_steps(config, tmp_path / str(corrected), 1).metrics()
        assert 0 < metrics["sampler_gap"].iloc[0] < metrics["sampler_gap_max"].iloc[0]
        assert metrics["sampler_ratio_p1"].iloc[0] < 1 < metrics["sampler_ratio_p99"].iloc[0]
        norms[corrected] = metrics["grad_norm"].iloc[0]
    assert norms[True] != norms[False]
