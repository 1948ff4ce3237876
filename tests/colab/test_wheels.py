"""What the casebook asks of Unsloth, TRL and vLLM, held against the pinned wheels themselves.

`wheels.json` was read from the wheels (`wheels.py`), each named with its checksum, so that no GPU
and no download is needed here.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from casebook import paths
from casebook.install import pins_of

HERE = Path(__file__).parent
WHEELS = json.loads((HERE / "wheels.json").read_text())
CONFIGS = sorted(p for p in (paths.ROOT / "configs").glob("*/*.yaml") if p.stem != "experiments")
GPU = [p for p in CONFIGS if not yaml.safe_load(p.read_text())["use_cpu"]]


def name_of(path):
    return f"{path.parent.name}/{path.name}"


def taken(name, package):
    """The parameters of a callable in every wheel of a package that the file knows."""
    wheels = [wheel for pin, wheel in WHEELS.items() if pin.startswith(f"{package}==")]
    return set.intersection(*(set(w["callables"][name]["parameters"]) for w in wheels))


@pytest.mark.parametrize("cuda", ["cu12", "cu13"])
def test_the_wheels_are_those_that_are_installed(cuda):
    pins = pins_of(f"requirements-gpu-{cuda}.txt")
    for name in ("unsloth", "trl", "vllm"):
        version = re.search(rf"\b{name}(?:==|-)([\d.]+)", pins[name])[1]
        assert f"{name}=={version}" in WHEELS, f"read {name} {version}: wheels.py"


# Loading


@pytest.fixture(scope="module")
def loaded():
    """File -> lines of `loading_calls.py`; the profiles of a backend share a process."""
    environment = os.environ | {
        "PYTHONPATH": f"{HERE / 'standin'}:{paths.ROOT / 'src'}",
        "CASEBOOK_ROOT": str(paths.ROOT),
        "STANDIN_RECORD": "1",
        "HF_HUB_OFFLINE": "1",
    }
    environment.pop("CASEBOOK_BACKEND", None)
    lines = {}
    # The real model of the laptop may not be here; the embedded ones are.
    for files in (GPU, [p for p in CONFIGS if p.stem == "nano"]):
        command = [sys.executable, HERE / "loading_calls.py", *files]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                said = json.loads(line.removeprefix("RESULT "))
                lines.setdefault(said["file"], []).append(said)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("path", GPU, ids=name_of)
def test_unsloth_takes_every_call_that_loads_a_model_of_a_gpu(path, loaded):
    lines = loaded[name_of(path)]
    errors = {line["who"]: line["error"] for line in lines if "error" in line}
    assert not errors
    settings = yaml.safe_load(path.read_text())
    for line in lines:
        for name, call in line["calls"]:
            if name == "from_pretrained":
                assert call["dtype"].removeprefix("torch.") == settings["dtype"]
                if call["fast_inference"] == "True":  # the engine's share is never its own default
                    assert {"gpu_memory_utilization", "max_lora_rank"} <= set(call), line["who"]


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in CONFIGS if p.stem == "nano"], ids=name_of)
def test_where_unsloth_is_installed_the_embedded_models_do_without(path, loaded):
    """Notebook 13 ended with a bare AssertionError in the profile that it opens with."""
    lines = loaded[name_of(path)]
    assert not [line["error"] for line in lines if "error" in line]
    assert not [line["calls"] for line in lines if line["calls"]]


# vLLM


def calls_of(name):
    """Where the package calls something, and by which keywords."""
    for file in sorted((paths.ROOT / "src/casebook").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield file.name, node.lineno, [k.arg for k in node.keywords if k.arg]


@pytest.mark.parametrize(("name", "signature"), [("LLM", "LLM"), ("fast_generate", "LLM.generate")])
def test_vllm_takes_every_keyword_that_it_is_called_with(name, signature):
    for file, line, keywords in calls_of(name):
        assert set(keywords) <= taken(signature, "vllm"), f"{file}:{line}"
