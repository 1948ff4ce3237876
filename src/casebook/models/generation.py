"""From a prompt to token ids, and from token ids to completions: one way for everything.

Training, evaluation, solved examples and the supervised controls turn prompts into tokens with
`token_ids`, and all but TRL's own rollouts write with `generate`, under the run's settings alone:
what a model's `generation_config` brings along, such as a penalty on repetition, does not count.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from accelerate.utils import get_max_memory
from peft.tuners.lora import LoraLayer
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from casebook.backend import unsloth_chosen
from casebook.case import CasebookError
from casebook.models import engine
from casebook.models.decoding import Constraint, constrained_generation, replaced_generate

LARGEST_BATCH = 256  # completions generated together, where memory allows
NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")
SHARE_OF_MEMORY = 0.6  # of what is free; the rest is for what the estimate leaves out

# The prompts ask for reasoning in tags of their own: a model's own thinking mode (Qwen3's) is off.
TEMPLATE = {"enable_thinking": False}

Prompt = str | list[dict[str, str]] | list[int]


def token_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """The token ids that a model is asked with, as in TRL's rollouts.

    A text gets the tokenizer's special tokens, messages only those of the chat template: never a
    second token for the beginning. Token ids are left as they are.
    """
    if isinstance(prompt, str):
        return list(tokenizer(prompt).input_ids)
    if prompt and isinstance(prompt[0], int):
        return list(prompt)
    more = {"add_generation_prompt": True, "return_dict": True} | TEMPLATE
    return list(tokenizer.apply_chat_template(prompt, **more)["input_ids"])


def completion_ids(tokenizer: Any, text: str, ends: bool = True) -> list[int]:
    """The token ids of what follows a prompt: without special tokens, but for its end."""
    ids = list(tokenizer(text, add_special_tokens=False).input_ids)
    return ids + [tokenizer.eos_token_id] * ends


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a completion: the tokenizer's, then the others the model declares."""
    declared = model.generation_config.eos_token_id
    declared = declared if isinstance(declared, list | tuple) else [declared]
    found = [tokenizer.eos_token_id, *declared]
    return list(dict.fromkeys(token for token in found if token is not None))


def decoding_of(settings: Mapping[str, Any], greedy: bool = False) -> dict[str, Any]:
    """What `generate` is called with under a run's settings."""
    sampled = {} if greedy else {n: settings[n] for n in ("temperature", "top_p", "top_k")}
    return sampled | {
        "max_new_tokens": settings["max_completion_length"],
        "repetition_penalty": settings.get("repetition_penalty") or 1.0,
        "prompts_once": settings.get("prompts_once", False),
    }


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    temperature: float | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
    constraint: Constraint | None = None,
    repetition_penalty: float = 1.0,
    keys: Sequence[Sequence[int]] | None = None,
    prompts_once: bool = False,
) -> list[dict[str, Any]]:
    """Complete prompts: `completion`, `tokens`, `truncated`, `ids`.

    Args:
        prompts: texts, lists of messages, or token ids.
        temperature: `None` decodes greedily.
        constraint: only what it allows is written.
        keys: for each prompt the integers that seed its draws, such as (seed, row, sample): what
            is drawn then depends neither on the batch nor on the order, up to the rounding of
            probabilities. By default transformers draws from torch's generator, as in TRL's
            rollouts.
        prompts_once: compute equal prompts, and what all begin with, once; faster, and the same
            up to the rounding of probabilities.

    `ids` are the prompt's and the completion's token ids; the end counts as a token. Where the
    model carries an engine of vLLM, that writes, unless a constraint is to be kept.
    """
    asked = [token_ids(tokenizer, prompt) for prompt in prompts]
    width, ends = max(map(len, asked)), end_ids(model, tokenizer)
    if engine.of(model) and constraint is None:
        fields = {"max_tokens": max_new_tokens, "repetition_penalty": repetition_penalty}
        fields["stop_token_ids"] = ends
        written = engine.complete(model, asked, keys, temperature, top_p, top_k, **fields)
        pairs = zip(asked, written, strict=True)
        return [completed(tokenizer, prompt, ids, ends) for prompt, ids in pairs]
    # Padded with a token of its own: a penalty on repetition counts what stands there, and where
    # the end is the padding token, short prompts of a batch would be kept from ending.
    inputs = torch.tensor([ids[:1] * (width - len(ids)) + ids for ids in asked])
    attention = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in asked])
    processors, sampling = LogitsProcessorList(), {"do_sample": False}
    if temperature is not None and keys is None:
        sampling = {"do_sample": True, "temperature": float(temperature)}
        sampling |= {"top_p": top_p, "top_k": top_k}
    elif temperature is not None:
        draws = [np.random.default_rng(list(key)).random(max_new_tokens) for key in keys]
        warpers = [TemperatureLogitsWarper(float(temperature))]
        warpers += [TopKLogitsWarper(top_k)] if top_k else []
        warpers += [TopPLogitsWarper(top_p)] if top_p < 1.0 else []
        processors.append(_Draw(torch.tensor(np.stack(draws)).to(model.device), width, warpers))
    config = GenerationConfig(
        **sampling,
        max_new_tokens=max_new_tokens,
        repetition_penalty=repetition_penalty,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
    )
    with (
        torch.inference_mode(),
        own_settings_off(model),
        shared_prompts(model, prompts_once),
        constrained_generation(model, constraint),
    ):
        sequences = model.generate(
            input_ids=inputs.to(model.device),
            attention_mask=attention.to(model.device),
            generation_config=config,
            logits_processor=processors,
        )
    pairs = zip(asked, sequences[:, width:].tolist(), strict=True)
    return [completed(tokenizer, prompt, ids, ends) for prompt, ids in pairs]


