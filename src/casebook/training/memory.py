"""The most memory that a run took."""

import contextlib
import resource
import sys
from pathlib import Path

SELF = Path("/proc/self")


def forget_peak() -> None:
    """Count from here on, where the system can: Linux. Elsewhere the process's peak stays."""
    with contextlib.suppress(OSError):
        (SELF / "clear_refs").write_text("5")


def peak_mb() -> int:
    """The most memory held since `forget_peak`, or since the process began, in MiB."""
    with contextlib.suppress(OSError, StopIteration):
        lines = (SELF / "status").read_text().splitlines()
        return round(int(next(li for li in lines if li.startswith("VmHWM:")).split()[1]) / 1024)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))  # bytes there
