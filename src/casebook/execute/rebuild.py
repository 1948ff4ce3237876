"""The pages, renewed while notebooks run."""

import threading
from collections.abc import Callable
from typing import Any

REST = 60  # seconds between two builds, which take a processor from the notebooks


class Rebuilder:
    """Rebuilds the pages while notebooks run: one build at a time, none that is out of date.

    Args:
        build: rebuilds the pages; an exception is logged and the next request tries again.
        log: called with what went wrong.
        rest: seconds from the end of a build to the beginning of the next one.
    """

    def __init__(
        self, build: Callable[[], Any], log: Callable[[str], None] = print, rest: float = REST
    ):
        self.build, self.log, self.rest = build, log, rest
        self.wanted, self.closing = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def request(self, result: Any) -> None:
        """Ask for a build; several requests during one build become one."""
        self.wanted.set()

    def close(self) -> None:
        """Wait for the build that is running; what was asked for after it began is dropped."""
        self.closing.set()
        self.wanted.set()
        self.thread.join()

    def _work(self) -> None:
        while self.wanted.wait() and not self.closing.is_set():
            self.wanted.clear()
            try:
                self.build()
            except Exception as error:
                self.log(f"the pages could not be rebuilt: {error}")
            self.closing.wait(self.rest)
