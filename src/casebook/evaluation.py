"""Generate, grade, summarise: the one harness for base and tuned models.

Same prompts, same decoding, same grader. *Greedy* shows what a model thinks most likely,
*sampled* what it does at the temperature it is trained at; *strict* wants the form as well as
the right answer, *lenient* only the answer. Intervals resample prompts, never completions: the
eight samples of one prompt are not eight independent observations.
"""

import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import set_seed

from casebook.case import NO_ANSWER, Case, CasebookError, load_case
from casebook.models import UNSLOTH, load_base, load_saved, read_settings
from casebook.models.decoding import (
    Constraint,
    constrained,
    constrained_generation,
    constraint_for,
)
from casebook.records import provenance
from casebook.stats import mean_interval, pass_at_k

BATCH = 256  # completions generated together
LOGITS = 2**26  # logits held at a time while the drift is measured: 256 MB in float32
OTHER_TEXT, OTHER_ROWS = 1_000_003, 256  # seed and size of the corpus's text
EXAMPLE_TOKENS = 256  # room for one solved example of a word problem; few have more


@dataclass(frozen=True)
class Evaluation:
    """Graded completions of one model on one split.

    Attributes:
        rows: one completion a row: the dataset's columns, `row` (its index), `decoding`
            (`greedy` or `sample`), `sample` (its number), `completion`, `tokens` (with the
            end-of-sequence token), `truncated`, `well_formed`, `extracted`, `correct`, `strict`.
        labels: the case's labels.
        drift: the mean k3 estimate, in nats a token, of how far the model has moved from
            its base, on its own samples; `None` where it was not asked for.
        dropped: how many rows were left out because prompt and completion do not fit into the
            model; a prompt that is cut would have lost its beginning.
    """

    rows: pd.DataFrame
    labels: tuple[str, ...]
    drift: float | None = None
    dropped: int = 0

    def summary(self) -> dict[str, Any]:
        """Figures with 95 % intervals, and the label tables of the sampled completions."""
        greedy, sampled = self.decoded("greedy"), self.decoded("sample")
        main = sampled if len(sampled) else greedy
        figures = {
            "greedy_accuracy": _figure(greedy, "strict"),
            "sampled_accuracy": _figure(sampled, "strict"),
            "lenient_accuracy": _figure(main, "correct"),
            "well_formed": _figure(main, "well_formed"),
            "mean_completion_tokens": _figure(main, "tokens"),
            "truncated": _figure(main, "truncated"),
        }
        figures = {name: figure for name, figure in figures.items() if figure}
        if self.drift is not None:
            figures["kl_from_base"] = self.drift
        if self.labels:
            figures |= {
                "per_class": {
                    label: _figure(main[main["answer"] == label], "strict")
                    for label in self.labels
                    if (main["answer"] == label).any()
                },
                "confusion": self.confusion().to_numpy().tolist(),
                "label_histogram": dict(Counter(main["extracted"].fillna(NO_ANSWER))),
            }
        return figures

    def pass_at_k(self) -> dict[str, dict[str, float]]:
        """k -> the share of prompts that k samples solve at least once, k = 1, 2, 4 ... samples.

        The unbiased estimator of Chen et al. (2021, arXiv 2107.03374), with intervals over prompts.
        """
        solved = self.decoded("sample").groupby("row")["strict"]
        right, n = solved.sum().to_numpy(), int(solved.size().min())
        ks = [2**i for i in range(n.bit_length()) if 2**i <= n]
        return {str(k): mean_interval(pass_at_k(n, right, k)) for k in ks}

    def decoded(self, decoding: str) -> pd.DataFrame:
        """The rows of one way of decoding, `greedy` or `sample`."""
        return self.rows[self.rows["decoding"] == decoding]

    def confusion(self, decoding: str = "sample") -> pd.DataFrame:
        """Counts: true label (rows) by extracted answer (columns, the last one `none`)."""
        rows = self.decoded(decoding)
        rows = rows if len(rows) else self.rows
        table = pd.crosstab(rows["answer"], rows["extracted"].fillna(NO_ANSWER))
        return table.reindex(
            index=list(self.labels), columns=[*self.labels, NO_ANSWER], fill_value=0
        )


