"""The progress of a training: one line that updates itself, with reward and remaining time.

In a notebook the last line has no times, so that a committed notebook stays the same. In a terminal
or a log file there is a line after each tenth of the steps, or each minute.
"""

import sys
import time
from collections.abc import Callable, Mapping

from rich.console import Console

MINUTE, SECONDS_BETWEEN = 60.0, 10.0  # between two lines about steps, and about a measurement


class Progress:
    """Shows the steps of one training, or nothing if `quiet`."""

    def __init__(self, title: str, quiet: bool = False):
        self.title, self.quiet, self.held_out, self.last = title, quiet, ("", 0), title
        self.renew, self.said = None, 0.0

    def start(self, step: int, steps: int) -> None:
        """Begin at `step` (not 0 after a resumption) of `steps`."""
        self.first, self.steps, self.started = step, steps, time.perf_counter()
        if Console().is_jupyter and not self.quiet:
            from IPython.display import Pretty, display

            output = display(Pretty(f"{self.title}: starting"), display_id=True)
            self.renew = lambda line: output.update(Pretty(line))

    def update(self, step: int, logs: Mapping[str, float]) -> None:
        """Show the figures of a step."""
        figures = f"loss {logs['loss']:.2f}"  # of a supervised control, which has no reward
        if "reward" in logs:
            without = logs.get("frac_reward_zero_std", float("nan"))
            figures = f"reward {logs['reward']:.2f}, silent groups {without:.0%}"
        per_step = (time.perf_counter() - self.started) / max(step - self.first, 1)
        left = per_step * (self.steps - step)
        held_out, measured = self.held_out
        held_out += f" (step {measured})" if step != measured and held_out else ""
        self.last = line = f"{self.title}: step {step}/{self.steps}, {figures}{held_out}"
        due = step % max(self.steps // 10, 1) == 0 or step == self.steps
        if self.renew:
            self.renew(f"{line}, {left // 60:.0f}:{left % 60:02.0f} left")
        elif due or time.perf_counter() - self.said > MINUTE:
            self.say(f"{line}, {left:.0f} s left")

    def note(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember the newest held-out figures, to be shown with the next step."""
        if "greedy_accuracy" in figures:
            self.held_out = f"; held out greedy {figures['greedy_accuracy']:.0%}", step

    def measuring(self, what: str) -> Callable[[int, int], None]:
        """Shows the completions done and to do of a measurement."""

        def show(done: int, to_do: int) -> None:
            line = f"{self.title}: measuring {what}, {done} of {to_do} completions"
            if self.renew:
                self.renew(line)
            elif time.perf_counter() - self.said > SECONDS_BETWEEN:
                self.say(line)

        return show

    def say(self, line: str) -> None:
        """Print a line beside the progress, but not in a notebook, whose output stays short."""
        if not (self.renew or self.quiet):
            self.said = time.perf_counter()
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the display: the line of the last step stays."""
        if self.renew:
            self.renew(self.last)
