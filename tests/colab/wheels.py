"""Writes wheels.json: what the pinned GPU wheels need and take, read from them without a GPU.

    for pin in unsloth==2026.10.9 vllm==0.26.0 vllm==0.30.0 …; do  # all that the file names
        pip download --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \\
            --platform manylinux_2_24_x86_64 --python-version 3.13 --dest wheels $pin
    done
    python tests/colab/wheels.py wheels

What the file says of a wheel that is not in the folder stays, so that vLLM's (300 MB each) need
not be fetched for Unsloth's sake. Nothing of a wheel is imported or installed. Where
another build of a release was read than the one that is installed, its entry says so.
"""

import ast
import hashlib
import json
import re
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

FILE = Path(__file__).with_suffix(".json")
# Package -> name of a callable -> (file in the wheel, class, method). A class of fields, which
# msgspec or dataclasses give a constructor, has no method.
WANTED = {
    "unsloth": {
        "FastLanguageModel.from_pretrained": (
            "unsloth/models/loader.py",
            "FastLanguageModel",
            "from_pretrained",
        ),
        "FastLanguageModel.get_peft_model": (
            "unsloth/models/llama.py",
            "FastLlamaModel",
            "get_peft_model",
        ),
    },
    "trl": {
        "GRPOTrainer": ("trl/trainer/grpo_trainer.py", "GRPOTrainer", "__init__"),
        "GRPOConfig": ("trl/trainer/grpo_config.py", "GRPOConfig", None),
    },
    "vllm": {
        "LLM": ("vllm/entrypoints/llm.py", "LLM", "__init__"),
        "LLM.generate": ("vllm/entrypoints/llm.py", "LLM", "generate"),
        "SamplingParams": ("vllm/sampling_params.py", "SamplingParams", None),
        "LoRARequest": ("vllm/lora/request.py", "LoRARequest", None),
    },
}
# Wheel that was read -> the one of the same release that a requirement file names. The index has
# vLLM 0.26.0 as it is built for CUDA 13 only; the build for CUDA 12 is on the release's own page.
INSTEAD_OF = {
    "vllm-0.26.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "vllm-0.26.0+cu129-cp38-abi3-manylinux_2_28_x86_64.whl"
    )
}
REQUIRED = "required"
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def read_wheel(wheel: Path) -> dict[str, Any]:
    """What a wheel requires, and what its callables take, with its name and checksum."""
    package = wheel.name.split("-")[0]
    with ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if METADATA.fullmatch(n))
        requires = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist")
        found = {
            name: read_callable(archive.read(file).decode(), owner, method) | {"file": file}
            for name, (file, owner, method) in WANTED.get(package, {}).items()
        }
        if package == "unsloth":
            loader = archive.read(WANTED[package]["FastLanguageModel.from_pretrained"][0]).decode()
            found["FastLanguageModel.from_pretrained"]["dtypes"] = accepted_dtypes(loader)
    return {
        "wheel": wheel.name,
        **({"instead_of": INSTEAD_OF[wheel.name]} if wheel.name in INSTEAD_OF else {}),
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        # What an extra brings along is left out.
        "requires": [r for r in requires or [] if "extra ==" not in r],
        **({"callables": found} if found else {}),
    }


def read_callable(source: str, owner: str, method: str | None) -> dict[str, Any]:
    """Parameter -> default of a method, or of a class's fields; `kwargs`: takes any other name.

    Raises:
        LookupError: the source has no such class or method.
    """
    classes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef))
    found = next((node for node in classes if node.name == owner), None)
    if found is None:
        raise LookupError(f"there is no class {owner}")
    if method is None:
        fields = [n for n in found.body if isinstance(n, ast.AnnAssign)]
        named = {
            n.target.id: REQUIRED if n.value is None else field_default(n.value)
            for n in fields
            if "ClassVar" not in ast.unparse(n.annotation) and not n.target.id.startswith("_")
        }
        return {"parameters": named, "kwargs": False}
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == method:
            return read_function(node)
    raise LookupError(f"{owner} has no {method}")


def read_function(node: ast.FunctionDef) -> dict[str, Any]:
    places = [*node.args.posonlyargs, *node.args.args]
    missing = len(places) - len(node.args.defaults)
    defaults = [REQUIRED] * missing + [ast.unparse(d) for d in node.args.defaults]
    named = {a.arg: d for a, d in zip(places, defaults, strict=True) if a.arg != "self"}
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        named[argument.arg] = REQUIRED if default is None else ast.unparse(default)
    return {"parameters": named, "kwargs": node.args.kwarg is not None}


def field_default(value: ast.expr) -> str:
    """The default behind `field(default=…)` and the like; what is made anew keeps its factory."""
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg in ("default", "default_factory"):
                return ast.unparse(keyword.value)
    return ast.unparse(value)


def accepted_dtypes(source: str) -> dict[str, list[str]]:
    """The types that `from_pretrained` lets through: as text, and as attributes of torch.

    Text that is not among `text` meets an assertion without a sentence.

    Raises:
        LookupError: the check is no longer where it was.
    """
    text = re.search(r"isinstance\(dtype, str\) and dtype in (\[[^\]]*\])", source)
    # The assertion's own lines: `assert (dtype is None or dtype == torch.… or …)`
    held = re.search(r"assert \(\s*dtype is None((?:\s*or dtype == torch\.\w+)+)\s*\)", source)
    if text is None or held is None:
        raise LookupError("the check of dtype in FastLanguageModel.from_pretrained has moved")
    return {
        "text": sorted(ast.literal_eval(text[1])),
        "torch": sorted(re.findall(r"torch\.(\w+)", held[1])),
    }


def main(folder: str) -> None:
    contract = json.loads(FILE.read_text()) if FILE.exists() else {}
    for wheel in sorted(Path(folder).glob("*.whl")):
        package, version = wheel.name.split("-")[:2]
        contract[f"{package}=={version}"] = read_wheel(wheel)
        print(wheel.name)
    FILE.write_text(json.dumps(contract, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("Which folder holds the wheels? python tests/colab/wheels.py FOLDER")
    main(sys.argv[1])
