"""Fetching a model: what is kept, what is fetched again, and the sentence where it cannot be."""

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from casebook import paths
from casebook.case import CasebookError
from casebook.models import pretrained
from casebook.paths import alone_in

CONTENTS = {"model.safetensors": b"weights and so on"}
ENTRY = dataclasses.replace(
    pretrained.MODELS["smollm2"],
    package="tiny-model==1.0",
    inside="tiny_model/model",
    file="model.safetensors",
    sha256=hashlib.sha256(CONTENTS["model.safetensors"]).hexdigest(),
)
WHEEL = "tiny_model-1.0-py3-none-any.whl"


def write_wheel(folder: Path, contents=CONTENTS, inside="tiny_model/model") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in contents.items():
            wheel.writestr(f"{inside}/{name}", content)


class Index:
    """Stands in for pip and what it reaches: what was asked, what it gives, how it fails."""

    def __init__(self):
        self.asked: list[str] = []
        self.contents, self.said = CONTENTS, ""

    def run(self, command, **how):
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert "--no-deps" in command
        self.asked.append(command[-1])
        if not self.said:
            write_wheel(Path(command[command.index("--dest") + 1]), self.contents)
        return subprocess.CompletedProcess(command, int(bool(self.said)), "", self.said)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(pretrained, "MODELS", {"smollm2": ENTRY})
    monkeypatch.setattr(pretrained, "_expand", lambda *_: None)  # these weights are no GGUF
    return tmp_path / "models"


@pytest.fixture
def index(monkeypatch, home):
    index = Index()
    monkeypatch.setattr(pretrained.subprocess, "run", index.run)
    return index


def fetch():
    said = []
    return pretrained.fetch("smollm2", say=said.append), said


def test_a_model_is_fetched_checked_and_kept(home, index):
    folder, said = fetch()
    assert folder == home / "smollm2"
    assert said[0] == "Fetching tiny-model==1.0 ..."
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    card = json.loads((folder / pretrained.CARD).read_text())
    assert card["sha256"] == ENTRY.sha256
    assert (card["licence"], card["package"]) == ("Apache-2.0", "tiny-model 1.0")
    assert list((home / "packages").iterdir()) == []
    assert fetch() == (folder, [f"{folder} is there and complete"])
    assert index.asked == ["tiny-model==1.0"]


@pytest.mark.parametrize("damage", ["cut", "other content", "other file", "other folder"])
def test_a_damaged_package_is_one_sentence_and_fetched_again(damage, home, index):
    packages = home / "packages"
    contents = {
        "other content": {"model.safetensors": b"weights and no more"},
        "other file": {"config.json": b"{}"},
    }
    inside = "elsewhere" if damage == "other folder" else ENTRY.inside
    write_wheel(packages, contents.get(damage, CONTENTS), inside)
    if damage == "cut":
        os.truncate(packages / WHEEL, 60)
    with pytest.raises(CasebookError, match=r"of tiny-model==1\.0 is not the expected file"):
        fetch()
    assert not ENTRY.folder.exists()
    fetch()
    assert index.asked == ["tiny-model==1.0"]


@pytest.mark.parametrize("card", ["", "[]", json.dumps({"sha256": "0" * 64})])
def test_a_model_of_another_file_is_made_anew(card, home, index):
    folder, _ = fetch()
    (folder / pretrained.CARD).write_text(card)
    with pytest.raises(CasebookError, match="models fetch smollm2 renews it"):
        pretrained.source("smollm2")
    _, said = fetch()
    assert said[0].endswith("is made again")
    assert pretrained.source("smollm2") == str(folder)


def test_what_gets_in_the_way_is_one_sentence(home, index, monkeypatch):
    with pytest.raises(CasebookError, match="unknown model 'gpt2': known are smollm2"):
        pretrained.fetch("gpt2")
    index.said = "WARNING: Retrying\nERROR: No matching distribution found for tiny-model==1.0"
    with pytest.raises(
        CasebookError, match=r"could not be fetched \(ERROR: No matching .* put its"
    ):
        fetch()
    with (
        alone_in(home, "busy"),
        pytest.raises(CasebookError, match="another process fetches a model"),
    ):
        fetch()
    index.said = ""
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(pretrained.shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(CasebookError, match=r"cannot be written \(.*No space left"):
        fetch()


def test_the_fetched_model_is_taken_and_else_the_hubs(index, monkeypatch):
    assert (pretrained.source("smollm2"), pretrained.which("smollm2")) == (ENTRY.hub, "hub")
    folder, _ = fetch()
    assert pretrained.source("smollm2") == str(folder)
    assert pretrained.which("smollm2") == "tiny-model 1.0"
    assert pretrained.source("data/nano/poker") == "data/nano/poker"
    assert pretrained.which("a/b") is None
    monkeypatch.delenv("CASEBOOK_MODELS")
    assert paths.models_dir() == paths.ROOT / "models"


# GGUF

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "Ċ Ċ", "h i", "Ġ hi"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = [
    *SPECIAL,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
]
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
PAD = "<|endoftext|>"


def test_the_tokenizer_ends_pads_and_chats_as_the_model_does():
    tokenizer = pretrained.tokenizer_of(FIELDS, PAD)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 0)
    assert tokenizer.padding_side == "left"
    assert tokenizer.convert_ids_to_tokens(tokenizer("hi").input_ids) == ["hi"]
    messages = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(CasebookError, match="gpt2/llama-bpe"):
        pretrained.tokenizer_of(FIELDS | {"tokenizer.ggml.pre": "llama-bpe"}, PAD)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hi 12", ["hi", "Ġ", "1", "2"]),
        ("a  1", ["a", "ĠĠ", "1"]),  # one word of GPT-2's would leave a blank with the digit
        ("a\n\n1.", ["a", "ĊĊ", "1", "."]),
        ("<|im_end|>hi", ["<|im_end|>", "hi"]),
    ],
)
def test_digits_are_split_from_what_is_before_them(text, tokens):
    tokenizer = pretrained.tokenizer_of(FIELDS, PAD)
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer(text).input_ids) == text
