"""What a machine says of itself, and how a record keeps it."""

import subprocess
from importlib import import_module
from importlib.machinery import ModuleSpec

import pytest

from casebook.records.provenance import provenance, torch_cuda

# `casebook.records.provenance` is the function of that name.
module = import_module("casebook.records.provenance")


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """A torch whose `version.py` has some lines; it is found, and cannot be imported."""

    def installed(text):
        file = tmp_path / "__init__.py"
        file.write_text("raise ImportError('nobody imports torch for its version')\n")
        (tmp_path / "version.py").write_text(text)
        spec = ModuleSpec("torch", None, origin=str(file))
        monkeypatch.setattr(module, "find_spec", {"torch": spec}.get)

    return installed


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        # PyPI's build for CUDA 13 has no tag in its version.
        ("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n", "13.0"),
        ("__version__ = '2.11.0+cu126'\ncuda = '12.6'\n", "12.6"),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", None),
        ("__all__ = ['cuda']\nhip = '6.4'\n", None),
    ],
)
def test_the_cuda_of_torch_is_what_its_build_says(line, cuda, torch):
    torch(line)
    assert torch_cuda() == provenance()["hardware"]["cuda"] == cuda


def test_without_torch_there_is_no_cuda(monkeypatch, torch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert torch_cuda() is None


def test_two_gpus_are_named_in_one_line(monkeypatch):
    said = {"name": "Tesla T4\nTesla T4\n", "memory.total": "15360 MiB\n15360 MiB\n"}

    def run(command, **options):
        field = command[1].removeprefix("--query-gpu=") if command[0] == "nvidia-smi" else ""
        return subprocess.CompletedProcess(command, 0, stdout=said.get(field, ""))

    monkeypatch.setattr(module.subprocess, "run", run)
    hardware = provenance()["hardware"]
    assert hardware["gpu"] == "Tesla T4; Tesla T4"
    assert hardware["gpu_memory"] == "15360 MiB; 15360 MiB"
    assert hardware["gpu_driver"] is None
