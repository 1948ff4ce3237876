"""Where a number came from: versions, hardware, threads, git revision and time."""

import hashlib
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from casebook import paths

PACKAGES = {
    "torch": "torch",
    "transformers": "transformers",
    "trl": "trl",
    "peft": "peft",
    "datasets": "datasets",
    "numpy": "numpy",
    "accelerate": "accelerate",
    "math_verify": "math-verify",
    "casebook": "rlvr-casebook",
    "unsloth": "unsloth",
    "unsloth_zoo": "unsloth_zoo",
    "vllm": "vllm",
    "bitsandbytes": "bitsandbytes",
    "triton": "triton",
}


def provenance() -> dict[str, Any]:
    """Versions, hardware, threads, git revision and time, without importing any of the packages.

    A package that is not installed is left out; what this machine does not tell is `None`.

    >>> sorted(provenance())
    ['git', 'hardware', 'machine', 'threads', 'time', 'versions']
    """
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": _memory_gb(),
            "gpu": _gpu("name"),
            "gpu_memory": _gpu("memory.total"),
            "gpu_driver": _gpu("driver_version"),
            "cuda": torch_cuda(),
        },
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "machine": machine(),
        "git": revision(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine() -> dict[str, str | None]:
    """The kind of machine, as far as floating-point results depend on it.

    Two machines of one kind give the same figures to the last digit: the same processor family
    and model with the same instruction sets, the same build of torch, as many threads.
    """
    lines = _cpuinfo()
    flags = " ".join(sorted(lines.get("flags", lines.get("Features", "")).split()))
    model = [lines.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    return {
        "processor": " ".join(filter(None, model)) or platform.machine(),
        "flags": hashlib.sha256(flags.encode()).hexdigest()[:8],
        "torch": _versions().get("torch"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def torch_cuda() -> str | None:
    """The CUDA that torch was built for, such as `13.0`; `None` of a CPU build, or without torch.

    The package's version says it only on PyTorch's own index; its `version.py` says it always.
    It is read, not imported: torch takes seconds.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*= *['\"](\d+\.\d+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _versions() -> dict[str, str]:
    found = {}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _gpu(field: str) -> str | None:
    """What nvidia-smi says of each GPU, in one line."""
    said = _output("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")
    return "; ".join(said.splitlines()) if said else None


def revision() -> dict[str, Any]:
    """The commit, and whether tracked files differ from it; the records themselves may."""
    revision = _output("git", "-C", str(paths.ROOT), "rev-parse", "HEAD")
    rest = ("status", "--porcelain", "-uno", "--", ".", ":!results")
    changes = _output("git", "-C", str(paths.ROOT), *rest)
    return {"revision": revision, "dirty": bool(changes) if revision else None}


def _output(*command: str) -> str | None:
    """The standard output of a program, or `None` where it is missing, fails or says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
