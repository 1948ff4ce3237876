"""A run in Weights & Biases: what transformers' callback logs by itself, and what it leaves out.

The run's folder is the source, and W&B a view of it: whatever is logged here is read from the
folder's files. TRL's trainers log their metrics as `train/<TRL's name>`, with a part for each
reward. Added are

    eval/<figure>           each evaluation on held-out validation rows
    completions             a table for each step whose completions are kept: prompt, answer,
                            completion, its grade, reward by part and advantage
    test/before/<figure>    in the summary: what was measured on test rows, before and after,
    test/after/<figure>     with `/low` and `/high`
    an artifact             of the type `record`: record.json, config.yaml and metrics.jsonl

Only a training with `report_to: wandb` imports this. `publish` does the same for a finished run.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import TrainerCallback

from casebook.case import CasebookError
from casebook.training.run import Run
from casebook.wandb_files import STEP, offline_files

PROJECT = "rlvr-casebook"
OF_ARTIFACT = ("record.json", "config.yaml", "metrics.jsonl")
NO_METRIC = ("kind", "step", "seconds")  # of a line of metrics


class Tracking(TrainerCallback):
    """Logs what is new in a run's folder, after each step of a training.

    Args:
        run: the run's folder.
        settings: of the training, which become the run's `config["casebook"]`.
        trainer_logs: whether transformers' callback logs the training's metrics; the loops of
            `casebook.grpo` have no such callback.
        again: write a run of its own, offline and without a word of wandb's, whatever there is.

    A resumed training goes on with the run of W&B that it began. Where somebody has begun one in
    this process, that one is used, and left open.
    """

    def __init__(
        self,
        run: Run,
        settings: Mapping[str, Any],
        trainer_logs: bool = True,
        again: bool = False,
    ):
        import wandb

        self.wandb, self.run = wandb, run
        self.kinds = ("validation",) if trainer_logs else ("validation", "train")
        self.own = wandb.run is None
        begun = offline_files(run.path) if self.own and not again else []
        if self.own:
            self._begin(settings, begun, again)
        wandb.define_metric(STEP)
        wandb.define_metric("*", step_metric=STEP, step_sync=True)
        # What a resumed training finds in its folder was logged before it stopped.
        self.bytes_read = run.metrics_file.stat().st_size if begun else 0
        self.tables = set(self._files()) if begun else set()

    def _begin(self, settings: Mapping[str, Any], begun: Sequence[Path], again: bool) -> None:
        wandb = self.wandb
        name = f"{settings['case']}-{settings['profile']}-seed{settings['seed']}"
        try:
            wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=settings.get("run_name") or name,
                id=begun[-1].stem.removeprefix("run-") if begun else None,
                resume="allow" if begun else None,
                dir=self.run.path,
                # Said aloud: wandb itself looks at the variable once in a process.
                mode="offline" if again else os.environ.get("WANDB_MODE"),
                config={"casebook": dict(settings)},
                settings=wandb.Settings(silent=True, console="off") if again else None,
            )
        except wandb.errors.Error as error:
            said = str(error).strip().splitlines()[0]
            raise CasebookError(
                f"W&B cannot begin a run ({said}): WANDB_MODE=offline trains without its server"
            ) from error

    def on_train_begin(self, args, state, control, **kwargs):
        self.catch_up()

    on_step_end = on_log = on_train_end = on_train_begin

    def catch_up(self) -> None:
        """Log what the folder holds and W&B does not."""
        for line in self._new_lines():
            if line["kind"] in self.kinds:
                place = "train" if line["kind"] == "train" else "eval"
                values = {f"{place}/{n}": v for n, v in line.items() if n not in NO_METRIC}
                self.wandb.log({**values, STEP: line["step"]})
        for file in self._files():
            if file not in self.tables:
                self.tables.add(file)
                rows = pd.read_parquet(file)
                table = self.wandb.Table(dataframe=rows.astype(object))
                self.wandb.log({"completions": table, STEP: int(file.stem.rpartition("_")[2])})

    def finish(self) -> None:
        """End the run; a finished training adds what was measured on test rows, and its files."""
        done = self.run.finished
        try:
            if done:
                self.catch_up()
                record = self.run.record()
                self.wandb.run.summary.update(dict(_test_figures(record)))
                self._log_artifact(record)
        finally:
            if self.own:
                self.wandb.finish(exit_code=0 if done else 1)

    def _log_artifact(self, record: Mapping[str, Any]) -> None:
        name = f"record-{record['case']}-{record['profile']}-seed{record['seed']}"
        artifact = self.wandb.Artifact(name, type="record")
        for file in OF_ARTIFACT:
            artifact.add_file(str(self.run.path / file), policy="immutable", skip_cache=True)
        self.wandb.run.log_artifact(artifact)

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics since the last call, which a training appends whole."""
        if not self.run.metrics_file.exists():
            return
        with open(self.run.metrics_file, "rb") as file:
            file.seek(self.bytes_read)
            for text in file:
                self.bytes_read += len(text)
                yield json.loads(text)

    def _files(self) -> list[Path]:
        return sorted((self.run.path / "completions").glob("train_*.parquet"))


def publish(run: Run) -> Path:
    """Write a finished run as the offline run of W&B that `report_to: wandb` would have left.

    Returns:
        Its file, for `casebook.wandb_files` and for `wandb sync`.

    Raises:
        CasebookError: the run has not finished, wandb is not installed, or a run of W&B is under
            way in this process.
    """
    run.record()  # it has finished
    try:
        import wandb
    except ImportError as error:
        raise CasebookError("wandb is not installed here: pip install wandb") from error
    if wandb.run is not None:
        raise CasebookError("a run of W&B is under way in this process: wandb.finish() ends it")
    tracking = Tracking(run, run.settings(), trainer_logs=False, again=True)
    folder = Path(wandb.run.dir).parent
    tracking.finish()
    return next(folder.glob("run-*.wandb"))


def _test_figures(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Figures of test rows by the names they have in W&B; none where nothing was measured there."""
    for when in ("before", "after"):
        for name, figure in (record.get(when) or {}).items():
            if isinstance(figure, Mapping) and "value" in figure:
                yield f"test/{when}/{name}", figure["value"]
                yield f"test/{when}/{name}/low", figure["low"]
                yield f"test/{when}/{name}/high", figure["high"]
            elif isinstance(figure, float):
                yield f"test/{when}/{name}", figure
