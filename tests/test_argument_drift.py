"""Every argument passed to TRL, PEFT, transformers and datasets exists there.

Defaults and names moved under each of the write-ups, and Unsloth's rewritten trainers accept a
misspelt argument in silence. So each call in the package and the notebooks whose target can be
read from the imports is compared with the installed signature.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path

import nbformat
import pytest
import trl
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ROOT = Path(__file__).parents[1]
LIBRARIES = ("trl", "peft", "transformers", "datasets", "tokenizers")
MODULES = sorted((ROOT / "src/casebook").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CONFIGS = sorted((ROOT / "configs").glob("*/*.yaml"))


def name_of(path):
    return str(path.relative_to(ROOT))


def drift_in_code(code, where):
    """One sentence for each argument of a library's function that it does not have."""
    tree = ast.parse(code)
    names = imported(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (target := resolve(call.func, names)):
            function, library_name = target
            known = accepted(function)
            for keyword in call.keywords:
                if keyword.arg is not None and keyword.arg not in known:
                    yield (
                        f"DRIFT DETECTED: {where}, line {call.lineno}: {library_name} takes no "
                        f"{keyword.arg!r} in the installed version"
                    )


def imported(tree):
    """Local name -> the object of a library that it stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), (
                    f"DRIFT DETECTED: {node.module} has no {alias.name!r}"
                )
                names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def resolve(function, names):
    """The library's callable behind `Name(...)` or `Name.method(...)`, and what it is called."""
    path = []
    while isinstance(function, ast.Attribute):
        path.insert(0, function.attr)
        function = function.value
    if not isinstance(function, ast.Name) or function.id not in names:
        return None
    target = names[function.id]
    for attribute in path:
        target = getattr(target, attribute, None)
    label = ".".join([function.id, *path])
    assert target is not None, f"DRIFT DETECTED: there is no {label}"
    return (target, label) if callable(target) else None


def accepted(function):
    """The names of the arguments a callable takes, with those it picks out of `**kwargs`."""
    names = named(function)
    if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
        return names
    behind = [function]
    if isinstance(function, type):
        if issubclass(function, PreTrainedConfig):
            return names | set(vars(function()))
        if issubclass(function, PreTrainedTokenizerBase):
            names |= set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES)
        initialisers = (cls.__dict__.get("__init__") for cls in function.__mro__)
        behind = [init for init in initialisers if inspect.isfunction(init)]
    elif function.__name__ == "from_pretrained":
        behind += [PreTrainedModel.from_pretrained, PreTrainedTokenizerBase.__init__]
        names |= named(PreTrainedModel.from_pretrained)
    source = "".join(map(inspect.getsource, behind))
    picked = re.findall(r"""kwargs\.(?:pop|get|setdefault)\(\s*["'](\w+)["']""", source)
    return names.union(picked)


def named(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_package_passes_arguments_that_exist(path):
    found = list(drift_in_code(path.read_text(), name_of(path)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebooks_pass_arguments_that_exist(path):
    cells = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    found = list(drift_in_code("\n".join(cells), name_of(path)))
    assert not found, "\n".join(found)


def test_what_the_trainers_override_is_still_called_by_trl():
    """It is private there, and may go without a word: see `training.rollouts`."""
    code = ast.unparse(ast.parse(inspect.getsource(trl.GRPOTrainer)))
    for expected in (
        r"completion_ids, logprobs\)? = self\._generate_single_turn\(",
        r"\w+, \w+, \w+\)? = self\._get_per_token_logps_and_entropies\("
        r"model, input_ids, attention_mask, logits_to_keep",
        r"self\.temperature = args\.temperature",
        r"unwrapped_model\.generate\(\*\*",
        r"model\(\*\*model_inputs\)",  # in the model's place a pass that shares prompts
    ):
        assert re.search(expected, code), f"DRIFT DETECTED: GRPOTrainer has no {expected!r}"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("GRPOConfig(max_prompt_length=128)", "max_prompt_length"),
        ("LoraConfig(rank=8)", "rank"),
        ("AutoModelForCausalLM.from_pretrained('a', torch_dtyp='float32')", "torch_dtyp"),
    ],
)
def test_drift_is_detected(call, argument):
    code = (
        "from trl import GRPOConfig, GRPOTrainer\nfrom peft import LoraConfig\n"
        f"from transformers import AutoModelForCausalLM, LlamaConfig\n{call}"
    )
    (message,) = drift_in_code(code, "here")
    assert message.startswith("DRIFT DETECTED: here, line 4: ")
    assert repr(argument) in message
