"""One training: a YAML file becomes a `GRPOTrainer`, and leaves a run folder behind.

    <runs>/<case>/<profile>/<run id>/
        config.yaml                       what was asked for, overrides included
        metrics.jsonl                     one line for each logged step and each evaluation
        completions/train_00010.parquet   what the policy wrote at that step, and its rewards
        checkpoints/                      the last two, for `resume`
        adapter/                          the trained adapter, in safetensors
        record.json                       what was measured, before and after

After a kill or with a full disk only the steps since the last checkpoint are lost: metrics are
appended line by line, and every other file is written under another name and then renamed.
"""

import contextlib
import gc
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from safetensors import SafetensorError
from transformers import PrinterCallback, TrainerCallback, TrainerState, set_seed

from casebook import grpo, models
from casebook.case import CasebookError, load_case
from casebook.doctor.live import DoctorCallback
from casebook.doctor.logs import read_log
from casebook.models import describe, engine, load_policy, save_policy
from casebook.models.decoding import constraint_for
from casebook.models.generation import end_ids, token_ids
from casebook.paths import alone_in, write_json, write_trouble
from casebook.records import provenance
from casebook.settings import PLAIN, SUPERVISED, check_present
from casebook.training import supervised
from casebook.training.config import Config, reward_functions
from casebook.training.kl_penalty import KlPenalty
from casebook.training.log import (
    CompletionLog,
    RunCallback,
    Stopped,
    curve,
    skipped_steps,
)
from casebook.training.measure import forget_peak, input_digests, measure, peak_mb
from casebook.training.progress import Progress
from casebook.training.rollouts import OWN, ConstrainedTrainer, RolloutTrainer
from casebook.training.run import Run, check_folder, default_folder, prepare, step_of

disable_progress_bars()  # of datasets; a training shows its own


def train(config: Config, output: str | Path | None = None, resume: bool = False) -> Run:
    """Train, and measure before and after on the test split (on validation: see `measure`).

    Args:
        config: from `read_config`.
        output: the run folder; by default `<runs>/<case>/<profile>/seed<k>-<mark>`.
        resume: continue from the last complete checkpoint; a finished run is returned as it is, and
            in an empty folder a run begins.

    Returns:
        The finished run.

    Raises:
        CasebookError: the folder holds another run or cannot be written, another process trains
            into it, a library is missing, or the disk is full.
    """
    run = Run(Path(output) if output else default_folder(config))
    check_present(config.settings)
    busy = f"another process trains into {run.path}: wait for its end"
    progress = Progress(f"{config.case}/{config.profile}, seed {config.seed}")
    try:
        check_folder(run, resume)
        with engine.freed_afterwards(), alone_in(run.path, busy), contextlib.closing(progress):
            if prepare(run, config):
                _train(run, config, progress)
            return run
    except (OSError, RuntimeError, SafetensorError) as error:
        trouble = write_trouble(error)
        if trouble is None and not (run.path / "config.yaml").exists():
            trouble = "its folder was deleted while it trained"
        if trouble is None:
            raise
        raise CasebookError(
            f"the run stopped, {run.path} cannot be written ({trouble}): what was written so far "
            "is kept; solve the problem, then continue with --resume"
        ) from error


def training_rows(config: Config, tokenizer: Any) -> tuple[Dataset, int]:
    """The training rows, and how many were dropped because their prompt leaves no room."""
    rows = load_case(config.case).load("train", config.profile, config.seed, config.variant)
    rows = rows.select(range(min(config.train_limit or len(rows), len(rows))))
    room = config.max_seq_length - config.max_completion_length

    fits = [len(token_ids(tokenizer, prompt)) <= room for prompt in rows["prompt"]]
    kept = rows.select(np.flatnonzero(fits))
    if not len(kept):
        raise CasebookError(f"no training prompt fits into {room} tokens: raise max_seq_length")
    prompts = config.generation_batch_size // config.num_generations
    if config.method not in SUPERVISED and len(kept) < prompts:
        raise CasebookError(
            f"{len(kept)} training prompts do not fill a step, which takes {prompts}: lower "
            "per_device_train_batch_size or raise train_limit"
        )
    return kept, len(rows) - len(kept)


