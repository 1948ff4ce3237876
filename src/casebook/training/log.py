"""What a training leaves in its folder while it goes on: metrics, evaluations, completions."""

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import TrainerCallback

from casebook.case import PROFILES, load_case
from casebook.evaluation import evaluate, graded
from casebook.grpo import group_advantages
from casebook.paths import replacing
from casebook.training.config import Config
from casebook.training.progress import Progress
from casebook.training.run import Run, read_lines

CURVE = ("reward", "frac_reward_zero_std", "entropy", "grad_norm", "kl")
CURVE += ("completions/mean_length", "completions/clipped_ratio")
# Kept where they are not all 0: the clip acts off-policy only, and few samplers are rounded.
CURVE_OFF_POLICY = ("clip_ratio/low_mean", "clip_ratio/high_mean", "sampler_gap", "sampler_gap_max")
CURVE_OFF_POLICY += ("sampler_ratio_p1", "sampler_ratio_p99")
CURVE_WINDOW = 8  # steps


class CompletionLog:
    """Keeps what the policy wrote at a step: TRL's own file is overwritten by evaluations."""

    def __init__(self, config: Config, folder: Path, ends: Collection[int]):
        self.config, self.folder, self.ends = config, folder, frozenset(ends)
        weights = config.reward_weights or [1.0] * len(config.reward_funcs)
        self.weights = dict(zip(config.reward_funcs, weights, strict=True))
        # One batch of completions serves so many steps; the plain loops count each batch as one.
        batches = config.steps_per_generation * config.num_iterations
        steps = batches // config.gradient_accumulation_steps
        self.span = max(1, steps) if config.method == "grpo" else 1
        self.values: dict[str, list[float]] = {}

    def wrap(self, function: Callable) -> Callable:
        """The same reward function, under its name; the last of a batch writes it down."""

        def reward(prompts, completions, completion_ids, trainer_state, **columns):
            asked = {"prompts": prompts, "completions": completions}
            values = function(**asked, completion_ids=completion_ids, **columns)
            self.values[function.__name__] = values
            if len(self.values) == len(self.weights):
                if self._due(step := trainer_state.global_step + 1):
                    self._write(step, prompts, completions, completion_ids, columns["answer"])
                self.values = {}
            return values

        reward.__name__ = function.__name__
        return reward

    def _due(self, step: int) -> bool:
        """Whether a step that is written down is among those that this batch serves."""
        every, last = self.config.completions_every, self.config.max_steps
        return any(s in (1, last) or s % every == 0 for s in range(step, step + self.span))

    def _write(self, step: int, *columns) -> None:
        """Write one step's completions with grades and rewards."""
        asked, written = [], []
        for prompt, completion, ids, answer in zip(*columns, strict=True):
            asked.append({"step": step, "prompt": text_of(prompt), "answer": answer})
            cut = not {*ids[-1:]} & self.ends
            written.append(
                {"completion": text_of(completion), "tokens": len(ids), "truncated": cut}
            )
        table = graded(load_case(self.config.case), asked, written, self.config.variant)
        parts = list(zip(*self.values.values(), strict=True))
        table[[f"reward/{name}" for name in self.values]] = parts
        paid = table[[f"reward/{n}" for n in self.weights]].astype(float)  # None: does not apply
        rewards = sum(paid[f"reward/{n}"].fillna(0.0) * w for n, w in self.weights.items())
        rewards = rewards.where(paid.notna().any(axis=1))
        values, size = rewards.to_numpy(float, copy=True), self.config.num_generations
        advantages = group_advantages(values, size, self.config.scale_rewards)
        table["reward"], table["advantage"] = rewards, advantages.numpy()
        self.folder.mkdir(exist_ok=True)  # a run's folder that was deleted is not made again
        with replacing(self.folder / f"train_{step:05d}.parquet") as part:
            table.to_parquet(part, index=False)


class Stopped(Exception):
    """A training was to make its first steps only, and has."""


class RunCallback(TrainerCallback):
    """Writes metrics, shows progress, evaluates held-out rows on schedule; may end it early."""

    def __init__(
        self, run: Run, config: Config, tokenizer: Any, progress: Progress, steps=math.inf
    ):
        self.run, self.config, self.tokenizer, self.progress = run, config, tokenizer, progress
        self.steps = steps  # after which it is ended
        before = [line["seconds"] for line in read_lines(run.metrics_file)]
        self.seconds_before = max([0.0, *before])

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.started = time.perf_counter()
        self.progress.start(state.global_step, state.max_steps)
        if state.global_step == 0:
            self._evaluate(0, model)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            logs = {n: v for n, v in logs.items() if n != "kl" or self.config.beta}  # Unsloth's 0.0
            self._append("train", state.global_step, logs)
            self.progress.update(state.global_step, logs)
            if state.global_step >= self.steps:
                raise Stopped

    def on_step_end(self, args, state, control, model=None, **kwargs):
        every = self.config.evaluate_every
        if every and (state.global_step % every == 0 or state.global_step == state.max_steps):
            self._evaluate(state.global_step, model)

    @property
    def seconds(self) -> float:
        """Wall time of the training so far, over all its resumptions."""
        return self.seconds_before + time.perf_counter() - self.started

    def _evaluate(self, step: int, model: Any) -> None:
        config = self.config
        if not config.evaluate_every:
            return
        slow = PROFILES[config.profile].device == "gpu"  # minutes, with an embedded model seconds
        rows = {"split": "validation", "limit": config.evaluate_rows, "variant": config.variant}
        how = {"profile": config.profile, "settings": config.settings, "samples": 1, "drift": True}
        how["progress"] = self.progress.measuring("held-out rows") if slow else None
        summary = evaluate(model, self.tokenizer, config.case, **rows, **how).summary()
        values = {n: f.get("value") if isinstance(f, dict) else f for n, f in summary.items()}
        figures = {name: value for name, value in values.items() if isinstance(value, float)}
        self._append("validation", step, figures)
        wandb = sys.modules.get("wandb")
        if wandb and wandb.run:  # TRL's callback knows nothing of this evaluation
            wandb.log({f"eval/{name}": value for name, value in figures.items()})
        self.progress.note(step, figures)

    def _append(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        line = {"kind": kind, **figures, "step": step, "seconds": round(self.seconds, 3)}
        with open(self.run.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")


def skipped_steps(metrics: pd.DataFrame) -> int:
    """How many steps had a gradient that is no number (fp16's first ones), and changed nothing."""
    norms = metrics.get("grad_norm", pd.Series(dtype=float))
    return int((~np.isfinite(norms.to_numpy(float))).sum())


def curve(metrics: pd.DataFrame) -> dict[str, list[float]]:
    """What a record keeps of the logged steps: means over windows of CURVE_WINDOW.

    Rewards and what is in `CURVE`; a value that is not finite is left out of its window's mean.
    """
    window = (metrics["step"] - 1) // CURVE_WINDOW
    parts = [n for n in metrics if n.startswith("rewards/") and n.endswith("/mean")]
    parts += [n for n in CURVE_OFF_POLICY if n in metrics and metrics[n].any()]
    numbers = metrics[[n for n in (*CURVE, *parts) if n in metrics]].astype(float)
    means = numbers.replace([np.inf, -np.inf], np.nan).groupby(window).mean().round(4)
    return {"step": metrics["step"].groupby(window).max().tolist(), **means.to_dict("list")}


def text_of(message: Any) -> str:
    return message if isinstance(message, str) else "\n".join(m["content"] for m in message)
