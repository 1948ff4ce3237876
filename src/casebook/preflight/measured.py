"""`--measure`: the first steps of the training, in a temporary folder."""

import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch

from casebook.case import CasebookError
from casebook.models import engine
from casebook.stats import mean_interval
from casebook.training import first_steps, read_config
from casebook.training.measure import forget_peak, peak_mb

PROMPTS, MOST_STEPS = 16, 8  # enough steps for so many prompts; the first also warms up
QUIET = {"save_strategy": "no", "report_to": "none", "evaluate_every": 0, "completions_every": 1}


def measured(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Time and memory of a training's first steps, and figures of their completions.

    Returns:
        `seconds` (of the last step), `bytes` (the most that was held: of the GPU, else of the
        process), `prompts`, and figures with intervals over prompts: `silent` (the share of
        groups), `reward`, `truncated`, `well_formed`, `correct`, `tokens`.
    """
    if settings.get("method", "grpo") != "grpo":
        raise CasebookError(f"--measure supports only TRL's GRPO, not {settings['method']!r}")
    config = read_config((settings["case"], settings["profile"]), {**settings, **QUIET})
    prompts = config.generation_batch_size // config.num_generations
    steps = min(MOST_STEPS, config.max_steps, max(2, math.ceil(PROMPTS / prompts)))
    forget_peak()
    with TemporaryDirectory(prefix="preflight-") as folder, engine.freed_afterwards():
        run = first_steps(config, Path(folder) / "run", steps)
        files = sorted((run.path / "completions").glob("train_*.parquet"))
        table = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
        seconds = float(run.metrics()["step_time"].iloc[-1])
    most = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else peak_mb() * 2**20
    # One completion a row, groups one after the other, as the log of a training has them.
    table["silent"] = table["reward"].round(6)
    groups = table.groupby(table.index // config.num_generations)
    found = {"seconds": round(seconds, 3), "bytes": int(most), "prompts": len(groups)}
    names = ("reward", "truncated", "well_formed", "correct", "tokens")
    means = {"silent": groups["silent"].nunique() == 1} | {n: groups[n].mean() for n in names}
    return found | {name: mean_interval(mean.to_numpy(float)) for name, mean in means.items()}
