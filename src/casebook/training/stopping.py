"""A training that is asked to stop ends at a whole checkpoint, and goes on from there later.

A cluster sends a signal some minutes before it takes the machine away. `SIGUSR1` asks for a stop:
the step is finished and saved, and the command ends without a record. Where nobody listens for it,
as in a notebook, the signal keeps its meaning.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from casebook.training import processes

STOP = signal.SIGUSR1


class Stopped(Exception):
    """A training was asked to stop, and has."""


class _Request:
    came = False


@contextmanager
def on_request() -> Iterator[None]:
    """Inside it, SIGUSR1 ends a training by `Stopped`.

    It is blocked as well as handled: processes that this one starts inherit a block alone.
    """

    def handle(number, frame):
        _Request.came = True
        if STOP not in signal.pthread_sigmask(signal.SIG_BLOCK, []):
            raise Stopped

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [STOP])
    before = signal.signal(STOP, handle)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, [STOP])
        signal.sigtimedwait([STOP], 0)  # one that waits is taken
        _Request.came = False
        signal.signal(STOP, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def asked() -> bool:
    """Whether any of the processes was asked to stop; all of them have to ask this together."""
    return any(processes.gathered([_Request.came or STOP in signal.sigpending()]))


def now_at_once() -> None:
    """From here on a request, or one that has come, ends what is going on by `Stopped`."""
    if _Request.came:
        raise Stopped
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [STOP])
