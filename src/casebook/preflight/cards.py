"""The memory a training has: of a card by name, of this machine's GPU, or of this machine."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from casebook.case import CasebookError, check_name

GIB = 2**30
CONTEXT = GIB * 3 // 4  # CUDA's own, its libraries' and their workspaces, in one process


class Machine(NamedTuple):
    """What a training may take.

    Attributes:
        name: among people.
        total: bytes of the GPU, or of the machine's memory.
        free: bytes of it that nobody holds.
        gpu: whether it is one.
        bf16, vllm: whether it can do with them.
        bandwidth: GB a second; `None` where unknown.
        tflops: 16-bit operations, 10^12 a second; `None` where unknown.
        held: bytes that a training's process takes before any weight.
    """

    name: str
    total: int
    free: int
    gpu: bool
    bf16: bool = True
    vllm: bool = False
    bandwidth: float | None = None
    tflops: float | None = None
    held: int = CONTEXT


@cache
def cards() -> dict[str, Machine]:
    """The cards that `--gpu` knows, from `cards.yaml`."""
    rows = yaml.safe_load((Path(__file__).parent / "cards.yaml").read_text())
    return {
        key: Machine(
            row["name"],
            total=int(row["gib"] * GIB),
            free=int(row["gib"] * GIB),
            gpu=True,
            **{name: row[name] for name in ("bf16", "vllm", "bandwidth", "tflops")},
        )
        for key, row in rows.items()
    }


def card(name: str) -> Machine:
    """A card by its name; a `CasebookError` lists the known ones."""
    check_name("GPU", name, cards())
    return cards()[name]


def this_gpu() -> Machine | None:
    """This machine's first GPU as its driver tells of it, or `None`: torch is not imported."""
    asked = ("name", "memory.total", "memory.free", "compute_cap")
    found = nvidia(*asked)
    if found is None:
        return None
    try:
        total, free = (int(float(found[name]) * 2**20) for name in asked[1:3])
        capability = float(found["compute_cap"])
    except ValueError:
        return None
    return gpu_of(found["name"], total, free, capability)


def gpu_of(name: str, total: int, free: int, capability: float) -> Machine:
    """A GPU by what its driver says; its speed is that of the class of card it belongs to.

    Args:
        total, free: bytes.
        capability: CUDA's compute capability, such as 8.0.
    """
    bf16 = capability >= 8
    alike = [known for known in cards().values() if known.bf16 == bf16]
    near = min(alike, key=lambda known: abs(known.total - total))
    return Machine(name, total, free, True, bf16, bf16, near.bandwidth, near.tflops)


def this_machine(held: int = 0) -> Machine:
    """The machine's own memory, for a training on a CPU.

    Args:
        held: bytes that a training's process takes before any weight.
    """
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(lines[n].split()[0]) * 1024 for n in ("MemTotal", "MemAvailable"))
    limit = _limit()
    if limit is not None and limit[0] < total:
        total, free = limit[0], min(free, limit[1])
    return Machine("this machine's memory", total, free, gpu=False, held=held)


def _limit() -> tuple[int, int] | None:
    """Bytes that a container allows, and what is left of them; `None` without a limit."""
    pairs = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    )
    for top, used in pairs:
        try:
            limit, held = (int(Path(file).read_text()) for file in (top, used))
        except (OSError, ValueError):  # no such file, or "max"
            continue
        return limit, max(0, limit - held)
    return None


def nvidia(*fields: str) -> dict[str, str] | None:
    """What `nvidia-smi` answers about the first GPU that a training may use, or `None`."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        first = visible.split(",")[0].strip()
        if first in ("", "-1"):
            return None
        command.append(f"--id={first}")
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in said.stdout.strip().partition("\n")[0].split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else None


def chosen(
    gpu: str | None, settings: Mapping[str, Any], held: Callable[[Mapping[str, Any]], int]
) -> Machine:
    """Where a training is meant to run: the card that is named, else what is here.

    Args:
        held: asked what a training's process takes on a CPU before any weight.

    Raises:
        CasebookError: an unknown card, or no GPU here for a configuration that wants one.
    """
    if gpu:
        return card(gpu)
    if settings.get("use_cpu"):
        return this_machine(held(settings))
    found = this_gpu()
    if found is None:
        raise CasebookError(
            f"{settings['case']}/{settings['profile']} is for a GPU, and there is none here: name "
            f"the card by --gpu ({', '.join(cards())})"
        )
    return found
