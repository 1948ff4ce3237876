"""A few minutes of the training itself: what an untrained policy writes, and one step.

The trainer, its rollouts, rewards and log are the training's own. 16 to 32 prompts get a group of
completions each, at the run's own sampling; then the optimiser makes a step that nobody keeps. All
of it goes on in a temporary folder.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from casebook.case import CasebookError
from casebook.preflight.memory import Phase, Texts
from casebook.preflight.times import counts
from casebook.stats import mean_interval

PROMPTS = 16  # at least; a batch more never takes them above 32, unless one alone does
QUICK = 20.0  # seconds; a first step that took less is made twice, and the second one counts


class TooLittleMemory(CasebookError):
    """The memory that is here did not hold the training, whatever the estimate says."""


def measured(
    settings: Mapping[str, Any], say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """What a training's first completions are like, and what a step of it costs.

    Args:
        settings: of the training, of which nothing is changed but what is kept and when it is
            evaluated.
        say: called with what is done next.

    Returns:
        `prompts`, `completions`, `rewards` (part -> figure), `reward`, `silent` (share of groups),
        `truncated`, `well_formed`, `correct`, `tokens`: figures with intervals over prompts;
        `load_seconds`, `rollout_seconds` (of one batch of completions), `step_seconds`,
        `learning_seconds` (of the same step, without the completions it wrote), `peak_bytes`.

    Raises:
        TooLittleMemory: it does not fit.
        CasebookError: as a training does; or it is no GRPO by TRL.
    """
    if settings.get("method", "grpo") != "grpo":
        raise CasebookError(f"--measure knows TRL's GRPO only, not {settings['method']!r}")
    from casebook.models import engine
    from casebook.models.generation import out_of_memory

    try:
        with engine.freed_afterwards(), quiet_libraries():
            return _measured(settings, say)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        said = str(error).strip().partition("\n")[0]
        raise TooLittleMemory(
            f"measuring ran out of memory ({said or 'no more was said'}): decrease "
            "per_device_train_batch_size, or max_completion_length"
        ) from error


def _measured(settings: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """`measured`, with whatever error comes, and an engine that is left behind."""
    from casebook.training import loop, read_config
    from casebook.training.memory import forget_peak
    from casebook.training.run import Run

    quiet = {"save_strategy": "no", "report_to": "none", "evaluate_every": 0}
    quiet |= {"completions_every": 1, "measure": "test"}
    with TemporaryDirectory(prefix="preflight-") as folder:
        file = Path(folder) / "config.yaml"
        import yaml

        file.write_text(yaml.safe_dump({**settings, **quiet}))
        config, run = read_config(file), Run(Path(folder) / "run")
        forget_peak()
        say("loading the model")
        started = time.perf_counter()
        model, tokenizer, rows, _ = loop.beginning(config)
        loaded = time.perf_counter() - started
        watch = _Watch(run, config, say)
        arguments = config.trainer_arguments(run.path / "checkpoints")
        with loop.refusals():
            trainer = loop.grpo_trainer(run, config, arguments, model, tokenizer, rows, [])
        watch.attach(trainer)
        trainer.train()
        table = pd.concat(watch.tables, ignore_index=True)
        return {
            **figures(table, config.num_generations),
            "load_seconds": round(loaded, 2),
            "rollout_seconds": round(median(watch.rollouts[watch.first :]), 3),
            "step_seconds": round(watch.steps[-1], 3),
            "learning_seconds": round(watch.learning, 3),
            "peak_bytes": _peak(),
        }


class _Watch:
    """Lets a trainer write for enough prompts, makes one step of it, and ends it."""

    def __init__(self, run: Any, config: Any, say: Callable[[str], None]):
        self.run, self.config, self.say = run, config, say
        self.tables: list[pd.DataFrame] = []
        self.rollouts: list[float] = []
        self.steps: list[float] = []
        self.learning = 0.0  # seconds of the newest step without its rollouts
        self.first = 0

    def attach(self, trainer: Any) -> None:
        """Listen to a trainer."""
        from transformers import PrinterCallback, TrainerCallback

        watch, plain = self, trainer._generate_and_score_completions

        def scored(inputs: Any) -> Any:
            started = time.perf_counter()
            found = plain(inputs)
            watch.rollouts.append(time.perf_counter() - started)
            if len(watch.steps) == 0:
                watch.keep()
            return found

        class Callback(TrainerCallback):
            def on_train_begin(self, args, state, control, **kwargs):
                watch.more(trainer)

            def on_step_begin(self, args, state, control, **kwargs):
                watch.say("one step of the optimiser")
                self.written = len(watch.rollouts)
                self.started = time.perf_counter()

            def on_step_end(self, args, state, control, **kwargs):
                watch.steps.append(time.perf_counter() - self.started)
                watch.learning = watch.steps[-1] - sum(watch.rollouts[self.written :])
                again = len(watch.steps) == 1 and watch.steps[0] < QUICK
                control.should_training_stop = not again

        trainer._generate_and_score_completions = scored
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Callback())

    def more(self, trainer: Any) -> None:
        """Completions for as many prompts as a step's own leave to be seen."""
        config, arguments = self.config, trainer.args
        once = config.generation_batch_size // config.num_generations
        batches = max(0, math.ceil(PROMPTS / once) - 1)
        if not batches:
            return
        self.say(f"completions of {batches * once} prompts")
        repeated = config.num_iterations * arguments.steps_per_generation
        loader = trainer.get_train_dataloader()
        trainer.model.train()
        # The first batch is the step's own.
        for inputs in islice(loader, repeated, repeated * (batches + 1), repeated):
            trainer._generate_and_score_completions(inputs)
        self.first = 1 if batches > 1 else 0  # a first batch also warms up

    def keep(self) -> None:
        """What the log has written of the newest batch; the next one goes to the same file."""
        file = next(iter((self.run.path / "completions").glob("train_*.parquet")), None)
        if file is not None:
            self.tables.append(pd.read_parquet(file).assign(batch=len(self.tables)))
            file.unlink()


