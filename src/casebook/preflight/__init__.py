"""Before a training: whether it fits into memory, and how long a step takes.

    sizes      what a model's config.json and a card's data sheet say
    estimate   one sum of the memory, with its error bar
    measured   `--measure`: the first steps of the training itself, and their seconds

Nothing below this folder is imported by a training: a run that was looked at first is the same run.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_session
from transformers import AutoTokenizer

from casebook.backend import choose_backend
from casebook.case import CasebookError, load_case
from casebook.models import model_source
from casebook.models.generation import out_of_memory, token_ids
from casebook.preflight import estimate
from casebook.preflight.sizes import GIB, Machine, Shape, machine_for, shape_of
from casebook.settings import check_present, checked

FITS, CLOSE, NOT = "fits", "close", "does not fit"
SILENT, TRUNCATED = 0.6, 0.2  # shares above which a training would hardly teach
SEEN = 2000  # training prompts that are looked at
CHARACTERS, TEMPLATE = 2.5, 48  # a token, at least; tokens of a chat template, at most


def preflight(
    config: str | Path,
    gpu: str | None = None,
    measure: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Look at a training before it begins.

    Args:
        config: its YAML file; `overrides` are fields that take another value.
        gpu: a card by name; by default what this machine has.
        measure: make the first steps of the training, here.

    Returns:
        `config`, `machine`, `steps`, `prompt` (tokens of the `longest`, and `how` they were
        counted), `memory` (in bytes), `measured` (`None` without `measure`), `verdict` (`fits`,
        `close`: within the error bar, or it would hardly teach; or `does not fit`) and `reasons`.

    Raises:
        CasebookError: a configuration or card that cannot be, a library that is missing here, or
            a model of unknown shape.
    """
    settings = checked(config, overrides)
    if measure and gpu:
        raise CasebookError("--measure runs the training here: leave --gpu out")
    if measure:
        choose_backend(settings["profile"])  # before transformers, which a tokenizer needs
    _ask_the_hub_once()
    machine = machine_for(settings, gpu)
    if not gpu:
        check_present(settings)
    shape = shape_of(settings["model_name_or_path"])
    reasons = list(impossible(settings, machine))
    prompt, how = longest_prompt(settings, shape)
    needed = estimate.vllm_needs(settings, shape, prompt)
    reserve = estimate.vllm_reserve(settings, machine)
    if 0 < reserve < needed:
        size = f"{needed / GIB:.1f} GiB for weights and one completion, and has {reserve / GIB:.1f}"
        reasons.append(f"vLLM needs {size}: raise vllm_gpu_memory_utilization")
    word, figures = NOT if reasons else FITS, None
    parts = estimate.memory(settings, shape, machine, prompt)
    error = estimate.ERROR_GPU if machine.gpu else estimate.ERROR_CPU
    low, high = (int((1 + sign * error) * sum(parts.values())) for sign in (-1, 1))
    if high > machine.there:
        word = NOT if reasons or low > machine.there else CLOSE
        size = f"{low / GIB:.1f} to {high / GIB:.1f} of {machine.there / GIB:.1f} GiB"
        reasons.append(f"memory: it takes {size} on {machine.name}")
    if measure and word != NOT:
        from casebook.preflight.measured import measured

        try:
            figures = measured(settings)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            word, said = NOT, str(error).strip().partition("\n")[0]
            reasons.append(f"measuring ran out of memory ({said})")
        else:
            dull = _dull(figures)
            word, reasons = CLOSE if dull else word, [*reasons, *dull]
    return {
        "config": str(config),
        "machine": machine.name,
        "steps": settings["max_steps"],
        "prompt": {"longest": prompt, "how": how},
        "memory": {"parts": parts, "low": low, "high": high, "there": machine.there},
        "measured": figures,
        "verdict": word,
        "reasons": reasons,
    }


