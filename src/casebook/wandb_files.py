"""What Weights & Biases keeps of an offline run, read back without network and without an account.

A run with `WANDB_MODE=offline` leaves `offline-run-<time>-<id>/run-<id>.wandb`, which wandb itself
can only upload or show in a terminal. The file is a log in LevelDB's format (its documentation,
`doc/log_format.md`), with a header of its own:

    7 bytes           ":W&B", 0xBEE1, version 0
    blocks of 32 KiB  pieces, each with checksum (4 bytes), length (2), kind (1), and its bytes

A piece is a whole record, or the first, a middle or the last part of one; a record is a `Record`
of wandb's own `wandb_internal.proto`. Tables lie beside the file as JSON.

wandb is needed for that definition alone, and nothing else in the casebook needs it.
"""

import json
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd

from casebook.case import CasebookError

HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
PIECE = struct.Struct("<IHB")  # checksum, length, kind
BLOCK = 2**15
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
STEP = "train/global_step"  # what transformers and the casebook log every value against
LARGEST_TABLE = 2**28  # bytes of a table's file; what a training logs has less than a megabyte
LOOK_EVERY = 0.1  # seconds between two looks at a file that is still being written


@dataclass
class OfflineRun:
    """One run as W&B would show it.

    Attributes:
        id: wandb's name for the run, in the names of its files.
        name: its name among people.
        project: that it would be uploaded to.
        config: what was asked for; the casebook's settings are under `casebook`.
        rows: one mapping a call of `wandb.log`, metric -> value, in their order.
        summary: the last value of each metric, and what else was put there.
        tables: key -> tables logged under it, in their order.
        artifacts: `name`, `type`, `metadata` and `files` (path -> bytes) of each.
        complete: whether the run was finished, and its file written to the end.
        damage: where and why reading ended early, else empty.
        not_read: kind of record -> how many there were that nothing here reads.
    """

    id: str = ""
    name: str = ""
    project: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False
    damage: str = ""
    not_read: Counter = field(default_factory=Counter)

    def history(self) -> pd.DataFrame:
        """One row a training step with every metric by the name it was logged under.

        What several calls logged for a step is in one row; of two values the later one counts, as
        where a run was resumed at an earlier step.
        """
        steps: dict[Any, dict[str, Any]] = {}
        for number, row in enumerate(self.rows):
            values = {name: value for name, value in row.items() if not isinstance(value, dict)}
            steps.setdefault(row.get(STEP, f"call {number}"), {}).update(values)
        return pd.DataFrame(list(steps.values()))

    def curve(self, metric: str) -> pd.Series:
        """The values of one metric over the training steps at which it was logged.

        Raises:
            CasebookError: it was never logged; the message lists the nearest names.
        """
        history = self.history()
        if metric not in history or STEP not in history:
            logged = sorted(name for name in history if not name.startswith("_"))
            raise CasebookError(f"run {self.id} logged no {metric!r}: it has {', '.join(logged)}")
        logged = history.dropna(subset=[metric, STEP])
        return logged.set_index(STEP, drop=False)[metric].sort_index()

    def table(self, key: str) -> pd.DataFrame:
        """All tables of a key, one below the other; empty where there is none."""
        return pd.concat(self.tables.get(key) or [pd.DataFrame()], ignore_index=True)


def offline_files(folder: str | Path) -> list[Path]:
    """The `run-<id>.wandb` files in or below a folder, in the order in which they were begun."""
    found = Path(folder).glob("**/*run-*/run-*.wandb")
    return sorted(found, key=lambda file: file.parent.name.removeprefix("offline-"))


def read_runs(folder: str | Path, wait: float = 0.0) -> list[OfflineRun]:
    """The runs in or below a folder, in the order in which they were begun.

    A run that was stopped and resumed has several files and is one run.

    Args:
        folder: of a training, or any other above the runs' folders.
        wait: seconds that an unfinished file is given, as for `read_run`.

    Raises:
        CasebookError: there is none, or as for `read_run`.
    """
    files = offline_files(folder)
    if not files:
        raise CasebookError(
            f"there is no offline run of W&B in {folder}: a training with report_to: wandb and "
            "WANDB_MODE=offline leaves one"
        )
    runs: dict[str, OfflineRun] = {}
    for file in files:
        run = read_run(file, wait)
        runs[run.id] = _joined(runs[run.id], run) if run.id in runs else run
    return list(runs.values())


def read_run(file: str | Path, wait: float = 0.0) -> OfflineRun:
    """Read one file of a run, up to its end or to where it is damaged, which `damage` says.

    Args:
        file: `run-<id>.wandb`; tables are looked for in `files/` beside it.
        wait: seconds to wait for the end of the run. A process of wandb's own writes the file and
            may be busy with it after `finish` has returned.

    Raises:
        CasebookError: wandb is not installed, there is no such file, or it is something else.
    """
    file = Path(file)
    record_type = _record_type()
    until, seen = time.monotonic() + wait, -1
    while True:
        content = _content(file)
        if len(content) != seen:
            run, seen = _parsed(content, file, record_type), len(content)
        if run.complete or time.monotonic() >= until:
            return run
        time.sleep(LOOK_EVERY)


