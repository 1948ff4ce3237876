"""Writes wheels.json: what the pinned GPU wheels need and take, read from them without a GPU.

    for pin in unsloth==2026.10.9 vllm==0.26.0 vllm==0.30.0 …; do  # all that the file names
        pip download --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \\
            --platform manylinux_2_24_x86_64 --python-version 3.13 --dest wheels $pin
    done
    python tests/colab/wheels.py wheels

What the file says of a wheel that is not in the folder stays, so that vLLM's (300 MB each) need
not be fetched for Unsloth's sake. Nothing of a wheel is imported or installed.
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
# Package -> callable -> its file in the wheel, and its class. A method follows the class's name;
# a class of fields, which msgspec or dataclasses give a constructor, has none.
WANTED = {
    "unsloth": {
        "FastLanguageModel.from_pretrained": "unsloth/models/loader.py:FastLanguageModel",
        "FastLanguageModel.get_peft_model": "unsloth/models/llama.py:FastLlamaModel",
    },
    "trl": {
        "GRPOTrainer.__init__": "trl/trainer/grpo_trainer.py:GRPOTrainer",
        "GRPOConfig": "trl/trainer/grpo_config.py:GRPOConfig",
    },
    "vllm": {
        "LLM.__init__": "vllm/entrypoints/llm.py:LLM",
        "LLM.generate": "vllm/entrypoints/llm.py:LLM",
        "SamplingParams": "vllm/sampling_params.py:SamplingParams",
        "LoRARequest": "vllm/lora/request.py:LoRARequest",
    },
}
REQUIRED = "required"


def read_wheel(wheel: Path) -> dict[str, Any]:
    """What a wheel requires, and what its callables take, with its name and checksum."""
    package, found = wheel.name.split("-")[0], {}
    with ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        requires = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist")
        for name, place in WANTED.get(package, {}).items():
            file, _, owner = place.partition(":")
            source, method = archive.read(file).decode(), name.partition(".")[2]
            called = name.removesuffix(".__init__")
            found[called] = read_callable(source, owner, method) | {"file": file}
            if method == "from_pretrained":
                found[called]["dtypes"] = accepted_dtypes(source)
    return {
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        # What an extra brings along is left out.
        "requires": [r for r in requires or [] if "extra ==" not in r],
        **({"callables": found} if found else {}),
    }


def read_callable(source: str, owner: str, method: str) -> dict[str, Any]:
    """Parameter -> default of a method, or of a class's fields; `kwargs`: takes any other name."""
    classes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef))
    body = next(node.body for node in classes if node.name == owner)
    if not method:
        fields = [n for n in body if isinstance(n, ast.AnnAssign) and n.target.id[0] != "_"]
        fields = [n for n in fields if "ClassVar" not in ast.unparse(n.annotation)]
        return {"parameters": {n.target.id: default(n.value) for n in fields}, "kwargs": False}
    functions = (node for node in body if isinstance(node, ast.FunctionDef))
    taken = next(node.args for node in functions if node.name == method)
    places = [*taken.posonlyargs, *taken.args]
    values = [None] * (len(places) - len(taken.defaults)) + taken.defaults
    arguments, values = places + taken.kwonlyargs, values + taken.kw_defaults
    pairs = zip(arguments, values, strict=True)
    named = {a.arg: default(value) for a, value in pairs if a.arg != "self"}
    return {"parameters": named, "kwargs": taken.kwarg is not None}


def default(value: ast.expr | None) -> str:
    """A default as text, also behind `field(default=…)`; what is made anew keeps its factory."""
    if isinstance(value, ast.Call):
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        value = given.get("default", given.get("default_factory", value))
    return REQUIRED if value is None else ast.unparse(value)


def accepted_dtypes(source: str) -> dict[str, list[str]]:
    """The types that `from_pretrained` lets through: as text, and as attributes of torch.

    Text that is not among `text` meets an assertion without a sentence.
    """
    text = re.search(r"isinstance\(dtype, str\) and dtype in (\[[^\]]*\])", source)
    # The assertion's own lines: `assert (dtype is None or dtype == torch.… or …)`
    held = re.search(r"assert \(\s*dtype is None((?:\s*or dtype == torch\.\w+)+)\s*\)", source)
    if text is None or held is None:
        sys.exit("the check of dtype in FastLanguageModel.from_pretrained has moved")
    return {
        "text": sorted(ast.literal_eval(text[1])),
        "torch": sorted(re.findall(r"torch\.(\w+)", held[1])),
    }


if __name__ == "__main__":
    contract = json.loads(FILE.read_text())
    for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
        package, version = wheel.name.split("-")[:2]
        contract[f"{package}=={version}"] = read_wheel(wheel)
        print(wheel.name)
    FILE.write_text(json.dumps(contract, indent=1) + "\n")
