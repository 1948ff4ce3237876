"""From prompts to tokens to completions: one way, whatever the model brings along."""

import copy

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from trl import GRPOConfig, GRPOTrainer

from casebook import load_case, models
from casebook.models import generation
from casebook.models.decoding import constraint_for

KINDS = ("llama3_1", "qwen2_5", "tulu")
MESSAGES = [
    {"role": "system", "content": "You judge poker hands."},
    {"role": "user", "content": "Hand: 2H 2D 2C 9S 9H"},
]
DECODING = {"max_new_tokens": 12, "temperature": 1.0}


@pytest.fixture(scope="module", params=KINDS)
def chat(request, chat_model):
    settings = models.read_settings("poker", "nano")
    return models.load_base(settings | {"model_name_or_path": str(chat_model(request.param))})


@pytest.fixture(scope="module")
def nano():
    return models.load_base(models.read_settings("poker", "nano"))


def begins(tokenizer, ids):
    return ids.count(tokenizer.bos_token_id)


# Prompts that are computed once

HANDS = ["2H 2D 2C 9S 9H", "2H 2D 2C 9S 9H", "AS KS", "2H 2D 2C 9S 9H", "TD", "AS KS"]


@pytest.mark.parametrize("decoding", [{}, {"temperature": 1.0}, {"repetition_penalty": 1.3}])
@pytest.mark.parametrize("kind", ["none", "trie"])
def test_prompts_that_are_computed_once_are_completed_alike(nano, decoding, kind):
    _, tokenizer = nano
    rule = constraint_for(kind, load_case("poker").labels, tokenizer)
    prompts = [f"Classify this poker hand.\nHand: {hand}\n" for hand in HANDS]
    if "temperature" in decoding:
        decoding = decoding | {"keys": [(0, i) for i in range(len(prompts))]}
    decoding = decoding | {"max_new_tokens": 12, "constraint": rule}
    once = generation.generate(*nano, prompts, prompts_once=True, **decoding)
    assert once == generation.generate(*nano, prompts, **decoding)
    assert len({completion["completion"] for completion in once}) > 1


# Prompts


def test_messages_and_text_never_begin_twice(chat):
    _, tokenizer = chat
    ids = generation.token_ids(tokenizer, MESSAGES)
    assert begins(tokenizer, ids) == ("bos_token" in tokenizer.chat_template)
    assert begins(tokenizer, generation.token_ids(tokenizer, "Hand: 2H")) == 1
    assert begins(tokenizer, generation.completion_ids(tokenizer, "flush")) == 0


@pytest.mark.parametrize("prompt", [MESSAGES, "Hand: 2H 2D 2C 9S 9H"], ids=["messages", "text"])
def test_a_prompt_has_the_tokens_of_trls_rollouts(chat, prompt, tmp_path):
    model, tokenizer = chat
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(str(tmp_path), report_to=[], use_cpu=True, bf16=False),
        train_dataset=Dataset.from_list([{"prompt": prompt}] * 8),
        processing_class=tokenizer,
    )
    (theirs,), *_ = trainer._tokenize_prompts([prompt])
    assert generation.token_ids(tokenizer, prompt) == list(theirs)
    assert sorted(generation.end_ids(model, tokenizer)) == sorted(trainer.eos_token_ids)


def test_a_text_that_is_shown_as_completion_ends_once(chat):
    _, tokenizer = chat
    assert generation.completion_ids(tokenizer, "flush").count(tokenizer.eos_token_id) == 1
    assert tokenizer.eos_token_id not in generation.completion_ids(tokenizer, "flu", ends=False)


# Settings


def greedy(model, tokenizer, **more):
    (written,) = generation.generate(model, tokenizer, [MESSAGES], 12, **more)
    return written


LEAKS = {
    **{"min_new_tokens": 12, "no_repeat_ngram_size": 1, "temperature": 0.01, "top_k": 1},
    **{"suppress_tokens": [5, 6, 7], "forced_eos_token_id": 3, "repetition_penalty": 1.3},
}


