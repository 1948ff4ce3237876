"""What is put in place of Unsloth's parts that want a GPU; all others are its own.

Models are loaded as without Unsloth, in float32, and carry Unsloth's changes of mode; what a call
asks for is checked first. The trainer is the compiled one: it gets the arguments as they were
asked for, and those of a CPU where TRL's own part of it begins.
"""

import os
import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from contract import bind, signature

CALLS: list[tuple[str, dict[str, Any]]] = []
# Only a GPU has these.
ON_CPU = {"use_cpu": True, "fp16": False, "bf16": False, "optim": "adamw_torch"}
EVALUATED = {"fp16_full_eval": False, "bf16_full_eval": False}


class Unloaded:
    """A model, or a tokenizer, where calls alone are checked."""

    pad_token = "<pad>"

    def to(self, device: str) -> "Unloaded":
        return self


class Calls:
    """The two loading calls, bound to the pinned signatures and kept in `CALLS`."""

    @staticmethod
    def from_pretrained(*arguments: Any, **keywords: Any) -> tuple[Any, Any]:
        checked("from_pretrained", arguments, keywords)
        return Unloaded(), Unloaded()

    @staticmethod
    def get_peft_model(*arguments: Any, **keywords: Any) -> Any:
        return checked("get_peft_model", arguments, keywords)["model"]


def checked(name: str, arguments: tuple, keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a loading call by name, after the checks of the pinned Unsloth."""
    values = bind(f"FastLanguageModel.{name}", "unsloth", arguments, keywords)
    CALLS.append((name, values))
    if name == "from_pretrained":
        accepted = signature("FastLanguageModel.from_pretrained", "unsloth")["dtypes"]
        dtype = values.get("dtype")
        if isinstance(dtype, str) and dtype in accepted["text"]:
            dtype = getattr(torch, dtype)
        # A bare assertion, as there.
        assert dtype is None or dtype in [getattr(torch, n) for n in accepted["torch"]]
        values["dtype"] = dtype
    return values


def from_pretrained(*arguments: Any, **keywords: Any) -> tuple[Any, Any]:
    from engine import Engine

    from casebook.models.load import PeftLanguageModel

    values = checked("from_pretrained", arguments, keywords)
    model, tokenizer = PeftLanguageModel.from_pretrained(values["model_name"])
    model.config.dtype = values["dtype"]  # the trainer compares it with its own
    model.max_seq_length = values.get("max_seq_length", 2048)
    for level in levels(model):
        level._saved_temp_tokenizer = tokenizer
    if values.get("fast_inference"):
        _attach(model, Engine(model, tokenizer, values.get("max_lora_rank", 16)))
    return with_modes(model), tokenizer


def get_peft_model(*arguments: Any, **keywords: Any) -> Any:
    from casebook.models.load import PeftLanguageModel

    values = checked("get_peft_model", arguments, keywords)
    model, rank = values["model"], values.get("r", 16)
    engine = getattr(model, "vllm_engine", None)
    assert engine is None or rank <= engine.max_lora_rank, (
        f"LoRA rank {rank} is greater than max_lora_rank {engine.max_lora_rank}"
    )
    policy = PeftLanguageModel.get_peft_model(**values)
    policy._unsloth_gradient_checkpointing = values["use_gradient_checkpointing"]
    if engine is not None:
        engine.policy = policy
        _attach(policy, engine)
    return with_modes(policy)


def levels(model: Any) -> list[Any]:
    """A model, and what lies inside it, as Unsloth walks down: `model.model.model`."""
    found = [model]
    while hasattr(found[-1], "model"):
        found.append(found[-1].model)
    return found


def with_modes(model: Any) -> Any:
    """Unsloth's loader binds these to each level; the compiled trainer calls them."""
    owner = import_module("unsloth.models.llama").FastLlamaModel
    for level in levels(model):
        level.for_training = partial(owner.for_training, level)
        level.for_inference = partial(owner.for_inference, level)
    return model


def _attach(model: Any, engine: Any) -> None:
    model.vllm_engine = engine
    model.fast_generate = engine.generate
    model.save_lora = model.save_pretrained
    model.load_lora = partial(_load_lora, engine)


def _load_lora(engine: Any, save_directory: str, load_tensors: bool = False) -> Any:
    """A request for the adapter of a folder, or for the one that the policy has right now."""
    if load_tensors:
        return SimpleNamespace(lora_path=None)
    if not os.path.exists(save_directory):
        raise OSError(f"Unsloth: LoRA filepath = {save_directory} does not exist!")
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name="1", lora_int_id=1, lora_path=str(save_directory))


def without_gpu(unsloth: Any) -> None:
    """Compile TRL's trainer as on a GPU, and replace what only a GPU can do."""
    rl = import_module("unsloth.models.rl")
    # The switch would also leave TRL's trainers as they are, which is what this is about. Of the
    # fifteen that Unsloth compiles, one is used.
    os.environ["UNSLOTH_ALLOW_CPU"] = "0"
    rl.patch_trl_rl_trainers = partial(rl._patch_trl_rl_trainers, "grpo_trainer")
    rl.PatchFastRL()
    unsloth.FastLanguageModel.from_pretrained = staticmethod(from_pretrained)
    unsloth.FastLanguageModel.get_peft_model = staticmethod(get_peft_model)

    import trl
    import vllm
    from engine import Engine

    writes = import_module("trl.generation.vllm_generation")
    writes.is_vllm_available, writes.LLM = (lambda: True), vllm.LLM
    writes.SamplingParams = vllm.SamplingParams
    # The real one imports vLLM's own parts.
    sys.modules["unsloth_zoo.vllm_utils"] = SimpleNamespace(delete_vllm=Engine.delete)

    trainer, arguments = trl.GRPOTrainer, trl.GRPOConfig
    compiled = sys.modules[trainer.__module__]._UnslothGRPOTrainer
    begins, logs, checks = compiled.__init__, trainer.log, arguments.__post_init__

    def check(self: Any) -> None:
        self.asked = {name: getattr(self, name) for name in ON_CPU}
        vars(self).update(ON_CPU)
        checks(self)
        vars(self).update(self.asked, use_cpu=True)

    def begin(self: Any, *, args: Any, **rest: Any) -> None:
        vars(args).update(ON_CPU, **EVALUATED)
        os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
        begins(self, args=args, **rest)

    def log(self: Any, metrics: dict[str, Any], *rest: Any, **more: Any) -> None:
        # In fp16 the first scale is too large: the step is skipped, and its norm is no number.
        if self.args.asked["fp16"] and self.state.global_step == 1 and "grad_norm" in metrics:
            metrics["grad_norm"] = float("nan")
        logs(self, metrics, *rest, **more)

    arguments.__post_init__, compiled.__init__, trainer.log = check, begin, log
