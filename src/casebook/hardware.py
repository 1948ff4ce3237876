"""What this machine is, and the profile that fits it.

On a machine without a GPU's driver torch is not imported: it takes longer than the answer.
"""

import os
import platform
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NO_GPU = "no GPU: the embedded model trains in minutes on one core"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, that of WSL, and AMD's


def hardware() -> dict[str, Any]:
    """This machine, as a training run sees it, and the profile that fits it.

    Returns:
        `cpu`, `cores`, `memory_gb`, `gpu` (name or `None`), `gpu_memory_gb`, `bf16`, `unsloth`
        (whether it is installed), `profile` and `reason`, one sentence. On a GPU the profile is the
        one that fits into the memory that is free there, by the arithmetic of
        `casebook.preflight`; `profiles` names it for each case.
    """
    gpu = _gpu()
    major = gpu.major if gpu else 0
    gpu_memory = round(gpu.total_memory / 2**30, 1) if gpu else 0.0
    fitting = _fitting(gpu) if gpu else {"profile": "nano", "reason": NO_GPU}
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": gpu.name if gpu else None,
        "gpu_memory_gb": gpu_memory,
        "bf16": major >= 8,
        "unsloth": find_spec("unsloth") is not None,
        **fitting,
    }


def _fitting(gpu: Any) -> dict[str, Any]:
    """The profile for a GPU, with what other processes leave free of it."""
    import torch

    from casebook.preflight.cards import gpu_of
    from casebook.preflight.proposal import proposed

    free, total = torch.cuda.mem_get_info(0)
    return proposed(gpu_of(gpu.name, total, free, gpu.major + gpu.minor / 10))


def _gpu() -> Any:
    """The first GPU as torch sees it, or `None`; a driver alone is not enough."""
    driver = shutil.which("nvidia-smi") or any(Path(device).exists() for device in DRIVERS)
    if not driver or find_spec("torch") is None:
        return None
    import torch

    return torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