@pytest.mark.parametrize("keyed", [False, True], ids=["torch", "keyed"])
@pytest.mark.parametrize("adapter", [False, True], ids=["base", "adapter"])
def test_nothing_that_a_model_brings_along_decides_how_is_written(chat, adapter, keyed):
    model, tokenizer = chat
    ends, own = generation.end_ids(model, tokenizer), model.generation_config
    asked = get_peft_model(copy.deepcopy(model), LoraConfig()) if adapter else model
    inner = asked.get_base_model() if adapter else asked
    keys = [(0, i, 0) for i in range(4)] if keyed else None
    written = []
    try:
        for settings in ({}, LEAKS):
            inner.generation_config = type(own)(eos_token_id=ends[::-1], **settings)
            torch.manual_seed(0)
            written.append(
                generation.generate(asked, tokenizer, [MESSAGES] * 4, **DECODING, keys=keys)
            )
    finally:
        model.generation_config = own
    assert written[0] == written[1]


@pytest.mark.parametrize("which", [0, 1])
def test_every_end_ends_a_completion(chat, which, monkeypatch):
    model, tokenizer = chat
    end = generation.end_ids(model, tokenizer)[which]
    bias = torch.zeros(model.config.vocab_size)
    bias[end] = 1e4
    head = type(model.lm_head).forward
    monkeypatch.setattr(model.lm_head, "forward", lambda states: head(model.lm_head, states) + bias)
    written = greedy(model, tokenizer)
    assert written["ids"][1] == [end]
    assert (written["tokens"], written["truncated"], written["completion"]) == (1, False, "")


def test_padding_is_not_penalised_as_if_it_had_been_written(chat, monkeypatch):
    model, tokenizer = chat
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    bias = torch.zeros(model.config.vocab_size)
    bias[tokenizer.eos_token_id] = 1.0
    head = type(model.lm_head).forward
    monkeypatch.setattr(model.lm_head, "forward", lambda states: head(model.lm_head, states) + bias)
    prompts = ["Hand: 2H", "Hand: 2H 2D 2C 9S 9H, and what is it?"]
    written = generation.generate(model, tokenizer, prompts, 4, repetition_penalty=5.0)
    assert [one["tokens"] for one in written] == [1, 1]


# Draws


def prompts(n=24):
    cards = ["2C", "9S", "9H", "KD", "AC"]
    return [f"Hand: {' '.join(cards[: 1 + i % 5])}\n" for i in range(n)]


def texts(pair, batch, keys, **more):
    model, tokenizer = pair
    model.eval()
    asked, written = prompts(len(keys)), []
    for start in range(0, len(asked), batch):
        part = slice(start, start + batch)
        written += generation.generate(
            model, tokenizer, asked[part], keys=keys[part], **DECODING, **more
        )
    return [one["completion"] for one in written]


def test_draws_depend_neither_on_the_batch_nor_on_the_order(nano):
    keys = [(0, i, 0) for i in range(24)]
    whole = texts(nano, 24, keys)
    assert len(set(whole)) > 8
    assert texts(nano, 7, keys) == whole
    assert texts(nano, 24, [(1, i, 0) for i in range(24)]) != whole
    torch.manual_seed(5)
    model, tokenizer = nano
    order = torch.randperm(24).tolist()
    shuffled = generation.generate(
        model, tokenizer, [prompts()[i] for i in order], keys=[keys[i] for i in order], **DECODING
    )
    assert [one["completion"] for one in shuffled] == [whole[i] for i in order]


