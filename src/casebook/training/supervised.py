"""The supervised controls: what the same samples buy without reinforcement learning.

*Supervised fine-tuning* shows the model what the oracle would have written; *rejection sampling*
lets the base write, keeps what the verifier accepts, and trains on that. Both get as many
completions as GRPO, the same adapter, optimiser and schedule, so that what is left between them
is the objective. The loop is transformers' own `Trainer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import Trainer

from casebook.case import CasebookError, load_case
from casebook.evaluation import graded
from casebook.models.decoding import constraint_for
from casebook.models.generation import completion_ids, decoding_of, generate_all, token_ids

IGNORED = -100  # the label that transformers' loss leaves out


def taught(case: str, rows: Dataset, variant: str) -> list[dict[str, Any]]:
    """For each row, the completion the oracle would write: `prompt`, `completion`, `ends`."""
    reference = load_case(case).reference
    return [
        {"prompt": row["prompt"], "completion": reference(row, variant), "ends": True}
        for row in rows
    ]


def accepted(
    model: Any, tokenizer: Any, case: str, rows: Sequence[Mapping[str, Any]], settings: Mapping
) -> list[dict[str, Any]]:
    """What the model itself writes well formed and right: `prompt`, `completion`, `ends`.

    Samples as GRPO would: `num_generations` completions for each row, under its constraint.
    """
    task = load_case(case)
    rule = constraint_for(settings.get("constraint", "none"), task.labels, tokenizer)
    jobs = [(i, k) for i in range(len(rows)) for k in range(settings["num_generations"])]
    asked, keys = [rows[i] for i, _ in jobs], [(settings["seed"], i, k) for i, k in jobs]
    how = decoding_of(settings) | {"keys": keys, "constraint": rule}
    written: dict[int, dict[str, Any]] = {}
    was_training = model.training
    model.eval()
    prompts = [row["prompt"] for row in asked]
    for _, numbers, completions in generate_all(model, tokenizer, prompts, **how):
        written |= zip(numbers, completions, strict=True)
    model.train(was_training)
    table = graded(task, asked, (written[n] for n in range(len(jobs))), settings["variant"])
    kept = table[table["strict"] & ~table["truncated"]].assign(ends=True)
    if not len(kept):
        raise CasebookError(f"none of {len(jobs)} samples was accepted: nothing to train on")
    return kept[["prompt", "completion", "ends"]].to_dict("records")


def trainer(
    model: Any, tokenizer: Any, texts: list, args: Any, callbacks: list, max_length: int
) -> Trainer:
    """A `Trainer` of the next token on completions; what is above `max_length` tokens is cut."""
    return Trainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(texts),
        data_collator=lambda rows: collate(tokenizer, rows, max_length),
        callbacks=callbacks,
    )


def collate(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], max_length: int
) -> dict[str, torch.Tensor]:
    """Rows -> right-padded `input_ids`, `attention_mask`, `labels`, each `(batch, length)`.

    Only completions are learned: the prompt's cards are random, nothing there can be predicted.
    """
    sequences = []
    for row in rows:
        prompt = token_ids(tokenizer, row["prompt"])
        completion = completion_ids(tokenizer, row["completion"], row["ends"])
        sequences.append(((prompt + completion)[:max_length], len(prompt)))
    length = max(len(ids) for ids, _ in sequences)
    shape = (len(rows), length)
    input_ids = torch.full(shape, tokenizer.pad_token_id)
    labels = torch.full(shape, IGNORED)
    mask = torch.zeros(shape, dtype=torch.long)
    for i, (ids, prompt_length) in enumerate(sequences):
        input_ids[i, : len(ids)] = torch.tensor(ids)
        labels[i, prompt_length : len(ids)] = torch.tensor(ids[prompt_length:])
        mask[i, : len(ids)] = 1
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}
