"""Before hours are spent: whether a training fits, how long it takes, whether it can learn.

    shapes, memory, cards     bytes by phase, from the shape of the model alone
    times                     seconds by phase, from a card's data sheet
    checks, prompts           versions, disk, model and data; lengths, beginnings and ends
    measured                  `--measure`: completions of the training itself, and one step
    verdict, report           go, change or stop; what is printed

`preflight` does all of it for one configuration. Nothing below this folder is imported by a
training: a run that was looked at first is the same run.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from casebook.backend import choose_backend
from casebook.case import CasebookError
from casebook.preflight import cards, checks, prompts, times, verdict
from casebook.preflight.memory import Texts, longest_allowed, phases
from casebook.preflight.shapes import Shape, UnknownShape, shape_of
from casebook.settings import checked

FILE = "preflight.json"
# What a process holds once it has imported a training, in bytes: measured under Linux with torch's
# CPU build 2.13.0. `libraries` measures it anew.
LIBRARIES = 547 * 2**20


def preflight(
    config: str | Path,
    gpu: str | None = None,
    measure: bool = False,
    hours: float | None = None,
    cost_per_hour: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Look at a training before it begins.

    Args:
        config: its YAML file.
        gpu: a card by name; by default what this machine has.
        measure: let the training write for some prompts and make a step, here.
        hours: there are for it.
        cost_per_hour: what the machine costs, in any currency.
        overrides: fields that take another value.
        output: the run's folder, whose disk is looked at; by default that of all runs.
        say: called with what is done next.

    Returns:
        `config`, `case`, `profile`, `settings`, `machine`, `checks`, `prompts`, `phases` (`name`,
        `bytes_needed`, `bytes_there`, `seconds`, `parts`, `assumed`), `measured`, `hours`, `cost`,
        `verdict` (`go`, `change`, `stop` or `cannot be told`), `reasons` and `changes` (`field`,
        `now`, `to`, `why`).

    Raises:
        CasebookError: a configuration, card or number that cannot be.
    """
    settings = checked(config, overrides)
    for name, value in (("--hours", hours), ("--cost", cost_per_hour)):
        if value is not None and not 0 <= value < float("inf"):
            raise CasebookError(f"{name} is {value}, and must be a number from 0 on")
    here = gpu is None
    machine = cards.chosen(gpu, settings, libraries)
    if measure:
        if not here:
            raise CasebookError("--measure runs the training here: leave --gpu out")
        choose_backend(settings["profile"])  # before transformers, which a tokenizer needs
    found: dict[str, Any] = {
        **{"config": str(config), "case": settings["case"], "profile": settings["profile"]},
        "settings": settings,
        "machine": {"name": machine.name, "gpu": machine.gpu, "bytes": machine.total},
        "checks": [check._asdict() for check in checks.checks(settings, machine, here, output)],
        **{"prompts": None, "phases": [], "measured": None, "hours": None, "cost": None},
        "seconds_by": "estimated",
        **{"verdict": verdict.UNKNOWN, "reasons": [], "changes": []},
    }
    try:
        shape, where = shape_of(settings["model_name_or_path"])
    except UnknownShape as error:
        return found | {"reasons": [str(error)]}
    texts, found["prompts"] = texts_of(settings, shape)
    stops = [
        f"{check['name']}: {check['said']}"
        for check in found["checks"]
        if check["state"] == checks.FAILS
    ]
    stops += verdict.of_capability(settings, machine)
    parts = {phase.name: phase for phase in phases(settings, shape, machine, texts)}
    seconds = times.seconds(settings, shape, machine, texts, parts)
    word, reasons, change = verdict.of_memory(settings, shape, machine, texts, list(parts.values()))
    if measure and not stops and all(phase.headroom >= 0 for phase in parts.values()):
        from casebook.preflight import measured

        try:
            found["measured"] = measured.measured(settings, say)
        except measured.TooLittleMemory as error:
            stops.append(str(error))
        except CasebookError as error:
            return found | {"phases": _rows(parts, seconds, where), "reasons": [str(error)]}
        else:
            seconds = measured.phase_seconds(settings, texts, parts, found["measured"], machine.gpu)
            found["seconds_by"] = "measured"
            stops += verdict.of_measure(found["measured"])
    elif measure:
        reasons.append("nothing was measured: see what stands above")
    stops += verdict.of_time(seconds, hours, settings["max_steps"])
    if hours is not None and None in seconds.values():
        reasons.append("how long it takes is not known here without --measure")
        word = verdict.UNKNOWN if word == verdict.GO else word
    if None not in seconds.values():
        found["hours"] = sum(seconds.values()) / 3600
        if cost_per_hour is not None:
            found["cost"] = found["hours"] * cost_per_hour
    return found | {
        "phases": _rows(parts, seconds, where),
        "verdict": verdict.STOP if stops else word,
        "reasons": [*stops, *reasons],
        "changes": change.rows(settings) if change else [],
    }


