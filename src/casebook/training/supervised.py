"""The supervised controls: what the same number of samples gives without reinforcement learning.

*Supervised fine-tuning* trains on completions of the oracle. *Rejection sampling* samples from the
base, keeps what the verifier accepts, and trains on that. Both get as many
completions as GRPO, the same adapter, optimiser and schedule, so that what is left between them
is the objective. The loop is transformers' own `Trainer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer

from casebook.case import CasebookError, load_case
from casebook.evaluation import graded, measuring
from casebook.models.decoding import constraint_for
from casebook.models.generation import completion_ids, decoding_of, generate_all, token_ids
from casebook.models.prompts_once import forward

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
    prompts = [row["prompt"] for row in asked]
    with measuring(model):
        for _, numbers, completions in generate_all(model, tokenizer, prompts, **how):
            written |= zip(numbers, completions, strict=True)
    table = graded(task, asked, (written[n] for n in range(len(jobs))), settings["variant"])
    kept = table[table["strict"] & ~table["truncated"]].assign(ends=True)
    if not len(kept):
        raise CasebookError(f"none of {len(jobs)} samples was accepted: nothing to train on")
    return kept[["prompt", "completion", "ends"]].to_dict("records")


def trainer(
    model: Any,
    tokenizer: Any,
    texts: list,
    args: Any,
    callbacks: list,
    max_length: int,
    prompts_once: bool = False,
) -> Trainer:
    """A `Trainer` of the next token on completions; what is above `max_length` tokens is cut.

    With `prompts_once` what all prompts of a batch begin with is computed once.
    """
    return (PromptsOnce if prompts_once else Trainer)(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(texts),
        data_collator=lambda rows: collate(tokenizer, rows, max_length, prompts_once),
        callbacks=callbacks,
    )


class PromptsOnce(Trainer):
    """A `Trainer` whose rows have prompts padded on the left and `labels` of completions alone."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        asked = inputs["input_ids"], inputs["attention_mask"], labels.shape[1]
        logits, labels = forward(model, *asked).logits[:, :-1], labels[:, 1:]
        loss = cross_entropy(logits.float().mT, labels, ignore_index=IGNORED, reduction="sum")
        loss = loss / (num_items_in_batch or (labels != IGNORED).sum())
        return (loss, logits) if return_outputs else loss


def collate(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], max_length: int, prompts_once: bool = False
) -> dict[str, torch.Tensor]:
    """Rows -> `input_ids` and `attention_mask`, `(batch, length)`, and `labels` of the same shape.

    Padding is on the right. With `prompts_once` prompts are padded on the left, and the labels are
    those of the completions alone, after one that is ignored: a `Trainer` does not count the first.
    Only completions are learned: the prompt's cards are random, nothing there can be predicted.
    """
    prompts, completions = [], []
    for row in rows:
        prompt = token_ids(tokenizer, row["prompt"])
        completion = completion_ids(tokenizer, row["completion"], row["ends"])
        prompts.append(torch.tensor(prompt[:max_length]))
        completions.append(torch.tensor(completion[: max(0, max_length - len(prompt))]))
    if prompts_once:
        asked = pad_sequence(prompts, True, IGNORED, "left")
        whole = torch.cat([asked, pad_sequence(completions, True, IGNORED)], dim=1)
        none = torch.full_like(whole[:, :1], IGNORED)
        labels = torch.cat([none, whole[:, asked.shape[1] :]], dim=1)
    else:
        pairs = list(zip(prompts, completions, strict=True))
        whole = pad_sequence([torch.cat(pair) for pair in pairs], True, IGNORED)
        learned = [torch.cat([torch.full_like(p, IGNORED), c]) for p, c in pairs]
        labels = pad_sequence(learned, True, IGNORED)
    mask = whole != IGNORED
    ids = whole.masked_fill(~mask, tokenizer.pad_token_id)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}
