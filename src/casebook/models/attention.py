"""Attention for writing on a CPU, where query heads share keys and values.

SmolLM2 has three query heads for each head of keys. With padded prompts transformers' `sdpa` first
copies all keys and values three times, for each token that is written. Here the query heads of a
group stand in as positions of one query, which is the same sum over the same keys.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "sdpa_grouped"  # as `attn_implementation` in a configuration


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' `sdpa`, except where one token asks and no gradient is wanted."""
    n, heads, asking, width = query.shape
    if asking > 1 or query.requires_grad:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    groups = query.reshape(n, key.shape[1], -1, width)
    found = scaled_dot_product_attention(
        groups, key, value, attn_mask=attention_mask, scale=scaling, is_causal=False
    )
    return found.reshape(n, asking, heads, width), None


def register() -> None:
    """Make the name known to transformers."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
