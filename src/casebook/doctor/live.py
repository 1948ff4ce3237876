"""The doctor beside a live training: each warning once, and as an alert where W&B is on."""

import sys
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from casebook.doctor import Log, diagnose, table
from casebook.doctor.findings import FINDINGS

EVERY, SLOWER = 8, 1.05  # steps between two looks, and times the step of the last one
SURE = 0.6  # a warning may stop somebody's run


class DoctorCallback(TrainerCallback):
    """For any `GRPOTrainer`: `GRPOTrainer(..., callbacks=[DoctorCallback()])`.

    Args:
        say: is given each warning, one text.
        read: gives the log so far; by default what the trainer has logged.
    """

    def __init__(self, say: Callable[[str], Any] = print, read: Callable[[], Log] | None = None):
        self.say, self.read, self.next, self.spoken = say, read, EVERY, set()

    def on_log(self, args, state, control, logs=None, **kwargs):
        step = state.global_step
        if step < self.next or not getattr(state, "is_world_process_zero", True):
            return
        self.next, found = max(step + EVERY, int(SLOWER * step)), []
        try:
            log = self.read() if self.read else table(state.log_history, settings=args.to_dict())
            found = diagnose(log).findings
        except Exception as error:  # nobody's training of hours ends because of a look at it
            self.say(f"step {step}: the doctor could not read the log ({error})")
        new = (f for f in found if f.name not in self.spoken and "remark" not in FINDINGS[f.name])
        for one in (finding for finding in new if finding.sure >= SURE):
            self.spoken.add(one.name)
            self.say(str(one))
            if (wandb := sys.modules.get("wandb")) and wandb.run:
                wandb.alert(title=one.name, text=str(one))
