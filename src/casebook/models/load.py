"""A policy for a case and profile: Unsloth where it trains the profile, else transformers + PEFT.

The cells a Colab user expects are `FastLanguageModel.from_pretrained` and then
`FastLanguageModel.get_peft_model`. That name works everywhere: it is Unsloth's own class where
`casebook.backend` has chosen it, which comes before TRL is imported, and else a stand-in with the
same two methods. `load_policy` is those two calls with what `configs/<case>/<profile>.yaml` says.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.backend import choose_backend, unsloth_chosen
from casebook.case import CasebookError
from casebook.settings import marked, read_settings

if os.environ.get("CASEBOOK_BACKEND") == "unsloth":  # for every profile: then at once
    choose_backend("nano")

import torch
from huggingface_hub.utils import enable_progress_bars
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, set_seed
from transformers.utils.logging import disable_progress_bar

from casebook.models import attention, engine, pretrained

disable_progress_bar()  # loading a model is not worth a widget in every notebook

CARD = "casebook.json"  # in a saved policy's folder: what it belongs to, and how it is decoded


class PeftLanguageModel:
    """Unsloth's two loading calls, over transformers + PEFT; GPU-only arguments are refused."""

    @staticmethod
    def from_pretrained(
        model_name: str,
        max_seq_length: int = 2048,
        dtype: str | torch.dtype | None = "float32",
        load_in_4bit: bool = False,
        fast_inference: bool = False,
        attn_implementation: str | None = None,
        device_map: str | None = None,
        **unsloth_only: Any,
    ) -> tuple[PreTrainedModel, Any]:
        """Model and tokenizer; the tokenizer pads on the left.

        `device_map` is "cpu", or one of Unsloth's words for a GPU, if there is one.
        """
        if load_in_4bit or fast_inference:
            raise CasebookError(
                "load_in_4bit and fast_inference need Unsloth on a GPU, and Unsloth is not "
                "installed here: choose another profile, or install requirements-gpu-cu12.txt"
            )
        try:
            attention.register()
            tokenizer = AutoTokenizer.from_pretrained(model_name, padding_side="left")
            model = AutoModelForCausalLM.from_pretrained(
                model_name, dtype=dtype, attn_implementation=attn_implementation
            )
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CasebookError(
                f"no model could be loaded from {model_name!r}: {_first_line(error)}"
            ) from error
        model.config.max_seq_length = max_seq_length
        gpu = torch.cuda.is_available() and device_map != "cpu"
        return model.to("cuda" if gpu else "cpu"), tokenizer

    @staticmethod
    def get_peft_model(
        model: PreTrainedModel,
        r: int = 16,
        lora_alpha: int = 16,
        lora_dropout: float = 0.0,
        target_modules: list[str] | str = "all-linear",
        random_state: int = 3407,
        **unsloth_only: Any,
    ) -> PeftModel:
        """The model with a LoRA adapter, initialised from `random_state`."""
        set_seed(random_state)
        lora = {"r": r, "lora_alpha": lora_alpha, "lora_dropout": lora_dropout}
        config = LoraConfig(task_type="CAUSAL_LM", target_modules=target_modules, **lora)
        return get_peft_model(model, config)


class _Chosen:
    """Unsloth's class where Unsloth was chosen, else `PeftLanguageModel`: decided at each use."""

    def __getattr__(self, name: str) -> Any:
        unsloth = sys.modules["unsloth"] if unsloth_chosen() else None
        return getattr(unsloth.FastLanguageModel if unsloth else PeftLanguageModel, name)


FastLanguageModel = _Chosen()


