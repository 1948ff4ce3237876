"""Several processes that train one policy: the first writes and measures, all of them train.

`accelerate launch` and `torchrun` start the processes and number them in the environment
(`RANK`, `WORLD_SIZE`). TRL shares out prompts, gathers rewards and averages gradients. What is
here keeps the run folder to one writer. With one process everything below does nothing.
"""

import gc
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from casebook.backend import unsloth_chosen
from casebook.case import CasebookError
from casebook.settings import ANY, FIELDS

# The others wait while the first evaluates. Torch would give up after 10 or 30 minutes.
PATIENCE = timedelta(days=2)


def count() -> int:
    """How many processes train together, on all machines."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def first() -> bool:
    """Whether this process is the one that writes."""
    return count() == 1 or int(os.environ.get("RANK") or 0) == 0


def begin() -> None:
    """Join the other processes, before TRL does it with less patience; once is enough."""
    if count() == 1:
        return
    import torch

    if torch.distributed.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.device_count() >= _here():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
        backend = "cpu:gloo,cuda:nccl"
    try:
        torch.distributed.init_process_group(backend, timeout=PATIENCE)
    except ValueError as error:
        raise CasebookError(
            f"WORLD_SIZE is {count()}, and no launcher says where the others are: start this with "
            "accelerate launch or torchrun"
        ) from error


def check(config: Any) -> None:
    """Raise a `CasebookError` where several processes cannot train by a configuration."""
    if count() == 1:
        return
    import torch

    gpus = torch.cuda.device_count()
    if not config.use_cpu and 0 < gpus < _here():
        raise CasebookError(
            f"{_here()} processes on this machine, and it shows {gpus} GPU: start one process for "
            "each GPU"
        )
    if config.use_cpu or not gpus:
        # accelerate would number the CPUs, and torch loads no checkpoint onto a `cpu:0`.
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    by = os.environ.get  # what `accelerate launch` sets
    if by("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3" or by("ACCELERATE_USE_FSDP") == "true":
        raise CasebookError(
            "with ZeRO-3 and FSDP no process holds all weights, and the first one has to measure "
            "them: start this with multi_gpu, zero1 or zero2"
        )
    for name, field in FIELDS.items():
        if field.shared is not ANY and (asked := getattr(config, name)) != field.shared:
            raise CasebookError(
                f"{name} is {asked!r}, and several processes train only with {field.shared!r}: "
                "change it with --set, or start one process"
            )
    wanted = "bf16" if config.bf16 else "fp16" if config.fp16 else "no"
    if os.environ.get("ACCELERATE_MIXED_PRECISION", "no") not in ("no", wanted):
        raise CasebookError(
            "the launcher's mixed precision is not that of the training: start it with "
            "--mixed_precision no, and the training's bf16 and fp16 decide"
        )
    if unsloth_chosen():
        raise CasebookError(
            "several processes train with transformers and PEFT: set CASEBOOK_BACKEND=peft"
        )


def agreed(act: Callable[[], Any]) -> Any:
    """What `act` gives in the first process, or its `CasebookError`, in all that wait for it."""
    if count() == 1:
        return act()
    said = None, None
    if first():
        try:
            said = act(), None
        except CasebookError as error:
            said = None, str(error)
    found, refusal = gathered([said])[0]
    if refusal is not None:
        raise CasebookError(refusal)
    return found


def gathered(rows: list[Any]) -> list[Any]:
    """The rows of all processes, in their order."""
    if count() == 1:
        return rows
    import torch

    parts: list[Any] = [None] * count()
    torch.distributed.all_gather_object(parts, rows)
    return [row for part in parts for row in part]


def wait() -> None:
    """Go on when all processes have come here."""
    gathered([])


def end() -> bool:
    """Leave the others; whether there is something left to do here, which only the first has."""
    if count() > 1:
        import torch

        if torch.distributed.is_initialized():
            gc.collect()  # of a trainer that holds on to the group, which would not end then
            wait()
            torch.distributed.destroy_process_group()
    return first()


def _here() -> int:
    """How many of the processes are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
