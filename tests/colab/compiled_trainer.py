"""Prints, as JSON, what Unsloth's compiled GRPO trainer makes of configurations on a GPU.

Each file goes through the casebook's reader, TRL's parser, the rewritten `GRPOConfig`, and the
rewritten trainer up to the point where TRL's own begins. One line for each file: `settings` as the
file writes them, and `trained` with what the trainer would get, by the same names, or `error`.
Run where the stand-in has become Unsloth.
"""

import json
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import torch
import trl
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from casebook import training


class Reached(Exception):
    """TRL's trainer would begin here."""


def trained(settings: dict, file: Path) -> dict:
    """The arguments that TRL's trainer would begin with, by the names of the file."""
    arguments = training.read_config(file).trainer_arguments(tempfile.mkdtemp())
    assert type(arguments) is trl.GRPOConfig, "these are not the rewritten arguments"
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    model = LlamaForCausalLM(config).to(getattr(torch, settings["dtype"]))
    try:
        trl.GRPOTrainer(model=model, reward_funcs=[len], args=arguments, train_dataset=None)
    except Reached as reached:
        arguments = reached.args[0]
    known = {field.name for field in fields(arguments)}
    return {name: getattr(arguments, name) for name in settings if name in known}


def main(files: list[Path]) -> None:
    def begin(self, *_, args=None, **__):
        args.use_cpu = args.asked["use_cpu"]
        raise Reached(args)

    compiled = sys.modules[trl.GRPOTrainer.__module__]
    compiled._UnslothGRPOTrainer.__init__ = begin
    for file in files:
        settings = yaml.safe_load(file.read_text())
        line = {"file": f"{file.parent.name}/{file.name}", "settings": settings}
        try:
            line["trained"] = trained(settings, file)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
        print("RESULT", json.dumps(line, default=str), flush=True)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
