"""A sampler that is not quite the trainer: rounded weights, and the ratio that corrects it."""

import pytest
import torch

from casebook import models, training
from casebook.training.rollouts import rounded

RULE = {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0}
SAMPLER = RULE | {"rollout_weights": "4bit", "vllm_importance_sampling_correction": False}


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
