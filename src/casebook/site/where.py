"""The tables of the page "What runs where": which profiles were run, which only emulated, and what
is run only when somebody names it."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from casebook import paths
from casebook.case import known_cases
from casebook.records import read_record, table_row
from casebook.settings import EXTENSION, read_arms
from casebook.site.files import write_between_marks

FILE = paths.ROOT / "docs" / "where.yaml"
PAGE = paths.ROOT / "docs" / "hardware.md"
RUN, EMULATED, NOT_RUN = "run", "proven by emulation", "not run"
CONTRIBUTED = "contributed"


def read_where() -> dict[str, Any]:
    """`emulated` (name -> `what`, `test`) and `profiles` (name -> what was emulated of it)."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def state(case: str, profile: str) -> str:
    """What is known of a case's profile: a state of this module, or nothing.

    `RUN` stands where the checkout has records of it; `CONTRIBUTED` where all of them were sent by
    others; `EMULATED` where Run All went through on a processor, with stand-ins for the GPU's
    libraries; `NOT_RUN` else; nothing where the case has no such profile.
    """
    if not (paths.CONFIGS / case / f"{profile}.yaml").exists():
        return ""
    if counts := _records(case, profile):
        return next(iter(counts))
    return EMULATED if "run_all" in read_where()["profiles"][profile] else NOT_RUN


def where_table() -> str:
    """The table of profiles and cases, and what each emulation is, as Markdown."""
    where, cases = read_where(), known_cases()
    lines = [
        f"| profile | {' | '.join(cases)} | emulated |",
        f"| --- |{' --- |' * len(cases)} --- |",
    ]
    for profile, emulated in where["profiles"].items():
        states = [_cell(case, profile) for case in cases]
        lines.append(f"| `{profile}` | {' | '.join(states)} | {_names(emulated)} |")
    lines += [
        "",
        "What was emulated, on a processor and without a GPU, and the test that does it:",
        "",
    ]
    for name, stage in where["emulated"].items():
        lines.append(f"- *{_names([name])}*: {stage['what']} (`{stage['test']}`)")
    return "\n".join(lines)


def extension_table() -> str:
    """What goes beyond a case's core: its command, the hours it is said to take, its records."""
    lines = ["| what is asked, and the command | hours | records |", "| --- | ---: | --- |"]
    for case in known_cases():
        for name, arm in read_arms(case).items():
            if EXTENSION in arm:
                profile = arm["profile"]
                command = f"casebook experiments {case} --profile {profile} --arm {name}"
                counts = _records(case, profile, name)
                found = _counted(counts) or "no recorded run"
                asked = f"{arm['question']}<br>`{command}`"
                lines.append(table_row(asked, f"{arm[EXTENSION]:g}", found))
    return "\n".join(lines)


def write_where(page: str | os.PathLike | None = None) -> bool:
    """Put the tables between their marks on the page.

    Returns:
        Whether it changed.

    Raises:
        CasebookError: the page lacks a mark.
    """
    made = {"where": where_table(), "extension": extension_table()}
    return write_between_marks(Path(page or PAGE), made)


def _cell(case: str, profile: str) -> str:
    return _counted(_records(case, profile)) or state(case, profile) or "–"


def _counted(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name}: {count} record{'s' * (count > 1)}" for name, count in counts.items())


def _records(case: str, profile: str, arm: str = "*") -> dict[str, int]:
    """How many records of a profile the checkout has: `RUN` those made with it, then
    `CONTRIBUTED` those that others sent; of either only where there are some."""
    files = (paths.RESULTS / case / profile).glob(f"{arm}/seed*.json")
    sent = Counter("contributed" in read_record(file) for file in files)
    counts = {RUN: sent[False], CONTRIBUTED: sent[True]}
    return {name: count for name, count in counts.items() if count}


def _names(emulated: list[str]) -> str:
    return (
        ", ".join(name.replace("_", " ").replace("run all", "Run All") for name in emulated) or "–"
    )
