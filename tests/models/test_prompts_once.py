"""A prompt that is computed once: the logits, log-probabilities and gradients of the plain pass."""

import pytest
import torch

from casebook import evaluation, models
from casebook.models import prompts_once
from casebook.models.decoding import PrefixTrie

PROMPTS = {
    "a group": ["Hand: 2H 2D 2C 9S 9H\n"] * 3,
    "two groups": ["Hand: 2H 2D 2C 9S 9H\n"] * 2 + ["Hand: AS KD 10C 9H 8S\n"] * 2,
    "nothing in common": ["9S 9H\n", "Hand: 2H 2D 2C 9S 9H\n"],
    "one that the other begins with": ["Hand: 2H", "Hand: 2H 2D 2C 9S 9H\n"],
    "one token": ["H", "Hand: 2H 2D 2C 9S 9H\n"],
    "one prompt": ["Hand: 2H"],
}
COMPLETIONS = [" flush", " pair", "s", " two pair two pair"]


@pytest.fixture(
    scope="module",
    params=[{"use_peft": True}, {"use_peft": False}, {"attn_implementation": "eager"}],
    ids=["adapter", "all weights", "eager"],
)
def policy(request):
    settings = models.read_settings("poker", "smoke") | request.param
    model, tokenizer = models.load_policy("poker", "smoke", settings=settings)
    for name, weights in model.named_parameters():
        if "lora_B" in name:  # zero in a new adapter: no gradient would reach lora_A
            torch.nn.init.normal_(weights, std=0.02)
    return model, tokenizer


def padded(tokenizer, prompts):
    asked = [tokenizer(prompt).input_ids for prompt in prompts]
    written = [tokenizer(text).input_ids for _, text in zip(prompts, COMPLETIONS, strict=False)]
    width, longest = max(map(len, asked)), max(map(len, written))
    ids = torch.zeros((len(asked), width + longest), dtype=torch.long)
    attention = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(zip(asked, written, strict=True)):
        part = slice(width - len(prompt), width + len(completion))
        ids[row, part] = torch.tensor(prompt + completion)
        attention[row, part] = 1
    return ids, attention, longest, list(zip(asked, written, strict=True))


def chosen(logits, ids, attention, longest):
    logps = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, -longest:, None]).squeeze(-1)
    return logps[attention[:, -longest:].bool()]


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_log_probabilities_and_gradients_are_those_of_the_plain_pass(policy, prompts):
    model, tokenizer = policy
    ids, attention, longest, _ = padded(tokenizer, prompts)
    arguments = {"input_ids": ids, "attention_mask": attention, "logits_to_keep": longest + 1}
    plain = chosen(model(**arguments).logits, ids, attention, longest)
    once = chosen(prompts_once.forward(model, **arguments).logits, ids, attention, longest)
    assert torch.allclose(once, plain, atol=1e-4)
    expected, found = gradients(model, plain.sum()), gradients(model, once.sum())
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max()
        assert scale > 0
        assert (found[name] - gradient).abs().max() < 1e-3 * scale, name


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_log_probabilities_of_completions_are_those_that_evaluation_gives(policy, prompts):
    model, tokenizer = policy
    batch = padded(tokenizer, prompts)[-1]
    expected, among = evaluation.token_logps(model, batch)
    found, mask = prompts_once.completion_logps(model, batch)
    assert torch.allclose(found[mask], expected[among], atol=1e-4)
    assert not found.requires_grad


def test_under_a_constraint_only_what_it_allows_counts(policy):
    model, tokenizer = policy
    rule = PrefixTrie([tokenizer(" flush").input_ids, tokenizer(" pair").input_ids], eos=0)
    batch = [
        (tokenizer("Hand: 2H").input_ids, [*tokenizer(text).input_ids, 0])
        for text in (" flush", " pair")
    ]
    expected, among = evaluation.token_logps(model, batch, rule)
    found, mask = prompts_once.completion_logps(model, batch, rule)
    assert torch.allclose(found[mask], expected[among], atol=1e-4)
    assert (found * mask).sum(1).exp().sum().item() == pytest.approx(1, abs=1e-4)
