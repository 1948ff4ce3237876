"""Prints, as JSON, what Unsloth's compiled GRPO trainer makes of configurations on a GPU.

    .venv-unsloth/bin/python tests/colab/compiled_trainer.py configs/poker/t4.yaml …

The machine only looks like one with a GPU: Unsloth is told to take its CUDA branches without one,
compiles TRL's trainer as it does on Colab, and each file goes through the casebook's reader, TRL's
parser, the rewritten `GRPOConfig`, and the rewritten trainer up to the point where TRL's own
begins. One line for each file: `settings` as the file writes them, and `trained` with what the
trainer would get, by the same names, or `error`.
"""

import json
import os
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

COMPILED = tempfile.mkdtemp()
os.environ |= {
    "UNSLOTH_ALLOW_CPU": "1",  # Unsloth's own switch for tests: CUDA branches without a device
    "UNSLOTH_COMPILE_LOCATION": COMPILED,
    "UNSLOTH_DISABLE_STATISTICS": "1",
}
import unsloth  # noqa: F401

# The switch would also leave TRL's trainers as they are, which is what this is about.
os.environ["UNSLOTH_ALLOW_CPU"] = "0"
from unsloth.models.rl import PatchFastRL

PatchFastRL()

import torch
import trl
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from casebook import training

CARDS = {"t4": ((7, 5), 15), "gpu24": ((8, 6), 24), "a100": ((8, 0), 40)}


class Reached(Exception):
    """TRL's trainer would begin here."""


def look_like(capability: tuple[int, int], gigabytes: int) -> None:
    """Let torch say what it says on a machine with one such card."""
    card = SimpleNamespace(
        name="a card that is not there",
        major=capability[0],
        minor=capability[1],
        total_memory=gigabytes * 2**30,
        multi_processor_count=40,
    )
    torch.version.cuda = "12.8"
    for name, answer in {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "get_device_capability": capability,
        "get_device_properties": card,
        "get_device_name": card.name,
        "is_bf16_supported": capability >= (8, 0),
    }.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)


def trained(settings: dict, file: Path) -> dict:
    """The arguments that TRL's trainer would begin with, by the names of the file."""
    arguments = training.read_config(file).trainer_arguments(tempfile.mkdtemp())
    assert type(arguments) is trl.GRPOConfig, "these are not the rewritten arguments"
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, settings["dtype"]))
    try:
        trl.GRPOTrainer(model=model, reward_funcs=[len], args=arguments, train_dataset=None)
    except Reached as reached:
        arguments = reached.args[0]
    known = {field.name for field in fields(arguments)}
    return {name: getattr(arguments, name) for name in settings if name in known}


def main(files: list[Path]) -> None:
    compiled = sys.modules[trl.GRPOTrainer.__module__]
    assert Path(compiled.__file__).parent == Path(COMPILED), "this trainer is not the compiled one"

    def begin(self, *_, args=None, **__):
        raise Reached(args)

    compiled._UnslothGRPOTrainer.__init__ = begin
    for file in files:
        settings = yaml.safe_load(file.read_text())
        look_like(*CARDS[file.stem.partition("_")[0]])
        line = {"file": f"{file.parent.name}/{file.name}", "settings": settings}
        try:
            line["trained"] = trained(settings, file)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
        print("RESULT", json.dumps(line, default=str), flush=True)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
