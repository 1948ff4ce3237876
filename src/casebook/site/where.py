"""The table of the page "What runs where": which profiles were run, and which only emulated."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from casebook import paths
from casebook.case import CasebookError, known_cases
from casebook.records.files import read_record
from casebook.site.files import write_if_changed

FILE = paths.ROOT / "docs" / "where.yaml"
PAGE = paths.ROOT / "docs" / "hardware.md"
BEGIN, END = "<!-- where:begin -->", "<!-- where:end -->"
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


def write_where(page: str | os.PathLike | None = None) -> bool:
    """Put the table between the marks of the page.

    Returns:
        Whether it changed.

    Raises:
        CasebookError: the page lacks a mark.
    """
    page = Path(page or PAGE)
    before, found, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise CasebookError(f"{page.name} needs the lines {BEGIN} and {END}, in this order")
    return write_if_changed(page, f"{before}{BEGIN}\n\n{where_table()}\n\n{END}{after}")


def _cell(case: str, profile: str) -> str:
    counts = _records(case, profile).items()
    counted = [f"{name}: {count} record{'s' * (count > 1)}" for name, count in counts]
    return "; ".join(counted) or state(case, profile) or "–"


def _records(case: str, profile: str) -> dict[str, int]:
    """How many records of a profile the checkout has: `RUN` those made with it, then
    `CONTRIBUTED` those that others sent; of either only where there are some."""
    files = (paths.RESULTS / case / profile).glob("*/seed*.json")
    sent = Counter("contributed" in read_record(file) for file in files)
    counts = {RUN: sent[False], CONTRIBUTED: sent[True]}
    return {name: count for name, count in counts.items() if count}


def _names(emulated: list[str]) -> str:
    return (
        ", ".join(name.replace("_", " ").replace("run all", "Run All") for name in emulated) or "–"
    )
