"""Sizes of a model, from its config.json, and of a GPU, from its data sheet."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # accelerate brings it
import torch
import yaml
from transformers import AutoConfig

from casebook.case import CasebookError, check_name
from casebook.models import model_source

GIB, HERE = 2**30, Path(__file__).parent
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # dense decoders whose layers are counted here


class Shape(NamedTuple):
    """Sizes of a decoder."""

    hidden: int  # width of the residual stream
    intermediate: int  # width inside a layer's MLP
    layers: int
    heads: int
    kv_heads: int  # those that keep keys and values
    head_dim: int
    vocabulary: int  # tokens
    positions: int  # the longest text
    tied: bool  # the embedding is also the head
    bias: bool  # query, key and value have biases

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The matrices of one layer: name -> inputs and outputs."""
        wide, high = self.hidden, self.intermediate
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = {"q_proj": (wide, queries), "k_proj": (wide, keys), "v_proj": (wide, keys)}
        mlp = {"gate_proj": (wide, high), "up_proj": (wide, high), "down_proj": (high, wide)}
        return attention | {"o_proj": (queries, wide)} | mlp

    @property
    def linear(self) -> int:
        """Parameters of the layers' matrices: what 4-bit quantisation shortens."""
        return self.layers * sum(wide * high for wide, high in self.matrices.values())

    @property
    def parameters(self) -> int:
        """All of them, a tied embedding counted once."""
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.bias else 0
        norms = self.layers * (2 * self.hidden + biases) + self.hidden
        return self.linear + norms + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def adapter(self, rank: int, modules: Any = "all-linear") -> int:
        """Parameters of a LoRA adapter on the named matrices; any text stands for all of them."""
        names = self.matrices if isinstance(modules, str) else set(modules) & set(self.matrices)
        if not names:
            raise CasebookError(f"lora_target_modules: no layer has one of {', '.join(modules)}")
        return self.layers * rank * sum(sum(self.matrices[name]) for name in names)

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values that one token keeps, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize


def shape_of(model: str) -> Shape:
    """The shape of a `model_name_or_path`: from its folder, else `models.yaml`, else the hub.

    Raises:
        CasebookError: its config.json cannot be had, or is of a family that is not counted here,
            such as a mixture of experts.
    """
    source = model_source(model)
    if source in known_shapes():
        return known_shapes()[source]
    try:
        config = AutoConfig.from_pretrained(source).get_text_config()
    except (OSError, ValueError) as error:
        raise CasebookError(
            f"the shape of {model} is not known here: add it to src/casebook/preflight/models.yaml,"
            " or run where the hub is reachable"
        ) from error
    if config.model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise CasebookError(f"the estimate knows {known}, but {model} is a {config.model_type}")
    heads = config.num_attention_heads
    return Shape(
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocabulary=config.vocab_size,
        positions=config.max_position_embeddings,
        tied=bool(config.tie_word_embeddings),
        bias=bool(getattr(config, "attention_bias", config.model_type == "qwen2")),
    )


@cache
def known_shapes() -> dict[str, Shape]:
    """The shapes of `models.yaml`, by the models' names on the hub."""
    rows = yaml.safe_load((HERE / "models.yaml").read_text())
    return {name: Shape(**{key: row[key] for key in Shape._fields}) for name, row in rows.items()}


class Machine(NamedTuple):
    """What a training may take."""

    name: str
    there: int  # bytes that a training's process may take, ...
    total: int  # ... of so many
    gpu: bool
    bf16: bool = True


@cache
def cards() -> dict[str, Machine]:
    """The cards that `--gpu` knows, from `cards.yaml`."""
    rows = yaml.safe_load((HERE / "cards.yaml").read_text())
    sizes = {key: int(row.pop("gib") * GIB) for key, row in rows.items()}
    return {key: Machine(there=sizes[key], total=sizes[key], gpu=True, **rows[key]) for key in rows}


def machine_for(settings: Mapping[str, Any], gpu: str | None = None) -> Machine:
    """Where a training is meant to run: the card that is named, else what is here.

    Raises:
        CasebookError: an unknown card, or no GPU here for a configuration that wants one.
    """
    if gpu:
        check_name("GPU", gpu, cards())
        return cards()[gpu]
    if settings.get("use_cpu"):
        memory = psutil.virtual_memory()
        return Machine("this machine's memory", memory.available, memory.total, gpu=False)
    if not torch.cuda.is_available():
        raise CasebookError(
            f"{settings['case']}/{settings['profile']} needs a GPU, and there is none here: name "
            f"one with --gpu ({', '.join(cards())})"
        )
    free, total = torch.cuda.mem_get_info(0)
    bf16 = torch.cuda.get_device_capability(0) >= (8, 0)
    return Machine(torch.cuda.get_device_name(0), free, total, gpu=True, bf16=bf16)
