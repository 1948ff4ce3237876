"""What is wrong with a GRPO training, from its log: `casebook doctor RUN`.

`logs` reads any tool's log as one table of steps, `findings` has one small method for each thing
that can be wrong, `live` is the same while a training runs.
"""

import html
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from string import Template
from typing import Any

from casebook.doctor.findings import FINDINGS, TREND, Examined, Finding, examined, healthy, not_told
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
        """All of it but the log, as JSON has it; `file` is the one of a folder that was read."""
        shown = {name: value for name, value in vars(self).items() if name != "log"}
        return shown | {"findings": [asdict(one) for one in self.findings], "file": self.log.file}

    def __str__(self) -> str:
        verdict = "Nothing to mend was found." if self.healthy else "This run needs mending."
        verdict += " Most findings need more steps." * (self.healthy and self.steps < TREND)
        where = f" of {self.log.file}" if self.log.file else ""
        read = f"{self.steps} logged steps, {len(self.columns_read)} columns{where} read."
        lines = [f"{verdict} {read}"]
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
        names |= {c: f"rewards/{c[5:]}/mean" for c in self.log.steps if c.startswith("part/")}
        steps = self.log.steps.rename(columns=names | {"clipped": "completions/clipped_ratio"})
        held_out, drawing = self.log.evaluations, StringIO()
        if len(steps):
            drawn = plots.dashboard(steps, title, held_out if "step" in held_out else None)
            drawn.savefig(drawing, format="svg")
        svg = drawing.getvalue()[drawing.getvalue().find("<svg") :]
        page = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
        return page.substitute(title=html.escape(title), drawing=svg, text=html.escape(str(self)))


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
    see = Examined(log)
    found, columns = examined(see), (log.read, log.ignored)
    return Diagnosis(healthy(found, see), len(log.steps), *columns, found, not_told(see), log)
