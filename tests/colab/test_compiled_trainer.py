"""Unsloth's compiled trainer gets, field by field, what the configurations of the GPUs say.

Unsloth rewrites TRL's arguments and trainer, with defaults of its own, and accepts what it does
not know in silence. Its environment is `make unsloth-cpu`; the card is a stand-in.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from casebook import paths

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("compiled_trainer.py")
FILES = sorted(
    file
    for file in (ROOT / "configs").glob("*/*.yaml")
    if file.stem.partition("_")[0] in ("t4", "gpu24", "a100")
)
# What the trainer holds in another form than the file, and means the same by.
SAME = {
    "report_to": lambda wanted, got: got == [wanted],
    # vLLM's "all tokens" is -1, transformers' is 0.
    "top_k": lambda wanted, got: got == (wanted or -1),
}
# What Unsloth decides for itself, whatever a file says: its checkpointing is re-entrant. The
# gradient is the same; what is kept for the backward pass differs.
OVERRULED = {"gradient_checkpointing_kwargs": {"use_reentrant": True}}

pytestmark = pytest.mark.heavy


def unsloth_python():
    """The interpreter that has Unsloth; a test that asks for it is skipped where there is none."""
    python = ROOT / os.environ.get("CASEBOOK_UNSLOTH_PYTHON", ".venv-unsloth/bin/python")
    if not python.exists():
        assert "CASEBOOK_REQUIRE_UNSLOTH" not in os.environ, "Unsloth is missing: make unsloth-cpu"
        pytest.skip("Unsloth is not installed: make unsloth-cpu")
    return python


@pytest.fixture(scope="module")
def resolved(tmp_path_factory):
    """File -> what the compiled trainer made of it; one process, as Unsloth takes 20 s to load."""
    python = unsloth_python()
    environment = os.environ | {
        "CASEBOOK_ROOT": str(paths.ROOT),
        "PYTHONPATH": str(paths.ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
    }
    environment.pop("CASEBOOK_BACKEND", None)  # the script imports Unsloth itself
    done = subprocess.run(
        [python, SCRIPT, *FILES],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path_factory.mktemp("compiled"),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    found = [json.loads(line.removeprefix("RESULT ")) for line in lines]
    return {line["file"]: line for line in found}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_the_compiled_trainer_gets_what_the_file_says(file, resolved):
    line = resolved[f"{file.parent.name}/{file.name}"]
    assert "error" not in line, line["error"]
    settings, trained = line["settings"], line["trained"]
    assert {"learning_rate", "seed", "beta", "loss_type", "optim", "fp16", "bf16"} <= set(trained)
    different = {
        name: (settings[name], got)
        for name, got in trained.items()
        if got != settings[name]
        and not (name in SAME and SAME[name](settings[name], got))
        and got != OVERRULED.get(name)
    }
    assert not different, (
        f"{file.parent.name}/{file.name}: (in the file, in the trainer) {different}"
    )
