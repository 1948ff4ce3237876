"""What is wrong with a GRPO training, from its log: `casebook doctor RUN`.

logs      any tool's log as one table of steps, in one set of names
findings  one small function for each thing that can be wrong
live      the same while a training runs, as a callback
"""

import html
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from casebook.doctor.findings import FINDINGS, Finding, Seen, examined, healthy, not_told
from casebook.doctor.logs import Log, read_log, table

__all__ = ["FINDINGS", "Diagnosis", "Finding", "Log", "diagnose", "read_log", "table"]


@dataclass(frozen=True)
class Diagnosis:
    """What a log says of a run."""

    healthy: bool
    steps: int  # logged rows
    columns_read: list[str]
    columns_ignored: list[str]
    findings: list[Finding]  # the surest first
    not_told: dict[str, str]  # finding -> what the log lacks to tell it
    log: Log

    def to_dict(self) -> dict[str, Any]:
        """All of it but the log, as JSON has it."""
        shown = {name: value for name, value in vars(self).items() if name != "log"}
        return shown | {"findings": [asdict(one) for one in self.findings]}

    def __str__(self) -> str:
        verdict = "Nothing to mend." if self.healthy else "This run needs mending."
        lines = [f"{verdict} {self.steps} logged steps, {len(self.columns_read)} columns read."]
        for one in self.findings:
            lines += ["", f"{one.name} (sure: {one.sure:.0%}, step {one.step})"]
            lines += [f"  {text}" for text in (one.message, one.evidence, one.advice)]
        if self.not_told:
            lines += ["", "Could not be told, because the log lacks it:"]
            lines += [f"  {name}: {lacks}" for name, lacks in self.not_told.items()]
        return "\n".join(lines)

    def html(self, title: str) -> str:
        """One page with figures."""
        from casebook import plots

        names = {"silent": "frac_reward_zero_std", "length": "completions/mean_length"}
        names |= {"clipped": "completions/clipped_ratio"}
        names |= {c: f"rewards/{c[5:]}/mean" for c in self.log.steps if c.startswith("part/")}
        picture, held_out = StringIO(), self.log.evaluations
        if len(self.log.steps):
            held_out = held_out if {"step", "kl_from_base"} <= set(held_out) else None
            drawn = plots.dashboard(self.log.steps.rename(columns=names), title, held_out)
            drawn.savefig(picture, format="svg")
        drawing, said = picture.getvalue(), html.escape(str(self))
        drawing = drawing[drawing.find("<svg") :] if drawing else ""
        return PAGE.format(title=html.escape(title), drawing=drawing, text=said)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{max-width:60rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif}}
svg{{width:100%;height:auto}}pre{{white-space:pre-wrap;font:inherit}}</style>
<h1>{title}</h1>{drawing}<pre>{text}</pre></html>
"""


def diagnose(run: Log | str | Path) -> Diagnosis:
    """What is wrong with a run.

    Args:
        run: a log that was read (`read_log`, `table`), or the path of one.

    Raises:
        CasebookError: nothing can be read there; one sentence.

    >>> stuck = table([{"step": n, "reward": 0.1, "frac_reward_zero_std": 1} for n in range(30)])
    >>> diagnosis = diagnose(stuck)
    >>> diagnosis.healthy, diagnosis.findings[0].name
    (False, 'silent_groups')
    """
    log = run if isinstance(run, Log) else read_log(run)
    see = Seen(log)
    found = examined(see)
    return Diagnosis(
        *(healthy(found, see), len(log.steps), log.read, log.ignored, found, not_told(see), log)
    )