def _ask_the_hub_once() -> None:
    """Where the hub does not answer, take it as offline: its library would ask for minutes."""
    try:
        get_session().head(constants.ENDPOINT, timeout=3)
    except Exception:  # of httpx, of the system, or its own refusal while it is offline
        constants.HF_HUB_OFFLINE = True


def impossible(settings: Mapping[str, Any], machine: Machine) -> Iterator[str]:
    """What the settings ask of a machine that it cannot do, a sentence each."""
    bf16 = settings.get("bf16") or settings["dtype"] == "bfloat16"
    if bf16 and machine.gpu and not machine.bf16:
        yield f"{machine.name} has no bf16: dtype float16 with fp16 true is what it takes"
    wanted = [name for name in ("load_in_4bit", "fast_inference") if settings[name]]
    if wanted and not estimate.unsloth_trains(settings, machine):
        yield f"transformers and PEFT train, and only Unsloth knows {' and '.join(wanted)}"


def _dull(figures: Mapping[str, Any]) -> list[str]:
    """What the completions of an untrained policy say against a training."""
    silent, cut = (figures[name]["value"] for name in ("silent", "truncated"))
    easier = "easier rows, larger groups, or a higher temperature"
    longer = "at max_completion_length: raise it, or ask for shorter answers"
    said = {f"{silent:.0%} of the groups are silent, and teach nothing: {easier}": silent > SILENT}
    said |= {f"{cut:.0%} of the completions are cut {longer}": cut > TRUNCATED}
    return [reason for reason, holds in said.items() if holds]


def longest_prompt(settings: Mapping[str, Any], shape: Shape) -> tuple[int, str]:
    """Tokens of the longest training prompt that is kept, and how they were counted.

    Raises:
        CasebookError: every training prompt is too long.
    """
    completion = settings["max_completion_length"]
    room = min(settings["max_seq_length"], shape.positions) - completion
    how = (settings[name] for name in ("profile", "seed", "variant"))
    try:
        rows = load_case(settings["case"]).load("train", *how)
    except CasebookError:
        return room, "the longest that the settings allow: the data are not here"
    prompts = rows.select(range(min(SEEN, len(rows))))["prompt"]
    try:
        source = model_source(settings["model_name_or_path"])
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError):
        texts = ([p] if isinstance(p, str) else [m["content"] for m in p] for p in prompts)
        longest = int(max(sum(map(len, text)) for text in texts) / CHARACTERS) + TEMPLATE
        return min(room, longest), "from their characters: the tokenizer is not here"
    lengths = [len(token_ids(tokenizer, prompt)) for prompt in prompts]
    if min(lengths) > room:
        raise CasebookError(
            f"no training prompt fits: raise max_seq_length to at least {min(lengths) + completion}"
        )
    return max(length for length in lengths if length <= room), "counted"


def lines(found: Mapping[str, Any]) -> list[str]:
    """A preflight as it is printed."""
    need, said = found["memory"], [f"{found['config']} on {found['machine']}"]
    said.append("longest prompt: {longest} tokens ({how})".format(**found["prompt"]))
    low, high, there = (need[name] / GIB for name in ("low", "high", "there"))
    said.append(f"memory: {low:.1f} to {high:.1f} GiB, and there are {there:.1f}; in GiB")
    parts = sorted(need["parts"].items(), key=lambda part: -part[1])
    said += [f"  {size / GIB:6.2f} {name}" for name, size in parts]
    if figures := found["measured"]:
        hours = figures["seconds"] * found["steps"] / 3600
        said.append(f"{figures['seconds']} seconds per step, {hours:.1f} hours for all of them")
        said.append(f"{figures['bytes'] / GIB:.1f} GiB at most; of {figures['prompts']} prompts:")
        ranges = {n: f for n, f in figures.items() if isinstance(f, dict)}
        said += ["  {}: {value:.2f} [{low:.2f}, {high:.2f}]".format(n, **ranges[n]) for n in ranges]
    return [*said, found["verdict"], *(f"  {reason}" for reason in found["reasons"])]
