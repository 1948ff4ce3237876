import re
import tomllib
from importlib.metadata import version
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
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def pins(file):
    return {canonicalize_name(r.name): str(r.specifier) for r in requirements(file)}


def asked_for(*but):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].items()
    groups = [project["dependencies"], *(group for name, group in extras if name not in but)]
    return [Requirement(r) for group in groups for r in group]


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
def test_cpu_and_gpu_share_the_versions_that_are_tested_here(file):
    cpu, gpu = pins("requirements.txt"), pins(file)
    for name in (*COMMON, "geopandas", "highspy", "math-verify"):
        assert gpu[name] == cpu[name]


@pytest.mark.parametrize("file", GPU_FILES)
def test_a_gpu_file_has_all_that_the_package_asks_for_but_pages_and_checks(file):
    # Both once had the extra `train` alone: land use stopped at geopandas, MATH at math-verify.
    assert {canonicalize_name(r.name) for r in asked_for("site", "dev")} <= set(pins(file))


@pytest.mark.parametrize("file", GPU_FILES)
def test_a_gpu_file_installs_builds_for_the_cuda_in_its_name(file):
    # requirements-gpu-cu12.txt once installed torch 2.11.0 from PyPI, which is +cu130.
    cuda = file.removesuffix(".txt").rpartition("-")[2]
    text = (ROOT / file).read_text()
    built = {canonicalize_name(r.name): cuda_of(r) for r in requirements(file)}
    assert {built[name] for name in ("torch", "torchvision", "vllm")} == {cuda}
    # xformers 0.0.35 needs libcudart.so.12.
    assert ("xformers" in built) == (cuda == "cu12")
    tags = set(re.findall(r"download\.pytorch\.org/whl/(cu\d+)", text))
    assert tags == set(re.findall(r"torch\w*==[\d.]+\+(cu\d+)", text))


def cuda_of(requirement):
    """Of a local version tag or a wheel's name, else that of PyPI's own wheels."""
    tag = re.search(r"\+(cu\d\d)\d+", requirement.url or str(requirement.specifier))
    return tag[1] if tag else "cu13"


def test_pins_are_those_installed_here():
    cpu = pins("requirements.txt")
    for name in ("torch", *COMMON):
        assert f"=={version(name).partition('+')[0]}" == cpu[name]
