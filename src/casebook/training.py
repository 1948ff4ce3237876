"""One training: a YAML file becomes a `GRPOTrainer`, and leaves a run folder behind.

    <runs>/<case>/<profile>/<run id>/
        config.yaml                       what was asked for, overrides included
        metrics.jsonl                     one line for each logged step and each evaluation
        completions/train_00010.parquet   what the policy wrote at that step, and its rewards
        checkpoints/                      the last two, for `resume`
        adapter/                          the trained adapter, in safetensors
        record.json                       what was measured, before and after

A kill or a full disk costs the steps since the last checkpoint and nothing else: metrics are
appended line by line, every other file is written beside its place and then moved there.
"""

import contextlib
import gc
import hashlib
import io
import json
import os
import resource
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

# Models first: where Unsloth is installed it is imported there, and that must come before trl.
# isort: off
from casebook import models, paths
# isort: on

import numpy as np
import pandas as pd
import torch
import yaml
from datasets import Dataset, disable_progress_bars
from safetensors import SafetensorError
from transformers import PrinterCallback, TrainerCallback, TrainerState, set_seed
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser

from casebook import grpo, supervised
from casebook.case import PROFILES, CasebookError, check_name, load_case
from casebook.decoding import KINDS, Constraint, constrained, constrained_generation, constraint_for
from casebook.detectors import RunWatch
from casebook.evaluation import evaluate, perplexity, token_logps
from casebook.models import load_base, load_policy, load_saved, save_policy
from casebook.progress import Progress
from casebook.records import fingerprint, provenance, read_record, write_json

disable_progress_bars()  # of datasets; a training shows its own

