"""Generate, grade, summarise: the same measurement for base and tuned models.

Prompts, decoding and grader are the same. *Greedy* takes the most likely token at each place,
*sampled* draws each at the temperature of the training. *Strict* needs the form and the right
answer, *lenient* only the answer. Intervals resample prompts, never completions: the eight
samples of one prompt are not eight independent observations.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from casebook import paths
from casebook.backend import unsloth_chosen
from casebook.case import NO_ANSWER, Case, CasebookError, load_case
from casebook.models import describe, load_base, load_saved, read_settings
from casebook.models.decoding import Constraint, constrained, constraint_for
from casebook.models.generation import (
    LARGEST_BATCH,
    completed,
    completion_ids,
    decoding_of,
    end_ids,
    generate,  # noqa: F401, notebooks write with it
    generate_all,
    token_ids,
)
from casebook.models.prompts_once import completion_logps
from casebook.stats import mean_interval, pack_bits, pass_at_k

LOGITS = 2**26  # logits held at a time while the drift is measured: 256 MB in float32
OTHER_TEXT, OTHER_ROWS = 1_000_003, 256  # seed and size of the corpus's text
EXAMPLE_TOKENS = 256  # room for one solved example of a word problem; few have more
JOB = ("row", "decoding", "sample")
WRITTEN = ("completion", "tokens", "truncated")
BITS = ("strict", "correct", "well_formed")


@dataclass(frozen=True)
class Evaluation:
    """Graded completions of one model on one split.

    Attributes:
        rows: one completion per row: the dataset's columns, `row` (its index in the split),
            `decoding` (`greedy` or `sample`), `sample` (its number), `completion`, `tokens` (with
            the one that ends it), `truncated`, `well_formed`, `extracted`, `correct`, `strict`.
        labels: the case's labels.
        drift: the mean k3 estimate, in nats per token, of how far the model has moved from
            its base, on its own samples; `None` where it was not asked for.
        dropped: the number of rows that do not fit into the model.
        batch: the smallest number of completions that memory allowed at once.
    """

    rows: pd.DataFrame
    labels: tuple[str, ...]
    drift: float | None = None
    dropped: int = 0
    batch: int | None = None

    def summary(self) -> dict[str, Any]:
        """Figures with 95 % intervals, and the label tables of the sampled completions."""
        greedy, sampled = self.decoded("greedy"), self.decoded("sample")
        main = sampled if len(sampled) else greedy
        wanted = {
            "greedy_accuracy": (greedy, "strict"),
            "sampled_accuracy": (sampled, "strict"),
            "lenient_accuracy": (main, "correct"),
            "well_formed": (main, "well_formed"),
            "mean_completion_tokens": (main, "tokens"),
            "truncated": (main, "truncated"),
        }
        figures = {name: _figure(*what) for name, what in wanted.items() if len(what[0])}
        if self.drift is not None:
            figures["kl_from_base"] = self.drift
        if self.batch and self.batch < LARGEST_BATCH:
            figures["batch"] = self.batch
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

    def bits(self) -> dict[str, dict[str, Any]]:
        """Decoding -> how many `rows`, and a bit for each row and sample (`stats.pack_bits`) of
        `strict`, `correct` and `well_formed`: what a comparison that is paired by row needs."""
        found = {}
        for decoding, rows in self.rows.groupby("decoding", sort=False):
            numbers = rows["row"].unique().tolist()
            found[decoding] = {"rows": len(numbers)} | {n: pack_bits(rows[n]) for n in BITS}
            if self.dropped:  # from those that are asked
                found[decoding]["row"] = numbers
        return found

    def decoded(self, decoding: str) -> pd.DataFrame:
        """The rows of one way of decoding, `greedy` or `sample`."""
        return self.rows[self.rows["decoding"] == decoding]

    def confusion(self) -> pd.DataFrame:
        """Counts of the sampled completions (of the greedy ones, where none were sampled): true
        label (rows) by extracted answer (columns, the last one `none`)."""
        rows = self.decoded("sample")
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
    store: str | Path | None = None,
) -> Evaluation:
    """Generate and grade completions for a split, greedily and `samples` times sampled.

    Args:
        model, tokenizer: a causal language model; in `eval` mode for the time being.
        case: a case or its name.
        split: `train`, `validation` or `test`; always the same rows, whatever the seed.
        profile: decides prompt, completion length and temperature.
        limit: only the first `limit` rows (they are shuffled); `None` or 0: all.
        samples: completions sampled for each prompt; 0 for greedy only.
        seed: of the sampling, together with row and sample number, whatever batch and order.
        variant: of the prompt; by default the profile's.
        greedy: whether to decode greedily as well.
        drift: whether to measure how far an adapter has moved from its base, on its samples.
        settings: of the model's training, where they differ from the profile's; their `constraint`
            also restricts the completions.
        progress: called with completions done and to do, after each batch.
        store: a file to which completions are appended; those in it are not generated again. It
            belongs to one model and one call.

    Raises:
        CasebookError: unknown names, a negative `limit` or `samples`, nothing to decode, no
            prompt that fits into the model, or a store of another call.
    """
    case = load_case(case) if isinstance(case, str) else case
    settings = settings or read_settings(case.name, profile)
    variant = variant or settings["variant"]
    if (limit or 0) < 0 or samples < 0 or not (greedy or samples):
        raise CasebookError("limit and samples must be 0 or more, with greedy or samples there")
    data = case.load(split, profile=profile, variant=variant)
    asked = data.take(min(limit or len(data), len(data))).to_list()
    prompts = [token_ids(tokenizer, row["prompt"]) for row in asked]
    kept = _fitting(prompts, model, settings, f"{case.name}/{variant}")
    rule = constraint_for(settings.get("constraint", "none"), case.labels, tokenizer)
    jobs = [(i, "greedy", 0) for i in kept if greedy]
    jobs += [(i, "sample", k) for i in kept for k in range(samples)]

    ends, written, sizes = end_ids(model, tokenizer), {}, []
    found = stored_in(store) if store else []
    if not {job for job, *_ in found} <= set(jobs):
        raise CasebookError(f"{store} contains completions of another evaluation")
    for job, ids, size in found:
        written[job] = completed(tokenizer, prompts[job[0]], ids, ends)
        sizes.append(size)
    with measuring(model):
        for decoding in ("greedy", "sample"):
            todo = [job for job in jobs if job[1] == decoding and job not in written]
            ids = [prompts[row] for row, _, _ in todo]
            keys = [(seed, row, sample) for row, _, sample in todo]
            how = decoding_of(settings, greedy=decoding == "greedy") | {"constraint": rule}
            for size, numbers, completions in generate_all(model, tokenizer, ids, keys, **how):
                new = dict(zip((todo[i] for i in numbers), completions, strict=True))
                written |= new
                sizes.append(size)
                if store:
                    _keep(Path(store), new, size)
                if progress:
                    progress(len(written), len(jobs))
        drawn = [written[job] for job in jobs if job[1] == "sample"]
        measurable = drift and drawn and hasattr(model, "disable_adapter")
        logps = completion_logps if settings.get("prompts_once") else token_logps
        moved = _drift(model, drawn, rule, logps) if measurable else None

    rows = [asked[row] | dict(zip(JOB, (row, *job), strict=True)) for row, *job in jobs]
    said = [{name: written[job][name] for name in WRITTEN} for job in jobs]
    table = graded(case, rows, said, variant)
    return Evaluation(table, case.labels, moved, len(asked) - len(kept), min(sizes))


def graded(
    case: Case,
    rows: Iterable[Mapping[str, Any]],
    written: Iterable[Mapping[str, Any]],
    variant: str | None = None,
) -> pd.DataFrame:
    """The rows (with `answer`) and the completions (with `completion`), with their grades.

    One completion per row: the columns of both, `well_formed`, `extracted`, `correct`, `strict`.
    """
    table = []
    for row, said in zip(rows, written, strict=True):
        grade = case.grade(said["completion"], row["answer"], variant=variant)
        verdict = {"well_formed": grade.well_formed, "extracted": grade.answer}
        table.append(row | said | verdict | {"correct": grade.correct, "strict": grade.strict})
    return pd.DataFrame(table)


Job = tuple[int, str, int]


def stored_in(store: str | Path) -> list[tuple[Job, list[int], int]]:
    """What a file holds already: job, token ids, and the size limit of its batch.

    A line that a kill cut short does not count.
    """
    found = []
    if Path(store).exists():
        for line in Path(store).read_text(errors="replace").splitlines():
            with suppress(ValueError, TypeError):
                *job, ids, size = json.loads(line)
                found.append((tuple(job), ids, size))
    return found


def _keep(path: Path, completions: Mapping[Job, Mapping], size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write("\n")  # what a kill left may be half a line
        for job, written in completions.items():
            file.write(json.dumps([*job, written["ids"][1], size]) + "\n")


def _fitting(prompts: Sequence[list[int]], model: Any, settings: Mapping, name: str) -> list[int]:
    """Which prompts leave room for a completion in the positions that the model has."""
    positions = model.config.max_position_embeddings
    if unsloth_chosen():  # it lays out memory for a number of its own
        positions = min(positions, getattr(model, "max_seq_length", positions))
    room = positions - settings["max_completion_length"]
    kept = [i for i, ids in enumerate(prompts) if len(ids) <= room]
    if not kept:
        raise CasebookError(
            f"no prompt of {name} fits: the shortest has {min(map(len, prompts))} tokens, and of "
            f"the model's {positions} positions {settings['max_completion_length']} are kept for "
            "the completion"
        )
    return kept


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
    """Evaluate a saved policy or a profile's base model, and return the figures for a record.

    Args:
        model_path: a folder that a training saved; by default the base model is measured.
        profile, variant: by default those of the training; of a base model `nano` and its own.

    Returns:
        `case`, `profile`, `variant`, `split`, `samples`, `seed`, `model`, `weights` (as
        `models.describe` has them), `dropped_overlong` (how many rows do not fit into the model),
        and the figures of `Evaluation.summary()`.

    Raises:
        CasebookError: as `evaluate`; or no policy of this case and profile lies in the folder.
    """
    examples = (variant or "").partition("shots")[2]  # as in `shots8` and `chat-shots2`
    longer = EXAMPLE_TOKENS * int(examples) if examples.isdecimal() else 0
    if model_path is None:
        profile = profile or "nano"
        settings = read_settings(case, profile)
        length = settings["max_seq_length"] + longer
        model, tokenizer = load_base(settings | {"max_seq_length": length})
    else:
        model, tokenizer, card = load_saved(model_path, longer)
        profile = profile or card["profile"]
        settings = read_settings(case, profile) | card
        if (trained := f"{card['case']}/{card['profile']}") != f"{case}/{profile}":
            raise CasebookError(f"{model_path} was trained for {trained}, not for {case}/{profile}")
    asked = {"split": split, "samples": samples, "seed": seed, "profile": profile}
    asked["variant"] = variant or settings["variant"]
    more = {"limit": limit, "settings": settings, "progress": progress}
    evaluation = evaluate(model, tokenizer, case, **asked, **more)
    return {
        "case": case,
        **asked,
        "model": str(model_path or settings["model_name_or_path"]),
        "weights": describe(model, settings),
        "dropped_overlong": evaluation.dropped,
        **evaluation.summary(),
    }


def other_prompt_perplexity(
    model: Any, tokenizer: Any, case: str, profile: str = "nano", variant: str | None = None
) -> dict[str, float] | None:
    """How well a model still predicts the part of its corpus with another prompt than the trained.

    A change on the trained prompt (`variant`) is the task; a loss on other prompts is drift.

    Returns:
        The perplexity per token over those of `OTHER_ROWS` demonstrations, with its interval over
        texts; `None` if all of them have the trained prompt.
    """
    case = load_case(case)
    # What all prompts of the variant end with, after the part that differs from row to row.
    backwards = [p[::-1] for p in case.load("validation", profile, variant=variant)["prompt"]]
    ending = os.path.commonprefix(backwards)[::-1]  # noqa: RUF071, these are texts and no paths
    rows = islice(case.demonstrations(OTHER_TEXT), OTHER_ROWS)
    rows = [row for row in rows if not row["prompt"].endswith(ending)]
    if not rows:
        return None
    asked = [token_ids(tokenizer, row["prompt"]) for row in rows]
    shown = [completion_ids(tokenizer, row["completion"], row["ends"]) for row in rows]
    return _perplexity(model, list(zip(asked, shown, strict=True)))


def plain_text_perplexity(model: Any, tokenizer: Any) -> dict[str, float]:
    """How well a model predicts everyday sentences after their first token: the perplexity per
    token over `data/plain_english.txt`, with its interval over sentences."""
    sentences = (paths.DATA / "plain_english.txt").read_text(encoding="utf-8").splitlines()
    ids = [tokenizer(sentence)["input_ids"] for sentence in sentences]
    return _perplexity(model, [(one[:1], one[1:]) for one in ids])


def _perplexity(model: Any, batch: Sequence[tuple[list[int], list[int]]]) -> dict[str, float]:
    with measuring(model):
        logps, mask = token_logps(model, batch)
    figure = mean_interval((-(logps * mask).sum(1) / mask.sum(1)).numpy(force=True))
    return figure | {name: math.exp(figure[name]) for name in ("value", "low", "high")}


@contextmanager
def measuring(model: Any) -> Iterator[None]:
    """`eval` mode for the time being; no random number of a training is used."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _figure(rows: pd.DataFrame, column: str) -> dict[str, float]:
    return mean_interval(rows.groupby("row")[column].mean().to_numpy(dtype=float))