def completed(
    tokenizer: Any, prompt: list[int], ids: list[int], ends: Sequence[int]
) -> dict[str, Any]:
    """One completion as `generate` gives it; what comes after its end is left out."""
    length = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    ids = ids[:length]
    return {
        "completion": tokenizer.decode(ids, skip_special_tokens=True),
        "tokens": length,
        "truncated": not ids or ids[-1] not in ends,
        "ids": (prompt, ids),
    }


class _Draw(LogitsProcessor):
    """Leaves one token a row: the one at which the cumulated probability passes a number drawn.

    `draws` are `(rows, tokens)` in [0, 1), `width` is that of the padded prompts.
    """

    def __init__(self, draws: torch.Tensor, width: int, warpers: list[LogitsProcessor]):
        self.draws, self.width, self.warpers = draws, width, LogitsProcessorList(warpers)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        cumulated = self.warpers(input_ids, scores.float()).softmax(-1).double().cumsum(-1)
        number = self.draws[:, input_ids.shape[1] - self.width, None] * cumulated[:, -1:]
        token = torch.searchsorted(cumulated, number, right=True)
        # Rounding may not lead to a token of probability 0 behind the last possible one.
        token = token.clamp(max=(cumulated < cumulated[:, -1:]).sum(-1, keepdim=True))
        return torch.full_like(scores, -torch.inf).scatter(-1, token, 0.0)


def shared_prompts(model: Any, wanted: bool = True) -> AbstractContextManager:
    """Inside it, `model.generate` computes its prompts by `prefilled`, if that is wanted."""

    def generate(plain, **arguments):
        with torch.no_grad():
            cache, ids, mask = prefilled(model, arguments["input_ids"], arguments["attention_mask"])
        arguments |= {"input_ids": ids, "attention_mask": mask, "past_key_values": cache}
        return plain(**arguments)

    return replaced_generate(model, generate) if wanted else nullcontext()