NOT_IN_FINGERPRINT = ("seed", "report_to", "disable_tqdm", "save_steps", "save_total_limit")
# How a policy is trained: TRL's GRPO, the loops of `casebook.grpo`, or a supervised control.
PLAIN = {f"plain_{name}": name for name in grpo.ALGORITHMS}
SUPERVISED = ("sft", "rejection")
METHODS = ("grpo", *PLAIN, *SUPERVISED)
# What TRL accepts without a word, or refuses only when it is too late.
CHOICES = {
    "method": METHODS,
    "constraint": KINDS,
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
}
LEAST = {
    **{"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1},
    **{"num_generations": 2, "max_completion_length": 1, "completions_every": 1, "lora_r": 1},
    **{"evaluate_every": 0, "evaluate_rows": 1, "train_limit": 0, "test_limit": 0},
    **{"test_samples": 0, "save_steps": 1, "pass_at_k_rows": 0, "pass_at_k_samples": 1},
}
ALSO = ("variant", "constraint", "limit")  # what one more evaluation may set
# The settings that decide what a base model measures.
MEASURED = {
    *("profile", "variant", "model_name_or_path", "dtype", "load_in_4bit", "max_completion_length"),
    *("temperature", "top_p", "top_k", "constraint", "test_limit", "test_samples"),
    *("also_evaluate", "pass_at_k_rows", "pass_at_k_samples"),
}
_MEASURED: dict[str, dict[str, Any]] = {}  # by fingerprint, for the arms of one process
REQUIRED = (
    *("case", "profile", "variant", "reward_funcs", "model_name_or_path", "dtype", "use_peft"),
    *("load_in_4bit", "fast_inference", "max_seq_length", "max_completion_length"),
    *("temperature", "top_p", "top_k"),
)
CURVE, CURVE_WINDOW = ("reward", "frac_reward_zero_std", "entropy", "grad_norm", "kl"), 8
WATCH_EVERY = 8  # steps between two looks of the detectors
KL_PENALTY = "kl_penalty"  # the one reward that looks at the policy instead of what it wrote
# How a full disk reads in the words of Python, torch and safetensors.
DISK_TROUBLE = ("No space left", "File too large", "Disk quota", "failed writing file")


@dataclass
class CaseArguments:
    """What a training needs beyond TRL's own arguments."""

    case: str = field(metadata={"help": "Name of the case."})
    profile: str = field(metadata={"help": "Name of the profile: which model and budget."})
    variant: str = field(metadata={"help": "Which prompt: 'reason' or 'label'."})
    reward_funcs: list[str] = field(metadata={"help": "Names of rewards, from the case."})
    reward_kwargs: dict | str = field(
        default_factory=dict, metadata={"help": "Reward name -> its parameters."}
    )
    max_seq_length: int = field(
        default=2048, metadata={"help": "Tokens of prompt and completion; longer prompts go."}
    )
    fast_inference: bool = field(
        default=False, metadata={"help": "Generate with vLLM inside Unsloth (A100)."}
    )
    train_limit: int = field(default=0, metadata={"help": "Only so many training rows; 0: all."})
    completions_every: int = field(
        default=10, metadata={"help": "Steps between files of completions."}
    )
    evaluate_every: int = field(
        default=20, metadata={"help": "Steps between evaluations on validation rows; 0: never."}
    )
    evaluate_rows: int = field(default=128, metadata={"help": "Validation rows evaluated."})
    test_limit: int = field(default=0, metadata={"help": "Only so many test rows; 0: all."})
    test_samples: int = field(default=4, metadata={"help": "Completions for each test row."})
    method: str = field(
        default="grpo",
        metadata={"help": "'grpo' (TRL), 'plain_...' (casebook.grpo), 'sft' or 'rejection'."},
    )
    constraint: str = field(
        default="none", metadata={"help": "Labels only: 'trie', or 'position' as published."}
    )
    score_constrained: bool = field(
        default=True, metadata={"help": "Log-probabilities under the constraint, as sampled."}
    )
    also_evaluate: dict | str = field(
        default_factory=dict,
        metadata={"help": "Name -> settings of one more greedy evaluation before and after."},
    )
    pass_at_k_rows: int = field(default=0, metadata={"help": "Test rows for pass@k; 0: none."})
    pass_at_k_samples: int = field(default=64, metadata={"help": "Completions of each of them."})


class Config(NamedTuple):
    """A training's configuration, parsed: ours, TRL's, the model's, and all three as one dict."""

    case: CaseArguments
    grpo: GRPOConfig
    model: ModelConfig
    settings: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The folder of one training, finished or not."""

    path: Path

    @property
    def adapter(self) -> Path:
        """The folder of the trained adapter."""
        return self.path / "adapter"

    @property
    def finished(self) -> bool:
        """Whether the record, the last file of a run, is there."""
        return (self.path / "record.json").exists()

    def record(self) -> dict[str, Any]:
        """What was measured; a `CasebookError` where the run has not finished."""
        return read_record(self.path / "record.json")

    def settings(self) -> dict[str, Any]:
        """What was asked for."""
        return yaml.safe_load((self.path / "config.yaml").read_text())

    def metrics(self) -> pd.DataFrame:
        """One row for each logged training step, in TRL's metric names."""
        return self._lines("train")

    def validation(self) -> pd.DataFrame:
        """One row for each evaluation on held-out validation rows."""
        return self._lines("validation")

    def completions(self) -> pd.DataFrame:
        """All recorded completions: text, grade, advantage, reward and its parts."""
        files = sorted((self.path / "completions").glob("train_*.parquet"))
        return pd.concat([pd.read_parquet(f) for f in files]) if files else pd.DataFrame()

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that is whole: a kill can leave half a one behind."""
        for path in sorted(
            (self.path / "checkpoints").glob("checkpoint-*"),
            key=lambda p: int(p.name.rpartition("-")[2]),
            reverse=True,
        ):
            if (path / "whole").exists():
                return path
        return None

    def _lines(self, kind: str) -> pd.DataFrame:
        lines = [line for line in _read_lines(self.path / "metrics.jsonl") if line["kind"] == kind]
        return pd.DataFrame(lines).drop(columns="kind", errors="ignore")


def read_config(
    source: str | Path | tuple[str, str], overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read, check and parse the configuration of a training.

    Args:
        source: a YAML file, or `(case, profile)` for `configs/<case>/<profile>.yaml`.
        overrides: fields that take another value, by the names the file uses.

    Raises:
        CasebookError: no such file, not a mapping, an unknown field, reward, case or profile,
            or settings that cannot go together (a batch that `num_generations` does not divide).
    """
    if isinstance(source, tuple):
        settings, where = models.read_settings(*source), "/".join(source)
    else:
        settings, where = _read_yaml(Path(source)), str(source)
    settings = settings | dict(overrides or {})
    known = [f.name for kind in (CaseArguments, GRPOConfig, ModelConfig) for f in fields(kind)]
    for name in settings:
        if name not in known:
            raise CasebookError(f"{where}: unknown field {name!r}{_did_you_mean(name, known)}")
    _check(settings, where)
    case = load_case(settings["case"])
    check_name("profile", settings["profile"], PROFILES)
    case.grade("", "", variant=settings["variant"])  # an unknown variant is an error here
    for name in settings["reward_funcs"]:
        check_name("reward", name, (*case.rewards, KL_PENALTY))
    for changes in (settings.get("also_evaluate") or {}).values():
        case.grade("", "", variant=changes.get("variant"))
    config = Config(*_parse(settings, where), settings)
    weights = config.grpo.reward_weights or settings["reward_funcs"]
    if len(weights) != len(settings["reward_funcs"]):
        raise CasebookError(
            f"{where}: {len(settings['reward_funcs'])} reward_funcs, but "
            f"{len(weights)} reward_weights"
        )
    reward_functions(config)  # parameters that do not fit are an error here
    return config


def run_fingerprint(config: Config) -> str:
    """The fingerprint of a training: configuration, base weights, rows and code (16 hex digits).

    Seeds and what only concerns logging are left out, so that the runs of one arm share it.
    """
    return _fingerprint(config, NOT_IN_FINGERPRINT)


def _fingerprint(config: Config, left_out: Collection[str]) -> str:
    settings = {k: v for k, v in config.settings.items() if k not in left_out}
    case, profile = load_case(config.case.case), config.case.profile
    others = (changes.get("variant") for changes in config.case.also_evaluate.values())
    digest = hashlib.sha256()
    for variant in dict.fromkeys((config.case.variant, *filter(None, others))):
        for split in ("train", "test"):
            rows = case.load(split, profile=profile, variant=variant)
            digest.update(json.dumps([rows["prompt"][:], rows["answer"][:]]).encode())
    base = Path(models.model_source(config.model.model_name_or_path))
    weights = sorted(base.glob("*.safetensors")) + sorted(base.glob("tokenizer.json"))
    method = config.case.method
    modules = ["grpo"] * (method in PLAIN) + ["supervised"] * (method in SUPERVISED)
    return fingerprint(case.name, settings, weights, digest.hexdigest(), modules)


def train(config: Config, output: str | Path | None = None, resume: bool = False) -> Run:
    """Train, and measure before and after on the test split.

    Args:
        config: from `read_config`.
        output: the run folder; by default `<runs>/<case>/<profile>/seed<k>-<fingerprint>`.
        resume: go on from the last whole checkpoint; a finished run is returned as it is, and
            an empty folder is simply begun.

    Returns:
        The finished run.

    Raises:
        CasebookError: the folder holds another run, or the disk is full.
    """
    mark = run_fingerprint(config)
    run = Run(Path(output) if output else default_folder(config))
    try:
        return _train(run, config, mark) if _prepare(run, config, mark, resume) else run
    except (OSError, RuntimeError, SafetensorError) as error:
        if not any(sign in str(error) for sign in DISK_TROUBLE):
            raise
        raise CasebookError(
            f"the run stopped, nothing more can be written: {str(error).splitlines()[0]}. What "
            f"was written so far stays in {run.path}; make room, then go on with --resume"
        ) from error


def default_folder(config: Config, runs_dir: str | Path | None = None) -> Path:
    """Where a run goes that names no folder of its own: `<case>/<profile>/seed<k>-<mark>`."""
    name = f"seed{config.grpo.seed}-{run_fingerprint(config)[:8]}"
    return paths.runs_dir(runs_dir) / config.case.case / config.case.profile / name


def find_run(case: str, profile: str, seed: int, runs_dir: str | Path | None = None) -> Run | None:
    """The newest finished run of a case, profile and seed below `runs_dir`, or `None`."""
    folder = paths.runs_dir(runs_dir) / case / profile
    records = sorted(folder.glob("*/record.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(records):
        if read_record(path)["seed"] == seed:
            return Run(path.parent)
    return None


def training_rows(config: Config, tokenizer: Any) -> tuple[Dataset, int]:
    """The training rows, and how many were dropped because their prompt leaves no room."""
    case = load_case(config.case.case)
    rows = case.load("train", config.case.profile, config.grpo.seed, config.case.variant)
    if config.case.train_limit:
        rows = rows.select(range(min(config.case.train_limit, len(rows))))
    room = config.case.max_seq_length - config.grpo.max_completion_length

    def fits(row: dict[str, Any]) -> bool:
        prompt = row["prompt"]
        if isinstance(prompt, str):
            return len(tokenizer(prompt).input_ids) <= room
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        return len(tokenizer(text, add_special_tokens=False).input_ids) <= room

    kept = rows.filter(fits)
    if not len(kept):
        raise CasebookError(f"no training prompt fits into {room} tokens: raise max_seq_length")
    return kept, len(rows) - len(kept)


def reward_functions(config: Config) -> list[Callable]:
    """The reward functions a configuration names, made with its parameters, in its order."""
    rewards = {**load_case(config.case.case).rewards, KL_PENALTY: KlPenalty}
    parameters = config.case.reward_kwargs or {}
    for name in parameters:
        check_name("reward in reward_kwargs", name, config.case.reward_funcs)
    try:
        return [rewards[name](**parameters.get(name, {})) for name in config.case.reward_funcs]
    except TypeError as error:
        raise CasebookError(f"reward_kwargs do not fit: {error}") from error


class KlPenalty:
    """The poker write-up's KL inside the reward: minus the mean k1 estimate, in nats a token.

    k1 = log policy - log base on the policy's own tokens (Schulman 2020): unbiased, and negative
    half of the time. Its weight in `reward_weights` is the write-up's beta. It needs the policy
    itself, which `bind` hands over once there is one.
    """

    def __init__(self):
        self.__name__ = KL_PENALTY
        self.model = self.tokenizer = None

    def bind(self, model: Any, tokenizer: Any) -> None:
        """Take the policy, an adapter on its base, and the tokenizer."""
        self.model, self.tokenizer = model, tokenizer

    def __call__(self, prompts, completions, completion_ids, **columns) -> list[float]:
        if self.model is None:
            raise CasebookError(f"{KL_PENALTY} is bound to no policy")
        if not all(isinstance(prompt, str) for prompt in prompts):
            raise CasebookError(f"{KL_PENALTY} reads plain prompts, not lists of messages")
        batch = [
            (self.tokenizer(prompt).input_ids, ids)
            for prompt, ids in zip(prompts, completion_ids, strict=True)
        ]
        policy, mask = token_logps(self.model, batch)
        with self.model.disable_adapter():
            base, _ = token_logps(self.model, batch)
        k1 = ((policy - base) * mask).sum(1) / mask.sum(1)
        return (-k1).tolist()


class ConstrainedTrainer(GRPOTrainer):
    """GRPO on completions that keep to a constraint.

    TRL's trainer knows none: it would sample freely, and score what was sampled by the whole
    softmax. Here it samples under the constraint; with `score_constrained`, log-probabilities and
    entropies are those of the distribution that was sampled from.
    """

    def __init__(self, *args, constraint: Constraint, score_constrained: bool, **kwargs):
        self.constraint, self.score_constrained = constraint, score_constrained
        super().__init__(*args, **kwargs)

    def _generate_single_turn(self, *args, **kwargs):
        with constrained_generation(self.model, self.constraint):
            return super()._generate_single_turn(*args, **kwargs)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
    ):
        if not self.score_constrained:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
            )
        logits = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            logits_to_keep=logits_to_keep + 1,
            use_cache=False,
        ).logits[:, :-1]
        completion_ids = input_ids[:, -logits_to_keep:]
        logits = constrained(logits / self.temperature, completion_ids, self.constraint)
        logps = logits.log_softmax(-1)
        chosen = logps.gather(-1, completion_ids.unsqueeze(-1)).squeeze(-1)
        return chosen, -(logps.exp() * logps).sum(-1), None


