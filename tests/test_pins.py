import re
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
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


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
    for name in (*COMMON, "geopandas", "highspy", "libpysal", "math-verify", "shapely"):
        assert gpu[name] == cpu[name]


@pytest.mark.parametrize("file", GPU_FILES)
def test_a_gpu_file_has_all_that_the_package_asks_for_but_pages_and_checks(file):
    # Both once had the extra `train` alone: land use stopped at geopandas, MATH at math-verify.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [r for name, rs in extras.items() if name not in ("site", "dev") for r in rs]
    names = {canonicalize_name(Requirement(r).name) for r in project["dependencies"] + needed}
    assert names <= set(pins(file))


# CUDA of PyPI's own wheels, read in them: torch 2.11.0 and 2.13.0, vllm from 0.20.0 on.
PYPI_IS_BUILT_FOR = "cu13"


@pytest.mark.parametrize("file", GPU_FILES)
def test_a_gpu_file_installs_builds_for_the_cuda_in_its_name(file):
    # requirements-gpu-cu12.txt once installed torch 2.11.0 from PyPI, which is +cu130.
    cuda = file.removesuffix(".txt").rpartition("-")[2]
    text = (ROOT / file).read_text()
    built = {name: cuda_of(requirement) for name, requirement in by_name(file).items()}
    assert {built[name] for name in ("torch", "torchvision", "vllm")} == {cuda}
    tags = set(re.findall(r"download\.pytorch\.org/whl/(cu\d+)", text))
    assert tags == set(re.findall(r"torch\w*==[\d.]+\+(cu\d+)", text))


def by_name(file):
    return {canonicalize_name(r.name): r for r in requirements(file)}


def cuda_of(requirement):
    """`cu12` or `cu13`, of a local version tag or a wheel's name, else what PyPI has."""
    tag = re.search(r"\+(cu\d\d)\d+", requirement.url or str(requirement.specifier))
    return tag[1] if tag else PYPI_IS_BUILT_FOR


def test_under_cuda_13_no_library_of_cuda_12_is_pinned_and_four_bits_have_their_plugin():
    # xformers 0.0.35 needs libcudart.so.12; vLLM from 0.28 on has bitsandbytes in a plugin.
    cu13, cu12 = pins("requirements-gpu-cu13.txt"), pins("requirements-gpu-cu12.txt")
    assert "xformers" not in cu13
    assert "xformers" in cu12
    assert "vllm-bnb-plugin" in cu13
    assert "vllm-bnb-plugin" not in cu12


def test_pins_are_those_installed_here():
    from importlib.metadata import version

    cpu = pins("requirements.txt")
    for name in ("torch", *COMMON):
        assert f"=={version(name).partition('+')[0]}" == cpu[name]
