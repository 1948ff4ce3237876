"""How a preflight reads: tables on a terminal, and the JSON of `preflight.json`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from casebook.preflight.cards import GIB
from casebook.preflight.checks import OK

STYLES = {"go": "bold green", "change": "bold yellow", "stop": "bold red"}


def show(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a preflight, as `casebook.preflight.preflight` returns it."""
    console = console or _console()
    console.print(f"[bold]{escape(found['config'])}[/bold] on {escape(found['machine']['name'])}")
    checks = [check for check in found["checks"] if check["state"] != OK]
    good = len(found["checks"]) - len(checks)
    plain = partial(console.print, markup=False)
    plain(f"checks: {good} ok" + "".join(f"\n  {_check(check)}" for check in checks))
    if found.get("prompts"):
        plain(_prompts(found["prompts"]))
    if found["phases"]:
        console.print(_phases(found))
        for line in dict.fromkeys(line for p in found["phases"] for line in p["assumed"]):
            plain(f"  assumed: {line}", style="dim")
    if found.get("measured"):
        console.print(_measured(found["measured"]))
    if found.get("hours") is not None:
        cost = f", {found['cost']:.2f} at the rate given" if found.get("cost") is not None else ""
        console.print(f"{found['seconds_by']} time: {_time(found['hours'] * 3600)}{cost}")
    console.print(f"[{STYLES.get(found['verdict'], 'bold')}]{found['verdict']}[/]")
    for reason in found["reasons"]:
        plain(f"  {reason}")
    for change in found["changes"]:
        now, to = (_yaml(change[name]) for name in ("now", "to"))
        plain(f"  {change['field']}: {to}  # now {now}; {change['why']}", style="yellow")


def _console() -> Console:
    """Lines are not broken: a terminal does that, and a file should not have them broken."""
    return Console(highlight=False, soft_wrap=True)


def show_afterwards(predicted: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what a finished run took, against its preflight."""
    console = console or _console()
    table = Table("predicted against actual", "predicted", "actual", "ratio", box=None)
    for row in predicted["rows"]:
        unit = (lambda v: f"{v / GIB:.2f} GiB") if row["unit"] == "bytes" else _time
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        table.add_row(row["name"], *(unit(row[n]) for n in ("predicted", "actual")), ratio)
    console.print(table)
    if predicted["median_time_ratio"] is not None:
        console.print(f"median ratio of time: {predicted['median_time_ratio']:.2f}")


def _phases(found: Mapping[str, Any]) -> Table:
    table = Table("phase", "needed", "there", "free", "time", "largest parts (GiB)", box=None)
    for phase in found["phases"]:
        parts = sorted(phase["parts"].items(), key=lambda item: -item[1])[:2]
        free = 1 - phase["bytes_needed"] / phase["bytes_there"]
        table.add_row(
            phase["name"],
            f"{phase['bytes_needed'] / GIB:.2f}",
            f"{phase['bytes_there'] / GIB:.2f} GiB",
            f"[{'red' if free < 0.1 else 'default'}]{free:.0%}[/]",
            "not known" if phase["seconds"] is None else _time(phase["seconds"]),
            ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts),
        )
    return table


def _prompts(said: Mapping[str, Any]) -> str:
    if "longest" not in said:
        return f"prompts: {said['note']}"
    lines = [
        f"prompts: {said['train_prompts']} looked at, median {said['median']} tokens, longest "
        f"{said['longest']} of {said['room']}; {said['dropped']} dropped as too long",
        f"test prompts: {said['test_prompts']}, longest {said['test_longest']}; "
        f"{said['test_dropped']} dropped",
        f"a prompt begins with {said['begins_training']} tokens of the beginning in training, "
        f"{said['begins_evaluation']} in evaluation",
    ]
    ends = said["end_tokens"]
    lines.append("completions end with " + (" or ".join(ends) if ends else said["tokenizer_end"]))
    return "\n".join(lines)


def _measured(found: Mapping[str, Any]) -> Table:
    title = f"{found['completions']} completions of {found['prompts']} prompts"
    table = Table(title, "mean", "95 % interval", box=None)
    rows = {f"reward: {escape(name)}": figure for name, figure in found["rewards"].items()}
    shares = ("silent", "truncated", "well_formed", "correct")
    names = ("silent groups", "truncated", "well formed", "right")
    rows |= dict(zip(names, (found[name] for name in shares), strict=True))
    for name, figure in rows.items():
        shown = "{:.3f}" if name.startswith("reward") else "{:.0%}"
        low, high = (shown.format(figure[end]) for end in ("low", "high"))
        table.add_row(name, shown.format(figure["value"]), f"{low} to {high}")
    table.add_row("one step", _time(found["step_seconds"]), "")
    table.add_row("its completions", _time(found["rollout_seconds"]), "")
    table.add_row("most memory", f"{found['peak_bytes'] / GIB:.2f} GiB", "")
    return table


def _check(check: Mapping[str, str]) -> str:
    return f"{check['state']}: {check['name']}, {check['said']}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _yaml(value: Any) -> str:
    """A value as a YAML file has it."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