def _drift(
    model: Any, completions: list[dict[str, Any]], rule: Constraint | None, logps: Callable
) -> float:
    """Mean k3 estimate of KL(policy || base) in nats per token, over the policy's own samples.

    k3 = rho - 1 - log rho with rho = base / policy (Schulman 2020): unbiased and never negative.
    """
    pairs = [completion["ids"] for completion in completions]
    longest = max(len(prompt) + len(ids) for prompt, ids in pairs)
    size = max(1, LOGITS // (longest * model.config.vocab_size))
    estimates = []
    for start in range(0, len(pairs), size):
        batch = pairs[start : start + size]
        policy, mask = logps(model, batch, rule)
        with model.disable_adapter():
            base, _ = logps(model, batch, rule)
        log_ratio = base - policy
        estimates.append((torch.exp(log_ratio) - 1 - log_ratio)[mask].numpy(force=True))
    return float(np.concatenate(estimates).mean())


def token_logps(
    model: Any,
    batch: Sequence[tuple[Sequence[int], Sequence[int]]],
    constraint: Constraint | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the next tokens `(n, length - 1)`, and which of them are completion.

    `batch` holds the token ids of prompts and completions; a `constraint` rescales them.
    """
    whole = [torch.tensor([*prompt, *completion]) for prompt, completion in batch]
    ids = pad_sequence(whole, batch_first=True).to(model.device)
    place = torch.arange(ids.shape[1], device=model.device)
    ends = torch.tensor([len(row) for row in whole], device=model.device)[:, None]
    begins = ends - torch.tensor([[len(completion)] for _, completion in batch]).to(ends)
    attention, mask = (place < ends).long(), ((begins <= place) & (place < ends))[:, 1:]
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
        for i, (prompt, completion) in enumerate(batch if constraint else ()):
            part = slice(len(prompt) - 1, len(prompt) + len(completion) - 1)
            asked = logits[i : i + 1, part]
            logits[i, part] = constrained(asked, torch.tensor([completion]), constraint)[0]
    logps = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return logps, mask
