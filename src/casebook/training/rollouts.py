"""TRL's trainer, with what it lacks: the run's settings alone, prompts once, a constraint.

And two topics of the literature, to be tried on a CPU: a sampler that differs slightly from the
trainer, and training without silent groups.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from trl import GRPOTrainer

from casebook.models.decoding import Constraint, constrained, constrained_generation
from casebook.models.generation import merged, own_settings_off, shared_prompts
from casebook.models.prompts_once import forward

# What is read here, and not by TRL.
OWN = ("prompts_once", "rollout_weights", "drop_silent_groups")


class RolloutTrainer(GRPOTrainer):
    """GRPO that samples with the run's settings only, as the evaluation does.

    A model's generation config would fill in what TRL leaves open. The adapter is merged, where
    that rounds nothing. With `prompts_once` a group's prompt is computed once, in a rollout and
    in a training step. With `rollout_weights` the sampler's weights are rounded and the trainer's
    are not; with `drop_silent_groups` only groups that differ in reward count in the loss.
    """

    prompts_once, rollout_weights, drop_silent_groups = False, "trained", False

    def __init__(self, *args, **kwargs):
        for name in kwargs.keys() & OWN:
            setattr(self, name, kwargs.pop(name))
        super().__init__(*args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        model = model or self.model
        if "ref" in getattr(model, "peft_config", {}):
            # Beside TRL's reference, in a folder of its own, transformers finds that one alone.
            model.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            model.set_adapter("default")

    def _generate_single_turn(self, *args, **kwargs):
        once = shared_prompts(self.model, self.prompts_once)
        rule = rounded(self.model, self.rollout_weights)
        with own_settings_off(self.model), merged(self.model), rule, once:
            return super()._generate_single_turn(*args, **kwargs)

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if self.drop_silent_groups:  # without advantages, they have a part in the divisor alone
            told = batch["advantages"].view(-1, self.num_generations).any(1)
            told = told.repeat_interleave(self.num_generations)
            batch["num_items_in_batch"] = batch["completion_mask"][told].sum()
        if self.rollout_weights != "trained":  # after it: a correction is one per token
            self._compare_with_sampler(batch)
        return batch

    def _compare_with_sampler(self, batch: dict[str, torch.Tensor]) -> None:
        """Log how far the sampler is from the trainer, token by token, and correct for it if asked:
        by the truncated ratio of the two, as TRL does for vLLM with `token_truncate`."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        mask = batch["completion_mask"].bool()
        asked = self.model, ids, attention, mask.shape[1]
        with torch.no_grad():
            own = self._get_per_token_logps_and_entropies(*asked)[0]
            with merged(self.model), rounded(self.model, self.rollout_weights):
                gap = own - self._get_per_token_logps_and_entropies(*asked)[0]
        ratio, tails = gap.exp(), torch.tensor([0.01, 0.99], device=gap.device)
        low, high = ratio[mask].quantile(tails).tolist()
        found = {"gap": gap[mask].abs().mean().item(), "gap_max": gap[mask].abs().max().item()}
        for name, value in (found | {"ratio_p1": low, "ratio_p99": high}).items():
            self._metrics["train"][f"sampler_{name}"].append(value)
        if self.args.vllm_importance_sampling_correction:
            largest = self.args.vllm_importance_sampling_clip_max
            batch["advantages"] = batch["advantages"][:, None] * ratio.clamp(max=largest)

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        model = partial(forward, model) if self.prompts_once else model
        return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)


@contextmanager
def rounded(model: Any, how: str) -> Iterator[None]:
    """Inside it, the layers' weights are rounded as a cheaper engine has them, then put back.

    `bfloat16`, or `4bit`: of 15 levels, whose distance 32 weights beside each other share;
    embeddings and head stay as they are, as is usual. `trained`: nothing is done.
    """
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    kept = [m.weight.data for n, m in layers if "lora_" not in n and not n.endswith("lm_head")]
    copies = [weight.clone() for weight in kept] if how != "trained" else []
    for weight, copy in zip(kept, copies, strict=False):
        if how == "bfloat16":
            weight.copy_(copy.bfloat16())
        else:
            blocks = copy.view(-1, 32)
            step = blocks.abs().amax(1, keepdim=True).clamp(min=1e-12) / 7
            weight.copy_((blocks / step).round().mul(step).view(copy.shape))
    try:
        yield
    finally:
        for weight, copy in zip(kept, copies, strict=False):
            weight.copy_(copy)


class ConstrainedTrainer(RolloutTrainer):
    """GRPO on completions that keep to a constraint.

    TRL's trainer knows none: it would sample freely, and score what was sampled by the whole
    softmax. Here it samples under the constraint; with `score_constrained`, log-probabilities and
    entropies are those of the distribution that was sampled from.
    """

    def __init__(self, *args, constraint: Constraint, score_constrained: bool, **kwargs):
        self.constraint, self.score_constrained = constraint, score_constrained
        super().__init__(*args, **kwargs)

    def _generate_single_turn(self, *args, **kwargs):
        with constrained_generation(self.model, self.constraint):
            return super()._generate_single_turn(*args, **kwargs)

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        if not self.score_constrained:
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        input_ids, attention_mask, logits_to_keep, *_ = args
        model = partial(forward, model) if self.prompts_once else model
        how = {"logits_to_keep": logits_to_keep + 1, "use_cache": False}
        logits = model(input_ids=input_ids, attention_mask=attention_mask, **how).logits[:, :-1]
        completion_ids = input_ids[:, -logits_to_keep:]
        logits = constrained(logits / self.temperature, completion_ids, self.constraint)
        logps = logits.log_softmax(-1)
        chosen = logps.gather(-1, completion_ids.unsqueeze(-1)).squeeze(-1)
        return chosen, -(logps.exp() * logps).sum(-1), None