@contextlib.contextmanager
def _tracked(run: Run, config: Config) -> Iterator[None]:
    """W&B, where `report_to` names it: TRL's own callback logs there, offline without a login."""
    if "wandb" not in config.report_to:
        yield
        return
    import wandb

    mode = os.environ.get("WANDB_MODE") or (None if wandb.login(prompt=False) else "offline")
    began_before = wandb.run and contextlib.nullcontext()
    with began_before or wandb.init(
        project=os.environ.get("WANDB_PROJECT", "rlvr-casebook"),
        dir=os.environ.get("WANDB_DIR", run.path),
        mode=mode,
    ):
        yield


def _train(run: Run, config: Config, progress: Progress) -> None:
    forget_peak()
    made_by = provenance()  # before the hours in which the next commit may come
    model, tokenizer, rows, dropped = beginning(config)
    if dropped:
        progress.say(f"{dropped} rows dropped: their prompts leave no room for a completion")
    callback = RunCallback(run, config, tokenizer, progress)
    with _tracked(run, config):
        samples = _fit(run, config, model, tokenizer, rows, callback)
    part = run.path / "adapter.part"
    shutil.rmtree(part, ignore_errors=True)
    if hasattr(tokenizer, "backend_tokenizer"):  # how it padded last is saved with it
        tokenizer.backend_tokenizer.no_padding()
    save_policy(model, tokenizer, part, config.settings)
    shutil.rmtree(run.adapter, ignore_errors=True)
    os.replace(part, run.adapter)

    train_seconds, metrics, validation = callback.seconds, run.metrics(), run.validation()
    described = describe(model, config.settings)
    policy = (model, tokenizer) if engine.of(model) else None  # it would not fit twice
    del model
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
    measuring = time.perf_counter()
    measured = measure(run.adapter, config, run.path / "measured", progress, policy)
    if measured["after"] and "kl_from_base" in validation:
        measured["after"]["kl_from_base"] = float(validation["kl_from_base"].iloc[-1])
    record = {
        **{"case": config.case, "profile": config.profile, "arm": None, "seed": config.seed},
        "config": config.settings,
        "provenance": made_by | {"model": described},
        "inputs": input_digests(config),
        "rows_dropped": dropped,
        **samples,
        "train_seconds": round(train_seconds, 1),
        "measure_seconds": round(time.perf_counter() - measuring, 1),
        "samples_per_second": round(samples["samples"] / train_seconds, 2),
        "peak_memory_mb": peak_mb(),
        "curve": curve(metrics),
        "validation": validation.round(4).to_dict("list"),
        "adapter_largest_change": models.largest_change(run.adapter),
        **measured,
        **({"skipped_steps": skipped_steps(metrics)} if skipped_steps(metrics) else {}),
    }
    write_json(run.path / "record.json", record)


def first_steps(config: Config, output: Path, steps: int) -> Run:
    """The first steps of a training, by the schedule of the whole; nothing is saved or measured.

    Returns:
        The run folder, with the metrics of these steps and what was evaluated on the way.
    """
    run = Run(Path(output))
    prepare(run, config)
    model, tokenizer, rows, _ = beginning(config)
    callback = RunCallback(run, config, tokenizer, Progress("", quiet=True), steps)
    with contextlib.suppress(Stopped):
        _fit(run, config, model, tokenizer, rows, callback)
    return run


