"""The folder of a run: what is in it, where it lies, and how it is made ready."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from casebook import paths, processes
from casebook.case import CasebookError
from casebook.paths import LOCK, plain, read_json, write_json
from casebook.records import read_record
from casebook.settings import read_settings, read_yaml
from casebook.training.config import NOT_OF_THE_ARM, Config, settings_mark

OF_A_RUN = {"config.yaml", "metrics.jsonl", "checkpoints", "record.json"}
SEAL = "whole"  # in a checkpoint: what it and the run's files were when it was written

# What decides how a run is measured, and nothing about how it is trained.
OF_THE_TEST = (
    *("test_limit", "test_samples", "also_evaluate", "pass_at_k_rows", "pass_at_k_samples"),
)


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
        return read_yaml(self.path / "config.yaml", aliases=True)

    def metrics(self) -> pd.DataFrame:
        """One row for each logged training step, in TRL's metric names."""
        return self._lines("train")

    def validation(self) -> pd.DataFrame:
        """One row for each evaluation on held-out validation rows."""
        return self._lines("validation")

    def completions(self) -> pd.DataFrame:
        """All recorded completions: text, grade, advantage, reward and its parts.

        Raises:
            CasebookError: a file of them is damaged.
        """
        tables = []
        for file in sorted((self.path / "completions").glob("train_*.parquet")):
            try:
                tables.append(pd.read_parquet(file))
            except (OSError, ValueError) as error:  # Arrow's own errors are both
                raise CasebookError(f"{file} is damaged: {str(error).splitlines()[0]}") from error
        return pd.concat(tables) if tables else pd.DataFrame()

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that is whole, with the metrics and completions up to it."""
        return next((path for path, fault in self.checkpoints() if fault is None), None)

    def checkpoints(self) -> Iterator[tuple[Path, str | None]]:
        """The checkpoints from the newest on, and for each what is wrong with it, or `None`."""
        folders = (self.path / "checkpoints").glob("checkpoint-*")
        steps = {path: step for path in folders if (step := step_of(path)) is not None}
        for path in sorted(steps, key=lambda path: steps[path], reverse=True):
            yield path, self._fault(path)

    def seal(self, checkpoint: Path) -> None:
        """Declare a checkpoint whole, the last thing that is done to it: a kill comes before."""
        written = [file for file in checkpoint.rglob("*") if file.is_file() and file.name != SEAL]
        completions = (self.path / "completions").glob("train_*.parquet")
        write_json(
            checkpoint / SEAL,
            {
                "files": {
                    file.relative_to(self.path).as_posix(): _hash(file)
                    for file in sorted([*written, *completions])
                },
                "metrics_bytes": self.metrics_file.stat().st_size,
                "metrics": _hash(self.metrics_file),
            },
        )

    @property
    def metrics_file(self) -> Path:
        """One JSON a line: the logged steps and the evaluations."""
        return self.path / "metrics.jsonl"

    def _fault(self, checkpoint: Path) -> str | None:
        """What of a checkpoint is not as it was written."""
        if not (checkpoint / SEAL).exists():
            return "it was not written to its end"
        try:
            seal = read_json(checkpoint / SEAL)
            for name, mark in seal["files"].items():
                if not (self.path / name).is_file():
                    return f"{name} is gone"
                if _hash(self.path / name) != mark:
                    return f"{name} has changed"
            if not self.metrics_file.is_file():
                return f"{self.metrics_file.name} is gone"
            if _hash(self.metrics_file, seal["metrics_bytes"]) != seal["metrics"]:
                return f"{self.metrics_file.name} has changed"
        except (CasebookError, KeyError, TypeError, AttributeError):
            return f"its file {SEAL!r} is damaged"
        return None

    def _lines(self, kind: str) -> pd.DataFrame:
        lines = [line for line in read_lines(self.metrics_file) if line["kind"] == kind]
        return pd.DataFrame(lines).drop(columns="kind", errors="ignore")


def default_folder(config: Config, runs_dir: str | Path | None = None) -> Path:
    """Where a run goes that names no folder of its own: `<case>/<profile>/seed<k>-<mark>`."""
    name = f"seed{config.seed}-{settings_mark(config)[:8]}"
    return paths.runs_dir(runs_dir) / config.case / config.profile / name


def find_run(case: str, profile: str, seed: int, runs_dir: str | Path | None = None) -> Run | None:
    """The newest finished run of a case, profile and seed below `runs_dir`, or `None`.

    It was trained by the profile's own settings: one with another `beta` is another experiment.
    What only decides how it was measured or logged may differ.
    """
    folder = paths.runs_dir(runs_dir) / case / profile
    records = sorted(folder.glob("*/record.json"), key=lambda path: path.stat().st_mtime)
    wanted = _training_settings(read_settings(case, profile))
    for path in reversed(records):
        run = Run(path.parent)
        if read_record(path)["seed"] == seed and _training_settings(run.settings()) == wanted:
            return run
    return None


def _training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {*NOT_OF_THE_ARM, *OF_THE_TEST}
    return {name: value for name, value in settings.items() if name not in left_out}


def prepare(
    run: Run, config: Config, resume: bool, say: Callable[[str], None] | None = None
) -> bool:
    """Make the run folder ready; `False` where the run it holds has finished already.

    A run goes on at its newest whole checkpoint, with the metrics and completions up to there.

    Args:
        say: called with what was found damaged, and where the run goes on; by default it is
            printed.

    Raises:
        CasebookError: the folder holds another run, something else, or no whole checkpoint.
        OSError: it cannot be written.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    check_folder(run)
    checkpoints = list(run.checkpoints())
    if run.finished or checkpoints or read_lines(run.metrics_file):
        if not resume:
            raise CasebookError(
                f"{run.path} holds a run already: go on with it by --resume, or name another folder"
            )
        if run.settings() != plain(config.settings):
            raise CasebookError(f"the run in {run.path} has another configuration than this one")
        if checkpoints:
            _check_processes(run, checkpoints[0][0])
        if run.finished:
            return False
    else:
        (run.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(plain(config.settings), sort_keys=False)
        (run.path / "config.yaml").write_text(text, encoding="utf-8")
    whole = next((path for path, fault in checkpoints if fault is None), None)
    newer = checkpoints[: [path for path, _ in checkpoints].index(whole)] if whole else checkpoints
    # A checkpoint without a seal was being written when a kill came: nothing to be told.
    damaged = [f"{path.name}: {fault}" for path, fault in newer if (path / SEAL).exists()]
    if damaged and not whole:
        raise CasebookError(
            f"no checkpoint in {run.path} is whole ({'; '.join(damaged)}): bring back what is "
            "missing, or name another folder to begin anew"
        )
    for line in damaged:
        say(f"{line}; going back to {whole.name}")
    for path, _ in newer:
        shutil.rmtree(path)
    _forget_after(run, whole)
    return True


def _check_processes(run: Run, checkpoint: Path) -> None:
    """Refuse to go on with another number of processes: the trainer saved one state for each."""
    begun = len(list(checkpoint.glob("rng_state*.pth")))
    if begun and begun != processes.count():
        raise CasebookError(
            f"the run in {run.path} was begun with another number of processes ({begun}): go on "
            "with as many, or name another folder"
        )


def check_folder(run: Run) -> None:
    """Raise a `CasebookError` where a folder is none, or holds something else than a run."""
    if run.path.is_file():
        raise CasebookError(f"{run.path} cannot be written: it is a file, and no folder")
    held = {path.name for path in run.path.iterdir()} if run.path.exists() else set()
    if held - {LOCK} and not held & OF_A_RUN:
        raise CasebookError(f"{run.path} is not empty and holds no run: name another folder")


def step_of(checkpoint: Path) -> int | None:
    """The step a checkpoint's name says, or `None` for a folder that is no checkpoint."""
    digits = checkpoint.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and checkpoint.is_dir() else None


def _forget_after(run: Run, checkpoint: Path | None) -> None:
    """Cut metrics and completions back to a checkpoint: what comes after is made again."""
    step, size = 0, 0
    if checkpoint:
        step, size = step_of(checkpoint), read_json(checkpoint / SEAL)["metrics_bytes"]
    kept = run.metrics_file.read_bytes()[:size] if size else b""
    part = run.path / "metrics.part"
    part.write_bytes(kept)
    os.replace(part, run.metrics_file)
    for file in (run.path / "completions").glob("train_*.parquet"):
        if not file.stem.rpartition("_")[2].isdecimal() or int(file.stem[6:]) > step:
            file.unlink()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, up to one that a kill or a fault has damaged."""
    lines = []
    if not path.exists():
        return lines
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            break
        if not isinstance(line, dict) or not {"kind", "step"} <= set(line):
            break
        lines.append(line)
    return lines


def _hash(file: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first `size` bytes."""
    with open(file, "rb") as opened:
        if size is not None:
            return hashlib.sha256(opened.read(size)).hexdigest()
        return hashlib.file_digest(opened, "sha256").hexdigest()
