"""Which library trains a profile: Unsloth on a GPU if it is installed, else transformers and PEFT.

Unsloth rewrites TRL's trainers when it is imported. So it has to be imported before TRL, and it
stays active until the process ends. The profile therefore decides once, before anything else is
imported. `CASEBOOK_BACKEND=unsloth` or `=peft` overrides the decision.
"""

import os
import platform
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from casebook.case import PROFILES, CasebookError, check_name

BACKENDS = {"unsloth": "Unsloth", "peft": "transformers + PEFT"}  # names, and how they are written
_chosen: str | None = None


def choose_backend(profile: str) -> str:
    """Decide what of `BACKENDS` trains in this process, and import Unsloth where it does.

    Raises:
        CasebookError: an unknown profile or `CASEBOOK_BACKEND`; Unsloth is asked for by name and
            not installed; or it is too late, because TRL or another backend is there already.
    """
    global _chosen
    check_name("profile", profile, PROFILES)
    backend = os.environ.get("CASEBOOK_BACKEND") or "auto"
    check_name("CASEBOOK_BACKEND", backend, ("auto", *BACKENDS))
    installed = "unsloth" in sys.modules or find_spec("unsloth") is not None
    if backend == "auto":
        backend = "unsloth" if installed and PROFILES[profile].device == "gpu" else "peft"
    if backend == "unsloth" and not installed:
        raise CasebookError("CASEBOOK_BACKEND is 'unsloth', but unsloth is not installed")
    if _chosen not in (None, backend):
        raise CasebookError(
            f"the profile {profile!r} needs {BACKENDS[backend]}, but this process uses "
            f"{BACKENDS[_chosen]} already: restart it (in a notebook: restart the kernel)"
        )
    if backend == "unsloth" and _chosen is None:
        if "trl" in sys.modules:
            raise CasebookError(
                "Unsloth has to be imported before TRL, but TRL is imported already: restart, and "
                f"call casebook.backend.choose_backend({profile!r}) before anything else"
            )
        os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
        if profile.startswith("a100") and find_spec("vllm"):  # it sleeps while the policy learns
            os.environ.setdefault("UNSLOTH_VLLM_STANDBY", "1")
        import_module("unsloth")
    _chosen = backend
    return backend


def unsloth_chosen() -> bool:
    """Whether Unsloth loads the policies of this process."""
    return _chosen == "unsloth"


def profile_here(profile: str) -> str:
    """For `auto` the profile that fits this machine, printed in a line; else the name itself."""
    if profile != "auto":
        return profile
    found = hardware()
    print(f"profile {found['profile']}: {found['reason']}")
    return found["profile"]


def hardware() -> dict[str, Any]:
    """This machine: `cpu`, `cores`, `memory_gb`, `gpu` (name or `None`), `profile` and `reason`.

    The profile is the largest whose usual models fit into the memory that is free on the GPU.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found |= {"memory_gb": round(memory, 1), "gpu": None, "profile": "nano"}
    import torch

    if not torch.cuda.is_available():
        return found | {"reason": "no GPU: the embedded model trains in minutes on one core"}
    free, bf16 = torch.cuda.mem_get_info(0)[0] / 2**30, torch.cuda.get_device_capability(0)[0] >= 8
    profile = "t4" if free > 13 else "nano"
    if bf16 and free > 20:
        profile = "a100" if free > 36 else "gpu24"
    reason = f"{free:.1f} GiB are free on the GPU; ask casebook preflight before hours are spent"
    return found | {"gpu": torch.cuda.get_device_name(0), "profile": profile, "reason": reason}
