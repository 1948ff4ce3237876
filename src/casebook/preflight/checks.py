"""What can be looked up before a training: versions, CUDA, disk, model and data.

A check is *ok*, a *note* (the training may work all the same), or *fails* (it will not).
"""

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from casebook import paths, pretrained
from casebook.case import CasebookError
from casebook.install import PYTHONS, installed_version, pins_of
from casebook.paths import write_trouble
from casebook.preflight import prompts
from casebook.preflight.cards import GIB, Machine, nvidia
from casebook.preflight.memory import unsloth_trains, weights_bytes
from casebook.preflight.shapes import Shape, shape_of
from casebook.records import torch_cuda
from casebook.settings import check_present

OK, NOTE, FAILS = "ok", "note", "fails"
# The oldest Linux driver of each major CUDA: NVIDIA's CUDA toolkit release notes, table 3.
DRIVERS = {11: 450, 12: 525, 13: 580}
LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
UNSLOTH = ("unsloth", "unsloth-zoo")
BITS = "bitsandbytes"  # weights of 4 bits, optimisers of 8
FORBIDDEN = "not fetched, and HF_HUB_OFFLINE forbids to ask"
TRIAL = 2**20  # bytes written as a test
LOG_BYTES = 200 * 2**20  # metrics and completions of a run, more than any has left so far


class Check(NamedTuple):
    """One thing that was looked at: its name, `OK`, `NOTE` or `FAILS`, and a sentence."""

    name: str
    state: str
    said: str


def checks(
    settings: Mapping[str, Any], machine: Machine, here: bool, folder: Path | None = None
) -> list[Check]:
    """All that can be looked up.

    Args:
        settings: of the training.
        machine: where it is meant to run.
        here: whether that is this machine; versions and drivers of another are not known.
        folder: where the run is written; by default the folder of runs.
    """
    folder = Path(folder or paths.runs_dir())
    found = [writing(settings, folder), model(settings, here), data(settings, here)]
    found += space(settings, folder)
    if not here:
        said = f"versions and driver are those of the machine with {machine.name}: look there"
        return [Check("versions", NOTE, said), *found]
    return [
        python(),
        *versions(settings, machine),
        *cuda(machine, settings),
        library(settings),
        *found,
    ]


def python() -> Check:
    """Whether Python is one that the pins are for."""
    here, (low, high) = tuple(map(int, platform.python_version_tuple()[:2])), PYTHONS
    state = OK if low <= here <= high else FAILS
    return Check("Python", state, f"{platform.python_version()}, and 3.11 to 3.13 will do")


def versions(settings: Mapping[str, Any], machine: Machine) -> Iterator[Check]:
    """Each library that a training uses, against its pin."""
    file, needed = "requirements.txt", list(LIBRARIES)
    if machine.gpu:
        file = f"requirements-gpu-cu{'12' if _major(torch_cuda()) == 12 else '13'}.txt"
        unsloth = unsloth_trains(settings, machine)
        needed += UNSLOTH if unsloth else ()
        needed += [BITS] if unsloth or "8bit" in settings.get("optim", "") else []
    pins = pins_of(file)
    for name in needed:
        here, wanted = installed_version(name), pins.get(name, "").partition("==")[2]
        if here is None:
            yield Check(name, FAILS, f"not installed: pip install -r {file}")
        elif wanted and here.partition("+")[0] != wanted.partition("+")[0]:
            yield Check(name, NOTE, f"{here}, and {file} pins {wanted}")
        else:
            yield Check(name, OK, here)


