"""What is looked up before a training, on machines that are not as they should be."""

import errno
from types import SimpleNamespace

import pytest

from casebook import paths
from casebook.install import pins_of
from casebook.preflight import cards, checks
from casebook.preflight.checks import FAILS, NOTE, OK
from casebook.settings import checked


def settings(case="poker", profile="nano", **changes):
    return checked((case, profile), changes)


@pytest.mark.parametrize(
    ("built", "said", "state"),
    [(12, "550.54.15", OK), (13, "550.54.15", FAILS), (13, "580.65", OK), (12, None, NOTE)],
)
def test_a_driver_has_to_be_new_enough_for_the_cuda_of_torch(built, said, state):
    assert checks.driver(built, said).state == state


@pytest.mark.parametrize(
    ("built", "vllm", "state"),
    [(12, "0.26.0+cu129", OK), (12, "0.30.0", FAILS), (13, "0.30.0", OK), (13, None, FAILS)],
)
def test_vllm_has_to_be_built_for_the_cuda_of_torch(built, vllm, state):
    assert checks.wheel(built, vllm).state == state


def test_a_cpu_build_of_torch_is_named_on_a_gpu(monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda package: "2.13.0+cpu")
    monkeypatch.setattr(checks, "torch_cuda", lambda: None)
    (found,) = checks.cuda(SimpleNamespace(gpu=True), settings())
    assert found.state == FAILS
    assert "no CUDA build" in found.said


def test_a_torch_of_pypi_is_a_cuda_build_without_a_tag(monkeypatch):
    here = {"torch": "2.13.0", "vllm": "0.26.0"}
    monkeypatch.setattr(checks, "installed_version", here.get)
    monkeypatch.setattr(checks, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(checks, "nvidia", lambda field: {field: "580.65"})
    found = list(checks.cuda(SimpleNamespace(gpu=True), settings("math", "a100")))
    assert [(check.name, check.state) for check in found] == [("driver", OK), ("vLLM", OK)]


@pytest.mark.parametrize(("cuda", "file"), [("12.9", "cu12"), ("13.0", "cu13"), (None, "cu13")])
def test_the_cuda_of_torch_names_the_requirements_file(cuda, file, monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda package: None)
    monkeypatch.setattr(checks, "torch_cuda", lambda: cuda)
    (*_, found) = checks.versions(settings("poker", "t4"), cards.card("t4"))
    assert found.said == f"not installed: pip install -r requirements-gpu-{file}.txt"


def test_where_peft_trains_unsloth_may_be_missing(monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda package: None)
    wanted = settings("landuse", "a100", optim="adamw_torch")

    def asked():
        return {found.name for found in checks.versions(wanted, cards.card("a100-80"))}

    assert {"unsloth", "unsloth-zoo", "bitsandbytes"} <= asked()
    monkeypatch.setenv("CASEBOOK_BACKEND", "peft")
    assert asked() == set(checks.LIBRARIES)
    wanted["optim"] = "adamw_8bit"
    assert asked() == {*checks.LIBRARIES, "bitsandbytes"}


def test_a_library_that_is_missing_fails_and_another_version_is_a_note(monkeypatch):
    pins = pins_of("requirements.txt")
    here = {name: pins[name].partition("==")[2] for name in checks.LIBRARIES}
    here |= {"trl": "1.0.0", "peft": None}
    monkeypatch.setattr(checks, "installed_version", here.get)
    found = checks.versions(settings(), SimpleNamespace(gpu=False))
    states = {check.name: check.state for check in found}
    assert states["trl"] == NOTE
    assert states["peft"] == FAILS
    assert states["transformers"] == OK


def test_a_test_of_writing_leaves_nothing(tmp_path):
    assert checks.writing(settings(), tmp_path / "runs" / "deep").state == OK
    assert not list(tmp_path.iterdir())


def test_a_runs_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "runs").write_text("")
    found = checks.writing(settings(), tmp_path / "runs")
    assert found.state == FAILS
    assert "cannot be written" in found.said


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    class Full:
        def __init__(self, dir): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checks, "TemporaryFile", Full)
    found = checks.writing(settings(), tmp_path)
    assert found.state == FAILS
    assert "No space left" in found.said


def test_a_disk_that_is_too_small_for_the_checkpoints_fails(monkeypatch):
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
    (found,) = checks.space(settings(), paths.ROOT)
    assert found.state == FAILS


def test_checkpoints_of_a_whole_model_take_its_weights_three_times_each():
    from casebook.preflight.shapes import known_shapes

    shape = known_shapes()["HuggingFaceTB/SmolLM2-135M-Instruct"]
    whole = settings("poker", "smol", save_total_limit=2)
    saved = 4 * shape.parameters
    assert checks.run_bytes(whole, shape) == checks.LOG_BYTES + saved + 9 * saved


def test_a_model_that_is_nowhere_fails(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = checks.model(settings(model_name_or_path="nobody/nothing"), here=True)
    assert found.state == FAILS
    assert "nobody/nothing" in found.said


def test_the_embedded_model_lies_here():
    assert checks.model(settings(), here=True).state == OK
    assert (paths.ROOT / "data/nano/poker").is_dir()


@pytest.mark.parametrize(("here", "state"), [(True, FAILS), (False, NOTE)])
def test_what_has_not_been_fetched_fails_here_and_is_a_note_elsewhere(
    here, state, monkeypatch, tmp_path
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setenv("CASEBOOK_DATA_DIR", str(tmp_path))
    found = checks.checks(settings("math", "t4"), cards.card("t4"), here)
    said = {check.name: (check.state, check.said) for check in found}
    assert said["model"][0] == said["data"][0] == state
    assert "HF_HUB_OFFLINE forbids to ask" in said["model"][1]
    assert "data/README.md has the commands" in said["data"][1]


def test_data_that_lie_here_are_read():
    assert checks.data(settings(), here=True).state == OK


@pytest.mark.parametrize(
    ("visible", "asked"), [(None, []), ("2,3", ["--id=2"]), ("", None), ("-1", None)]
)
def test_the_gpu_that_is_asked_is_one_that_a_training_may_use(visible, asked, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command[3:])
        return SimpleNamespace(stdout="550.54, 80\n551.0, 40\n")

    monkeypatch.setattr(cards.shutil, "which", lambda name: name)
    monkeypatch.setattr(cards.subprocess, "run", run)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = cards.nvidia("driver", "memory")
    assert found == (None if asked is None else {"driver": "550.54", "memory": "80"})
    assert commands == ([] if asked is None else [asked])


def test_a_driver_without_a_word_tells_nothing(monkeypatch):
    monkeypatch.setattr(cards.shutil, "which", lambda name: name)
    silent = SimpleNamespace(stdout="")
    monkeypatch.setattr(cards.subprocess, "run", lambda *_, **__: silent)
    assert cards.nvidia("driver", "memory") is None


def test_the_disk_that_is_looked_at_is_that_of_the_run(tmp_path, monkeypatch):
    asked = []

    def usage(folder):
        asked.append(folder)
        return SimpleNamespace(free=0)

    monkeypatch.setattr(checks.shutil, "disk_usage", usage)
    found = checks.checks(settings(), cards.this_machine(), True, tmp_path / "new" / "run")
    assert asked == [tmp_path]
    assert {each.name: each.state for each in found}["disk"] == FAILS