def prefilled(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> tuple[DynamicCache, torch.Tensor, torch.Tensor]:
    """Keys and values of padded prompts `(n, width)`, but for the last token of each.

    A prompt is computed once, however often it is there, and so is what all of them begin with.
    Gradients flow through the cache.

    Returns:
        The cache, and the token ids and the attention mask `(n, longest)` that belong to it, the
        last token included. Padding stands between the common beginning and the rest.
    """
    rows = zip(input_ids, attention_mask, strict=True)
    prompts = [tuple(row[kept.bool()].tolist()) for row, kept in rows]
    different = list(dict.fromkeys(prompts))
    longest, shared = max(map(len, different)), 0
    while all(len(p) > shared + 1 and p[shared] == different[0][shared] for p in different):
        shared += 1
    gaps = [longest - len(p) for p in different]
    rows = zip(different, gaps, strict=True)
    ids = torch.tensor([[*p[:shared], *p[:1] * gap, *p[shared:]] for p, gap in rows])
    ids, mask = ids.to(model.device), torch.ones_like(ids, device=model.device)
    for row, gap in enumerate(gaps):
        mask[row, shared : shared + gap] = 0
    cache = DynamicCache(config=model.config)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    backbone = inner.base_model  # without its head: nobody asks for logits here
    if shared:
        backbone(input_ids=ids[:1, :shared], past_key_values=cache)
        cache.batch_repeat_interleave(len(different))
    if shared + 1 < longest:
        backbone(
            input_ids=ids[:, shared:-1],
            attention_mask=mask[:, :-1],
            position_ids=(mask.cumsum(1) - 1)[:, shared:-1].clamp(min=0),
            past_key_values=cache,
        )
    number = {p: i for i, p in enumerate(different)}
    which = torch.tensor([number[p] for p in prompts], device=model.device)
    cache.batch_select_indices(which)
    return cache, ids[which], mask[which]


@contextmanager
def own_settings_off(model: Any) -> Iterator[None]:
    """Inside it, a model brings no settings of its own to `generate`."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    own = inner.generation_config
    inner.generation_config = GenerationConfig()
    try:
        yield
    finally:
        inner.generation_config = own


def generate_all(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    keys: Sequence[Sequence[int]] | None = None,
    **decoding: Any,
) -> Iterator[tuple[int, list[int], list[dict[str, Any]]]]:
    """Complete any number of prompts, in batches that fit into memory, the longest first.

    `keys` and `decoding` are as for `generate`.

    Yields:
        For each batch its size limit, the numbers of its prompts, and their completions. The
        limit is halved whenever memory runs out.

    Raises:
        CasebookError: not even one completion fits into memory.
    """
    asked, new = [token_ids(tokenizer, p) for p in prompts], decoding["max_new_tokens"]
    order = sorted(range(len(asked)), key=lambda i: -len(asked[i]))
    size = batch_that_fits(model, len(asked[order[0]]) + new) if order else 0
    while order:
        # All are padded to the longest, so the short ones wait where they would cost twice as much.
        longest = len(asked[order[0]]) + new
        batch = [i for i in order[:size] if len(asked[i]) + new >= longest / 2]
        part, own_keys = [asked[i] for i in batch], keys and [keys[i] for i in batch]
        try:
            completions = generate(model, tokenizer, part, keys=own_keys, **decoding)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if size == 1:
                said = f"one completion of {len(part[0])} + {new} tokens does not fit into memory"
                raise CasebookError(f"{said} beside the model") from error
            size = min(size, len(batch)) // 2 or 1
        else:
            yield size, batch, completions
            order = order[len(batch) :]
            continue
        gc.collect()  # after the handler: the error held the tensors that did not fit
        torch.cuda.empty_cache()


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Inside it, a LoRA adapter is part of its base's weights, which makes writing faster.

    Afterwards the weights are put back from copies, bit by bit. Only for float32 weights: in a
    shorter type the merged model would not be the one that is trained; only without dropout; and
    only where no weight is used twice, as a tied embedding is.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    weights = [layer.get_base_layer().weight for layer in layers]
    uses = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    exact = all(w.dtype == torch.float32 and uses[id(w)] == 1 for w in weights)
    drops = [drop for layer in layers for drop in layer.lora_dropout.values()]
    if unsloth_chosen() or not exact or any(getattr(drop, "p", 0.0) for drop in drops):
        yield
        return
    copies = [w.detach().clone() for w in weights]
    try:
        for layer in layers:
            layer.merge()
        yield
    finally:
        for layer, own, copy in zip(layers, weights, copies, strict=True):
            own.data.copy_(copy)
            layer.merged_adapters.clear()


def batch_that_fits(model: Any, length: int) -> int:
    """How many completions, of `length` tokens with their prompts, may be written at once.

    Counted are keys and values of all layers, one layer's activations over the prompt, and the
    next token's probabilities.
    """
    if engine.of(model):  # it has its memory already, and sees to its batches itself
        return LARGEST_BATCH
    config = model.config.get_text_config(decoder=True)
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    numbers = 2 * config.num_hidden_layers * kv_heads * head + 4 * config.hidden_size + 2 * wide
    needed = length * numbers * model.dtype.itemsize + 32 * config.vocab_size
    device = model.device.index or 0 if model.device.type == "cuda" else "cpu"
    free = get_max_memory()[device]
    return int(max(1, min(LARGEST_BATCH, SHARE_OF_MEMORY * free // needed)))


def out_of_memory(error: Exception) -> bool:
    """Also where torch has no error class for it: on a CPU, and inside CUDA's libraries."""
    said = any(words in str(error) for words in NO_MEMORY)
    return said or isinstance(error, torch.OutOfMemoryError | MemoryError)
