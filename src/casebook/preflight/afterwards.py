"""What a preflight predicted, against what the run then took."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from casebook.case import CasebookError
from casebook.paths import read_json

OF_ANY_SEED = {"seed": None}
TRAINING = ("evaluation", "rollout", "backward")  # the phases that `train_seconds` counts


def against(file: Path, record: Mapping[str, Any], peak_bytes: int) -> dict[str, Any] | None:
    """Every figure that was predicted, beside the actual one.

    `None` where the preflight is damaged, or looked at other settings; the seed may differ.

    Args:
        file: `preflight.json`.
        record: of the run, as far as it is made: `config`, `train_seconds`, `measure_seconds`.
        peak_bytes: the most memory that the run took: of the process, or on a GPU what torch
            reserved there.

    Returns:
        `rows` (`name`, `unit`, `predicted`, `actual`, `ratio` of the first to the second),
        `memory_ratio`, `median_time_ratio`, and `seconds_by` (`estimated` or `measured`).
    """
    try:
        found = read_json(file)
        if found["settings"] | OF_ANY_SEED != dict(record["config"]) | OF_ANY_SEED:
            return None
        phases = {phase["name"]: phase for phase in found["phases"]}
        on_gpu = found["machine"]["gpu"]
        needed = max(counted(phase["parts"], on_gpu) for phase in phases.values())
        training = _sum([phases[name]["seconds"] for name in TRAINING])
        test = phases["final test"]["seconds"]
        by = found["seconds_by"]
    except (CasebookError, KeyError, TypeError, ValueError, OSError):
        return None
    memory = _row("memory", "bytes", needed, peak_bytes)
    times = [
        _row("training", "seconds", training, record["train_seconds"]),
        _row("final test", "seconds", test, record["measure_seconds"]),
    ]
    times = [row for row in times if row["predicted"] is not None]
    ratios = [row["ratio"] for row in times if row["ratio"] is not None]
    return {
        "rows": [memory, *times],
        "memory_ratio": memory["ratio"],
        "median_time_ratio": round(median(ratios), 3) if ratios else None,
        "seconds_by": by,
    }


def counted(parts: Mapping[str, int], on_gpu: bool) -> int:
    """Bytes of a phase that its peak counts: on a GPU torch does not see what CUDA itself takes."""
    return sum(size for name, size in parts.items() if not (on_gpu and name == "process"))


def _row(name: str, unit: str, predicted: float | None, actual: float) -> dict[str, Any]:
    ratio = round(predicted / actual, 3) if predicted and actual else None
    return {"name": name, "unit": unit, "predicted": predicted, "actual": actual, "ratio": ratio}


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else sum(values)