def test_draws_follow_the_models_probabilities():
    probabilities = torch.tensor([[0.5, 0.0, 0.3, 0.2]])
    draw = generation._Draw(
        torch.rand((4000, 1), generator=torch.Generator().manual_seed(0)), 0, []
    )
    scores = draw(torch.zeros((4000, 0), dtype=torch.long), probabilities.log().expand(4000, -1))
    counts = torch.bincount(scores.argmax(-1), minlength=4) / 4000
    assert counts[1] == 0
    assert torch.allclose(counts, probabilities[0], atol=0.03)


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_extreme_draws_are_possible_tokens(number):
    scores = torch.tensor([[-torch.inf, 0.0, -1.0, -torch.inf]])
    draws = torch.tensor([[number]], dtype=torch.float64)
    chosen = generation._Draw(draws, 0, [])(torch.zeros((1, 0), dtype=torch.long), scores)
    assert chosen.argmax(-1).item() == (1 if number == 0.0 else 2)


def test_top_k_and_a_constraint_hold_under_keyed_draws(nano):
    keys = [(0, i, 0) for i in range(24)]
    model, tokenizer = nano
    greedy_texts = [
        one["completion"]
        for one in generation.generate(model, tokenizer, prompts(), DECODING["max_new_tokens"])
    ]
    assert texts(nano, 24, keys, top_k=1) == greedy_texts
    labels = ["flush", "one pair"]
    rule = models.decoding.constraint_for("trie", labels, tokenizer)
    assert {text.strip() for text in texts(nano, 24, keys, constraint=rule)} <= set(labels)


# Memory


def test_short_prompts_are_not_padded_to_one_that_is_twice_as_long(nano):
    asked = [[5] * 100, *([[5] * n for n in (9, 8, 7)]), [5] * 60]
    decoding = {"max_new_tokens": 8}
    found = list(generation.generate_all(*nano, asked, **decoding))
    assert [numbers for _, numbers, _ in found] == [[0, 4], [1, 2, 3]]
    for _, numbers, completions in found:
        assert [len(one["ids"][0]) for one in completions] == [len(asked[i]) for i in numbers]


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
    ids=["torch", "python", "cublas", "driver"],
)
def test_a_batch_is_halved_when_memory_runs_out(nano, monkeypatch, error):
    plain = generation.generate

    def scarce(model, tokenizer, asked, **more):
        if len(asked) > 7:
            raise error
        return plain(model, tokenizer, asked, **more)

    keys = [(0, i, 0) for i in range(24)]
    whole = {}
    for _, numbers, completions in generation.generate_all(*nano, prompts(), keys, **DECODING):
        whole |= zip(numbers, (one["ids"] for one in completions), strict=True)
    monkeypatch.setattr(generation, "generate", scarce)
    halved = {}
    for size, numbers, completions in generation.generate_all(*nano, prompts(), keys, **DECODING):
        assert size == 6
        halved |= zip(numbers, (one["ids"] for one in completions), strict=True)
    assert halved == whole


# Merging


def adapted(**changes):
    settings = models.read_settings("poker", "nano") | changes
    model, tokenizer = models.load_policy("poker", "nano", settings=settings)
    torch.manual_seed(1)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.05)
    return model, tokenizer


def test_a_merged_adapter_leaves_no_rounding_behind():
    model, tokenizer = adapted()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    keys = [(0, i, 0) for i in range(24)]
    apart = texts((model, tokenizer), 24, keys)
    with generation.merged(model):
        inside = model.state_dict()
        assert any(not torch.equal(inside[name], before[name]) for name in before)
        assert texts((model, tokenizer), 24, keys) == apart
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert texts((model, tokenizer), 24, keys) == apart


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"lora_dropout": 0.1},
        {"lora_target_modules": ["lm_head", "q_proj"]},  # its weights are the embedding's, too
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_nothing_is_merged_that_would_write_differently(changes):
    model, _ = adapted(**changes)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    with generation.merged(model):
        assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_the_batch_follows_the_memory_that_is_free(nano, monkeypatch):
    model, _ = nano
    free = {"cpu": 10**7}
    monkeypatch.setattr(generation, "get_max_memory", lambda: free)
    short, long = (generation.batch_that_fits(model, n) for n in (32, 320))
    assert 1 <= long < short < generation.LARGEST_BATCH
    free["cpu"] = 1
    assert generation.batch_that_fits(model, 32) == 1
