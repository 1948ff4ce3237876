"""The gradient of one step on injected completions, in as many processes as start this.

    torchrun --nproc_per_node 2 tests/training/one_gradient.py FILE

Prompts, completions and rewards are functions of the prompt alone, so that any number of processes
sees the same ones; the first process writes the gradients into FILE.
"""

import hashlib
import sys
from collections import Counter

import torch
from transformers import TrainerCallback

from casebook import models, paths, training
from casebook.training import processes

BATCH = 32  # completions of the step, all processes together
LOSSES = ("dapo", "grpo", "dr_grpo")


class Injected(training.RolloutTrainer):
    """Its completions are made up: 3 to 12 tokens, drawn by prompt and number."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        seen, completions = Counter(), []
        for ids in prompt_ids:
            key = tuple(ids)
            mark = hashlib.sha256(repr((key, seen[key])).encode()).digest()
            draw = torch.Generator().manual_seed(int.from_bytes(mark[:4]))
            seen[key] += 1
            length = int(torch.randint(3, 12, (), generator=draw))
            tokens = torch.randint(10, 60, (length,), generator=draw).tolist()
            completions.append([*tokens, self.eos_token_ids[0]])
        return completions, None


class Gradients(TrainerCallback):
    """Keeps the gradients of all weights before they are clipped and used."""

    def __init__(self):
        self.seen = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        named = model.named_parameters()
        self.seen = {n: p.grad.clone() for n, p in named if p.grad is not None}


def spread(completion_ids, **columns):
    """A reward that differs within each group."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def main(file: str) -> None:
    found = {loss: one_step(loss, file) for loss in LOSSES}
    if processes.end():
        torch.save(found, file)


def one_step(loss: str, file: str) -> dict:
    """Gradients and log of one step; its trainer is gone when the processes part."""
    changes = {"loss_type": loss, "max_steps": 1, "max_grad_norm": 1e9, "train_limit": 64}
    changes |= {"save_strategy": "no", "per_device_train_batch_size": BATCH // processes.count()}
    config = training.read_config(paths.CONFIGS / "poker" / "smoke.yaml", changes)
    processes.check(config)
    model, tokenizer = models.load_policy("poker", "smoke", settings=config.settings)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:  # zero at the start, and with it the gradients of A
                weights += 0.02 * torch.randn_like(weights)
    gradients = Gradients()
    trainer = Injected(
        model=model,
        reward_funcs=[spread],
        args=_arguments(config, file),
        train_dataset=training.training_rows(config, tokenizer)[0],
        processing_class=tokenizer,
        callbacks=[gradients],
    )
    trainer.train()
    return {"gradients": gradients.seen, "log": trainer.state.log_history[0]}


def _arguments(config, file):
    """TRL's arguments for one reward, whose weight is 1."""
    arguments = config.trainer_arguments(file + ".folder")
    arguments.reward_weights = None
    return arguments


if __name__ == "__main__":
    main(sys.argv[1])
