"""Records: the figures of a training, with everything that is needed to make them again.

Each training leaves a record, a JSON file with its settings, seed, figures and provenance:
versions, hardware, threads, the commit and the time. Committed records are in
`results/<case>/<profile>/<arm>/`, and notebooks, claims and the site read them through these
functions. A record is never rewritten; `casebook replay` tests whether today's code still gives
its figures.
"""

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name, known_cases
from casebook.paths import plain, read_json

REQUIRED = ("case", "profile", "seed", "provenance")
COMPLETIONS = "completions.jsonl.gz"  # of the runs that keep theirs: see `experiments.arms`
DIGITS = 6  # of a figure in a table of completions
PACKAGES = (
    *("torch", "transformers", "trl", "peft", "datasets", "numpy", "accelerate", "math-verify"),
    *("rlvr-casebook", "unsloth", "unsloth_zoo", "vllm", "bitsandbytes", "triton"),
)


# Committed records


def committed(case: str, profile: str, arm: str | None = None) -> list[dict[str, Any]]:
    """The committed records of a case and profile, or of one arm, by arm and seed.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: a record cannot be read.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    folder = paths.RESULTS / case / profile
    records = [read_record(path) for path in folder.glob(f"{arm or '*'}/seed*.json")]
    records.sort(key=lambda record: (str(record.get("arm")), record["seed"]))
    return records


def recorded(
    cases: Iterable[str], profile: str, arms: Iterable[str] = (), seed: int | None = None
) -> list[Path]:
    """The records of some cases' arms, one for each arm: of the given seed, else of its first.

    Raises:
        CasebookError: an unknown name, or there is no such record.
    """
    cases, arms, found = list(cases), list(arms), {}
    check_name("profile", profile, PROFILES)
    for case in cases:
        check_name("case", case, known_cases())
        for file in (paths.RESULTS / case / profile).glob("*/seed*.json"):
            found.setdefault((case, file.parent.name), {})[int(file.stem[4:])] = file
    for arm in arms:
        check_name(f"recorded arm of {', '.join(cases)}", arm, sorted({arm for _, arm in found}))
    chosen = {name: files for name, files in sorted(found.items()) if name[1] in (arms or name)}
    if not chosen:
        raise CasebookError(f"there is no record of {', '.join(cases)} with profile {profile!r}")
    if lacking := [name for name, files in chosen.items() if seed not in (None, *files)]:
        raise CasebookError(f"{'/'.join(lacking[0])} has no record of {seed=}")
    return [files[min(files) if seed is None else seed] for files in chosen.values()]


def committed_completions(case: str, profile: str = "nano", arm: str | None = None) -> pd.DataFrame:
    """The committed completions of one run; an empty frame where nothing is committed.

    Args:
        arm: of a real model's run; for embedded models one run per case is kept.

    Returns:
        One completion per row: `step`, `prompt`, `answer`, `completion`, `tokens`, `truncated`,
        `well_formed`, `extracted` (`None` where nothing could be read), `correct`, `strict`,
        one `reward/<name>` for each reward, `reward` and `advantage`.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: the file is damaged.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    path = completions_file(case, profile, arm)
    return read_rows(path) if path.exists() else pd.DataFrame()


def completions_file(case: str, profile: str, arm: str | None = None) -> Path:
    """Where `committed_completions` are kept."""
    return paths.RESULTS / case / profile / (arm or "") / COMPLETIONS


def arms_with_completions(case: str, profile: str) -> list[str]:
    """The arms of a real model whose first seed's completions are committed."""
    folder = paths.RESULTS / case / profile
    return sorted(path.parent.name for path in folder.glob(f"*/{COMPLETIONS}"))


# A record and its figures


def read_record(path: str | os.PathLike) -> dict[str, Any]:
    """Read a record.

    Raises:
        CasebookError: there is no such file, it is not whole, or it is something else.
    """
    record = read_json(path)
    if missing := [key for key in REQUIRED if not isinstance(record, dict) or key not in record]:
        raise CasebookError(f"{path} is not a record: it has no {', '.join(missing)}")
    return record


def has_test_figures(record: Mapping[str, Any]) -> bool:
    """Whether a run was measured on test rows: one that chooses a setting is not, and its record
    has `None` for `test`, `before` and `after`."""
    return record["before"] is not None


def first_and_last(record: Mapping[str, Any], name: str) -> tuple[float, float]:
    """A figure before and after a run's training: of test rows, else of validation rows."""
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
    """The text of a page where a record is missing, with the command that would make it.

    >>> missing("casebook experiments poker")
    '*No recorded run.* This would make one: `casebook experiments poker`'
    """
    return f"*No recorded run.* This would make one: `{command}`"


def write_rows(rows: pd.DataFrame, path: Path) -> None:
    """Keep a table of completions: as compressed JSON lines, with figures of six digits.

    The same rows give the same bytes in files of the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"orient": "records", "lines": True, "compression": {"method": "gzip", "mtime": 0}}
    # Rounded first: to_json would write a rounding error of 1e-16 with all of its digits.
    rows.round(DIGITS).to_json(path, double_precision=DIGITS, **how)


def read_rows(path: Path) -> pd.DataFrame:
    """What `write_rows` wrote; neither texts that look like numbers nor dates are converted, and
    where nothing was `extracted` stands `None`.

    Raises:
        CasebookError: there is no such file, or it is damaged.
    """
    how = {"lines": True, "dtype": False, "convert_dates": False, "precise_float": True}
    try:
        rows = pd.read_json(path, **how)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise CasebookError(f"no completions can be read from {path}: {error}") from error
    if "extracted" in rows:
        rows["extracted"] = rows["extracted"].astype(object).where(rows["extracted"].notna(), None)
    return rows


def digest(value: Any) -> str:
    """A hash of anything that JSON can hold: 16 hexadecimal digits."""
    text = json.dumps(plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Where a number came from


def provenance() -> dict[str, Any]:
    """Versions, hardware, threads, git revision and time.

    A package that is not installed is left out; what this machine does not tell is `None`.

    >>> sorted(provenance())
    ['git', 'hardware', 'machine', 'threads', 'time', 'versions']
    """
    asked = "--query-gpu=name,memory.total,driver_version"
    gpus = _output("nvidia-smi", asked, "--format=csv,noheader")
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "cpu": _cpuinfo().get("model name") or platform.machine(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpu": gpus and gpus.replace("\n", "; "),  # name, memory, driver
        },
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "machine": machine(),
        "git": revision(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine() -> dict[str, str | None]:
    """The kind of machine, as far as floating-point results depend on it.

    Two machines of one kind give the same figures to the last digit: the same processor family
    and model with the same instruction sets, the same build of torch, as many threads.
    """
    lines = _cpuinfo()
    flags = " ".join(sorted(lines.get("flags", lines.get("Features", "")).split()))
    model = [lines.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    return {
        "processor": " ".join(filter(None, model)) or platform.machine(),
        "flags": hashlib.sha256(flags.encode()).hexdigest()[:8],
        "torch": _versions().get("torch"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def revision() -> dict[str, Any]:
    """The commit, and whether tracked files differ from it; the records themselves may."""
    git = ("git", "-C", str(paths.ROOT))
    revision = _output(*git, "rev-parse", "HEAD")
    changes = _output(*git, "status", "--porcelain", "-uno", "--", ".", ":!results")
    return {"revision": revision, "dirty": bool(changes) if revision else None}


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name.removeprefix("rlvr-").replace("-", "_")] = version(name)
    return found


def _output(*command: str) -> str | None:
    """The standard output of a program, or `None` where it is missing, fails or says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
