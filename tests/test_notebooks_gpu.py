"""What stopped somebody who ran a notebook on a GPU, each with a stand-in for the GPU's part."""

import ast
import json
import re

import nbformat
import pytest
import torch

from casebook import models, paths, training
from casebook.case import PROFILES
from casebook.site.notebooks import stage_of

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def code_of(name, holding):
    """The source of the one code cell of a notebook that holds some text."""
    (path,) = [path for path in NOTEBOOKS if path.stem == name]
    cells = nbformat.read(path, as_version=4).cells
    (source,) = [c.source for c in cells if c.cell_type == "code" and holding in c.source]
    return source


def loads_a_policy(path):
    cells = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    profile = any("PROFILE, seed=SEED)" in c or "load_base(settings" in c for c in cells)
    return profile or any("training.train(" in c for c in cells)


TRAINED = [p for p in NOTEBOOKS if stage_of(p) in ("baseline", "grpo", "analysis", "audit")]


@pytest.mark.parametrize("path", filter(loads_a_policy, TRAINED), ids=lambda p: p.stem)
def test_the_backend_is_chosen_by_the_profile_before_anything_is_imported(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code"]
    own = [c for c in code if "install" not in c.metadata.get("tags", [])]
    first = next(c.source for c in own if "import" in c.source)
    statements = ast.parse(first).body
    assert statements[0].module == "casebook.backend"
    assert ast.unparse(statements[1]) == "PROFILE = profile_here(PROFILE)"
    assert "choose_backend(PROFILE)" in ast.unparse(statements[2])


@pytest.mark.parametrize("profile", ["smoke", "nano", "smol", "t4", "gpu24", "a100"])
def test_the_cell_by_hand_loads_what_the_run_loads_but_no_engine(profile):
    # It passed dtype "float32" as a text, which Unsloth refuses, and a second engine of vLLM.
    asked = {}

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(**arguments):
            asked.update(arguments)
            return None, None

    given = models.read_settings("poker", profile)
    source = code_of("13_poker_grpo", "FastLanguageModel.from_pretrained(")
    names = {"set_seed": lambda seed: None, "SEED": 0, "settings": given, "torch": torch}
    exec(source, names | {"models": models, "FastLanguageModel": FastLanguageModel})
    expected = models.load.base_arguments(given | {"fast_inference": False})
    assert isinstance(asked["dtype"], torch.dtype)
    assert asked.pop("device_map") == expected.pop("device_map", "sequential")
    whole = expected.pop("full_finetuning")  # of the processor's profiles alone, where PEFT loads
    assert not whole or PROFILES[profile].device == "cpu"
    assert asked == expected


def test_the_steps_by_hand_need_no_engine_either():
    source = code_of("13_poker_grpo", "three_steps = training.read_config(")
    overrides = next(
        ast.literal_eval(ast.unparse(node).replace("SEED", "0"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Dict)
    )
    more = {"bf16": False, "fp16": False, "use_cpu": True}  # is there a GPU is asked otherwise
    config = training.read_config(("poker", "a100"), overrides | more)
    assert (config.use_vllm, config.fast_inference, config.max_steps) == (False, False, 3)


def test_the_model_by_hand_is_gone_before_another_is_loaded():
    # Notebook 13 kept the adapter that it had loaded back while the next cell loaded another.
    source = code_of("13_poker_grpo", "run = training.train(")
    assert source.index("del model, trainer") < source.index("training.train(")
    source = code_of("13_poker_grpo", "models.load_saved(run.adapter)")
    _, collected = source.split("load_saved(run.adapter)")
    assert collected.index("gc.collect()") < collected.index("torch.cuda.empty_cache()")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_table_of_profiles_has_all_that_are_offered(path):
    cells = nbformat.read(path, as_version=4).cells
    table = [line for line in cells[0].source.splitlines() if line.startswith("| `")]
    parameters = next(c.source for c in cells if "parameters" in c.metadata.get("tags", []))
    offered = re.search(r"^PROFILE = .*# @param (\[.*\])$", parameters, re.MULTILINE)
    if not table or not offered:
        pytest.skip("a notebook with one profile has no table of them")
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table))
    auto = ["auto"] * ('PROFILE = "auto"' in cells[0].source)
    assert [*named, *auto] == json.loads(offered[1])
