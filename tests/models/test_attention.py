"""Attention in groups: the same sums as transformers' own, and gradients where they are wanted."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from casebook.models import attention


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n} heads of keys")
def pair(request):
    """One model with transformers' `sdpa`, and with ours."""
    attention.register()
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    shape |= {"num_attention_heads": 4, "num_key_value_heads": request.param}
    models = []
    for name in ("sdpa", attention.NAME):
        torch.manual_seed(0)
        models.append(LlamaForCausalLM._from_config(LlamaConfig(**shape), attn_implementation=name))
    return models


def padded(rows=3, length=9):
    """Ids and mask; each row has two tokens of padding more than the one before."""
    ids = torch.randint(1, 50, (rows, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row in range(rows):
        mask[row, : 2 * row] = 0
    return ids, mask


def test_a_token_written_after_padded_prompts_has_the_same_logits(pair):
    ids, mask = padded()
    found = []
    for model in pair:
        with torch.no_grad():
            past = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1], use_cache=True)
            last = model(
                input_ids=ids[:, -1:],
                attention_mask=mask,
                position_ids=(mask.cumsum(1) - 1)[:, -1:],
                past_key_values=past.past_key_values,
            )
        found.append(torch.cat([past.logits[mask[:, :-1].bool()], last.logits[:, 0]]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("length", [1, 9])
def test_gradients_are_the_same(pair, length):
    ids, mask = padded(rows=2, length=length) if length > 1 else (torch.tensor([[3], [4]]), None)
    found = []
    for model in pair:
        model(input_ids=ids, attention_mask=mask).logits.square().mean().backward()
        found.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )
    torch.testing.assert_close(*found)
    assert found[0].abs().max() > 0
