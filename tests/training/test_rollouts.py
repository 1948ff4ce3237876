"""Rollouts: the adapter merged while they are written, and nothing but the run's settings."""

import pytest
import torch
from datasets import Dataset
from peft.tuners.lora import LoraLayer
from trl import GRPOConfig, GRPOTrainer

from casebook import models
from casebook.training.rollouts import RolloutTrainer

PROMPT = "Hand: 2H 2D 2C 9S 9H\n"
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
    trainer.prompts_once = False
    trainer.model = model
    if error:
        with pytest.raises(error):
            trainer._generate_single_turn()
    else:
        assert trainer._generate_single_turn() == "written"
    assert seen == [True] * len(layers)
    assert not any(layer.merged for layer in layers)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
