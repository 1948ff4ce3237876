"""TRL's trainer, with what it lacks: the run's settings alone, prompts once, a constraint."""

from functools import partial

from trl import GRPOTrainer

from casebook.models.decoding import Constraint, constrained, constrained_generation
from casebook.models.generation import merged, own_settings_off, shared_prompts
from casebook.models.prompts_once import forward


class RolloutTrainer(GRPOTrainer):
    """GRPO whose completions are written under the run's settings alone, as they are measured.

    What TRL leaves open, a model's generation config would fill in. The adapter is merged, where
    that rounds nothing. With `prompts_once` a group's prompt is computed once, in a rollout and
    in a training step.
    """

    def __init__(self, *args, prompts_once: bool = False, **kwargs):
        self.prompts_once = prompts_once
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
        with own_settings_off(self.model), merged(self.model), once:
            return super()._generate_single_turn(*args, **kwargs)

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        model = partial(forward, model) if self.prompts_once else model
        return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)


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
