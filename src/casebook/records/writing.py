"""What can get in the way of writing: another process, a full disk, a folder that is none."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from casebook.case import CasebookError

LOCK = ".lock"
# How a full disk reads in the words of Python, torch, safetensors and Arrow.
FULL = (
    *("No space left", "File too large", "Disk quota", "failed writing file", "unexpected pos"),
    *("PytorchStreamWriter", "file write failed", "No usable temporary directory"),
    *("iostream error",),  # of torch's smallest files
)
REFUSED = {
    *(errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EIO),
}


@contextmanager
def alone_in(folder: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a folder while the block runs.

    The system gives it back when the process ends, however it ends: a lock of a dead process
    blocks nobody. A file system without locks guards nothing.

    Args:
        folder: made where it is missing.
        busy: what to say where another process holds the lock.

    Raises:
        CasebookError: `busy`, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CREAT, 0o644)
    except OSError as error:
        raise CasebookError(f"{folder} cannot be written: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise CasebookError(busy) from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(lock)


def check_writable(folder: Path) -> None:
    """Raise a `CasebookError` now, and not after minutes of work, where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CasebookError(f"{folder} cannot be written: {error.strerror or error}") from None


def write_trouble(error: BaseException) -> str | None:
    """What kept something from being written, in words; `None` for any other error."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OSError) and error.errno in REFUSED:
        text = f"{error.strerror}: {error.filename}" if error.filename else text
        return text
    return text if any(sign in text for sign in FULL) else None
