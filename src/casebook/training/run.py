"""The folder of a run: what is in it, where it lies, and how it is made ready."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from casebook import paths
from casebook.case import CasebookError
from casebook.paths import LOCK, plain, read_json, replacing, write_json
from casebook.records import read_record
from casebook.settings import marked, read_settings, read_yaml
from casebook.training.config import Config, settings_mark

OF_A_RUN = {"config.yaml", "metrics.jsonl", "checkpoints", "record.json"}
SEAL = "whole"  # written last into a checkpoint: how many bytes of metrics there were


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

    @property
    def begun(self) -> bool:
        """Whether anything is there to go on from or to lose."""
        return bool(self.finished or self.checkpoints() or read_lines(self.metrics_file))

    def record(self) -> dict[str, Any]:
        """What was measured; a `CasebookError` where the run has not finished."""
        return read_record(self.path / "record.json")

    def settings(self) -> dict[str, Any]:
        """What was asked for."""
        return read_yaml(self.path / "config.yaml")

    def metrics(self) -> pd.DataFrame:
        """One row for each logged training step, in TRL's metric names."""
        return self._lines("train")

    def validation(self) -> pd.DataFrame:
        """One row for each evaluation on held-out validation rows."""
        return self._lines("validation")

    def completions(self) -> pd.DataFrame:
        """All recorded completions: text, grade, advantage, reward and its parts."""
        tables = []
        for file in sorted((self.path / "completions").glob("train_*.parquet")):
            try:
                tables.append(pd.read_parquet(file))
            except (OSError, ValueError) as error:  # Arrow's own errors are both
                raise CasebookError(f"{file} is damaged: {str(error).splitlines()[0]}") from error
        return pd.concat(tables) if tables else pd.DataFrame()

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that was written to its end, or `None`."""
        whole = [path for path in self.checkpoints() if (path / SEAL).exists()]
        return max(whole, key=step_of, default=None)

    def checkpoints(self) -> list[Path]:
        """All checkpoints, those included that a kill has cut short."""
        return list(self.path.glob("checkpoints/checkpoint-*"))

    def seal(self, checkpoint: Path) -> None:
        """Declare a checkpoint whole, the last thing that is done to it: a kill comes before."""
        write_json(checkpoint / SEAL, {"metrics_bytes": self.metrics_file.stat().st_size})

    @property
    def metrics_file(self) -> Path:
        """One JSON a line: the logged steps and the evaluations."""
        return self.path / "metrics.jsonl"

    def _lines(self, kind: str) -> pd.DataFrame:
        lines = [line for line in read_lines(self.metrics_file) if line["kind"] == kind]
        return pd.DataFrame(lines).drop(columns="kind", errors="ignore")


def default_folder(config: Config, runs_dir: str | Path | None = None) -> Path:
    """Where a run goes that names no folder of its own: `<case>/<profile>/seed<k>-<mark>`."""
    name = f"seed{config.seed}-{settings_mark(config)[:8]}"
    return paths.runs_dir(runs_dir) / Path(config.case).name / config.profile / name


def find_run(case: str, profile: str, seed: int, runs_dir: str | Path | None = None) -> Run | None:
    """The newest finished run of a case, profile and seed below `runs_dir`, or `None`.

    It was trained by the profile's own settings; how it was measured, logged or sped up may differ.
    """
    folder = paths.runs_dir(runs_dir) / Path(case).name / profile
    records = sorted(folder.glob("*/record.json"), key=lambda path: path.stat().st_mtime)

    def trained_by(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in settings.items() if n not in marked("own_run", "base", "test")}

    wanted = trained_by(read_settings(case, profile))
    runs = (Run(path.parent) for path in reversed(records))
    right = (r for r in runs if r.record()["seed"] == seed and trained_by(r.settings()) == wanted)
    return next(right, None)


def prepare(run: Run, config: Config) -> bool:
    """Make the run folder ready; `False` where the run it holds has finished already.

    A run goes on at its newest whole checkpoint, with the metrics and completions up to there.
    """
    if run.begun:
        begun, asked = run.settings(), plain(config.settings)
        for name in sorted(begun.keys() | asked.keys()):
            if begun.get(name) != asked.get(name):
                raise CasebookError(
                    f"the run in {run.path} has another configuration than this one: {name} was "
                    f"{begun.get(name)!r} and is {asked.get(name)!r}"
                )
        if run.finished:
            return False
    else:
        (run.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(plain(config.settings), sort_keys=False)
        (run.path / "config.yaml").write_text(text, encoding="utf-8")
    whole, step, kept = run.checkpoint(), 0, b""
    for path in run.checkpoints():
        if not (path / SEAL).exists():
            shutil.rmtree(path)
    if whole:  # what came after it is made again
        step, size = step_of(whole), read_json(whole / SEAL)["metrics_bytes"]
        kept = run.metrics_file.read_bytes()[:size]
    with replacing(run.metrics_file) as part:
        part.write_bytes(kept)
    for file in (run.path / "completions").glob("train_*.parquet"):
        if int(file.stem.rpartition("_")[2]) > step:
            file.unlink()
    return True


def check_folder(run: Run, resume: bool) -> None:
    """Raise a `CasebookError` where no training may begin or go on in a folder."""
    held = {path.name for path in run.path.iterdir()} if run.path.is_dir() else set()
    if held - {LOCK} and not held & OF_A_RUN:
        raise CasebookError(f"{run.path} is not empty and contains no run: name another folder")
    if run.begun and not resume:
        raise CasebookError(
            f"{run.path} contains a run already: continue it with --resume, or name another folder"
        )


def step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.rpartition("-")[2])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, up to one that a kill has cut short."""
    lines: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