def evaluate(
    model: Any,
    tokenizer: Any,
    case: str | Case,
    split: str = "test",
    profile: str = "nano",
    limit: int | None = None,
    samples: int = 8,
    seed: int = 0,
    variant: str | None = None,
    greedy: bool = True,
    drift: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Generate and grade completions for a split, greedily and `samples` times sampled.

    Args:
        model: a causal language model; put into `eval` mode for the time being.
        tokenizer: its tokenizer.
        case: a case or its name.
        split: `train`, `validation` or `test`; always the same rows, whatever the seed.
        profile: decides prompt, completion length and temperature.
        limit: only the first so many rows (they are shuffled); `None` or 0: all.
        samples: completions sampled for each prompt; 0 for greedy only.
        seed: of the sampling.
        variant: of the prompt; the profile's own by default.
        greedy: whether to decode greedily as well.
        drift: whether to measure how far the model has moved from its base, on its samples
            (adapters only).
        settings: those the model was trained with, where they differ from the profile's; their
            `constraint` also decides what the model may write.
        progress: called with completions done and to do, after each batch.

    Raises:
        CasebookError: unknown names, a negative `limit` or `samples`, nothing to decode, or no
            prompt that fits into the model.

    The intervals are of the given rows; those of a training method also need its seeds.
    """
    case = load_case(case) if isinstance(case, str) else case
    settings = settings or read_settings(case.name, profile)
    variant = variant or settings["variant"]
    if (limit or 0) < 0 or samples < 0 or not (greedy or samples):
        raise CasebookError("limit and samples must not be negative, and something be decoded")
    data = case.load(split, profile=profile, variant=variant)
    asked = data.select(range(min(limit or len(data), len(data))))
    data = _fitting(asked, model, tokenizer, settings, f"{case.name}/{variant}")
    rule = constraint_for(settings.get("constraint", "none"), case.labels, tokenizer)
    jobs = [(i, "greedy", 0) for i in range(len(data)) if greedy]
    jobs += [(i, "sample", k) for i in range(len(data)) for k in range(samples)]

    completions: list[dict[str, Any]] = []
    with _measuring(model, seed):
        for batch, sampled in _batches(jobs):
            prompts = [data[row]["prompt"] for row, _, _ in batch]
            completions += generate(
                model,
                tokenizer,
                prompts,
                max_new_tokens=settings["max_completion_length"],
                temperature=settings["temperature"] if sampled else None,
                top_p=settings["top_p"],
                top_k=settings["top_k"],
                constraint=rule,
            )
            if progress:
                progress(len(completions), len(jobs))
        drawn = completions[-samples * len(data) :] if samples else []
        measurable = drift and drawn and hasattr(model, "disable_adapter")
        moved = _drift(model, drawn, rule) if measurable else None

    rows = []
    for (index, decoding, sample), completion in zip(jobs, completions, strict=True):
        row = data[index]
        grade = case.grade(completion["completion"], row["answer"], variant=variant)
        rows.append(
            {
                **row,
                "row": index,
                "decoding": decoding,
                "sample": sample,
                "completion": completion["completion"],
                "tokens": completion["tokens"],
                "truncated": completion["truncated"],
                "well_formed": grade.well_formed,
                "extracted": grade.answer,
                "correct": grade.correct,
                "strict": grade.strict,
            }
        )
    return Evaluation(pd.DataFrame(rows), case.labels, moved, len(asked) - len(data))


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str | list[dict]],
    max_new_tokens: int,
    temperature: float | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
    constraint: Constraint | None = None,
) -> list[dict[str, Any]]:
    """Complete prompts, strings or message lists: `completion`, `tokens`, `truncated`, `ids`.

    `temperature=None` decodes greedily. `ids` are the prompt's and the completion's token ids.
    Under a `constraint` only what it allows is written.
    """
    texts = [_text_of(tokenizer, prompt) for prompt in prompts]
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False
    ).to(model.device)
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k}
        if temperature is not None
        else {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    )
    with torch.inference_mode(), constrained_generation(model, constraint):
        sequences = model.generate(
            **inputs,
            **sampling,
            max_new_tokens=max_new_tokens,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    start = inputs["input_ids"].shape[1]
    results = []
    for mask, prompt_ids, ids in zip(
        inputs["attention_mask"], inputs["input_ids"], sequences[:, start:], strict=True
    ):
        ended = (ids == tokenizer.eos_token_id).nonzero()
        length = int(ended[0]) + 1 if len(ended) else len(ids)
        results.append(
            {
                "completion": tokenizer.decode(ids[:length], skip_special_tokens=True),
                "tokens": length,
                "truncated": not len(ended),
                "ids": (prompt_ids[mask.bool()].tolist(), ids[:length].tolist()),
            }
        )
    return results


def _text_of(tokenizer: Any, prompt: str | list[dict]) -> str:
    """A prompt as one text: a list of messages goes through the chat template."""
    if isinstance(prompt, str):
        return prompt
    return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)


def _fitting(data: Any, model: Any, tokenizer: Any, settings: Mapping, name: str) -> Any:
    """The rows whose prompt leaves room for a completion in the positions that the model has."""
    positions = model.config.max_position_embeddings
    if UNSLOTH:  # it lays out memory for a number of its own
        positions = min(positions, getattr(model, "max_seq_length", positions))
    room = positions - settings["max_completion_length"]
    texts = [_text_of(tokenizer, prompt) for prompt in data["prompt"]]
    lengths = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]]
    kept = [i for i, length in enumerate(lengths) if length <= room]
    if not kept:
        raise CasebookError(
            f"no prompt of {name} fits: the shortest has {min(lengths)} tokens, and of the model's "
            f"{positions} positions {settings['max_completion_length']} are kept for the completion"
        )
    return data if len(kept) == len(data) else data.select(kept)


def shots_of(variant: str) -> int:
    """How many solved examples a variant's prompt has.

    >>> shots_of("shots8"), shots_of("reason")
    (8, 0)
    """
    count = variant.removeprefix("shots")
    return int(count) if count != variant and count.isdecimal() else 0


def evaluate_to_record(
    case: str,
    model_path: str | Path | None = None,
    profile: str | None = None,
    split: str = "test",
    limit: int | None = None,
    samples: int = 8,
    seed: int = 0,
    variant: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate a saved policy, or a profile's base model, and say where the figures came from.

    Args:
        model_path: a folder that a training saved; by default the base model is measured.
        profile: by default the one the policy was trained with, `nano` for the base model.
        variant: of the prompt, by default the one of the training. Prompts with solved examples,
            such as "shots5", are another measurement than those without: a model that fails may
            only not know the form that is wanted.

    Returns:
        `case`, `profile`, `variant`, `split`, `samples`, `seed`, `model`, `dropped_overlong` (how
        many rows do not fit into the model), `provenance`, and the figures of
        `Evaluation.summary()`.

    Raises:
        CasebookError: as `evaluate`; or no policy of this case and profile lies in the folder.
    """
    load_case(case).grade("", "", variant=variant)  # an unknown variant is an error here
    if model_path is None:
        profile = profile or "nano"
        settings = read_settings(case, profile)
        room = EXAMPLE_TOKENS * shots_of(variant or "")
        model, tokenizer = load_base(
            settings | {"max_seq_length": settings["max_seq_length"] + room}
        )
    else:
        model, tokenizer, card = load_saved(model_path)
        profile = profile or card["profile"]
        settings = read_settings(case, profile) | card
        if (card["case"], card["profile"]) != (case, profile):
            raise CasebookError(
                f"{model_path} was trained for {card['case']}/{card['profile']}, "
                f"not for {case}/{profile}"
            )
    evaluation = evaluate(
        model,
        tokenizer,
        case,
        split,
        profile,
        limit,
        samples,
        seed,
        variant=variant,
        settings=settings,
        progress=progress,
    )
    return {
        "case": case,
        "profile": profile,
        "variant": variant or settings["variant"],
        "split": split,
        "samples": samples,
        "seed": seed,
        "model": str(model_path or settings["model_name_or_path"]),
        "dropped_overlong": evaluation.dropped,
        "provenance": provenance(),
        **evaluation.summary(),
    }


def other_prompt_perplexity(
    model: Any, tokenizer: Any, case: str | Case, profile: str = "nano", variant: str | None = None
) -> dict[str, float] | None:
    """How well a model still predicts its corpus where another prompt is asked than the trained.

    What a policy unlearns of the trained prompt is its task; what it loses elsewhere is drift.

    Args:
        profile: of the training.
        variant: the prompt that is trained, whose texts do not count.

    Returns:
        The perplexity a token over those of `OTHER_ROWS` demonstrations, with its interval over
        texts; `None` where all of them ask the trained prompt.
    """
    case = load_case(case) if isinstance(case, str) else case
    ending = _ending(case.load("validation", profile, variant=variant)["prompt"])
    rows = islice(case.demonstrations(OTHER_TEXT), OTHER_ROWS)
    rows = [row for row in rows if not row["prompt"].endswith(ending)]
    if not rows:
        return None
    end = [tokenizer.eos_token_id]
    batch = [
        (tokenizer(r["prompt"]).input_ids, tokenizer(r["completion"]).input_ids + end * r["ends"])
        for r in rows
    ]
    with _measuring(model, OTHER_TEXT):
        logps, mask = token_logps(model, batch)
    figure = mean_interval((-(logps * mask).sum(1) / mask.sum(1)).numpy(force=True))
    return figure | {name: math.exp(figure[name]) for name in ("value", "low", "high")}


def _ending(prompts: Sequence[str]) -> str:
    """What all prompts of a variant end with after the part that differs from row to row."""
    backwards = [prompt[::-1] for prompt in prompts]
    return os.path.commonprefix(backwards)[::-1]  # noqa: RUF071, these are texts and no paths


@contextmanager
def _measuring(model: Any, seed: int) -> Iterator[None]:
    """`eval` mode and a seed of its own, for the time being.

    A training that is evaluated on the way goes on with the random numbers it would have drawn
    anyway: else every seed would sample the same from its first evaluation on.
    """
    was_training = model.training
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            model.eval()
            set_seed(seed)
            yield
        finally:
            model.train(was_training)
            random.setstate(states[0])
            np.random.set_state(states[1])


def _batches(jobs: list[tuple[int, str, int]]) -> Iterator[tuple[list, bool]]:
    """Jobs in batches of one way of decoding, each with whether it samples."""
    for sampled in (False, True):
        kind = [job for job in jobs if (job[1] == "sample") == sampled]
        for start in range(0, len(kind), BATCH):
            yield kind[start : start + BATCH], sampled


def _figure(rows: pd.DataFrame, column: str) -> dict[str, float] | None:
    if rows.empty:
        return None
    return mean_interval(rows.groupby("row")[column].mean().to_numpy(dtype=float))


def _drift(model: Any, completions: list[dict[str, Any]], rule: Constraint | None) -> float:
    """Mean k3 estimate of KL(policy || base) in nats a token, over the policy's own samples.

    k3 = rho - 1 - log rho with rho = base / policy (Schulman 2020): unbiased and never negative.
    """
    longest = max(len(prompt) + len(ids) for prompt, ids in (c["ids"] for c in completions))
    size = max(1, LOGITS // (longest * model.config.vocab_size))
    estimates = []
    for start in range(0, len(completions), size):
        batch = [completion["ids"] for completion in completions[start : start + size]]
        policy, mask = token_logps(model, batch, rule)
        with model.disable_adapter():
            base, _ = token_logps(model, batch, rule)
        log_ratio = base - policy
        estimates.append((torch.exp(log_ratio) - 1 - log_ratio)[mask].numpy(force=True))
    return float(np.concatenate(estimates).mean())


def token_logps(
    model: Any,
    batch: Sequence[tuple[Sequence[int], Sequence[int]]],
    constraint: Constraint | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the next tokens `(n, length - 1)`, and which of them are completion.

    `batch` holds the token ids of prompts and completions. Under a `constraint` they are those
    of what it allows; else the whole softmax counts.
    """
    length = max(len(prompt) + len(completion) for prompt, completion in batch)
    ids = torch.zeros((len(batch), length), dtype=torch.long)
    attention = torch.zeros_like(ids)
    mask = torch.zeros((len(batch), length - 1), dtype=torch.bool)
    for i, (prompt, completion) in enumerate(batch):
        size = len(prompt) + len(completion)
        ids[i, :size] = torch.tensor([*prompt, *completion])
        attention[i, :size] = 1
        mask[i, len(prompt) - 1 : size - 1] = True
    ids, attention, mask = (t.to(model.device) for t in (ids, attention, mask))
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
        for i, (prompt, completion) in enumerate(batch if constraint else ()):
            part = slice(len(prompt) - 1, len(prompt) + len(completion) - 1)
            logits[i, part] = constrained(
                logits[i : i + 1, part], torch.tensor([completion]), constraint
            )[0]
    logps = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return logps, mask
