"""vLLM inside Unsloth: what it writes, at most one of them a process, and its end.

A policy that Unsloth loads with `fast_inference` carries the engine that serves its rollouts. What
is measured of it is written by the same engine: the model's own `generate` would want memory that
the engine has reserved. Nothing here imports vLLM before such a policy is there.
"""

import gc
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from casebook.case import CasebookError

_engine: Any | None = None  # this process's; that nobody refers to it would not end it
_carriers: list[weakref.ref] = []  # the models that carry it: base and policy


def of(model: Any) -> Any | None:
    """The engine that a model carries, or `None`."""
    return getattr(model, "vllm_engine", None)


def check_none_runs() -> None:
    """Raise a `CasebookError` where this process has an engine: a second one would not fit.

    One whose models are gone is ended.
    """
    if _carrying():
        raise CasebookError(
            "a vLLM engine runs in this process already, and a second one does not fit beside it: "
            "call casebook.models.free_engine() first, or restart"
        )
    free()


def remember(model: Any) -> None:
    """Note the engine that a model brought, if it did."""
    global _engine
    if of(model) is not None:
        _engine = of(model)
        _carriers.append(weakref.ref(model))


def free() -> None:
    """End this process's engine, if there is one, and give its memory back.

    The policy shares its weights with the engine, and is of no use afterwards.
    """
    global _engine
    engine, _engine = _engine, None
    if engine is None:
        return
    from unsloth_zoo.vllm_utils import delete_vllm

    for model in _carrying():
        for name in ("vllm_engine", "fast_generate", "fast_generate_batches"):
            vars(model).pop(name, None)
    delete_vllm(engine)
    del engine
    gc.collect()
    import torch

    torch.cuda.empty_cache()  # does nothing without a GPU


@contextmanager
def freed_afterwards() -> Iterator[None]:
    """After it, an engine that was started inside is ended; one that ran before goes on."""
    somebody_elses = bool(_carrying())
    try:
        yield
    finally:
        if not somebody_elses:
            free()


def _carrying() -> list[Any]:
    models = (carrier() for carrier in _carriers)
    return [model for model in models if model is not None and of(model) is not None]


def sampling(
    ends: Sequence[int],
    max_new_tokens: int,
    temperature: float | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    key: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The fields of vLLM's `SamplingParams`; arguments as of `casebook.models.generation.generate`.

    `ends` are the tokens that end a completion; `key` seeds its draws, else vLLM seeds them.
    """
    fields = {
        "max_tokens": max_new_tokens,
        "stop_token_ids": list(ends),
        "repetition_penalty": repetition_penalty,
        "detokenize": False,
    }
    if temperature is None:
        return fields | {"temperature": 0.0}
    fields |= {"temperature": float(temperature), "top_p": top_p, "min_p": min_p or 0.0}
    fields["top_k"] = top_k or -1  # what vLLM calls "all of them"
    if key is not None:
        fields["seed"] = int(np.random.SeedSequence(list(key)).generate_state(1)[0])
    return fields


def complete(
    model: Any,
    prompts: Sequence[Sequence[int]],
    ends: Sequence[int],
    keys: Sequence[Sequence[int]] | None = None,
    **decoding: Any,
) -> list[list[int]]:
    """Token ids of one completion of each prompt (token ids), written by the model's engine.

    With the adapter switched on the policy writes, with it off the base.
    """
    from vllm import SamplingParams

    engine, keys = of(model), keys or [None] * len(prompts)
    config = getattr(getattr(engine, "llm_engine", None), "vllm_config", None)
    sleeps = getattr(getattr(config, "model_config", None), "enable_sleep_mode", False)
    adapter = model.load_lora(_folder(), load_tensors=True) if adapter_on(model) else None
    if sleeps:  # while the policy learns
        engine.wake_up()
    try:
        outputs = model.fast_generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts],
            sampling_params=[SamplingParams(**sampling(ends, key=k, **decoding)) for k in keys],
            lora_request=adapter,
            use_tqdm=False,
        )
    finally:
        if sleeps:
            engine.sleep(1)
    return [list(output.outputs[0].token_ids) for output in outputs]


def adapter_on(model: Any) -> bool:
    """Whether a model has a LoRA adapter that is not switched off."""
    from peft.tuners.lora import LoraLayer

    layers = (layer for layer in model.modules() if isinstance(layer, LoraLayer))
    first = next(layers, None)
    return first is not None and not first.disable_adapters


@cache
def _folder() -> str:
    """Where Unsloth writes the adapter's configuration when it hands over its tensors."""
    return tempfile.mkdtemp(prefix="casebook_adapter_")
