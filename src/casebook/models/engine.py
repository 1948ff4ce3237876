"""vLLM inside Unsloth: what it writes, at most one of them a process, and its end.

A policy that Unsloth loads with `fast_inference` carries the engine that serves its rollouts, and
is measured by it: the model's own `generate` would want memory that the engine has reserved.
"""

import gc
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from casebook.case import CasebookError

_engine: Any | None = None  # this process's; that nobody refers to it would not end it
_carriers: weakref.WeakSet = weakref.WeakSet()  # the models that carry it: base and policy


def of(model: Any) -> Any | None:
    """The engine that a model carries, or `None`."""
    return getattr(model, "vllm_engine", None)


def check_none_runs() -> None:
    """Refuse a second engine beside one whose models are there; one that lost them is ended."""
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
        _carriers.add(model)


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
    torch.cuda.empty_cache()  # does nothing without a GPU


@contextmanager
def freed_afterwards() -> Iterator[None]:
    """After it, an engine that was started inside is ended; one that ran before goes on."""
    runs_on = bool(_carrying())
    try:
        yield
    finally:
        if not runs_on:
            free()


def _carrying() -> list[Any]:
    return [model for model in _carriers if of(model) is not None]


def complete(
    model: Any,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[Sequence[int]] | None,
    temperature: float | None,
    top_p: float,
    top_k: int,
    **fields: Any,
) -> list[list[int]]:
    """Token ids of one completion of each prompt (token ids), written by the model's engine.

    With the adapter switched on the policy writes, with it off the base. `keys` seed the draws,
    else vLLM does; `fields` are others of its `SamplingParams`.
    """
    from peft.tuners.lora import LoraLayer
    from vllm import SamplingParams

    fields |= {"temperature": float(temperature or 0), "detokenize": False}
    if temperature is not None:
        # -1 is what vLLM calls "all of them"
        fields |= {"top_p": top_p, "top_k": top_k or -1}
    seeds = [{}] * len(prompts)
    if temperature is not None and keys is not None:
        states = (np.random.SeedSequence(list(key)).generate_state(1) for key in keys)
        seeds = [{"seed": int(state[0])} for state in states]
    engine = of(model)
    config = getattr(getattr(engine, "llm_engine", None), "vllm_config", None)
    sleeps = getattr(getattr(config, "model_config", None), "enable_sleep_mode", False)
    first = next((layer for layer in model.modules() if isinstance(layer, LoraLayer)), None)
    trained = first is not None and not first.disable_adapters
    adapter = model.load_lora(_folder(), load_tensors=True) if trained else None
    if sleeps:  # while the policy learns
        engine.wake_up()
    try:
        outputs = model.fast_generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts],
            sampling_params=[SamplingParams(**fields, **seed) for seed in seeds],
            lora_request=adapter,
            use_tqdm=False,
        )
    finally:
        if sleeps:
            engine.sleep(1)
    return [list(output.outputs[0].token_ids) for output in outputs]


@cache
def _folder() -> str:
    """Where Unsloth writes the adapter's configuration when it hands over its tensors."""
    return tempfile.mkdtemp(prefix="casebook_adapter_")
