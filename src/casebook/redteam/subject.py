"""The reward under attack, in a process of its own: called as TRL calls it, and bounded.

This file is also the program of that process (`casebook.killable`), and runs as a script, alone.
"""

import asyncio
import copy
import importlib.util
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from casebook import folder
from casebook.case import CasebookError, check_name, load_case
from casebook.killable import Ended, Keeper, keep

CPU_SECONDS = 6.5  # of processor time for one call; math-verify ends its own after 5
SECONDS = 20.0  # by the clock on the wall, for a reward that sleeps or asks a network
LOADING = 120.0  # seconds, by the clock on the wall
MEMORY = 2 << 30  # bytes that one call may take
_MARK = "CASEBOOK_REDTEAM"  # set by a completion of `redteam.yaml` that was run as code
# What TRL hands to every reward beside prompts, completions and columns
_TRAINERS = dict.fromkeys(("log_extra", "log_metric"), lambda *_: None) | {"trainer_state": None}


class Reply(NamedTuple):
    """What one call gave: a number for each completion (0 for `None`, which TRL leaves out; none at
    all if it failed), and the kind of fault with a few words on it."""

    paid: tuple[float, ...] = ()
    broken: tuple[str, str] | None = None

    @property
    def one(self) -> float:
        return self.paid[0] if self.paid else -math.inf


class Subject:
    """A reward under attack, to be used as `with closing(Subject("rewards.py:correct"))`.

    `target` is `module:function`, `file.py:function` or `case:reward`; with `()` behind it, and for
    a case, the name is a factory's, and is called with `settings`. That there is no such reward, or
    it cannot be imported, is a `CasebookError`.
    """

    def __init__(self, target: str, settings: Mapping[str, Any] | None = None):
        self.target, self.settings, self.calls = target, dict(settings or {}), 0
        self._keeper = Keeper(__file__, target, json.dumps(self.settings))
        try:
            trouble = self._keeper.ask([], seconds=LOADING)
        except (Ended, OSError) as error:
            trouble = str(error)
        if trouble:
            self._keeper.end()
            raise CasebookError(f"{target} cannot be loaded: {trouble}")

    def close(self) -> None:
        self._keeper.end()

    def pay(self, rows: Sequence[Mapping[str, Any]]) -> Reply:
        """Call the reward once, on rows with `prompt`, `completion` and the columns it needs.
        As TRL has it, a completion to a prompt of messages is handed over as a message."""
        self.calls += 1
        try:
            paid, broken = self._keeper.ask([dict(row) for row in rows], seconds=SECONDS)
        except (Ended, OSError) as error:
            kinds = {"no answer in time": "never_ends", "out of memory": "memory"}
            return Reply(broken=(kinds.get(str(error), "ends_the_process"), str(error)))
        paid = tuple(0.0 if value is None else value for value in paid)
        return Reply(paid, broken and tuple(broken))


def load(target: str, settings: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The reward that `target` names, in this process; see `Subject`."""
    place, colon, name = target.rpartition(":")
    if not colon:
        raise CasebookError("write FILE.py:NAME, MODULE:NAME or CASE:NAME")
    name, factory = name.removesuffix("()"), name.endswith("()") or folder.place(place)
    if folder.place(place):
        found = load_case(place).rewards[name]
    elif not callable(found := getattr(module := _module(place), name, None)):
        check_name(f"reward of {place}", name, [k for k, v in vars(module).items() if callable(v)])
    if settings and not factory:
        raise CasebookError(f"only a factory takes settings: {place}:{name}()")
    return found(**(settings or {})) if factory else found


def _module(place: str) -> Any:
    path = Path(place).expanduser().resolve()
    if path.suffix != ".py":
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    if not path.is_file():
        raise CasebookError(f"there is no file {place}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The other side: what follows runs in the process of the reward


def _answering(target: str, settings: Mapping[str, Any]) -> Callable[..., Any]:
    """What answers questions: rows -> what they are paid; no rows -> what hinders."""
    try:
        reward = load(target, settings)
        callee = reward if inspect.isroutine(reward) else type(reward).__call__
        takes = inspect.signature(callee).parameters
    except BaseException as error:  # whatever happens where a stranger's file is imported
        trouble = ascii(f"{type(error).__name__}: {str(error)[:300]}")[1:-1]
        return lambda rows: trouble.removeprefix("CasebookError: ").removeprefix("UnknownName: ")
    every = any(one.kind is one.VAR_KEYWORD for one in takes.values())
    return lambda rows: _pay(reward, rows, None if every else takes) if rows else ""


def _pay(reward: Callable, rows: Sequence[Mapping[str, Any]], takes: Mapping | None) -> tuple:
    columns = {key: [row.get(key) for row in rows] for row in rows for key in row}
    prompts, said = columns.pop("prompt"), columns.pop("completion")
    tokens = [list(range(len(str(text)))) for text in said]  # one a character
    for at, prompt in enumerate(prompts):
        if isinstance(prompt, list):
            said[at] = [{"role": "assistant", "content": said[at]}]
    given = {"prompts": prompts, "completions": said, "completion_ids": tokens} | columns
    given = {k: v for k, v in {**given, **_TRAINERS}.items() if takes is None or k in takes}
    before = copy.deepcopy({key: value for key, value in given.items() if key not in _TRAINERS})
    paid, broken = [], None
    try:
        found = reward(**given)
        found = asyncio.run(found) if inspect.isawaitable(found) else found
        found = found.tolist() if hasattr(found, "tolist") else list(found)
        paid = [v if v is None else math.nan if isinstance(v, str) else float(v) for v in found]
    except BaseException as error:
        kind = "memory" if isinstance(error, MemoryError) else "raises"
        broken = (kind, ascii(f"raised {type(error).__name__}: {str(error)[:200]}")[1:-1])
    odd = [value for value in paid if value and not math.isfinite(value)]
    if os.environ.pop(_MARK, None):
        broken = ("runs_code", "ran the completion as code")
    elif broken is None and len(paid) != len(rows):
        broken = ("wrong_count", f"gave {len(paid)} numbers for {len(rows)} completions")
    elif odd:
        broken = ("not_a_number", f"paid {odd[0]}")
    if broken is None and any(given[key] != value for key, value in before.items()):
        return paid, ("changes_its_input", "changed the lists that all other rewards get, too")
    return [] if broken else paid, broken


if __name__ == "__main__":
    keep(_answering(sys.argv[1], json.loads(sys.argv[2])), CPU_SECONDS, MEMORY)