class CompletionLog:
    """Keeps what the policy wrote at a step: TRL's own file is overwritten by evaluations.

    It stands between trainer and rewards: each reward function is wrapped, and the values of
    one batch are put together when the last one has been called.
    """

    def __init__(self, config: Config, folder: Path, eos_token_id: int):
        self.case = load_case(config.case.case)
        self.variant = config.case.variant
        self.every = config.case.completions_every
        self.folder = folder
        self.eos_token_id = eos_token_id
        self.weights = dict(
            zip(
                config.case.reward_funcs,
                config.grpo.reward_weights or [1.0] * len(config.case.reward_funcs),
                strict=True,
            )
        )
        self.group_size = config.grpo.num_generations
        self.scale = config.grpo.scale_rewards
        self.last_step = config.grpo.max_steps
        self.values: dict[str, list[float]] = {}

    def wrap(self, functions: list[Callable]) -> list[Callable]:
        """The same reward functions, under the same names, with this log listening."""
        return [self._wrap(function) for function in functions]

    def _wrap(self, function: Callable) -> Callable:
        name = function.__name__

        def reward(prompts, completions, completion_ids, trainer_state, **columns):
            values = function(
                prompts=prompts,
                completions=completions,
                completion_ids=completion_ids,
                **columns,
            )
            self.values[name] = values
            step = trainer_state.global_step + 1
            if len(self.values) == len(self.weights):
                if step == 1 or step == self.last_step or step % self.every == 0:
                    self.write(step, prompts, completions, completion_ids, columns["answer"])
                self.values = {}
            return values

        reward.__name__ = name
        return reward

    def write(self, step, prompts, completions, completion_ids, answers) -> None:
        """Write one step's completions with grades, reward parts, reward and advantage."""
        grades = [
            self.case.grade(completion, answer, variant=self.variant)
            for completion, answer in zip(completions, answers, strict=True)
        ]
        table = pd.DataFrame(
            {
                "step": step,
                "prompt": [_text(prompt) for prompt in prompts],
                "answer": answers,
                "completion": [_text(completion) for completion in completions],
                "tokens": [len(ids) for ids in completion_ids],
                "truncated": [ids[-1:] != [self.eos_token_id] for ids in completion_ids],
                "well_formed": [grade.well_formed for grade in grades],
                "extracted": [grade.answer for grade in grades],
                "correct": [grade.correct for grade in grades],
                "strict": [grade.strict for grade in grades],
            }
        )
        for name, values in self.values.items():
            table[f"reward/{name}"] = values
        table["reward"] = sum(table[f"reward/{n}"] * w for n, w in self.weights.items())
        groups = table["reward"].groupby(table.index // self.group_size)
        centred = table["reward"] - groups.transform("mean")
        spread = {"group": groups.transform("std"), "batch": table["reward"].std(), "none": 1.0}
        table["advantage"] = centred / (spread[self.scale] + 1e-4 * (self.scale != "none"))
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / "part"
        table.to_parquet(part, index=False)
        os.replace(part, self.folder / f"train_{step:05d}.parquet")


class WatchCallback(TrainerCallback):
    """Warns of what `casebook.detectors` see in a run, each of them once.

    Args:
        run: the run's folder.
        settings: what was asked for.
        say: called with each warning.
    """

    def __init__(self, run: Run, settings: Mapping[str, Any], say: Callable[[str], None] = print):
        self.run, self.watch, self.say = run, RunWatch(settings), say

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.global_step % WATCH_EVERY == 0:
            metrics = pd.concat([self.run.metrics(), self.run.validation()], ignore_index=True)
            for finding in self.watch.look(metrics, self.run.completions()):
                self.say(f"step {state.global_step}: {finding.message} {finding.advice}")


class RunCallback(TrainerCallback):
    """Writes metrics, shows progress, evaluates held-out rows on schedule."""

    def __init__(self, run: Run, config: Config, tokenizer: Any, progress: Progress):
        self.run, self.config, self.tokenizer, self.progress = run, config, tokenizer, progress
        self.seconds_before = max(
            (line["seconds"] for line in _read_lines(run.path / "metrics.jsonl")), default=0.0
        )

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.started = time.perf_counter()
        self.progress.start(state.global_step, state.max_steps)
        if state.global_step == 0:
            self._evaluate(0, model)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self._append("train", state.global_step, logs)
            self.progress.update(state.global_step, logs)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        every = self.config.case.evaluate_every
        if every and (state.global_step % every == 0 or state.global_step == state.max_steps):
            self._evaluate(state.global_step, model)

    def on_save(self, args, state, control, **kwargs):
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (checkpoint / "whole").touch()  # written last: without it, a kill came in between

    def on_train_end(self, args, state, control, **kwargs):
        self.progress.finish()

    @property
    def seconds(self) -> float:
        """Wall time of the training so far, over all its resumptions."""
        return self.seconds_before + time.perf_counter() - self.started

    def _evaluate(self, step: int, model: Any) -> None:
        case = self.config.case
        if not case.evaluate_every:
            return
        evaluation = evaluate(
            model,
            self.tokenizer,
            case.case,
            split="validation",
            profile=case.profile,
            limit=case.evaluate_rows,
            samples=1,
            variant=case.variant,
            drift=True,
            settings=self.config.settings,
        )
        summary = evaluation.summary()
        figures = {
            name: figure["value"] if isinstance(figure, dict) else figure
            for name, figure in summary.items()
            if isinstance(figure, float) or (isinstance(figure, dict) and "value" in figure)
        }
        self._append("validation", step, figures)
        self.progress.note(step, figures)

    def _append(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        line = {"kind": kind, **figures, "step": step, "seconds": round(self.seconds, 3)}
        with open(self.run.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")


def _train(run: Run, config: Config, mark: str) -> Run:
    if "wandb" in (config.grpo.report_to or []):
        os.environ.setdefault("WANDB_MODE", "offline")  # nobody's login is waited for
        os.environ.setdefault("WANDB_DIR", str(run.path))
    seed = config.grpo.seed
    set_seed(seed)  # TRL below 1.15 does not seed the initialisation of LoRA
    model, tokenizer = load_policy(
        config.case.case, config.case.profile, seed=seed, settings=config.settings
    )
    rows, dropped = training_rows(config, tokenizer)
    progress = Progress(f"{config.case.case}/{config.case.profile}, seed {seed}")
    if dropped:
        progress.say(f"{dropped} rows dropped: their prompts leave no room for a completion")
    callback = RunCallback(run, config, tokenizer, progress)
    samples = _fit(run, config, model, tokenizer, rows, callback)
    part = run.path / "adapter.part"
    save_policy(model, tokenizer, part, config.settings)
    shutil.rmtree(run.adapter, ignore_errors=True)
    os.replace(part, run.adapter)

    train_seconds = callback.seconds
    metrics, validation = run.metrics(), run.validation()
    progress.say("measuring before and after on the test rows")
    del model
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
    measuring = time.perf_counter()
    before = _before(config)
    after = _test(config, *load_saved(run.adapter)[:2])
    if "kl_from_base" in validation:
        after["kl_from_base"] = float(validation["kl_from_base"].iloc[-1])
    write_json(
        run.path / "record.json",
        {
            "case": config.case.case,
            "profile": config.case.profile,
            "arm": None,
            "seed": seed,
            "config": config.settings,
            "fingerprint": mark,
            "provenance": provenance(),
            "steps": int(metrics["step"].max()),
            "rows_dropped": dropped,
            **samples,
            "train_seconds": round(train_seconds, 1),
            "measure_seconds": round(time.perf_counter() - measuring, 1),
            "samples_per_second": round(samples["samples"] / train_seconds, 2),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "curve": _curve(metrics),
            "validation": validation.round(4).to_dict("list"),
            "adapter_largest_change": models.largest_change(run.adapter),
            "before": before,
            "after": after,
        },
    )
    return run


def _fit(
    run: Run, config: Config, model: Any, tokenizer: Any, rows: Dataset, callback: RunCallback
) -> dict[str, int]:
    """Train by the method asked for; how many completions it took."""
    samples = config.grpo.max_steps * config.grpo.per_device_train_batch_size
    samples *= config.grpo.gradient_accumulation_steps
    method, callbacks = config.case.method, [callback, WatchCallback(run, config.settings)]
    if method in PLAIN:
        _fit_plain(run, config, model, tokenizer, rows, callbacks)
        return {"samples": samples}
    more = {}
    if method == "grpo":
        trainer = _grpo_trainer(run, config, model, tokenizer, rows, callbacks)
    else:
        if method == "sft":
            texts = supervised.taught(config.case.case, rows, config.case.variant)
        else:
            started = time.perf_counter()
            prompts = samples // config.grpo.num_generations
            shuffled = rows.shuffle(config.grpo.seed)
            asked = shuffled.select(np.arange(prompts) % len(shuffled))  # round again, as GRPO
            texts = supervised.accepted(model, tokenizer, config.case.case, asked, config.settings)
            callback.seconds_before += time.perf_counter() - started
            more = {"accepted": len(texts)}
        longest = config.case.max_seq_length
        trainer = supervised.trainer(model, tokenizer, texts, config.grpo, callbacks, longest)
    trainer.remove_callback(PrinterCallback)
    checkpoint = run.checkpoint()
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return {"samples": samples, **more}


def _grpo_trainer(run, config, model, tokenizer, rows, callbacks) -> GRPOTrainer:
    labels = load_case(config.case.case).labels
    rule = constraint_for(config.case.constraint, labels, tokenizer)
    kind, more = GRPOTrainer, {}
    if rule:
        kind = ConstrainedTrainer
        more = {"constraint": rule, "score_constrained": config.case.score_constrained}
    return kind(
        model=model,
        reward_funcs=_logged_rewards(run, config, model, tokenizer),
        args=config.grpo,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks,
        **more,
    )


def _fit_plain(run, config, model, tokenizer, rows, callbacks) -> None:
    state = TrainerState(max_steps=config.grpo.max_steps)

    def log(step: int, metrics: Mapping[str, float]) -> None:
        state.global_step = step
        for callback in callbacks:
            callback.on_log(config.grpo, state, None, logs=metrics)
            callback.on_step_end(config.grpo, state, None, model=model)

    weights = config.grpo.reward_weights or [1.0] * len(config.case.reward_funcs)
    rewards = zip(_logged_rewards(run, config, model, tokenizer), weights, strict=True)
    for callback in callbacks:
        callback.on_train_begin(config.grpo, state, None, model=model)
    grpo.train(
        model, tokenizer, rows, list(rewards), config.settings, PLAIN[config.case.method], log
    )
    for callback in callbacks:
        callback.on_train_end(config.grpo, state, None)


def _logged_rewards(run, config, model, tokenizer) -> list[Callable]:
    functions = reward_functions(config)
    for function in functions:
        if isinstance(function, KlPenalty):
            function.bind(model, tokenizer)
    return CompletionLog(config, run.path / "completions", tokenizer.eos_token_id).wrap(functions)


def _curve(metrics: pd.DataFrame) -> dict[str, list[float]]:
    """What a record keeps of the logged steps: means over windows of CURVE_WINDOW."""
    windows = metrics.groupby((metrics["step"] - 1) // CURVE_WINDOW)
    columns = {n: windows[n].mean().round(4).tolist() for n in CURVE if n in metrics}
    return {"step": windows["step"].max().tolist(), **columns}


def _before(config: Config) -> dict[str, Any]:
    """The base's figures; arms that start from the same base and measure alike share them."""
    mark = _fingerprint(config, set(config.settings) - MEASURED)
    if mark not in _MEASURED:
        base = load_base(config.settings | {"fast_inference": False})
        _MEASURED[mark] = _test(config, *base)
    return _MEASURED[mark]


def _test(config: Config, model: Any, tokenizer: Any) -> dict[str, Any]:
    case = config.case

    def measure(limit: int, samples: int, changes: Mapping[str, Any] | None = None, **more):
        settings = {**config.settings, **(changes or {})}
        return evaluate(
            model,
            tokenizer,
            case.case,
            split="test",
            profile=case.profile,
            limit=settings.get("limit", limit),
            samples=samples,
            variant=settings["variant"],
            settings=settings,
            **more,
        )

    figures = measure(case.test_limit, case.test_samples).summary()
    if case.pass_at_k_rows:
        many = measure(case.pass_at_k_rows, case.pass_at_k_samples, greedy=False, seed=1)
        figures["pass_at_k"] = many.pass_at_k()
    if case.also_evaluate:
        figures["also"] = {
            name: measure(case.test_limit, 0, changes).summary()
            for name, changes in case.also_evaluate.items()
        }
    if case.profile in ("smoke", "nano"):
        figures["other_text_perplexity"] = perplexity(model, tokenizer, case.case)
    return figures


def _prepare(run: Run, config: Config, mark: str, resume: bool) -> bool:
    """Make the run folder ready; `False` where the run it holds has finished already."""
    config_file, mark_file = run.path / "config.yaml", run.path / "fingerprint"
    begun = run.finished or run.checkpoint() or _read_lines(run.path / "metrics.jsonl")
    if begun:
        if not resume:
            raise CasebookError(
                f"{run.path} holds a run already: go on with it by --resume, or name another folder"
            )
        if _read_yaml(config_file) != config.settings:
            raise CasebookError(f"the run in {run.path} has another configuration than this one")
        if mark_file.read_text() != mark:
            raise CasebookError(
                f"the run in {run.path} was made by other code, data or weights: name another "
                "folder"
            )
        if run.finished:
            return False
    elif run.path.exists() and any(run.path.iterdir()) and not config_file.exists():
        raise CasebookError(f"{run.path} is not empty and holds no run: name another folder")
    else:
        (run.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        mark_file.write_text(mark)
        config_file.write_text(yaml.safe_dump(config.settings, sort_keys=False))
    config.grpo.output_dir = str(run.path / "checkpoints")
    checkpoint = run.checkpoint()
    last = int(checkpoint.name.rpartition("-")[2]) if checkpoint else -1
    lines = [line for line in _read_lines(run.path / "metrics.jsonl") if line["step"] <= last]
    part = run.path / "metrics.part"
    part.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.replace(part, run.path / "metrics.jsonl")
    return True


def _check(settings: Mapping[str, Any], where: str) -> None:
    """Raise a `CasebookError` for what is missing, too small, or no choice there is."""
    required = [*REQUIRED]
    if settings.get("use_peft"):
        required += ["lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"]
    for name in required:
        if settings.get(name) is None:
            raise CasebookError(f"{where}: the field {name!r} is missing")
    names = settings["reward_funcs"]
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise CasebookError(f"{where}: reward_funcs must be a list of different names")
    for name, least in LEAST.items():
        value = settings.get(name, least)
        if isinstance(value, int | float) and value < least:
            raise CasebookError(f"{where}: {name} is {value}, and must be at least {least}")
    for name, choices in CHOICES.items():
        if isinstance(settings.get(name), str) or name in ("method", "constraint"):
            check_name(name, settings.get(name, choices[0]), choices)
    method, rule = settings.get("method", "grpo"), settings.get("constraint", "none")
    if rule != "none" and method not in ("grpo", "sft"):
        raise CasebookError(f"{where}: the method {method!r} samples without a constraint")
    if KL_PENALTY in settings["reward_funcs"] and not settings.get("use_peft"):
        raise CasebookError(f"{where}: {KL_PENALTY} needs an adapter: its base is the reference")
    also = settings.get("also_evaluate") or {}
    if not isinstance(also, Mapping) or not all(isinstance(c, Mapping) for c in also.values()):
        raise CasebookError(f"{where}: also_evaluate must map names to settings")
    for name, changes in also.items():
        for field_name in changes:
            check_name(f"setting of also_evaluate {name!r}", field_name, ALSO)
        check_name("constraint", changes.get("constraint", "none"), KINDS)
        limit = changes.get("limit", 1)
        if not isinstance(limit, int) or limit < 1:
            raise CasebookError(f"{where}: also_evaluate {name!r}: limit must be 1 or more")


def _parse(settings: Mapping[str, Any], where: str) -> tuple:
    """Settings through TRL's own parser, which reads a file and converts what YAML calls text."""
    usage = io.StringIO()
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(settings), file)
        file.flush()
        try:
            with contextlib.redirect_stderr(usage):
                return TrlParser((CaseArguments, GRPOConfig, ModelConfig)).parse_args_and_config(
                    ["--config", file.name], fail_with_unknown_args=True
                )
        except SystemExit:  # argparse has said which value it could not read
            said = usage.getvalue().strip().rpartition("error: ")[2]
            raise CasebookError(f"{where}: a value has the wrong type: {said}") from None
        except (ValueError, TypeError, ImportError, ArithmeticError) as error:
            raise CasebookError(f"{where}: {str(error).strip().splitlines()[0]}") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text())
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise CasebookError(f"{path} is not valid YAML: {error}".replace("\n", " ")) from error
    if not isinstance(settings, dict):
        raise CasebookError(f"{path} holds no mapping of field names to values")
    return settings


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line that a kill cut short is left out."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def _text(message: Any) -> str:
    return message if isinstance(message, str) else "\n".join(m["content"] for m in message)


def _did_you_mean(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
