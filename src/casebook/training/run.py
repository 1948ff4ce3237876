"""The folder of a run: what is in it, where it lies, and how it is made ready."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from casebook import models, paths
from casebook.case import CasebookError
from casebook.records import read_record
from casebook.training.config import Config, read_yaml
from casebook.training.origin import NOT_OF_THE_ARM, check_origin, settings_mark, write_origin

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
        lines = [line for line in read_lines(self.path / "metrics.jsonl") if line["kind"] == kind]
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
    wanted = _training_settings(models.read_settings(case, profile))
    for path in reversed(records):
        run = Run(path.parent)
        if read_record(path)["seed"] == seed and _training_settings(run.settings()) == wanted:
            return run
    return None


def _training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {*NOT_OF_THE_ARM, *OF_THE_TEST}
    return {name: value for name, value in settings.items() if name not in left_out}


def prepare(run: Run, config: Config, resume: bool) -> bool:
    """Make the run folder ready; `False` where the run it holds has finished already."""
    config_file, origin_file = run.path / "config.yaml", run.path / "origin.json"
    begun = run.finished or run.checkpoint() or read_lines(run.path / "metrics.jsonl")
    if begun:
        if not resume:
            raise CasebookError(
                f"{run.path} holds a run already: go on with it by --resume, or name another folder"
            )
        if read_yaml(config_file) != config.settings:
            raise CasebookError(f"the run in {run.path} has another configuration than this one")
        check_origin(origin_file, config)
        if run.finished:
            return False
    elif run.path.exists() and any(run.path.iterdir()) and not config_file.exists():
        raise CasebookError(f"{run.path} is not empty and holds no run: name another folder")
    else:
        (run.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_origin(origin_file, config)
        config_file.write_text(yaml.safe_dump(dict(config.settings), sort_keys=False))
    checkpoint = run.checkpoint()
    last = int(checkpoint.name.rpartition("-")[2]) if checkpoint else -1
    lines = [line for line in read_lines(run.path / "metrics.jsonl") if line["step"] <= last]
    part = run.path / "metrics.part"
    part.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.replace(part, run.path / "metrics.jsonl")
    return True


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line that a kill cut short is left out."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines
