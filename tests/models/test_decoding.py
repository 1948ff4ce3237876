"""Constrained decoding: what each rule lets a model write, and how that is scored."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from casebook import load_case
from casebook.case import CasebookError
from casebook.experiments import nano
from casebook.models.decoding import (
    PositionUnion,
    PrefixTrie,
    constrained,
    constrained_generation,
    constraint_for,
    label_tokens,
)

CASE = load_case("poker")
END, PAD = 0, 9
TEXTS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=5), min_size=1, max_size=6)


def written(constraint, longest=16):
    """All texts that a rule allows, as token ids without the end, up to `longest` tokens."""
    whole, unfinished = [], [()]
    while unfinished:
        start = unfinished.pop()
        for token in constraint.allowed(start):
            if token == constraint.eos:
                whole.append(start)
            elif len(start) < longest:
                unfinished.append((*start, token))
    return sorted(whole)


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(nano.folder("poker"))


@pytest.fixture(scope="module")
def model():
    """A random Llama over the nano tokenizer's words: no label is likelier than another."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(vocab_size=120, **sizes, **heads, **ends)).eval()


# What a rule allows


@given(TEXTS)
def test_a_trie_writes_the_texts_and_nothing_else(texts):
    assert written(PrefixTrie(texts, END)) == sorted({tuple(text) for text in texts})


@given(TEXTS)
def test_by_position_every_way_through_the_columns_can_be_written(texts):
    columns = [{t[i] for t in texts if len(t) > i} for i in range(max(map(len, texts)))]
    ways = sum(math.prod(map(len, columns[:size])) for size in {len(text) for text in texts})
    assert len(written(PositionUnion(texts, END))) == ways


# The poker labels


def test_the_published_rule_writes_the_labels_with_and_without_the_blank_and_much_else(tokenizer):
    rule = constraint_for("position", CASE.labels, tokenizer)
    texts = set(map(tokenizer.decode, written(rule)))
    assert texts >= {blank + label for label in CASE.labels for blank in ("", " ")}
    assert " two card" in texts
    assert len(texts) > 72


@pytest.mark.parametrize("label", ["full haus", "flush💥", ""])
def test_a_label_the_tokenizer_cannot_write_is_refused(label, tokenizer):
    with pytest.raises(CasebookError, match="no tokens for the label"):
        label_tokens(["flush", label], tokenizer, ("",))


# Generating


def generated(model, tokenizer, rows=64, **options):
    prompts = torch.tensor([[0, 5, 6, 7], [4, 5, 6, 7]]).repeat(rows // 2, 1)
    torch.manual_seed(0)
    ids = model.generate(
        input_ids=prompts,
        attention_mask=(prompts != 0).long(),
        do_sample=True,
        max_new_tokens=8,
        **options,
    )
    return tokenizer.batch_decode(ids[:, prompts.shape[1] :], skip_special_tokens=True)


def test_a_random_model_writes_labels_only_inside_the_context_and_freely_after(model, tokenizer):
    rule = constraint_for("trie", CASE.labels, tokenizer)
    with constrained_generation(model, rule):
        texts = generated(model, tokenizer)
    assert {text.strip() for text in texts} == set(CASE.labels)
    assert not set(map(str.strip, generated(model, tokenizer))) & set(CASE.labels)


# Scoring


def test_probabilities_are_those_of_the_softmax_over_what_is_allowed():
    rule = PrefixTrie([[1, 2], [3, 4], [3, 5]], END)
    logits = torch.tensor([[[0.3, 1.0, -1.0, 2.0, 0.5, 0.1], [0.0, 9.0, 1.0, 1.0, 2.0, 3.0]]])
    shares = constrained(logits, torch.tensor([[3, 5]]), rule).softmax(-1)[0]
    first = math.exp(1) / (math.exp(1) + math.exp(2))
    second = math.exp(2) / (math.exp(2) + math.exp(3))
    assert shares[0].tolist() == pytest.approx([0, first, 0, 1 - first, 0, 0])
    assert shares[1].tolist() == pytest.approx([0, 0, 0, 0, second, 1 - second])


def test_what_comes_after_the_end_is_untouched():
    rule = PrefixTrie([[1], [2, 3]], END)
    logits = torch.randn(2, 4, 10)
    ids = torch.tensor([[1, END, PAD, PAD], [2, 3, END, PAD]])
    masked = constrained(logits, ids, rule)
    assert torch.equal(masked[0, 2:], logits[0, 2:])
    assert torch.equal(masked[1, 3:], logits[1, 3:])
    assert not torch.equal(masked[0, 1], logits[0, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_log_probability_and_entropy_is_finite(dtype):
    rule = PrefixTrie([[1], [2, 3]], END)
    logits = torch.randn(2, 3, 10, dtype=dtype, requires_grad=True)
    ids = torch.tensor([[1, END, PAD], [2, 3, END]])
    logps = constrained(logits, ids, rule).log_softmax(-1)
    entropy = -(logps.exp() * logps).sum(-1)
    loss = logps.gather(-1, ids.unsqueeze(-1)).squeeze(-1) + entropy
    loss[ids != PAD].sum().backward()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[:, 0].abs().max() > 0