def figures(table: pd.DataFrame, group: int) -> dict[str, Any]:
    """What completions are like, with intervals over prompts.

    Args:
        table: as the completions' log of a training has it, groups one after the other.
        group: completions of a prompt.
    """
    groups = table.index // group
    rewards = {
        name.removeprefix("reward/"): mean_interval(table[name].groupby(groups).mean().to_numpy())
        for name in table
        if name.startswith("reward/")
    }
    found = {"prompts": int(groups.nunique()), "completions": len(table), "rewards": rewards}
    total = table["reward"].round(6).groupby(groups)
    found["silent"] = mean_interval((total.nunique() == 1).to_numpy(float))
    for name in ("reward", "truncated", "well_formed", "correct", "tokens"):
        found[name] = mean_interval(table[name].astype(float).groupby(groups).mean().to_numpy())
    return found


def phase_seconds(
    settings: Mapping[str, Any],
    texts: Texts,
    found: Mapping[str, Phase],
    measured: Mapping[str, Any],
    gpu: bool,
) -> dict[str, float]:
    """Seconds of each phase of a whole training, from one batch of completions and one step.

    On a CPU a batch takes as long as it has completions; on a GPU as long as another one.
    """
    number, steps = counts(settings, texts), settings["max_steps"]
    together = settings.get("steps_per_generation") or settings["gradient_accumulation_steps"]
    at_once = settings["per_device_train_batch_size"] * together
    rollout = measured["rollout_seconds"]
    a_step = rollout * number["step"] / at_once / settings.get("num_iterations", 1)

    def written(completions: int, batch: int | None) -> float:
        if gpu:
            return math.ceil(completions / (batch or at_once)) * rollout
        return completions / at_once * rollout

    each = written(number["evaluation"], found["evaluation"].batch)
    return {
        "load": measured["load_seconds"],
        "evaluation": round(number["evaluations"] * each, 1),
        "rollout": round(steps * a_step, 1),
        "backward": round(steps * measured["learning_seconds"], 1),
        "final test": round(written(number["test"], found["final test"].batch), 1),
    }


def _peak() -> int:
    """The most bytes held: of the GPU where there is one, else of the process."""
    import torch

    from casebook.training.memory import peak_mb

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_reserved())
    return peak_mb() * 2**20


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Inside it, what transformers warns of is not shown: the output is the preflight's own."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
