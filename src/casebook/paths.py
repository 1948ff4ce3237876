"""Folders, and how files are written: completely or not at all, by one process at a time."""

import errno
import fcntl
import json
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from casebook.case import CasebookError

ROOT = Path(os.environ.get("CASEBOOK_ROOT", Path(__file__).parents[2])).resolve()
CONFIGS, DATA, NOTEBOOKS = ROOT / "configs", ROOT / "data", ROOT / "notebooks"
RESULTS, REPORTS = ROOT / "results", ROOT / "reports"
DRIVE = Path("/content/drive")  # where Colab mounts Google Drive
LOCK = ".lock"
# How a full disk reads in the words of Python, torch, safetensors and Arrow.
FULL = (
    *("No space left", "File too large", "Disk quota", "failed writing file", "unexpected pos"),
    *("PytorchStreamWriter", "file write failed", "No usable temporary dir", "iostream error"),
)
REFUSED = {
    *(errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EIO),
}


def runs_dir(value: str | os.PathLike | None = None) -> Path:
    """The folder of training runs: `value`, else `$RUNS_DIR`, else `runs`.

    A relative path starts at the checkout, wherever a notebook was started. On Colab a folder
    on Google Drive, which survives the machine, is mounted; that asks for permission once.
    """
    folder = (ROOT / Path(value or os.environ.get("RUNS_DIR") or "runs").expanduser()).resolve()
    if "google.colab" in sys.modules and DRIVE in folder.parents and not os.path.ismount(DRIVE):
        from google.colab import drive

        drive.mount(str(DRIVE))
    return folder


def models_dir() -> Path:
    """The folder of downloaded models: `$CASEBOOK_MODELS`, else `models`, which git ignores."""
    return (ROOT / Path(os.environ.get("CASEBOOK_MODELS") or "models").expanduser()).resolve()


def figures_dir() -> Path:
    """Where notebooks write their pictures: `$CASEBOOK_FIGURES_DIR`, else `reports/figures`."""
    return (ROOT / os.environ.get("CASEBOOK_FIGURES_DIR", "reports/figures")).resolve()


def project() -> dict[str, Any]:
    """What `pyproject.toml` says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def repository() -> str:
    """The public address of the repository from `pyproject.toml`, or an empty string."""
    return project()["tool"]["casebook"]["repository"].rstrip("/")


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A path beside `path` to write to; it replaces `path` when the block ends without an error.

    Raises:
        CasebookError: `path` is there and no file, such as a device.
        OSError: the disk is full, or the folder cannot be written; `path` is as it was.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CasebookError(f"{path} cannot be replaced: it is no regular file")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Write JSON, sorted by key, with the values of `plain` and the errors of `replacing`."""
    text = json.dumps(plain(content), indent=1, sort_keys=True, allow_nan=False) + "\n"
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def read_json(path: str | os.PathLike) -> Any:
    """Read a JSON file; a `CasebookError` says what is wrong with it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CasebookError(f"there is no record at {path}") from None
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CasebookError(f"{path} is not valid JSON, perhaps cut short: {error}") from error


def plain(value: Any) -> Any:
    """`value` in JSON's own types: NumPy's become plain ones, NaN and infinity null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, str | int):
        return value
    raise CasebookError(f"{type(value).__name__} cannot be written as JSON: {str(value)[:60]!r}")


@contextmanager
def alone_in(folder: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a folder, made where it is missing; a dead process's lock blocks nobody.

    Raises:
        CasebookError: `busy`, where another process holds it; or the folder cannot be written.
    """
    check_writable(folder)
    with open(folder / LOCK, "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CasebookError(busy) from None
        except OSError:
            pass  # a file system without locks guards nothing
        yield


def check_writable(folder: Path) -> None:
    """Raise a `CasebookError` now, not after minutes of work, if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CasebookError(f"{folder} cannot be written: {error.strerror or error}") from None


def write_trouble(error: BaseException) -> str | None:
    """What kept something from being written, in words; `None` for any other error."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OSError) and error.errno:
        gone = error.errno == errno.ENOENT and not Path(error.filename or ".").parent.exists()
        if error.errno in REFUSED or gone:
            return f"{error.strerror}: {error.filename}" if error.filename else text
    return text if any(sign in text for sign in FULL) else None
