"""A forward pass that computes each prompt once, however many completions follow it.

A group has the same prompt several times. For eight completions of ten tokens after a prompt of
eighty, a quarter of the tokens remains; logits and gradients are the same, up to rounding.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from casebook.models.decoding import Constraint, constrained
from casebook.models.generation import prefilled


def forward(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    use_cache: bool = False,
) -> SimpleNamespace:
    """`logits`, at the last token of the prompts and at all of the completions.

    `input_ids` and `attention_mask` are `(n, length)`, prompts padded on the left, completions on
    the right; `logits_to_keep` is 1 more than a completion has tokens, padding included. TRL says
    by `use_cache` that it needs none.
    """
    width = input_ids.shape[1] - logits_to_keep + 1
    cache, ids, mask = prefilled(model, input_ids[:, :width], attention_mask[:, :width])
    attention = torch.cat([mask, attention_mask[:, width:]], 1)
    logits = model(
        input_ids=torch.cat([ids[:, -1:], input_ids[:, width:]], 1),
        attention_mask=attention,
        position_ids=(attention.cumsum(1) - 1)[:, -logits_to_keep:],
        past_key_values=cache,
    ).logits
    return SimpleNamespace(logits=logits)


def completion_logps(
    model: Any,
    batch: Sequence[tuple[Sequence[int], Sequence[int]]],
    constraint: Constraint | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities `(n, longest completion)` in nats, and which of them are no padding.

    `batch` holds the token ids of prompts and completions. Without gradients. Under a
    `constraint` they are those of what it allows; else the whole softmax counts.
    """
    width, longest = (max(map(len, side)) for side in zip(*batch, strict=True))
    ids = torch.zeros((len(batch), width + longest), dtype=torch.long)
    attention = torch.zeros_like(ids)
    for i, (prompt, completion) in enumerate(batch):
        start, end = width - len(prompt), width + len(completion)
        ids[i, start:end] = torch.tensor([*prompt, *completion])
        attention[i, start:end] = 1
    ids, attention = ids.to(model.device), attention.to(model.device)
    with torch.inference_mode():
        logits = forward(model, ids, attention, longest + 1).logits[:, :-1].float()
        if constraint:
            logits = constrained(logits, ids[:, width:], constraint)
        logps = logits.log_softmax(-1).gather(-1, ids[:, width:, None]).squeeze(-1)
    return logps, attention[:, width:].bool()
