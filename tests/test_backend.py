"""Which library trains a profile, decided before TRL is imported."""

import json
import os
import subprocess
import sys

import pytest

from casebook import backend, paths
from casebook.case import PROFILES, CasebookError

UNSLOTH = """
class FastLanguageModel:
    asked = []
    @classmethod
    def from_pretrained(cls, **arguments):
        cls.asked.append(arguments)
        raise SystemExit("Unsloth was asked for " + str(arguments["dtype"]))
"""


@pytest.fixture
def alone(tmp_path):
    """Runs lines in a process of its own, in which a stand-in for Unsloth is installed."""
    folder = tmp_path / "site" / "unsloth"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(UNSLOTH)

    def run(code, **environment):
        # Colab's machines have Unsloth after the install cell wherever a GPU answers.
        path = os.pathsep.join([str(folder.parent), str(paths.ROOT / "src")])
        kept = {k: v for k, v in os.environ.items() if k != "CASEBOOK_BACKEND"}
        env = kept | {"PYTHONPATH": path, "CASEBOOK_ROOT": str(paths.ROOT)} | environment
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    return run


CHOOSE = """
import sys
from casebook.backend import choose_backend
print(choose_backend({!r}), "unsloth" in sys.modules, "torch" in sys.modules)
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_where_unsloth_is_installed_the_profile_decides_and_not_the_installation(alone, profile):
    # Run All with the default profile once met Unsloth on Colab, which refuses dtype "float32".
    gpu = PROFILES[profile].device == "gpu"
    assert alone(CHOOSE.format(profile)) == f"{'unsloth' if gpu else 'peft'} {gpu} False"


@pytest.mark.parametrize(("asked", "profile"), [("unsloth", "nano"), ("peft", "a100")])
def test_the_environment_decides_otherwise(alone, asked, profile):
    said = alone(CHOOSE.format(profile), CASEBOOK_BACKEND=asked)
    assert said == f"{asked} {asked == 'unsloth'} False"


def test_after_trl_it_is_too_late_for_unsloth(alone):
    code = "import sys, types\nsys.modules['trl'] = types.ModuleType('trl')\n"
    said = alone(code + CHOOSE.format("t4"))
    assert "Unsloth has to be imported before TRL" in said
    assert "choose_backend('t4')" in said


@pytest.mark.slow
def test_a_t4_policy_is_loaded_by_unsloth_with_a_type_of_torch(alone):
    code = "from casebook import models\nmodels.load_policy('poker', 't4')"
    assert alone(code) == "Unsloth was asked for torch.float16"


def test_the_command_line_evaluates_by_the_policys_card(alone, tmp_path):
    (tmp_path / "casebook.json").write_text(json.dumps({"profile": "gpu24"}))
    (tmp_path / "adapter_config.json").write_text("{}")
    arguments = ["casebook", "evaluate", "--case", "poker", "--model", str(tmp_path)]
    code = "import sys\nimport casebook.backend as b\n"
    code += f"b.choose_backend = lambda p: sys.exit(f'chose {{p}}')\nsys.argv = {arguments!r}\n"
    assert alone(code + "from casebook.cli import main\nmain()") == "chose gpu24"


def test_mistakes_are_sentences(monkeypatch):
    monkeypatch.setenv("CASEBOOK_BACKEND", "jax")
    with pytest.raises(CasebookError, match="unknown CASEBOOK_BACKEND 'jax': known are auto"):
        backend.choose_backend("nano")
    monkeypatch.setenv("CASEBOOK_BACKEND", "unsloth")
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "unsloth", raising=False)
    with pytest.raises(CasebookError, match="'unsloth', but unsloth is not installed"):
        backend.choose_backend("nano")


@pytest.mark.parametrize(
    ("free", "generation", "profile"),
    [(14, 7, "t4"), (79, 8, "a100"), (22, 8, "gpu24"), (79, 7, "t4"), (2, 8, "nano")],
)
def test_the_proposed_profile_fits_the_memory_that_is_free(free, generation, profile, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (generation, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    found = backend.hardware()
    assert (found["profile"], found["gpu"]) == (profile, "a card")
    assert (backend.profile_here("auto"), backend.profile_here("smol")) == (profile, "smol")
    assert found["reason"].startswith(f"{free}.0 GiB are free on the GPU")
