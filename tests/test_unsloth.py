"""The cells a Colab user runs, through Unsloth's CPU backend and through PEFT: one algorithm.

Unsloth rewrites TRL's trainers when it is imported, so it lives in an environment and a process
of its own (`make unsloth-cpu`). Gradient norms are compared, not losses: on-policy and without
KL, the loss does not depend on the weights.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from casebook import paths

PYTHON = Path(os.environ.get("CASEBOOK_UNSLOTH_PYTHON") or ".venv-unsloth/bin/python")
SETUP = """
import json, tempfile
PROFILE, SEED = "smoke", 0
import torch
from casebook.backend import choose_backend, unsloth_chosen
choose_backend(PROFILE)
from casebook import models, training
from casebook.case import load_case
from casebook.models import FastLanguageModel
from transformers import PrinterCallback, set_seed
from trl import GRPOTrainer
case = load_case("poker")
settings = training.read_config(("poker", PROFILE), {"seed": SEED}).settings
"""
REPORT = """
print("RESULT", json.dumps({"unsloth": unsloth_chosen(), "steps": steps}))
"""


def three_steps(python: Path | str, backend: str, folder: Path) -> dict:
    notebook = nbformat.read(paths.NOTEBOOKS / "13_poker_grpo.ipynb", as_version=4)
    cells = [
        cell.source for cell in notebook.cells if "unsloth-cells" in cell.metadata.get("tags", [])
    ]
    assert any("FastLanguageModel.from_pretrained" in cell for cell in cells)
    assert any("FastLanguageModel.get_peft_model" in cell for cell in cells)
    assert any("GRPOTrainer(" in cell for cell in cells)
    environment = os.environ | {
        "CASEBOOK_BACKEND": backend,
        "CASEBOOK_ROOT": str(paths.ROOT),
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_COMPILE_LOCATION": str(folder / "compiled"),
    }
    done = subprocess.run(
        [python, "-c", "\n".join([SETUP, *cells, REPORT])],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[-1].removeprefix("RESULT "))


@pytest.mark.heavy
def test_unsloth_and_peft_take_the_same_three_steps(tmp_path):
    python = paths.ROOT / PYTHON
    if not python.exists():
        if os.environ.get("CASEBOOK_REQUIRE_UNSLOTH"):
            pytest.fail(f"no Unsloth environment at {PYTHON}: run `make unsloth-cpu`")
        pytest.skip("Unsloth's CPU backend is not installed: `make unsloth-cpu`")
    unsloth = three_steps(python, "unsloth", tmp_path)
    peft = three_steps(sys.executable, "peft", tmp_path)
    assert unsloth["unsloth"]
    assert not peft["unsloth"]
    assert len(peft["steps"]) == 3
    for ours, theirs in zip(peft["steps"], unsloth["steps"], strict=True):
        assert ours["grad_norm"] > 0
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        assert theirs["reward"] == pytest.approx(ours["reward"], rel=1e-6)
