"""GGUF to transformers, on a tiny Llama of random weights."""

import sys

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from casebook import pretrained
from casebook.case import CasebookError
from casebook.models import gguf

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["Ġ Ġ", "Ċ Ċ", "h i", "Ġ hi"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = [*SPECIAL, *BYTES, *(merge.replace(" ", "") for merge in MERGES)]
FIELDS = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.freq_base": 1000.0,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,  # 1e-5 in float32
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(TOKENS) - 3),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 2,  # the end, which is not taken over
    "tokenizer.chat_template": TEMPLATE,
}
END, PAD = "<|im_end|>", "<|endoftext|>"


@pytest.fixture
def tokenizer():
    return gguf.tokenizer_of(FIELDS, PAD)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    model = LlamaForCausalLM(gguf.config_of(FIELDS, tokenizer, tied=True)).eval()
    with torch.no_grad():  # norms of 1 would hide a mistake
        for weights in model.parameters():
            weights.copy_(torch.randn_like(weights) * 0.2)
    return model


def tensors_of(model) -> dict[str, np.ndarray]:
    """A model's weights by GGUF's names and in its order, as llama.cpp's own script writes them."""
    names = {name: short for short, name in gguf.WHOLE.items()}
    layer = {name: short for short, name in gguf.LAYER.items()}
    heads = {"attn_q": 4, "attn_k": 2}
    tensors = {}
    for place, weights in model.state_dict().items():
        whole, values = place.removesuffix(".weight"), weights.numpy()
        if whole == "lm_head":
            continue
        if whole in names:
            tensors[f"{names[whole]}.weight"] = values
            continue
        _, _, number, name = whole.split(".", 3)
        if count := heads.get(layer[name]):
            halves = values.reshape(count, 2, -1, values.shape[-1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        tensors[f"blk.{number}.{layer[name]}.weight"] = values
    return tensors


def test_the_end_is_the_files_and_the_pad_is_another(tokenizer):
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == (END, 2)
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == (PAD, 0)
    assert tokenizer.padding_side == "left"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hi 12", ["hi", "Ġ", "1", "2"]),
        ("a  1", ["a", "ĠĠ", "1"]),  # one word of GPT-2's would leave a blank with the digit
        ("a\n\n1.", ["a", "ĊĊ", "1", "."]),
        (" hi  hi", ["Ġhi", "Ġ", "Ġhi"]),
        ("<|im_end|>hi", ["<|im_end|>", "hi"]),
    ],
)
def test_digits_are_split_from_what_is_before_them(text, tokens, tokenizer):
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_no_token_is_added_and_the_template_is_the_files(tokenizer):
    assert tokenizer.convert_ids_to_tokens(tokenizer("hi").input_ids) == ["hi"]
    messages = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_configuration_is_the_files(tokenizer):
    config = gguf.config_of(FIELDS, tokenizer, tied=True)
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == 1000.0
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    assert (config.eos_token_id, config.pad_token_id, config.bos_token_id) == (2, 0, 1)
    assert config.tie_word_embeddings
    assert not hasattr(config, "quantization_config")


def test_the_weights_come_back_in_transformers_order(model):
    weights = gguf.weights_of(tensors_of(model), model.config)
    expected = {name: w.numpy() for name, w in model.state_dict().items() if "lm_head" not in name}
    assert weights.keys() == expected.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
        assert values.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"blk.1.attn_v.weight": None}, "as in model.layers.1.self_attn.v_proj.weight"),
        ({"output_norm.weight": np.ones(31, "f4")}, "as in model.norm.weight"),
        ({"blk.0.attn_q.bias2.weight": np.ones(32, "f4")}, "no tensor 'blk.0.attn_q.bias2.weight'"),
        ({"output.weight": np.ones((4, 32), "f4")}, "as in lm_head.weight"),
    ],
)
def test_other_tensors_are_refused(change, sentence, model):
    tensors = {n: t for n, t in {**tensors_of(model), **change}.items() if t is not None}
    with pytest.raises(CasebookError, match=sentence):
        gguf.weights_of(tensors, model.config)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tokenizer.ggml.pre": "llama-bpe"}, "gpt2/llama-bpe"),
        ({"tokenizer.ggml.model": "llama"}, "llama/smollm"),
    ],
)
def test_another_way_of_splitting_text_is_refused(change, sentence):
    with pytest.raises(CasebookError, match=sentence):
        gguf.tokenizer_of(FIELDS | change, PAD)


def test_a_pad_that_the_file_does_not_have_is_refused():
    with pytest.raises(CasebookError, match=r"no token '<pad>'"):
        gguf.tokenizer_of(FIELDS, "<pad>")


def test_another_architecture_is_refused(tokenizer):
    with pytest.raises(CasebookError, match="a Llama was expected, not 'qwen2'"):
        gguf.config_of(FIELDS | {"general.architecture": "qwen2"}, tokenizer, tied=True)


# A whole file, where the library that reads them is here


@pytest.fixture
def library(monkeypatch):
    """The library that reads GGUF files."""
    if wheel := pretrained._wheel(pretrained.READER):
        monkeypatch.syspath_prepend(str(wheel))
    return pytest.importorskip("gguf", reason="the gguf library is not here: make smol fetches it")


@pytest.fixture
def file(library, model, tmp_path):
    """The model with its matrices in Q8_0 and the rest in float32."""
    quants = sys.modules["gguf"].quants
    path = tmp_path / "tiny.gguf"
    writer = library.GGUFWriter(path, "llama")
    for name, value in FIELDS.items():
        if name == "general.architecture":
            continue
        kind = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{kind}")(name, value)
    for name, values in tensors_of(model).items():
        if values.ndim == 2:
            short = library.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quants.quantize(values, short), raw_dtype=short)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_becomes_a_folder_that_transformers_loads(file, library, model, tmp_path):
    found = gguf.convert(file, tmp_path / "made", END, PAD)
    assert found["expanded"] == {"Q8_0": 15, "F32": 5}
    assert (found["end"], found["pad"]) == ({"token": END, "id": 2}, {"token": PAD, "id": 0})
    made = AutoModelForCausalLM.from_pretrained(tmp_path / "made")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "made")
    assert type(made) is LlamaForCausalLM
    assert made.dtype == torch.float32
    for has_ids in (tokenizer, made.config, made.generation_config):
        assert (has_ids.eos_token_id, has_ids.pad_token_id) == (2, 0)
    assert tokenizer.padding_side == "left"
    assert tokenizer.tokenize("a  1") == ["a", "ĠĠ", "1"]
    ids = tokenizer("hi 12 hi", return_tensors="pt").input_ids
    with torch.no_grad():
        close, wanted = made(ids).logits, model(ids).logits
    assert (close - wanted).abs().max() < 0.05 * wanted.abs().max()  # 8 bits a weight
    assert not torch.equal(close, wanted)
    # transformers' own reader expands the same file to the same values.
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    for name, weights in theirs.state_dict().items():
        assert torch.equal(made.state_dict()[name], weights.float()), name


@pytest.mark.parametrize("damage", ["cut", "text", "other end"])
def test_a_file_that_cannot_be_used_is_one_sentence(damage, file, tmp_path):
    end = END
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:5000])
    elif damage == "text":
        file.write_text("no model")
    else:
        end = "<|im_start|>"
    with pytest.raises(CasebookError, match=r"tiny\.gguf"):
        gguf.convert(file, tmp_path / "made", end, PAD)
    assert not (tmp_path / "made").exists()
