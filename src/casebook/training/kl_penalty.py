"""The one reward that looks at the policy instead of what it wrote: the poker write-up's KL."""

from contextlib import nullcontext
from copy import deepcopy
from typing import Any

from casebook.case import KL_PART as KL_PENALTY
from casebook.case import CasebookError
from casebook.evaluation import token_logps
from casebook.models.generation import token_ids
from casebook.models.prompts_once import completion_logps


class KlPenalty:
    """The poker write-up's KL inside the reward: minus the mean k1 estimate, in nats per token.

    k1 = log policy - log base on the policy's own tokens (Schulman 2020): unbiased, and negative
    half of the time. Its weight in `reward_weights` is the write-up's beta. It needs the policy
    itself, which `bind` hands over once there is one.

    The base is the policy with its adapter off; where all weights are trained, a frozen copy of
    them, which takes as much memory again.
    """

    def __init__(self):
        self.__name__ = KL_PENALTY
        self.model = self.tokenizer = self.frozen = None
        self.logps = token_logps

    def bind(self, model: Any, tokenizer: Any, prompts_once: bool = False) -> None:
        """Take the policy and the tokenizer, before the first step and before a checkpoint's
        weights are loaded: without an adapter, what the policy is now is the base."""
        self.model, self.tokenizer = model, tokenizer
        self.logps = completion_logps if prompts_once else token_logps
        if not hasattr(model, "disable_adapter"):
            self.frozen = deepcopy(model).eval().requires_grad_(False)

    def __call__(self, prompts, completions, completion_ids, **columns) -> list[float]:
        if self.model is None:
            raise CasebookError(f"{KL_PENALTY} is bound to no policy")
        batch = [
            (token_ids(self.tokenizer, prompt), ids)
            for prompt, ids in zip(prompts, completion_ids, strict=True)
        ]
        policy, mask = self.logps(self.model, batch)
        with nullcontext() if self.frozen else self.model.disable_adapter():
            base, _ = self.logps(self.frozen or self.model, batch)
        k1 = ((policy - base) * mask).sum(1) / mask.sum(1)
        return (-k1).tolist()
