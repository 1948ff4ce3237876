import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
COMMON = ("accelerate", "datasets", "peft", "transformers", "trl")
GPU_FILES = ("requirements-gpu-cu12.txt", "requirements-gpu-cu13.txt")


def requirements(file):
    lines = (line.strip() for line in (ROOT / file).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(file):
    return {canonicalize_name(r.name): str(r.specifier) for r in requirements(file)}


def asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(r) for group in (project["dependencies"], *extras) for r in group]


def test_every_requirement_is_pinned_to_one_public_version():
    for requirement in requirements("requirements.txt"):
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert "*" not in specifier.version
        assert "+" not in specifier.version


def test_nothing_is_pinned_twice_and_no_gpu_package_at_all():
    names = [canonicalize_name(r.name) for r in requirements("requirements.txt")]
    assert len(names) == len(set(names))
    assert not [n for n in names if n.startswith(("nvidia", "triton", "cuda", "unsloth", "vllm"))]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_hold_what_the_package_asks_for(python):
    applying = {
        canonicalize_name(r.name): next(iter(r.specifier)).version
        for r in requirements("requirements.txt")
        if r.marker is None or r.marker.evaluate({"python_version": python})
    }
    for requirement in asked_for():
        assert requirement.specifier.contains(applying[canonicalize_name(requirement.name)])


def test_the_conda_environment_has_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (by_pip,) = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    written = [str(r) for r in requirements("requirements.txt")]
    assert [str(Requirement(line)) for line in by_pip] == written, "run: make environment.yml"


@pytest.mark.parametrize("file", GPU_FILES)
def test_cpu_and_gpu_share_the_training_libraries(file):
    cpu, gpu = pins("requirements.txt"), pins(file)
    assert {name: gpu[name] for name in COMMON} == {name: cpu[name] for name in COMMON}


@pytest.mark.parametrize("file", GPU_FILES)
def test_a_gpu_file_has_all_that_training_asks_for(file):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["train"]
    missing = {canonicalize_name(Requirement(r).name) for r in needed} - set(pins(file))
    assert not missing


def test_pins_are_those_installed_here():
    from importlib.metadata import version

    cpu = pins("requirements.txt")
    for name in ("torch", *COMMON):
        assert f"=={version(name).partition('+')[0]}" == cpu[name]
