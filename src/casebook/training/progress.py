"""How far a training is: one line that renews itself, with reward and the time that is left.

In a notebook the line is an output that is updated in place, and ends without times, so that a
committed notebook does not change with the weather. In a terminal it is a bar; in a log file,
lines a tenth of the way apart.
"""

import sys
import time
from collections.abc import Callable, Mapping

from rich.progress import Progress as Bar
from rich.progress import TextColumn

SECONDS_BETWEEN = 10.0  # two lines of a log about one measurement


class Progress:
    """Shows the steps of one training, or nothing where it is to be quiet."""

    def __init__(self, title: str, quiet: bool = False):
        self.title, self.quiet, self.held_out = title, quiet, ""
        self.bar: Bar | None = None
        self.output = None

    def start(self, step: int, steps: int) -> None:
        """Begin at `step` (not 0 after a resumption) of `steps`."""
        self.first, self.steps = step, steps
        self.started = time.perf_counter()
        if self.quiet:
            return
        if _in_notebook():
            from IPython.display import display

            self.output = display(_plain(f"{self.title}: starting"), display_id=True)
        elif sys.stderr.isatty():
            self.bar = Bar(*Bar.get_default_columns(), TextColumn("{task.fields[figures]}"))
            self.task = self.bar.add_task(self.title, total=steps, completed=step, figures="")
            self.bar.start()

    def update(self, step: int, logs: Mapping[str, float]) -> None:
        """Show how a step went."""
        figures = f"loss {logs['loss']:.2f}"  # of a supervised control, which has no reward
        if "reward" in logs:
            without = logs.get("frac_reward_zero_std", float("nan"))
            figures = f"reward {logs['reward']:.2f}, groups without gradient {without:.0%}"
        figures += self.held_out
        per_step = (time.perf_counter() - self.started) / max(step - self.first, 1)
        left = per_step * (self.steps - step)
        self.last = line = f"{self.title}: step {step}/{self.steps}, {figures}"
        if self.output is not None:
            self.output.update(_plain(f"{line}, {left // 60:.0f}:{left % 60:02.0f} left"))
        elif self.bar:
            self.bar.update(self.task, completed=step, figures=figures)
        elif step % max(self.steps // 10, 1) == 0 or step == self.steps:
            self.say(f"{line}, {left:.0f} s left")

    def note(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember the newest held-out figures, to be shown with the next step."""
        if "greedy_accuracy" in figures:
            self.held_out = f"; held out (step {step}) greedy {figures['greedy_accuracy']:.0%}"

    def measuring(self, what: str) -> Callable[[int, int], None]:
        """Shows the completions done and to do of a measurement."""
        said = 0.0

        def show(done: int, to_do: int) -> None:
            nonlocal said
            line = f"{self.title}: measuring {what}, {done} of {to_do} completions"
            if self.output is not None:
                self.output.update(_plain(line))
            elif time.perf_counter() - said > SECONDS_BETWEEN:
                said = time.perf_counter()
                self.say(line)

        return show

    def say(self, line: str) -> None:
        """Print a line beside the progress: nowhere in a notebook, whose output stays short."""
        if self.bar:
            self.bar.console.print(line)
        elif self.output is None and not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def finish(self) -> None:
        """End the display."""
        if self.output is not None:
            self.output.update(_plain(getattr(self, "last", self.title)))
        if self.bar:
            self.bar.stop()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and shell.__class__.__name__ != "TerminalInteractiveShell"


def _plain(text: str):
    from IPython.display import Pretty

    return Pretty(text)
