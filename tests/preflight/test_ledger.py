"""A card that counts: the evaluation of every GPU configuration, on shapes of the real models.

`generate_all` runs as it is; what `generate` would take on the card is charged to a ledger, which
refuses what is more than the card has, as CUDA does.
"""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig

from casebook import paths
from casebook.case import PROFILES, CasebookError
from casebook.models import generation
from casebook.models.generation import LARGEST_BATCH, decoding_of, generate_all
from casebook.preflight import memory
from casebook.preflight.cards import GIB, cards
from casebook.preflight.memory import longest_allowed, phases
from casebook.preflight.shapes import known_shapes
from casebook.settings import checked

CARDS = ("t4", "24", "a100-40", "a100-80")
CONFIGS = sorted(
    file
    for file in paths.CONFIGS.glob("*/*.yaml")
    if (name := file.stem.partition("_")[0]) in PROFILES and PROFILES[name].device == "gpu"
)
# vLLM writes the others' completions, inside what it has reserved.
OF_GENERATE = [file for file in CONFIGS if not checked(file)["fast_inference"]]
ROWS = 2 * LARGEST_BATCH + 3


class Ledger:
    """The memory of a card: what is held, and what a `generate` takes beside it."""

    def __init__(self, total, held, shape, item):
        self.total, self.held, self.shape, self.item = total, held, shape, item
        self.peak, self.batches, self.refused = held, [], 0

    def generate(self, model, tokenizer, prompts, max_new_tokens, **decoding):
        shape, count, width = self.shape, len(prompts), max(map(len, prompts))
        length = width + max_new_tokens
        keys = 2 * shape.layers * shape.kv_heads * shape.head_dim * length * self.item
        growing = keys // shape.layers  # a layer's cache, copied as it grows
        prefill = width * (4 * shape.hidden + 2 * shape.intermediate) * self.item
        chances = 3 * 4 * shape.vocabulary  # logits in float32, softmax, what is drawn from
        taken = self.held + count * (keys + growing + max(prefill, chances))
        if taken > self.total:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.peak = max(self.peak, taken)
        self.batches.append(count)
        return [{"completion": "", "ids": (prompt, [0])} for prompt in prompts]


def config_of(shape):
    return LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
    )


@pytest.fixture
def evaluated(monkeypatch):
    """`evaluated(settings, shape, ledger)` writes the completions of a test on a card."""

    def run(settings, shape, ledger, free=None, rows=ROWS):
        config = config_of(shape)
        model = SimpleNamespace(
            config=config, dtype=getattr(torch, settings["dtype"]), device=torch.device("cpu")
        )
        free = ledger.total - ledger.held if free is None else free
        monkeypatch.setattr(generation, "get_max_memory", lambda: {"cpu": free})
        monkeypatch.setattr(generation, "generate", ledger.generate)
        longest = longest_allowed(settings, shape).test
        prompts = [[1] * max(1, longest - longest * row // (2 * rows)) for row in range(rows)]
        decoding = decoding_of(settings, greedy=True)
        done = [
            i for _, numbers, _ in generate_all(model, None, prompts, **decoding) for i in numbers
        ]
        assert sorted(done) == list(range(rows))

    return run


def ledger_of(config, name):
    settings = checked(config)
    shape = known_shapes()[settings["model_name_or_path"]]
    card = cards()[name]
    found = {phase.name: phase for phase in phases(settings, shape, card)}
    item = memory.ITEM[settings["dtype"]]
    return settings, shape, card, found, item


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("config", OF_GENERATE, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_the_final_test_never_passes_the_card(evaluated, config, name):
    settings, shape, card, found, item = ledger_of(config, name)
    phase = found["final test"]
    comes_and_goes = ("keys, values and probabilities", "a layer's cache", "fragmentation")
    held = sum(size for part, size in phase.parts.items() if part not in comes_and_goes)
    ledger = Ledger(card.total, held, shape, item)
    if phase.needed > phase.there:  # preflight refuses it: not even one completion fits
        with pytest.raises(CasebookError, match="does not fit into memory beside the model"):
            evaluated(settings, shape, ledger, free=max(0, card.total - held))
        return
    asked = longest_allowed(settings, shape).test_rows * max(1, settings["test_samples"])
    evaluated(settings, shape, ledger, rows=min(ROWS, asked))
    assert ledger.peak <= card.total
    assert not ledger.refused
    assert max(ledger.batches) == phase.batch
    assert ledger.peak <= phase.needed


@pytest.mark.parametrize(
    "config",
    [file for file in CONFIGS if file not in OF_GENERATE],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_what_vllm_writes_takes_nothing_outside_its_reserve(config):
    settings, _, _, found, _ = ledger_of(config, "a100-80")
    assert settings["vllm_gpu_memory_utilization"] > 0
    for name in ("evaluation", "final test"):
        assert found[name].batch is None
        assert "vLLM's reserve" in found[name].parts
        assert "keys, values and probabilities" not in found[name].parts


@pytest.mark.parametrize("config", OF_GENERATE, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_where_free_memory_is_overstated_batches_are_halved_until_they_fit(evaluated, config):
    settings, shape, card, _, item = ledger_of(config, "a100-80")
    length = longest_allowed(settings, shape).test + settings["max_completion_length"]
    room = 40 * memory.completion_bytes(shape, length, item)  # fewer than it begins with
    held = card.total - min(room, card.total // 2)
    ledger = Ledger(card.total, held, shape, item)
    evaluated(settings, shape, ledger, free=400 * GIB)
    assert ledger.refused
    assert ledger.peak <= card.total


def test_the_arithmetic_counts_batches_as_the_evaluation_does(monkeypatch):
    for shape in known_shapes().values():
        config = config_of(shape)
        model = SimpleNamespace(config=config, dtype=torch.float16, device=torch.device("cpu"))
        for free in (0, GIB, 9 * GIB, 70 * GIB):
            for length in (51, 1536, 4096):
                monkeypatch.setattr(generation, "get_max_memory", lambda free=free: {"cpu": free})
                counted = memory.completions_at_once(shape, length, 2, free)
                assert counted == generation.batch_that_fits(model, length)


def test_the_figures_of_the_evaluation_are_those_of_the_code():
    from casebook import evaluation

    assert memory.LARGEST_BATCH == LARGEST_BATCH
    assert memory.SHARE_OF_MEMORY == generation.SHARE_OF_MEMORY
    assert memory.DRIFT_LOGITS == evaluation.LOGITS
