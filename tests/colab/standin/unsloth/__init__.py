"""Stands where Unsloth is on a GPU: its calls and its checks, over transformers + PEFT on a CPU.

What it refuses, the pinned Unsloth refuses: arguments its signature lacks, types that are not
among its own, a second vLLM engine in the process, a model of one precision trained in another,
training with vLLM on a model without an engine. What it does not do: kernels, fp16, memory.

`STANDIN_RECORD=1` loads nothing, so that calls alone are checked. Each call is kept in `CALLS`.
"""

import functools
import os
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import peft
import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer

from unsloth.contract import bind, signature
from unsloth.engine import Engine

# The vLLM here is only asked to write; TRL would look for all of it.
import_module("trl.import_utils").is_vllm_available = lambda *_, **__: False

__version__ = "2026.10.9"
CALLS: list[tuple[str, dict[str, Any]]] = []
RECORD = os.environ.get("STANDIN_RECORD") == "1"
# Only a GPU has these, and the trainer of the tiny models runs on the CPU instead.
ON_CPU = {"use_cpu": True, "fp16": False, "bf16": False, "optim": "adamw_torch", "use_vllm": False}


class Unloaded:
    """A model, or a tokenizer, where calls alone are checked."""

    pad_token = "<pad>"

    def to(self, device: str) -> "Unloaded":
        return self


class FastLanguageModel:
    """The three calls that the casebook makes."""

    @staticmethod
    def from_pretrained(*arguments: Any, **keywords: Any) -> tuple[Any, Any]:
        values = bind("FastLanguageModel.from_pretrained", "unsloth", arguments, keywords)
        CALLS.append(("from_pretrained", values))
        dtype = values.get("dtype")
        accepted = signature("FastLanguageModel.from_pretrained", "unsloth")["dtypes"]
        if isinstance(dtype, str) and dtype in accepted["text"]:
            dtype = getattr(torch, dtype)
        # A bare assertion, as there.
        assert dtype is None or dtype in [getattr(torch, name) for name in accepted["torch"]]
        if RECORD:
            return Unloaded(), Unloaded()
        source = values["model_name"]
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        model.asked_dtype = dtype
        model.max_seq_length = values.get("max_seq_length", 2048)
        if values.get("fast_inference"):
            _attach(model, Engine(model, tokenizer, values.get("max_lora_rank", 16)))
        return model, tokenizer

    @staticmethod
    def get_peft_model(*arguments: Any, **keywords: Any) -> Any:
        values = bind("FastLanguageModel.get_peft_model", "unsloth", arguments, keywords)
        CALLS.append(("get_peft_model", values))
        model, rank = values["model"], values.get("r", 16)
        if RECORD:
            return model
        engine = getattr(model, "vllm_engine", None)
        assert engine is None or rank <= engine.max_lora_rank, (
            f"LoRA rank {rank} is greater than max_lora_rank {engine.max_lora_rank}"
        )
        torch.manual_seed(values.get("random_state", 3407))
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=rank,
            lora_alpha=values.get("lora_alpha", 16),
            lora_dropout=values.get("lora_dropout", 0.0),
            target_modules=values.get("target_modules"),
        )
        policy = peft.get_peft_model(model, config)
        if engine is not None:
            engine.policy = policy
            _attach(policy, engine)
        return policy

    @staticmethod
    def for_inference(model: Any) -> Any:
        return model.eval()

    @staticmethod
    def for_training(model: Any, use_gradient_checkpointing: bool = True) -> Any:
        return model.train()


def _attach(model: Any, engine: Engine) -> None:
    model.vllm_engine = engine
    model.fast_generate = engine.generate
    model.save_lora = model.save_pretrained
    model.load_lora = functools.partial(_load_lora, engine)


def _load_lora(engine: Engine, save_directory: str, load_tensors: bool = False) -> Any:
    """A request for the adapter of a folder, or for the one that the policy has right now."""
    if load_tensors:
        return SimpleNamespace(lora_path=None)
    if not os.path.exists(save_directory):
        raise OSError(f"Unsloth: LoRA filepath = {save_directory} does not exist!")
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name="1", lora_int_id=1, lora_path=str(save_directory))


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's arguments as a GPU would take them; what only a GPU has is kept in `asked`."""

    def __post_init__(self) -> None:
        self.asked = {name: getattr(self, name) for name in ON_CPU}
        if not self.asked["use_cpu"]:
            for name, value in ON_CPU.items():
                setattr(self, name, value)
        super().__post_init__()


class GRPOTrainer(trl.GRPOTrainer):
    """TRL's trainer behind the checks of Unsloth's."""

    def __init__(self, model: Any, *arguments: Any, **keywords: Any) -> None:
        args = keywords["args"]
        plain = model.get_base_model() if isinstance(model, peft.PeftModel) else model
        dtype = getattr(plain, "asked_dtype", None)
        for flag, other in (("bf16", torch.float16), ("fp16", torch.bfloat16)):
            if dtype == other and args.asked[flag]:
                raise TypeError(f"Unsloth: the model is in {other} and {flag} was asked for")
        if args.asked["use_vllm"] and getattr(model, "vllm_engine", None) is None:
            raise RuntimeError("Unsloth: use_vllm without fast_inference: there is no engine")
        super().__init__(model, *arguments, **keywords)
        if engine := getattr(model, "vllm_engine", None):
            engine.sleep(1)  # while the policy learns

    def log(self, logs: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        """In fp16 the first scale is too large: the step is skipped, and its norm is no number."""
        if self.args.asked["fp16"] and self.state.global_step == 1 and "grad_norm" in logs:
            logs["grad_norm"] = float("nan")
        super().log(logs, *arguments, **keywords)


if not RECORD:
    trl.GRPOConfig, trl.GRPOTrainer = GRPOConfig, GRPOTrainer
