"""Several processes that train one policy: the first writes and measures, all of them train.

`accelerate launch` and `torchrun` start the processes and number them in the environment
(`RANK`, `WORLD_SIZE`). TRL shares out prompts, gathers rewards and averages gradients. What is
here keeps the run folder to one writer. With one process everything below does nothing.
"""

import gc
import hashlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from casebook.backend import unsloth_chosen
from casebook.case import CasebookError
from casebook.settings import ANY, FIELDS

# The others wait while the first evaluates. Torch would give up after 10 or 30 minutes.
PATIENCE = timedelta(days=2)
_store: Any = None


def count() -> int:
    """How many processes train together, on all machines."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def first() -> bool:
    """Whether this process is the one that writes."""
    return count() == 1 or int(os.environ.get("RANK") or 0) == 0


def begin() -> None:
    """Join the other processes, before TRL does it with less patience; once is enough."""
    global _store
    if count() == 1:
        return
    import torch

    if torch.distributed.is_initialized():
        return
    backend = "gloo"
    if not _sharing_a_gpu() and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
        backend = "cpu:gloo,cuda:nccl"
    try:
        _store, number, processes = next(torch.distributed.rendezvous("env://", timeout=PATIENCE))
    except ValueError as error:
        raise CasebookError(
            f"WORLD_SIZE is {count()}, and no launcher says where the others are: start this with "
            "accelerate launch or torchrun"
        ) from error
    torch.distributed.init_process_group(
        backend, store=_store, rank=number, world_size=processes, timeout=PATIENCE
    )


def check(config: Any) -> None:
    """Raise a `CasebookError` where several processes cannot train by a configuration."""
    if count() == 1:
        return
    if not config.use_cpu and _sharing_a_gpu():
        raise CasebookError(
            f"{os.environ['LOCAL_WORLD_SIZE']} processes on this machine, and it shows {_gpus()} "
            "GPU: start one process for each GPU"
        )
    if config.use_cpu or not _gpus():
        # accelerate would number the CPUs, and torch loads no checkpoint onto a `cpu:0`.
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    alone = {name: field.shared for name, field in FIELDS.items() if field.shared is not ANY}
    if sharded():
        alone["evaluate_every"] = 0  # where no process has all of the weights
    for name, value in alone.items():
        if (asked := getattr(config, name)) != value:
            who = "ZeRO-3 and FSDP train" if name == "evaluate_every" else "several processes train"
            raise CasebookError(
                f"{name} is {asked!r}, and {who} only with {value!r}: change it with --set, or "
                "start one process"
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


def sharded() -> bool:
    """Whether each process holds only a part of the weights (ZeRO-3, FSDP)."""
    by = os.environ.get  # what `accelerate launch` sets
    sharding = by("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3" or by("ACCELERATE_USE_FSDP") == "true"
    return count() > 1 and sharding


def agreed(act: Callable[[], Any]) -> Any:
    """What `act` gives in the first process, or its `CasebookError`, in all that wait for it."""
    if count() == 1:
        return act()
    import torch

    said: list[Any] = [None, None]
    if first():
        try:
            said[0] = act()
        except CasebookError as error:
            said[1] = str(error)
    torch.distributed.broadcast_object_list(said, src=0)
    if said[1] is not None:
        raise CasebookError(said[1])
    return said[0]


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


def says_it(sentence: str) -> bool:
    """Whether this process should tell the user, and none has told the same before."""
    if _store is None:
        return first()
    mark = hashlib.sha256(sentence.encode()).hexdigest()
    return _store.add(f"casebook/{mark}", 1) == 1


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _sharing_a_gpu() -> bool:
    """Whether more processes were started on this machine than it has GPUs, and it has some."""
    return 0 < _gpus() < int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
