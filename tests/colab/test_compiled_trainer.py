"""Unsloth's compiled trainer: what it gets of a configuration, and that it learns as TRL's does.

Unsloth rewrites TRL's arguments and trainer, with defaults of its own, and accepts what it does
not know in silence. Losses and gradient norms are compared over two steps: with a KL term the
first has none to the base yet, and later the optimiser makes small differences large.
"""

import json
from pathlib import Path

import pytest

from casebook import paths

SCRIPT = Path(__file__).with_name("compiled_trainer.py")
FILES = sorted(
    file
    for file in (paths.ROOT / "configs").glob("*/*.yaml")
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

STEPS = """
import os, sys
from pathlib import Path
os.environ["CASEBOOK_BACKEND"] = "unsloth"  # of an embedded model
from casebook import training
config = training.read_config(("poker", "smoke"), {"beta": float(sys.argv[1])})
print(training.first_steps(config, Path(sys.argv[2]), 2).path)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def resolved(small_checkout, python_in):
    """File -> what the compiled trainer made of it."""
    said = python_in(small_checkout("poker", "t4"), SCRIPT.read_text(), *map(str, FILES))
    lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
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


@pytest.mark.parametrize(("beta", "rel"), [(0.0, 1e-3), (1.0, 3e-3)])
def test_it_takes_the_steps_that_plain_trl_takes(beta, rel, small_checkout, python_in, tmp_path):
    from casebook import training

    config = training.read_config(("poker", "smoke"), {"beta": beta})
    plain = training.first_steps(config, tmp_path / "trl", 2).metrics()
    python_in(small_checkout("poker", "t4"), STEPS, str(beta), str(tmp_path / "unsloth"))
    compiled = training.Run(tmp_path / "unsloth").metrics()
    assert len(compiled) == 2
    assert plain["grad_norm"].min() > 0
    for name in ("reward", "loss", "grad_norm"):
        assert compiled[name].tolist() == pytest.approx(plain[name].tolist(), rel=rel, abs=1e-6)
    assert set(compiled) == {*plain, "completion_length"} - {"entropy"}
    if beta:  # a mean over completions; TRL's is over tokens
        assert compiled["kl"][0] < 1e-6 < compiled["kl"][1]