def load_policy(
    case: str, profile: str, seed: int = 0, settings: dict[str, Any] | None = None
) -> tuple[PreTrainedModel, Any]:
    """Model and tokenizer ready to train: LoRA wrapped around the base where the profile says so.

    Args:
        seed: initialises the adapter.
        settings: the training settings; by default those of `configs/<case>/<profile>.yaml`.

    Raises:
        CasebookError: unknown name, or the model's folder is missing or corrupt.
    """
    settings = settings or read_settings(case, profile)
    model, tokenizer = _load(settings)
    if settings["use_peft"]:
        own = settings.get("use_gradient_checkpointing")  # Unsloth's, which moves it to the CPU
        checkpointing = own or settings["gradient_checkpointing"]
        model = FastLanguageModel.get_peft_model(
            model,
            r=settings["lora_r"],
            lora_alpha=settings["lora_alpha"],
            lora_dropout=settings["lora_dropout"],
            target_modules=settings["lora_target_modules"],
            use_gradient_checkpointing=checkpointing,
            random_state=seed,
        )
        engine.remember(model)
    return model, tokenizer


def load_base(settings: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    """The base model and tokenizer of a profile's settings, without adapter and without vLLM."""
    return _load(settings | {"fast_inference": False})


def _load(settings: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    choose_backend(settings["profile"])
    if settings["fast_inference"]:
        engine.check_none_runs()
    if not Path(model_source(settings["model_name_or_path"])).is_dir():
        enable_progress_bars()  # gigabytes may come from the hub now: not in silence
    try:
        model, tokenizer = FastLanguageModel.from_pretrained(**base_arguments(settings))
    except CasebookError as error:
        name = settings["model_name_or_path"]
        if pretrained.which(name) != "hub":
            raise
        raise CasebookError(f"{error}; casebook models fetch {name} needs no hub") from error
    if settings.get("use_cpu"):  # where it is trained
        model = model.to("cpu")
    engine.remember(model)
    if entry := pretrained.MODELS.get(settings["model_name_or_path"]):
        # The hub's own tokenizer pads with the token that ends a completion.
        tokenizer.pad_token = entry.pad
        for ids in (model.config, model.generation_config):
            ids.pad_token_id = tokenizer.pad_token_id
    elif tokenizer.pad_token is None:
        # Harmless here: masks come from lengths and the first end-of-sequence token, never
        # from `ids != pad`, which would drop every generated end from the loss.
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def base_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """What `FastLanguageModel.from_pretrained` is called with."""
    names = ("max_seq_length", "load_in_4bit", "fast_inference", "attn_implementation")
    arguments = {name: settings[name] for name in names if name in settings} | {
        "model_name": model_source(settings["model_name_or_path"]),
        "use_exact_model_name": True,  # else Unsloth loads a repository of its own choice
        "dtype": getattr(torch, settings["dtype"]),  # Unsloth does not take every name of one
        "full_finetuning": not settings["use_peft"],
    }
    if settings.get("use_cpu") and not unsloth_chosen():
        arguments["device_map"] = "cpu"
    if settings["fast_inference"]:
        arguments["gpu_memory_utilization"] = settings["vllm_gpu_memory_utilization"]
        arguments["max_lora_rank"] = settings["lora_r"]
    return arguments


def model_source(name: str) -> str:
    """What a model is loaded from: a folder of the checkout, else what `pretrained.source` says."""
    inside = paths.ROOT / name
    return str(inside) if inside.is_dir() else pretrained.source(name)


def save_policy(
    model: PreTrainedModel, tokenizer: Any, output: Path, settings: dict[str, Any]
) -> None:
    """Save the adapter (or the whole model, after full fine-tuning) and the tokenizer.

    The folder names its base model as the configuration does, so that it works on another machine;
    PEFT alone would store where the base lay on this one.
    """
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    (output / "README.md").unlink(missing_ok=True)  # PEFT's template: nothing in it is filled in
    adapter = output / "adapter_config.json"
    if adapter.exists():
        config = json.loads(adapter.read_text())
        config["base_model_name_or_path"] = settings["model_name_or_path"]
        adapter.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    card = {key: settings[key] for key in marked("card") if key in settings}
    card |= _source(settings)
    (output / CARD).write_text(json.dumps(card, indent=2) + "\n")


def load_saved(folder: str | Path, longer: int = 0) -> tuple[PreTrainedModel, Any, dict[str, Any]]:
    """Model, tokenizer and card of a folder that `save_policy` wrote.

    An adapter stays apart from its base: `model.disable_adapter()` gives the model before the
    training. The card decides what is loaded, and how; `longer` adds tokens of room for prompts.

    Raises:
        CasebookError: the folder is missing, incomplete, corrupt, or not one of ours.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CasebookError(f"there is no model folder at {folder}")
    try:
        card = json.loads((folder / CARD).read_text())
        settings = read_settings(card["case"], card["profile"]) | card
        settings["max_seq_length"] += longer
    except FileNotFoundError:
        raise CasebookError(f"{folder} has no {CARD}: no policy is saved there") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise CasebookError(f"{folder / CARD} cannot be read: {_first_line(error)}") from error
    adapter = folder / "adapter_config.json"
    kind, base = ("adapter" if adapter.exists() else "model"), str(folder)
    try:
        if kind == "adapter":
            base = json.loads(adapter.read_text())["base_model_name_or_path"]
            here = pretrained.which(base)
            if card.get("source", here) != here:
                raise CasebookError(
                    f"the adapter in {folder} was trained on {base} from {card['source']}, but "
                    f"here {base} would come from {here}, with other weights"
                )
        model, tokenizer = load_base(settings | {"model_name_or_path": base})
        _check_saved(folder, kind)
        if kind == "adapter":
            model = PeftModel.from_pretrained(model, folder)
    except CasebookError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CasebookError(f"the {kind} in {folder} is damaged: {_first_line(error)}") from error
    return model, tokenizer, card


def _check_saved(folder: Path, kind: str) -> None:
    """Raise where a policy holds values that are no numbers, or its tokenizer is damaged."""
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            if not tensor.isfinite().all():
                raise CasebookError(f"the {kind} in {folder} is damaged: {name} is not finite")
    try:
        AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises bare ones
        said = _first_line(error)
        raise CasebookError(f"the tokenizer in {folder} is damaged: {said}") from error


def describe(model: PreTrainedModel, settings: dict[str, Any]) -> dict[str, Any]:
    """Which base weights a policy stands on, in which type, and what wrote its completions.

    Returns:
        `name`, `weights` (as `base_weights`), `revision` (the hub's commit), `dtype` (of what was
        loaded), `load_in_4bit`, `generator`; of a short name `source`, as `pretrained.which`.
    """
    unsloth = "unsloth" if unsloth_chosen() else "transformers"
    return {
        "name": settings["model_name_or_path"],
        "weights": base_weights(settings),
        "revision": getattr(model.config, "_commit_hash", None),
        "dtype": str(model.dtype).removeprefix("torch."),
        "load_in_4bit": settings["load_in_4bit"],
        "generator": "vllm" if engine.of(model) else unsloth,
        **_source(settings),
    }


def _source(settings: dict[str, Any]) -> dict[str, str]:
    """Which weights a short name stands for here."""
    which = pretrained.which(settings["model_name_or_path"])
    return {"source": which} if which else {}


def base_weights(settings: dict[str, Any]) -> str | None:
    """`weights_hash` of the base that settings name; `None` for a model of the hub."""
    source = Path(model_source(settings["model_name_or_path"]))
    return weights_hash(source) if source.is_dir() else None


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weight files in a folder, one after the other."""
    content = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with open(file, "rb") as opened:
            hashlib.file_digest(opened, lambda: content)
    return content.hexdigest()


def largest_change(folder: Path) -> float:
    """The largest absolute entry of an adapter's `B` matrices; 0.0: training changed nothing.

    LoRA starts with B = 0, so that the adapted model starts as the base; for a whole model the
    largest absolute weight is returned.
    """
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file) if file.exists() else load_file(folder / "model.safetensors")
    moved = {name: t for name, t in tensors.items() if "lora_B" in name} or tensors
    return max(float(tensor.abs().max()) for tensor in moved.values())


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