def libraries(settings: Mapping[str, Any]) -> int:
    """Bytes that a process holds once a training and its rows are there, before any model.

    Another process is asked, because this one has imported other things; where it cannot answer,
    a figure stands in.
    """
    asked = [settings["case"], settings["profile"], settings["seed"], settings["variant"]]
    code = (
        "import json, sys; from casebook.training import loop; "
        "case, *how = json.loads(sys.argv[1]); loop.load_case(case).load('train', *how); "
        "print(open('/proc/self/status').read())"
    )
    command = [sys.executable, "-c", code, json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        lines = done.stdout.splitlines()
        held = next(line for line in lines if line.startswith("VmRSS:"))
    except (OSError, subprocess.SubprocessError, StopIteration):
        return LIBRARIES
    return int(held.split()[1]) * 1024


def texts_of(settings: Mapping[str, Any], shape: Shape) -> tuple[Texts, dict[str, Any]]:
    """Lengths of the prompts: counted, from their characters, or the longest that fit.

    Raises:
        CasebookError: every training prompt is too long.
    """
    try:
        train, test = (prompts.rows_of(settings, split) for split in ("train", "test"))
    except CasebookError as error:
        note = f"not read, so the longest that fit are assumed: {error}"
        return longest_allowed(settings, shape), {"note": note}
    try:
        tokenizer = prompts.read_tokenizer(settings)
    except CasebookError as error:
        note = f"counted in characters, {prompts.CHARACTERS} per token: {error}"
        return prompts.guessed(settings, train, test, shape), {"note": note}
    return prompts.counted(settings, tokenizer, train, test, shape)


def check_output(folder: Path) -> None:
    """Raise a `CasebookError` where a folder cannot keep a preflight: it comes before a run."""
    from casebook.paths import check_writable

    if (folder / "metrics.jsonl").exists() or (folder / "record.json").exists():
        raise CasebookError(f"{folder} holds a run already, and a preflight comes before it")
    check_writable(folder)


def write(found: Mapping[str, Any], folder: Path) -> Path:
    """Keep a preflight as `preflight.json` in a run's folder."""
    from casebook.paths import write_json

    check_output(folder)
    write_json(folder / FILE, found)
    return folder / FILE


def as_json(found: Mapping[str, Any]) -> str:
    """A preflight as it is printed by `--json`."""
    from casebook.paths import plain

    return json.dumps(plain(found), indent=1)


def _rows(parts: Mapping[str, Any], seconds: Mapping[str, float | None], where: str) -> list[dict]:
    return [
        {
            "name": name,
            "bytes_needed": phase.needed,
            "bytes_there": phase.there,
            "seconds": seconds[name],
            "parts": phase.parts,
            "assumed": [*phase.assumed, *([f"shape from {where}"] if name == "load" else [])],
        }
        for name, phase in parts.items()
    ]
