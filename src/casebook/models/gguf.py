"""A Llama in a GGUF file becomes a folder that transformers loads.

GGUF is llama.cpp's format: the names and values of a model's settings, its tokenizer, and its
weights in short types, such as Q4_1: blocks of 32 weights, each 4 bits times the block's scale
plus its minimum. The library `gguf` expands them as llama.cpp defines it. What is left to do:

- llama.cpp turns pairs of neighbours by its rotary embedding, transformers pairs half a head
  apart, so that the rows of queries and keys lie in another order.
- A GGUF file names the way in which text is split before the tokenizer's merges, and does not
  spell it out. Of `smollm` it is llama.cpp's: each digit alone, then GPT-2's words. transformers'
  own reader leaves out the digits, which changes the tokens wherever one follows two blanks or an
  empty line; and it takes the beginning of a turn for its end.

`casebook study conversion` compares what comes out with llama.cpp itself.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from casebook.case import CasebookError

DTYPE = "float32"  # holds every expanded value exactly; bfloat16 would round them
CONTROL = 3  # the type of a token that is no text, such as the end of a turn
# GGUF's name of a layer's tensor -> transformers' name.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert(file: Path, folder: Path, end: str, pad: str) -> dict[str, Any]:
    """Write config, weights and tokenizer of a GGUF file into a new folder.

    Args:
        file: the GGUF file of a Llama.
        folder: made; it must not be there.
        end: the token that ends a completion; the file has to say the same.
        pad: the token to pad with, whatever the file says.

    Returns:
        `expanded` (type in the file -> number of tensors), `dtype`, and `end` and `pad`, each with
        `token` and `id`.

    Raises:
        CasebookError: the file cannot be read, or holds no model of this kind.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {part.name: dequantize(part.data, part.tensor_type) for part in reader.tensors}
        tokenizer = tokenizer_of(fields, pad)
        config = config_of(fields, tokenizer, tied="output.weight" not in tensors)
        weights = weights_of(tensors, config)
    except CasebookError as error:
        raise CasebookError(f"{file}: {error}") from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CasebookError(f"{file} cannot be read as a Llama in GGUF ({said})") from error
    if tokenizer.eos_token != end or pad == end:
        raise CasebookError(
            f"{file} ends completions with {tokenizer.eos_token!r}, and {end!r} was expected, with "
            "another token to pad"
        )
    folder.mkdir(parents=True)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config.save_pretrained(folder)
    GenerationConfig(**ids, bos_token_id=tokenizer.bos_token_id).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return {
        "expanded": dict(Counter(part.tensor_type.name for part in reader.tensors)),
        "dtype": DTYPE,
        "end": {"token": end, "id": ids["eos_token_id"]},
        "pad": {"token": pad, "id": ids["pad_token_id"]},
    }


def tokenizer_of(fields: Mapping[str, Any], pad: str) -> PreTrainedTokenizerFast:
    """The tokenizer that a GGUF file describes, padding on the left.

    Raises:
        CasebookError: text is split in a way that is not known here.
    """
    kind = fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]
    if kind != ("gpt2", "smollm"):
        raise CasebookError(f"the tokenizer {'/'.join(kind)} of a GGUF file is not known here")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    kinds = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    core.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == CONTROL]
    )
    named = {
        f"{role}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))
    }
    if pad not in tokens:
        raise CasebookError(f"the tokenizer has no token {pad!r} to pad with")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        **named,
        pad_token=pad,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=fields["llama.context_length"],
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    return tokenizer


def config_of(
    fields: Mapping[str, Any], tokenizer: PreTrainedTokenizerFast, tied: bool
) -> LlamaConfig:
    """The configuration that a GGUF file describes; `tied`: the embedding is the output, too."""
    if fields["general.architecture"] != "llama":
        raise CasebookError(f"a Llama was expected, not {fields['general.architecture']!r}")
    heads = fields["llama.attention.head_count"]
    return LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=fields.get("llama.attention.head_count_kv", heads),
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=[LlamaForCausalLM.__name__],
        dtype=DTYPE,
    )


def weights_of(tensors: Mapping[str, np.ndarray], config: LlamaConfig) -> dict[str, np.ndarray]:
    """transformers' name -> weights in float32, in transformers' order of rows.

    Args:
        tensors: GGUF's name -> expanded weights.
        config: of the model that they belong to.

    Raises:
        CasebookError: they are not the tensors of such a model.
    """
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for place, values in tensors.items():
        *layer, name, _ = place.split(".")
        known = LAYER if layer else WHOLE
        if name not in known:
            raise CasebookError(f"a Llama has no tensor {place!r}")
        if name in heads:  # (heads, half, 2, in), neighbours side by side -> (heads, 2, half, in)
            pairs = values.reshape(heads[name], -1, 2, values.shape[-1])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        where = f"model.layers.{layer[1]}.{known[name]}" if layer else known[name]
        weights[f"{where}.weight"] = np.array(values)  # a copy, in the order of its rows
    with torch.device("meta"):
        expected = LlamaForCausalLM(config).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    found = {name: values.shape for name, values in weights.items()}
    if found != shapes:
        odd = sorted(name for name in {*found, *shapes} if found.get(name) != shapes.get(name))
        raise CasebookError(f"the tensors are not those of its configuration, as in {odd[0]}")
    return weights
