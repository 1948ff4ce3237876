"""Which library trains a profile: Unsloth on a GPU where it is installed, else transformers + PEFT.

Unsloth rewrites TRL's trainers when it is imported, so it has to come before TRL, and it stays for
as long as the process lives. That is why this is decided once, by the profile, before anything else
is imported: an embedded model in float32 on the processor is not what Unsloth is made for.
`CASEBOOK_BACKEND=unsloth` or `=peft` decides otherwise.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec

from casebook.case import PROFILES, CasebookError, check_name

BACKENDS = {"unsloth": "Unsloth", "peft": "transformers + PEFT"}  # names, and how they are written
_chosen: str | None = None


def backend_of(profile: str) -> str:
    """The backend that belongs to a profile here, one of `BACKENDS`.

    Raises:
        CasebookError: an unknown profile or `CASEBOOK_BACKEND`, or Unsloth is asked for by name
            and not installed.
    """
    check_name("profile", profile, PROFILES)
    asked = os.environ.get("CASEBOOK_BACKEND") or "auto"
    check_name("CASEBOOK_BACKEND", asked, ("auto", *BACKENDS))
    installed = "unsloth" in sys.modules or find_spec("unsloth") is not None
    if asked == "unsloth" and not installed:
        raise CasebookError("CASEBOOK_BACKEND is 'unsloth', but unsloth is not installed")
    if asked != "auto":
        return asked
    return "unsloth" if installed and PROFILES[profile].device == "gpu" else "peft"


def choose_backend(profile: str) -> str:
    """Decide for this process what trains and loads its policies, and import Unsloth if it does.

    Returns:
        One of `BACKENDS`.

    Raises:
        CasebookError: as `backend_of`; or it is too late, because TRL was imported or another
            profile's backend was chosen before.
    """
    global _chosen
    backend = backend_of(profile)
    if _chosen not in (None, backend):
        raise CasebookError(
            f"the profile {profile!r} needs {BACKENDS[backend]}, and this process works with "
            f"{BACKENDS[_chosen]} already: restart it (in a notebook: restart the kernel)"
        )
    if backend == "unsloth" and _chosen is None:
        if "trl" in sys.modules:
            raise CasebookError(
                "Unsloth has to be imported before TRL, and TRL is there already: restart, and "
                f"call casebook.backend.choose_backend({profile!r}) before anything else"
            )
        os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
        import_module("unsloth")
    _chosen = backend
    return backend


def unsloth_chosen() -> bool:
    """Whether Unsloth loads the policies of this process."""
    return _chosen == "unsloth"
