"""The shape of a language model: what its config.json says of sizes, without torch.

A shape is read from the model's own config.json where that lies on this machine, is asked of the
hub where one is reachable, and else taken from `models.yaml`.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from casebook import paths, pretrained
from casebook.case import CasebookError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # dense decoders whose layers are counted here
LARGEST = 2**31  # a size above is no size of a model
HUB_SECONDS = 10


class UnknownShape(CasebookError):
    """Nothing can be said about a model's memory: its shape is not known here."""


class Shape(NamedTuple):
    """Sizes of a decoder.

    Attributes:
        hidden: width of the residual stream.
        intermediate: width inside a layer's MLP.
        layers: how many.
        heads, kv_heads, head_dim: of the attention; `kv_heads` keep keys and values.
        vocabulary: tokens.
        positions: the longest text.
        tied: whether the embedding is also the head.
        bias: whether query, key and value have biases.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int
    tied: bool
    bias: bool = False

    @property
    def linear(self) -> int:
        """Parameters of the layers' matrices: what 4-bit quantisation shortens."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All of them, a tied embedding counted once."""
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.bias else 0
        norms = self.layers * (2 * self.hidden + biases) + self.hidden
        return self.linear + norms + self.embeddings

    @property
    def embeddings(self) -> int:
        """Parameters of the embedding and, where it is not tied to it, of the head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    def adapter(self, rank: int, modules: Any = "all-linear") -> int:
        """Parameters of a LoRA adapter.

        Args:
            modules: names of matrices such as `q_proj`; any text stands for all of them.
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends = {
            "q_proj": self.hidden + queries,
            "k_proj": self.hidden + keys,
            "v_proj": self.hidden + keys,
            "o_proj": queries + self.hidden,
            "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate,
            "down_proj": self.intermediate + self.hidden,
        }
        names = ends if isinstance(modules, str) else [name for name in modules if name in ends]
        return self.layers * rank * sum(ends[name] for name in names)

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values that one token keeps, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize


def shape_of(model: str) -> tuple[Shape, str]:
    """The shape of a model, and where it was read.

    Args:
        model: as `model_name_or_path` of a configuration.

    Raises:
        UnknownShape: it is on no list, and its config.json cannot be had.
        CasebookError: its config.json is broken.
    """
    inside = paths.ROOT / model
    folder = inside if inside.is_dir() else Path(pretrained.source(model))
    if folder.is_dir():
        file = folder / "config.json"
        return parse_shape(_read(file), str(file)), f"config.json of {model}"
    name = str(folder) if pretrained.which(model) == "hub" else model
    if found := _of_hub(name):
        return parse_shape(_read(found), name), f"config.json of {name}, from the hub"
    if name in known_shapes():
        return known_shapes()[name], f"the list of shapes, {name}"
    raise UnknownShape(
        f"the shape of {model} is not known here, and the hub cannot be asked: add it to "
        "src/casebook/preflight/models.yaml, or run where the hub is reachable"
    )


@cache
def known_shapes() -> dict[str, Shape]:
    """The shapes of `models.yaml`, by the models' names on the hub."""
    rows = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text())
    return {name: Shape(**{key: row[key] for key in Shape._fields}) for name, row in rows.items()}


def parse_shape(config: Any, where: str) -> Shape:
    """The shape that a config.json describes.

    Args:
        config: the file's content; of a model that also sees, the part about text.
        where: the file's name, for messages.

    Raises:
        UnknownShape: a family of models that is not counted here, such as a mixture of experts.
        CasebookError: a size is missing, or is none.
    """
    if not isinstance(config, Mapping):
        raise CasebookError(f"{where} is no config.json of a model")
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnknownShape(
            f"{where}: memory is known for the families {', '.join(FAMILIES)}, not for {family!r}"
        )
    hidden, heads = _size(config, "hidden_size", where), _size(config, "num_attention_heads", where)
    return Shape(
        hidden=hidden,
        intermediate=_size(config, "intermediate_size", where),
        layers=_size(config, "num_hidden_layers", where),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", where, heads),
        head_dim=_size(config, "head_dim", where, max(1, hidden // heads)),
        vocabulary=_size(config, "vocab_size", where),
        positions=_size(config, "max_position_embeddings", where),
        tied=bool(config.get("tie_word_embeddings", False)),
        bias=bool(config.get("attention_bias", family == "qwen2")),
    )


def _size(config: Mapping, name: str, where: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < LARGEST:
        raise CasebookError(f"{where}: {name} is {value!r}, and must be a size")
    return value


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CasebookError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CasebookError(f"{file} is damaged: it is no JSON") from None


def _of_hub(name: str) -> Path | None:
    """The config.json of a hub's model: from the cache, else asked for where that is allowed."""
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
    except ModuleNotFoundError:
        return None
    try:
        cached = try_to_load_from_cache(name, "config.json")
        if isinstance(cached, str):
            return Path(cached)
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            return None
        return Path(hf_hub_download(name, "config.json", etag_timeout=HUB_SECONDS))
    except Exception:  # no network, no such model, no right to it: the list is asked instead
        return None
