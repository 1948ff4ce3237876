"""Which profile fits a GPU: by the memory that is free on it, not by its name."""

from typing import Any

from casebook.case import PROFILES, CasebookError, known_cases
from casebook.preflight.cards import GIB, Machine
from casebook.preflight.memory import phases
from casebook.preflight.shapes import known_shapes
from casebook.preflight.verdict import fits, of_capability
from casebook.settings import checked

NOTHING = "nano"  # what trains everywhere


def proposed(machine: Machine) -> dict[str, Any]:
    """The profile that most cases can train on a GPU, and what each of them can.

    A case's profile is the largest whose every phase leaves a tenth of the free memory, as a
    preflight wants it, with prompts as long as the settings allow. The shapes of the models are
    those of the list: nobody is asked.

    Returns:
        `profile`, `profiles` (case -> profile) and `reason`, one sentence.
    """
    profiles = {case: _largest(case, machine) for case in known_cases()}
    order = [NOTHING, *_for_gpus()]
    counted = list(profiles.values())
    best = max(order, key=lambda name: (counted.count(name), order.index(name)))
    free = f"{machine.free / GIB:.1f} GiB are free"
    if best == NOTHING:
        reason = f"{free} on the GPU: too little for the hub models"
    else:
        others = ", ".join(f"{case} {name}" for case, name in profiles.items() if name != best)
        reason = f"{free} on the GPU, which {best} fits into, by the estimate of casebook preflight"
        reason += f"; but {others}" if others else ""
    return {"profile": best, "profiles": profiles, "reason": reason}


def _for_gpus() -> list[str]:
    """Profiles for GPUs, from the smallest to the largest, without the write-ups' own settings."""
    gpu = [name for name, profile in PROFILES.items() if profile.device == "gpu"]
    return [name for name in gpu if not name.endswith("_source")]


def _largest(case: str, machine: Machine) -> str:
    for profile in reversed(_for_gpus()):
        try:
            settings = checked((case, profile))
        except CasebookError:  # the case has no such configuration
            continue
        shape = known_shapes().get(settings["model_name_or_path"])
        if shape is None or of_capability(settings, machine):
            continue
        if fits(phases(settings, shape, machine)):
            return profile
    return NOTHING