def _record_type() -> Any:
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError as error:
        raise CasebookError(
            "wandb is not installed here, which defines what is in its files: pip install wandb"
        ) from error
    return Record


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CasebookError(f"{file} cannot be read: {error.strerror}") from error
    if content[: len(HEADER)] != HEADER[: len(content)]:
        raise CasebookError(f"{file} is no file of a W&B run: it does not begin as one does")
    return content


def _parsed(content: bytes, file: Path, record_type: Any) -> OfflineRun:
    run = OfflineRun(id=file.stem.removeprefix("run-"))
    for start, payload, fault in _payloads(content):
        record = record_type()
        try:
            record.ParseFromString(payload)
        except Exception:  # protobuf's implementations raise classes of their own
            fault = fault or "is no record of wandb's"
        if fault:
            run.damage = f"the record at byte {start} of {len(content)} {fault}"
            break
        _take(run, record, file.parent / "files")
    return run


def _payloads(content: bytes) -> Iterator[tuple[int, bytes, str]]:
    """Where each record begins, its bytes, and what is wrong with it: the last one may be."""
    at = len(HEADER)
    begun, parts = at, []
    while at < len(content):
        if BLOCK - at % BLOCK < PIECE.size:  # a block's end has no room for a piece
            at += BLOCK - at % BLOCK
            continue
        if not parts:
            begun = at
        body = at + PIECE.size
        if body > len(content):
            break
        checksum, length, kind = PIECE.unpack_from(content, at)
        piece = content[body : body + length]
        room = BLOCK - at % BLOCK - PIECE.size  # no piece goes on in the next block
        if not WHOLE <= kind <= LAST or length > room:
            yield begun, b"", "is damaged: no record looks like it"
            return
        if len(piece) < length:
            break
        if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != checksum:
            yield begun, b"", "is damaged: its checksum is another"
            return
        if (kind in (MIDDLE, LAST)) != bool(parts):
            yield begun, b"", "is damaged: a part of it is missing"
            return
        parts.append(piece)
        at = body + length
        if kind in (WHOLE, LAST):
            yield begun, b"".join(parts), ""
            parts = []
    if parts or at < len(content):
        yield begun, b"", "is cut short"


def _take(run: OfflineRun, record: Any, files: Path) -> None:
    """Put what one record says into the run."""
    kind = record.WhichOneof("record_type") or "unknown"
    if kind == "run":
        run.id, run.project = record.run.run_id or run.id, record.run.project
        run.name = record.run.display_name
        _update(run.config, record.run.config)
    elif kind == "config":
        _update(run.config, record.config)
    elif kind == "summary":
        _update(run.summary, record.summary)
    elif kind == "history":
        row: dict[str, Any] = {}
        _update(row, record.history, kind="item")
        row = _flat(row)
        run.rows.append(row)
        for key, value in row.items():
            if isinstance(value, dict) and value.get("_type") == "table-file":
                _take_table(run, key, str(value.get("path")), files)
    elif kind == "artifact":
        run.artifacts.append(_artifact(record.artifact))
    elif kind == "exit":
        run.complete = True
    else:
        run.not_read[kind] += 1


def _update(values: dict[str, Any], change: Any, kind: str = "update") -> None:
    """Carry out the items of a record: `key`, or a `nested_key` of several names, and JSON."""
    for item in getattr(change, kind):
        names, (value, valid) = _names(item), _value(item.value_json)
        if names and valid:
            inner = reduce(_inner, names[:-1], values)
            inner[names[-1]] = value
    for item in getattr(change, "remove", ()):
        names = _names(item)
        inner = reduce(_inner, names[:-1], values)
        inner.pop(names[-1] if names else None, None)


def _names(item: Any) -> Sequence[str]:
    return list(item.nested_key) or ([item.key] if item.key else [])


def _inner(values: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(values.get(name), dict):
        values[name] = {}
    return values[name]


def _value(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        return None, False


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Metrics in metrics by names with points, as W&B shows them; media stay what they are."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and "_type" not in value:
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = value
    return flat


def _take_table(run: OfflineRun, key: str, path: str, files: Path) -> None:
    """Read a table's JSON; one that cannot be read is told among what was not read."""
    file = (files / path).resolve()
    try:
        if not file.is_relative_to(files.resolve()) or file.stat().st_size > LARGEST_TABLE:
            raise ValueError(path)
        content = json.loads(file.read_text(encoding="utf-8"))
        table = pd.DataFrame(content["data"], columns=content["columns"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        run.not_read[f"table {path}"] += 1
        return
    run.tables.setdefault(key, []).append(table)


def _artifact(record: Any) -> dict[str, Any]:
    files = {entry.path: entry.size for entry in record.manifest.contents}
    metadata, _ = _value(record.metadata or "{}")
    return {"name": record.name, "type": record.type, "metadata": metadata, "files": files}


def _joined(run: OfflineRun, more: OfflineRun) -> OfflineRun:
    """A run and its resumption."""
    tables = {key: run.tables.get(key, []) + more.tables.get(key, []) for key in run.tables}
    return OfflineRun(
        id=run.id,
        name=more.name or run.name,
        project=more.project or run.project,
        config=run.config | more.config,
        rows=run.rows + more.rows,
        summary=run.summary | more.summary,
        tables=more.tables | tables,
        artifacts=run.artifacts + more.artifacts,
        complete=more.complete,
        damage=" and ".join(filter(None, (run.damage, more.damage))),
        not_read=run.not_read + more.not_read,
    )
