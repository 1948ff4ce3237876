"""Records as files: written whole or not at all, read with care, shown with their interval.

A number in a report is only as good as the way back to what made it. Each training leaves a
record, a JSON file with its figures, its configuration and its provenance. It is never
rewritten; whether today's code still does what it says is what `casebook replay` asks.
"""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casebook.case import CasebookError

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 6  # of a figure in a table of completions
REQUIRED = ("case", "profile", "seed", "provenance")


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Write JSON whole or not at all: into a file beside `path`, which then takes its place.

    The file beside it is named after the writer's process, so that two never write into one; what
    a writer left there that was killed is removed. Keys are sorted. NumPy numbers and arrays become
    plain ones; NaN and infinity, which JSON does not have, become null.

    Raises:
        CasebookError: something in `content` cannot be written as JSON.
        OSError: the disk is full, or the folder cannot be written; `path` is as it was.
    """
    path = Path(path)
    text = json.dumps(plain(content), indent=1, sort_keys=True, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.*.part"):
        if not _runs(left.name.split(".")[-2]):
            left.unlink(missing_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_rows(rows: "pd.DataFrame", path: Path) -> None:
    """Keep a table of completions: as compressed JSON lines, with figures of six digits.

    The same rows give the same bytes in files of the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Rounded first: to_json would write a rounding error of 1e-16 with all of its digits.
    rows.round(DIGITS).to_json(
        path,
        orient="records",
        lines=True,
        double_precision=DIGITS,
        compression={"method": "gzip", "mtime": 0},
    )


def read_rows(path: Path) -> "pd.DataFrame":
    """What `write_rows` wrote; neither texts that look like numbers nor dates are converted.

    Raises:
        CasebookError: there is no such file, or it is damaged.
    """
    import pandas as pd

    try:
        return pd.read_json(path, lines=True, dtype=False, convert_dates=False, precise_float=True)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise CasebookError(f"no completions can be read from {path}: {error}") from error


def _runs(process: str) -> bool:
    """Whether a process of this number runs, or may run."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):  # another user's, or no number
        pass
    return True


def read_json(path: str | os.PathLike) -> Any:
    """Read a JSON file; a `CasebookError` says what is wrong with it."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CasebookError(f"there is no record at {path}") from None
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CasebookError(f"{path} is not valid JSON, perhaps cut short: {error}") from error


def read_record(path: str | os.PathLike) -> dict[str, Any]:
    """Read a record.

    Raises:
        CasebookError: there is no such file, it is not whole, or it is something else.
    """
    record = read_json(path)
    missing = [key for key in REQUIRED if not isinstance(record, dict) or key not in record]
    if missing:
        raise CasebookError(f"{path} is not a record: it has no {', '.join(missing)}")
    return record


def has_test_figures(record: Mapping[str, Any]) -> bool:
    """Whether a run was measured on test rows: one that chooses a setting is not, and its record
    has `None` for `test`, `before` and `after`."""
    return record["before"] is not None


def first_and_last(record: Mapping[str, Any], name: str) -> tuple[float, float]:
    """A figure before and after a run's training: of test rows, else of validation rows.

    Args:
        record: of a run.
        name: of the figure, such as `greedy_accuracy`.
    """
    if has_test_figures(record):
        return record["before"][name]["value"], record["after"][name]["value"]
    values = record["validation"][name]
    return values[0], values[-1]


def figure_text(figure: Mapping[str, float], percent: bool = True) -> str:
    """A figure with its 95 % interval as text; `percent` for shares.

    >>> figure_text({"value": 0.884, "low": 0.862, "high": 0.9, "n": 1000})
    '88.4 % [86.2, 90.0]'
    >>> figure_text({"value": 41.26, "low": 40, "high": 42.5, "n": 1000}, percent=False)
    '41.3 [40, 42.5]'
    """
    value, low, high = figure["value"], figure["low"], figure["high"]
    if percent:
        low, high = max(low, 0.0), min(high, 1.0)  # an interval by a normal may leave the shares
        return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"


def missing(command: str) -> str:
    """What a page says where there is no record: so, and the command that would make one.

    >>> missing("casebook experiments poker")
    '*No recorded run.* This would make one: `casebook experiments poker`'
    """
    return f"*No recorded run.* This would make one: `{command}`"


def digest(value: Any) -> str:
    """A hash of anything that JSON can hold: 16 hexadecimal digits."""
    text = json.dumps(plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain(value: Any) -> Any:
    """`value` in JSON's own types."""
    if hasattr(value, "tolist"):  # NumPy arrays and numbers
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
