"""How long each phase takes on a GPU: an estimate from the card's data sheet.

Writing a token reads all weights once, whatever the batch; a backward pass is bound by
arithmetic. Real kernels reach a share of a card's figures, and each layer takes some time to be
launched. Nothing here was measured on a GPU by this project: `--measure` replaces it.
"""

import math
from collections.abc import Mapping
from typing import Any

from casebook.preflight.cards import Machine
from casebook.preflight.memory import PHASES, TEST_ROWS, Phase, Texts, weights_bytes
from casebook.preflight.shapes import Shape

READ = 0.7  # share of the bandwidth that reading weights reaches
COMPUTED = 0.3  # share of the throughput that a training reaches
LAUNCH = 1e-3  # seconds a layer and token, where each kernel is launched by Python
LAUNCH_VLLM = 5e-5  # the same with CUDA graphs
UNPACKED = 4.5  # bytes moved a parameter, where 4-bit weights are expanded for each token
VLLM_BATCH = 64  # completions that vLLM writes at a time
STARTED = 60.0  # seconds until a process has its libraries, and vLLM its engine
DISK = 2e8  # bytes a second that a model is read with, or fetched


def counts(settings: Mapping[str, Any], texts: Texts) -> dict[str, int]:
    """How many completions each phase writes.

    Returns:
        `step` (completions of one step), `evaluations`, `evaluation` (completions of one of them)
        and `test` (of the final test, before and after).
    """
    accumulated = settings["gradient_accumulation_steps"]
    every, steps = settings.get("evaluate_every", 20), settings["max_steps"]
    rows = texts.test_rows or TEST_ROWS
    rows = min(rows, settings.get("test_limit") or rows)
    also = len(settings.get("also_evaluate") or {})
    many = settings.get("pass_at_k_rows", 0) * settings.get("pass_at_k_samples", 64)
    tested = 2 * (rows * (1 + settings.get("test_samples", 4) + also) + many)
    return {
        "step": settings["per_device_train_batch_size"] * accumulated,
        "evaluations": 0 if not every else 1 + math.ceil(steps / every),
        "evaluation": 2 * settings.get("evaluate_rows", 128),
        "test": 0 if settings.get("measure") == "validation" else tested,
    }


def seconds(
    settings: Mapping[str, Any],
    shape: Shape,
    machine: Machine,
    texts: Texts,
    found: Mapping[str, Phase],
) -> dict[str, float | None]:
    """Seconds of each phase of a whole training; `None` on a CPU, where only measuring tells.

    Args:
        found: name -> phase, whose `batch` says how many completions are written at once.
    """
    if machine.bandwidth is None or machine.tflops is None:
        return dict.fromkeys(PHASES)
    number, steps = counts(settings, texts), settings["max_steps"]
    weights, completion = weights_bytes(settings, shape), settings["max_completion_length"]
    moved = weights
    if settings["load_in_4bit"]:
        moved = max(weights, UNPACKED * shape.linear)
    token = max(moved / (machine.bandwidth * 1e9 * READ), LAUNCH * shape.layers)
    engine = settings["fast_inference"] or settings.get("use_vllm")
    quick = max(weights / (machine.bandwidth * 1e9 * READ), LAUNCH_VLLM * shape.layers)

    def written(completions: int, at_once: int, one: float) -> float:
        return math.ceil(completions / max(1, at_once)) * completion * one

    tokens = number["step"] * (texts.train + completion)
    passes = (2 + 2 + (0 if settings["use_peft"] else 2)) + 2 * settings["gradient_checkpointing"]
    passes += 2 * bool(settings["beta"])
    learning = passes * shape.parameters * tokens / (machine.tflops * 1e12 * COMPUTED)
    evaluation, test = found["evaluation"].batch, found["final test"].batch
    measured = token
    if settings["fast_inference"]:  # the policy's own engine writes what is measured
        evaluation, test, measured = VLLM_BATCH, VLLM_BATCH, quick
    # Where more is written at once than a step takes, it serves the next ones, too.
    rollout = number["step"] / _at_once(settings) * completion * token
    if engine:
        rollout = written(number["step"], VLLM_BATCH, quick)
    return {
        "load": round(STARTED + weights / DISK, 1),
        "evaluation": round(
            number["evaluations"] * written(number["evaluation"], evaluation, measured), 1
        ),
        "rollout": round(steps * rollout / settings.get("num_iterations", 1), 1),
        "backward": round(steps * learning, 1),
        "final test": round(written(number["test"], test, measured), 1),
    }


def _at_once(settings: Mapping[str, Any]) -> int:
    together = settings.get("steps_per_generation") or settings["gradient_accumulation_steps"]
    return settings["per_device_train_batch_size"] * together
