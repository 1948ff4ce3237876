"""The benchmark for a GPU, in its small mode on a CPU."""

import json
import math
import shutil
import zipfile

import pytest
from typer.testing import CliRunner

from casebook import pretrained
from casebook.case import CasebookError


@pytest.fixture(scope="module")
def gpu(script):
    return script("gpu")


@pytest.mark.slow
def test_the_small_mode_measures_every_model_it_is_asked_for(gpu, tmp_path):
    output = tmp_path / "gpu.json"
    asked = ["run", "--small", "--steps", "2", "--output", str(output)]
    done = CliRunner().invoke(gpu.app, [*asked, "--model", "nano", "--model", "1.5b"])
    assert done.exit_code == 0, done.output
    record = json.loads(output.read_text())
    assert record["device"] == "cpu"
    assert record["small"]
    peft = [row for row in record["measured"] if row["backend"] == "peft"]
    assert [row["model"] for row in peft] == ["nano", "1.5b"]
    for row in peft:
        assert "error" not in row, row
        assert row["seconds_per_step"] > 0
        assert 0 < row["generation"] < 1
        assert 0.5 < row["predicted_memory_mb"] / row["peak_memory_mb"] < 2
        assert all(map(math.isfinite, row["parity"]["loss"]))
        assert min(row["parity"]["grad_norm"]) > 0  # no step of the parity was silent


@pytest.mark.slow
def test_a_second_process_trains_on_the_completions_of_the_first(gpu, tmp_path):
    asked = {"model": "nano", "backend": "peft", "device": "cpu", "small": True, "steps": 2}
    asked["folder"] = str(tmp_path)
    first = gpu._in_a_process(asked)
    (tmp_path / "peft-cpu.json").unlink()
    shutil.rmtree(tmp_path / "peft-cpu")
    turns = json.loads((tmp_path / "completions.json").read_text())["turns"]
    assert len(turns) == gpu.PARITY
    second = gpu._in_a_process(asked)
    (apart,) = gpu._parity([first, second])
    assert apart["against"] == "peft on cpu"
    assert apart["loss"] < 1e-5
    assert apart["grad_norm"] < 1e-5


@pytest.mark.slow
def test_other_prompts_than_the_reference_had_are_told(gpu, tmp_path):
    prompts = [[1, 2, 3]] * 8
    turns = [{"prompts": prompts, "completions": [[4]] * 8}] * gpu.PARITY
    (tmp_path / "completions.json").write_text(json.dumps({"turns": turns}))
    asked = {"model": "nano", "backend": "peft", "device": "cpu", "small": True, "steps": 2}
    found = gpu._in_a_process(asked | {"folder": str(tmp_path)})
    assert "step 1 asks other prompts than the reference" in found["error"]


def test_the_shapes_are_those_of_their_names(gpu):
    def parameters(config):
        head = config["hidden_size"] // config["num_attention_heads"]
        attention = (
            2
            * config["hidden_size"]
            * (config["hidden_size"] + head * config["num_key_value_heads"])
        )
        layer = attention + 3 * config["hidden_size"] * config["intermediate_size"]
        words = config["vocab_size"] * config["hidden_size"]
        return config["num_hidden_layers"] * layer + words * (2 - config["tie_word_embeddings"])

    assert parameters(gpu.SHAPES["1.5b"].config) == pytest.approx(1.54e9, rel=0.01)
    assert parameters(gpu.SHAPES["8b"].config) == pytest.approx(8.03e9, rel=0.01)


def test_what_differs_is_relative_to_the_largest_of_the_reference(gpu):
    assert gpu._apart([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert gpu._apart([0.0], [0.0]) == 0.0


def test_an_unknown_model_is_refused(gpu):
    done = CliRunner().invoke(gpu.app, ["run", "--model", "70b"])
    assert isinstance(done.exception, CasebookError)
    assert "nano, smol, 1.5b, 8b" in str(done.exception)


def test_without_a_gpu_only_the_small_mode_runs(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "hardware", lambda: {"gpu": None})
    with pytest.raises(CasebookError, match="no GPU here; --small runs on a CPU"):
        gpu.run()


def test_what_failed_stands_in_the_record_and_ends_in_an_error(gpu, monkeypatch, tmp_path):
    failed = {"model": "nano", "backend": "peft", "device": "cpu", "error": "exit code 1: no"}
    monkeypatch.setattr(gpu, "_in_a_process", lambda asked: failed)
    with pytest.raises(CasebookError, match="1 of 1 could not be measured"):
        gpu.run(tmp_path / "gpu.json", ["nano"], 2, small=True)
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert (record["measured"], record["parity"], record["device"]) == ([failed], [], "cpu")


@pytest.fixture
def packages(gpu, tmp_path, monkeypatch):
    """A models folder whose GGUF file has other bytes, as its entry says."""
    entry = pretrained.MODELS["smollm2"]
    content = bytes(range(256)) * 1000
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "models"))
    other = {"sha256": gpu.hashlib.sha256(content).hexdigest(), "size": len(content)}
    fake = pretrained.Pretrained(**{**vars(entry), **other})
    monkeypatch.setattr(pretrained, "MODELS", {"smollm2": fake})
    monkeypatch.setattr(gpu, "PART", 100_000)
    monkeypatch.setattr(gpu, "WHEELS", ())
    monkeypatch.setattr(gpu.subprocess, "run", lambda *args, **kwargs: None)  # no pip
    fake.gguf.parent.mkdir(parents=True)
    fake.gguf.write_bytes(content)
    with zipfile.ZipFile(fake.gguf.parent / "gguf-0.19.0-py3-none-any.whl", "w"):
        pass
    return fake, content


def test_a_model_travels_in_parts(gpu, packages, tmp_path, monkeypatch):
    entry, content = packages
    gpu.pack(tmp_path / "packed", "3.12")
    assert len(list((tmp_path / "packed").glob("*.gguf.*"))) == 3
    shutil.rmtree(entry.gguf.parent)
    fetched = []
    monkeypatch.setattr(pretrained, "fetch", fetched.append)
    gpu.unpack(tmp_path / "packed")
    assert entry.gguf.read_bytes() == content
    assert (entry.gguf.parent / "gguf-0.19.0-py3-none-any.whl").exists()
    assert fetched == ["smollm2"]


def test_a_part_that_is_missing_or_damaged_is_told(gpu, packages, tmp_path):
    gpu.pack(tmp_path / "packed", "3.12")
    sorted((tmp_path / "packed").glob("*.gguf.*"))[1].unlink()
    with pytest.raises(CasebookError, match=r"the 2 parts in .* are not .*, or not all"):
        gpu.unpack(tmp_path / "packed")


def test_packing_without_the_model_names_the_command(gpu, packages, tmp_path):
    packages[0].gguf.unlink()
    with pytest.raises(CasebookError, match="make smol fetches it"):
        gpu.pack(tmp_path / "packed", "3.12")


def test_every_wheel_that_travels_is_pinned(gpu):
    pins = gpu._pins()
    assert all(pins[name].startswith(f"{name}==") for name in gpu.WHEELS)