def cuda(machine: Machine, settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether torch's CUDA, the driver and vLLM's wheel go together."""
    if not machine.gpu:
        return
    built = _major(torch_cuda())
    if built is None:
        torch = installed_version("torch") or ""
        yield Check("CUDA", FAILS, f"torch {torch} is no CUDA build: install it for this GPU")
        return
    found = nvidia("driver_version")
    yield driver(built, found["driver_version"] if found else None)
    if settings["fast_inference"] or settings.get("use_vllm"):
        yield wheel(built, installed_version("vllm"))


def driver(built: int, said: str | None) -> Check:
    """Whether a driver can do with a torch that was built for a major version of CUDA."""
    if said is None or not said.partition(".")[0].isdecimal():
        return Check("driver", NOTE, "nvidia-smi does not say which driver there is")
    needed = DRIVERS.get(built, max(DRIVERS.values()))
    if int(said.partition(".")[0]) < needed:
        return Check(
            "driver",
            FAILS,
            f"{said} is too old for torch's CUDA {built}, which needs {needed}: "
            "take requirements-gpu-cu12.txt, or a newer driver",
        )
    return Check("driver", OK, f"{said} takes torch's CUDA {built}")


def wheel(built: int, vllm: str | None) -> Check:
    """Whether vLLM was built for torch's major version of CUDA."""
    if vllm is None:
        return Check("vLLM", FAILS, "not installed, and the configuration writes with it")
    other = _cuda_of(vllm) or 13  # wheels without a tag are built for CUDA 13
    if other != built:
        return Check("vLLM", FAILS, f"{vllm} is built for CUDA {other}, and torch for {built}")
    return Check("vLLM", OK, f"{vllm}, for CUDA {other} as torch")


def library(settings: Mapping[str, Any]) -> Check:
    """Whether what single settings need is installed, and their folders are there."""
    try:
        check_present(settings)
    except CasebookError as error:
        return Check("settings", FAILS, str(error))
    return Check("settings", OK, "the libraries they need are here")


def writing(settings: Mapping[str, Any], folder: Path) -> Check:
    """Whether a run can be written: a file of 1 MiB, which is gone afterwards."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        if not there.is_dir():
            raise NotADirectoryError(20, "Not a directory", str(there))
        with TemporaryFile(dir=there) as file:
            file.write(b"\0" * TRIAL)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        trouble = write_trouble(error) or str(error)
        return Check("RUNS_DIR", FAILS, f"{folder} cannot be written: {trouble}")
    return Check("RUNS_DIR", OK, f"{folder} can be written")


def space(settings: Mapping[str, Any], there: Path) -> Iterator[Check]:
    """Whether the disk holds what a run leaves, and the model where it is not here yet."""
    try:
        shape, _ = shape_of(settings["model_name_or_path"])
    except CasebookError:
        return
    while not there.exists():
        there = there.parent
    free, needed = shutil.disk_usage(there).free, run_bytes(settings, shape)
    state = OK if free >= needed else FAILS
    yield Check(
        "disk", state, f"a run takes at most {needed / GIB:.1f} GiB, free are {free / GIB:.1f}"
    )


def run_bytes(settings: Mapping[str, Any], shape: Shape) -> int:
    """Bytes that a run leaves at most: checkpoints with the optimiser's state, and the policy."""
    saved = weights_bytes(settings, shape)
    if settings["use_peft"]:
        saved = 4 * shape.adapter(settings["lora_r"], settings["lora_target_modules"])
    kept = settings.get("save_total_limit") or 1 + settings["max_steps"] // settings.get(
        "save_steps", settings["max_steps"]
    )
    if settings.get("save_strategy") == "no":
        kept = 0
    return LOG_BYTES + saved + (kept + 1) * 3 * saved  # one more while the oldest is still there


def data(settings: Mapping[str, Any], here: bool) -> Check:
    """Whether the rows that are trained on and tested can be read; elsewhere that is a note."""
    try:
        for split in ("train", "test"):
            prompts.rows_of(settings, split)
    except CasebookError as error:
        return Check("data", FAILS if here else NOTE, str(error))
    return Check("data", OK, "the rows of training and test can be read")


def model(settings: Mapping[str, Any], here: bool) -> Check:
    """Whether the model can be loaded from here, or fetched.

    Args:
        here: whether the training is meant to run on this machine; what is not here and may not
            be fetched is a note on another one.
    """
    name = settings["model_name_or_path"]
    try:
        _, where = shape_of(name)
        source = str(paths.ROOT / name) if (paths.ROOT / name).is_dir() else pretrained.source(name)
    except CasebookError as error:
        return Check("model", FAILS, str(error))
    if Path(source).is_dir():
        return Check("model", OK, f"{name} lies here")
    if state := _on_hub(source):
        kind = {"here": OK, FORBIDDEN: FAILS if here else NOTE}.get(state, NOTE)
        return Check("model", kind, f"{source}: {state}; shape by {where}")
    return Check("model", FAILS, f"{source} is not here, and the hub does not know it")


def _on_hub(name: str) -> str:
    """Where a hub's model is: fetched, reachable, or not asked; empty where there is none."""
    try:
        from huggingface_hub import HfApi, try_to_load_from_cache
        from huggingface_hub.errors import RepositoryNotFoundError
    except ModuleNotFoundError:
        return "not asked for, huggingface_hub is not installed"
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return "here"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return FORBIDDEN
    try:
        HfApi().model_info(name, timeout=10)
    except RepositoryNotFoundError:
        return ""
    except Exception as error:  # no network, or a gate
        return f"not fetched, and the hub does not answer ({type(error).__name__})"
    return "on the hub, to be fetched"


def _major(cuda: str | None) -> int | None:
    """The first number of a CUDA such as `12.8`."""
    return int(cuda.partition(".")[0]) if cuda else None


def _cuda_of(tagged: str) -> int | None:
    """The major CUDA of a version such as `2.11.0+cu128`."""
    found = re.search(r"\+cu(\d\d)", tagged)
    return int(found[1]) if found else None