def beginning(config: Config) -> tuple[Any, Any, Dataset, int]:
    """Policy, tokenizer, training rows and how many were dropped, with the seed set."""
    set_seed(config.seed)  # TRL below 1.15 does not seed the initialisation of LoRA
    with refusals():
        policy = load_policy(config.case, config.profile, config.seed, config.settings)
    return *policy, *training_rows(config, policy[1])


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """While a policy or a trainer is made: what a library refuses is a mistake in the settings."""
    try:
        yield
    except CasebookError:
        raise
    except (ValueError, NotImplementedError, ImportError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CasebookError(f"these settings cannot be trained: {said}") from error


class _Checkpoints(TrainerCallback):
    """Saves only where a run can go on exactly as it would have.

    A batch of completions may serve several steps, and a run that goes on between them would
    sample another.
    """

    def __init__(self, run: Run, config: Config):
        self.run, self.seconds = run, 60 * config.save_minutes or math.inf
        self.saved = time.monotonic()
        self.batch = 1  # in rounds of `gradient_accumulation_steps`
        self.rounds = config.gradient_accumulation_steps
        if config.method == "grpo":
            self.batch = config.steps_per_generation * config.num_iterations

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step * self.rounds % self.batch and state.global_step < state.max_steps:
            control.should_save = False
            return
        if time.monotonic() - self.saved >= self.seconds:
            control.should_save = True

    def on_save(self, args, state, control, **kwargs):
        self.run.seal(Path(args.output_dir) / f"checkpoint-{state.global_step}")
        self.saved = time.monotonic()


def _fit(
    run: Run, config: Config, model: Any, tokenizer: Any, rows: Dataset, callback: RunCallback
) -> dict[str, int]:
    """Train by the method asked for; how many steps and completions it took."""
    arguments = config.trainer_arguments(run.path / "checkpoints")
    batch = config.per_device_train_batch_size * config.gradient_accumulation_steps
    samples = config.max_steps * batch
    if config.method == "grpo":  # a batch serves so many rounds; the last one may not be used up
        size = config.per_device_train_batch_size * config.steps_per_generation
        samples = -(-samples // (size * config.num_iterations)) * size
    took = {"steps": config.max_steps, "samples": samples}
    method, callbacks = config.method, [callback]
    if method not in SUPERVISED:  # a log without rewards or completions says nothing to it
        callbacks.append(DoctorCallback(read=lambda: read_log(run.path)))
    if method in PLAIN:
        _fit_plain(run, config, arguments, model, tokenizer, rows, callbacks)
        return took
    callbacks.append(_Checkpoints(run, config))
    if method == "grpo":
        rule = constraint_for(config.constraint, load_case(config.case).labels, tokenizer)
        kind, own = RolloutTrainer, {name: getattr(config, name) for name in OWN}
        if rule:
            kind = ConstrainedTrainer
            own |= {"constraint": rule, "score_constrained": config.score_constrained}
        with refusals():
            trainer = kind(
                model=model,
                reward_funcs=_logged_rewards(run, config, model, tokenizer),
                args=arguments,
                train_dataset=rows,
                processing_class=tokenizer,
                callbacks=callbacks,
                **own,
            )
    else:
        if method == "sft":
            texts = supervised.taught(config.case, rows, config.variant)
        else:
            started = time.perf_counter()
            prompts = np.arange(samples // config.num_generations) % len(rows)  # round, as GRPO
            asked = rows.shuffle(config.seed).select(prompts)
            texts = supervised.accepted(model, tokenizer, config.case, asked, config.settings)
            callback.seconds_before += time.perf_counter() - started
            took["accepted"] = len(texts)
        how = (arguments, callbacks, config.max_seq_length, config.prompts_once)
        trainer = supervised.trainer(model, tokenizer, texts, *how)
    trainer.remove_callback(PrinterCallback)
    checkpoint = run.checkpoint()
    if checkpoint and step_of(checkpoint) >= config.max_steps:
        # Trained to its end already. `trainer.train` would add a step: only the weights are wanted.
        callback.started = time.perf_counter()
        trainer._load_from_checkpoint(str(checkpoint))
        return took
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return took


def _fit_plain(run, config, arguments, model, tokenizer, rows, callbacks) -> None:
    state = TrainerState(max_steps=config.max_steps)

    def log(step: int, metrics: Mapping[str, float]) -> None:
        state.global_step = step
        for callback in callbacks:
            callback.on_step_end(arguments, state, None, model=model)
            callback.on_log(arguments, state, None, logs=metrics)

    weights = config.reward_weights or [1.0] * len(config.reward_funcs)
    rewards = zip(_logged_rewards(run, config, model, tokenizer), weights, strict=True)
    for callback in callbacks:
        callback.on_train_begin(arguments, state, None, model=model)
    grpo.train(model, tokenizer, rows, list(rewards), config.settings, PLAIN[config.method], log)


def _logged_rewards(run, config, model, tokenizer) -> list[Callable]:
    functions = reward_functions(config)
    for function in functions:
        if isinstance(function, KlPenalty):
            function.bind(model, tokenizer, config.prompts_once)
    log = CompletionLog(config, run.path / "completions", end_ids(model, tokenizer))
    return [log.wrap(function) for function in functions]
