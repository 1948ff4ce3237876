"""What can be looked up before a training: card, versions, disk, model and data.

A check is *ok*, a *note* (the training may work all the same), or *fails* (it will not).
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants, get_session, try_to_load_from_cache

from casebook import paths
from casebook.case import CasebookError, load_case
from casebook.install import installed_version, pins_of
from casebook.models import model_source
from casebook.preflight.estimate import unsloth_trains, weights_bytes
from casebook.preflight.sizes import GIB, Machine, Shape
from casebook.records import provenance
from casebook.settings import check_present

OK, NOTE, FAILS = "ok", "note", "fails"
# The oldest Linux driver of each major CUDA: NVIDIA's CUDA toolkit release notes, table 3.
DRIVERS = {"12": 525, "13": 580}
LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
LOG_BYTES = 200 * 2**20  # metrics and completions of a run, more than any has left so far


class Check(NamedTuple):
    """One thing that was looked at: its name, `OK`, `NOTE` or `FAILS`, and a sentence."""

    name: str
    state: str
    said: str


def ask_the_hub_once() -> None:
    """Where the hub does not answer, take it as offline: its library would ask for minutes."""
    try:
        get_session().head(constants.ENDPOINT, timeout=3)
    except Exception:  # of httpx, of the system, or its own refusal while it is offline
        constants.HF_HUB_OFFLINE = True


def check_all(
    settings: Mapping[str, Any], machine: Machine, here: bool, shape: Shape
) -> Iterator[Check]:
    """All that can be looked up; `here` says whether the training runs on this machine.

    Of another one versions and driver are not known, and what is not fetched yet is a note.
    """
    yield from capability(settings, machine)
    if here:
        yield from versions(settings, machine)
    else:
        yield Check("versions", NOTE, f"look at them on the machine with {machine.name}")
    yield disk(settings, shape)
    missing = FAILS if here else NOTE
    yield model(settings["model_name_or_path"], missing)
    try:
        load_case(settings["case"]).load("test", settings["profile"], variant=settings["variant"])
        yield Check("data", OK, "the rows can be read")
    except CasebookError as error:
        yield Check("data", missing, str(error))


def capability(settings: Mapping[str, Any], machine: Machine) -> Iterator[Check]:
    """What a card cannot do that the settings ask of it."""
    bf16 = settings.get("bf16") or settings["dtype"] == "bfloat16"
    if bf16 and machine.gpu and not machine.bf16:
        said = f"{machine.name} has no bf16: dtype float16 with fp16 true is what it takes"
        yield Check("bf16", FAILS, said)
    if (settings["fast_inference"] or settings.get("use_vllm")) and not machine.vllm:
        said = f"not tried here on {machine.name}; Unsloth's notebooks do, with an older one"
        yield Check("vLLM", NOTE, said)
    wanted = [name for name in ("load_in_4bit", "fast_inference") if settings[name]]
    if wanted and not unsloth_trains(settings, machine):
        said = f"transformers and PEFT train, and only Unsloth knows {' and '.join(wanted)}"
        yield Check("Unsloth", FAILS, said)


def versions(settings: Mapping[str, Any], machine: Machine) -> Iterator[Check]:
    """Each library that a training uses against its pin, and the driver against torch's CUDA."""
    hardware, file, needed = provenance()["hardware"], "requirements.txt", LIBRARIES
    built = (hardware["cuda"] or "").partition(".")[0]
    if machine.gpu:
        file = f"requirements-gpu-cu{'12' if built == '12' else '13'}.txt"
        driver = (hardware["gpu_driver"] or "").partition(".")[0]
        if not built:
            yield Check("CUDA", FAILS, f"torch is no CUDA build: pip install -r {file}")
        elif driver.isdecimal() and int(driver) < DRIVERS.get(built, 0):
            said = f"{driver} is too old for torch's CUDA {built}, which needs {DRIVERS[built]}"
            yield Check("driver", FAILS, f"{said}: requirements-gpu-cu12.txt, or a newer driver")
    if unsloth_trains(settings, machine):
        needed += ("unsloth", "unsloth-zoo", "bitsandbytes")
    pins = pins_of(file)
    for name in needed:
        here, wanted = installed_version(name), pins.get(name, "").partition("==")[2]
        if here is None:
            yield Check(name, FAILS, f"not installed: pip install -r {file}")
        elif wanted and here.partition("+")[0] != wanted.partition("+")[0]:
            yield Check(name, NOTE, f"{here}, and {file} pins {wanted}")
        else:
            yield Check(name, OK, here)
    try:
        check_present(settings)
    except CasebookError as error:
        yield Check("settings", FAILS, str(error))


def disk(settings: Mapping[str, Any], shape: Shape) -> Check:
    """Whether the folder of runs can be written, and holds what a run leaves at most."""
    folder = paths.runs_dir().absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.W_OK):
        return Check("disk", FAILS, f"{folder} cannot be written")
    if settings["use_peft"]:
        saved = 4 * shape.adapter(settings["lora_r"], settings["lora_target_modules"])
    else:
        saved = weights_bytes(settings, shape)
    steps = settings["max_steps"]
    kept = settings.get("save_total_limit") or 1 + steps // settings.get("save_steps", steps)
    # The optimiser's state is twice as large, and one more is there while the oldest still is.
    needed, free = LOG_BYTES + saved + (kept + 1) * 3 * saved, shutil.disk_usage(there).free
    said = f"a run takes at most {needed / GIB:.1f} GiB, free are {free / GIB:.1f}"
    return Check("disk", OK if free >= needed else FAILS, said)


def model(name: str, missing: str) -> Check:
    """Whether the model lies here, or can be fetched."""
    try:
        source = model_source(name)
    except CasebookError as error:
        return Check("model", FAILS, str(error))
    if Path(source).is_dir() or isinstance(try_to_load_from_cache(source, "config.json"), str):
        return Check("model", OK, f"{source} is here")
    if constants.HF_HUB_OFFLINE:
        return Check("model", missing, f"{source} is not here, and the hub does not answer")
    return Check("model", NOTE, f"{source} is not here: it is fetched from the hub")
