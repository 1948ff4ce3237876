"""Real problem sets: one reader for a local folder and for the hub.

A figure about GSM8K has to be computed from GSM8K. So every set is pinned (a
revision of its repository), and the content is checked: columns, types, number of rows, and a
checksum over the content of the rows in their order, which the hub's parquet and a `.jsonl` of the
same problems share.

The files are read here and not by `datasets.load_dataset`, which converts answers that look like
dates. Nothing is downloaded unless it is asked for.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import CasebookError, check_name

VARIABLE = "CASEBOOK_DATA_DIR"
HOW = "data/README.md has the commands"


@dataclass(frozen=True)
class ProblemSet:
    """One published set of problems, pinned."""

    hub: str
    revision: str
    folder: str  # below the data folder
    files: Mapping[str, tuple[str, str]]  # split -> its name there, and its path in the repository
    rows: Mapping[str, int]  # split -> number of problems
    columns: Mapping[str, type]  # others may be there
    licence: str  # as the set's own page states it
    checksums: Mapping[str, str] = field(default_factory=dict)  # where there was a copy


SETS: Mapping[str, ProblemSet] = {
    "gsm8k": ProblemSet(
        hub="openai/gsm8k",
        revision="740312add88f781978c0658806c59bc2815b9866",
        folder="gsm8k",
        files={s: (f"{s}.jsonl", f"main/{s}-00000-of-00001.parquet") for s in ("train", "test")},
        rows={"train": 7473, "test": 1319},
        columns={"question": str, "answer": str},
        licence="MIT",
        # Of the files of openai/grade-school-math (commit 3101c7d), which the hub's hold.
        checksums={
            "train": "937e90ecc5698135a95d098621de3388f3b63bec4dbd8fc1b349adf8612890aa",
            "test": "5b736e25f3d1e6cdeef6b3d89e3dc71a7e3c20288f93f1bda635f6fbeb4f41b5",
        },
    ),
    "math500": ProblemSet(
        hub="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        folder="math",
        files={"test": ("math500.jsonl", "test.jsonl")},
        rows={"test": 500},
        columns=dict.fromkeys(("problem", "solution", "answer", "subject"), str)
        | {"level": int, "unique_id": str},
        licence="MIT (MATH's authors; rights in the texts are disputed, see data/README.md)",
        checksums={"test": "e2a9f92a7aadc7e270406e018848b3ea20095478a9b49dc54eb5d52fa4e0e39b"},
    ),
    "rlvr-math": ProblemSet(
        hub="allenai/RLVR-MATH",
        revision="bd2a93551b503a395fadd1a740d957559cfe6f3c",
        folder="rlvr-math",
        files={"train": ("train.jsonl", "data/train-00000-of-00001.parquet")},
        rows={"train": 7500},
        columns={"messages": list, "ground_truth": str, "dataset": str},
        licence="none stated on its page; MATH's authors publish under MIT",
    ),
}


def data_dir(value: str | os.PathLike | None = None) -> Path | None:
    """The folder of the real problem sets: `value`, else `$CASEBOOK_DATA_DIR`, else `None`.

    A relative path counts from the checkout; a folder that does not exist is an error.
    """
    named = value or os.environ.get(VARIABLE)
    if not named:
        return None
    folder = (paths.ROOT / Path(named).expanduser()).resolve()
    if not folder.is_dir():
        said = "the data folder" if value else VARIABLE
        raise CasebookError(f"{said} names {folder}, but there is no such folder")
    return folder


def available(name: str) -> bool:
    """Whether the data folder has all of a set; the content is not looked at."""
    check_name("problem set", name, SETS)
    entry, folder = SETS[name], data_dir()
    return folder is not None and all(_find(entry, split, folder) for split in entry.files)


def read(name: str, split: str, hub: bool = False) -> pd.DataFrame:
    """The problems of one split, checked.

    Args:
        name, split: of `SETS`.
        hub: read the pinned revision of the hub, not the data folder. Neither replaces the
            other.

    Returns:
        One row per problem, in the published order, with the columns of `ProblemSet.columns`.

    Raises:
        CasebookError: unknown name; the file is not there, or is not what was expected.
    """
    check_name("problem set", name, SETS)
    entry = SETS[name]
    check_name(f"split of {name}", split, entry.files)
    path = _fetch(entry, split) if hub else _in_folder(entry, split)
    rows = _rows(path)
    _check(entry, split, rows, path)
    found, expected = checksum(rows, entry.columns), entry.checksums.get(split)
    if expected and found != expected:
        raise CasebookError(
            f"{path} has the right columns and rows, but these are not the problems of "
            f"{entry.hub} ({split}): their checksum is {found[:16]}, {expected[:16]} was expected"
        )
    return pd.DataFrame(rows, columns=list(entry.columns))


def checksum(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """SHA-256 over the content: the values of `columns` of each row, as one JSON list a line.

    >>> checksum([{"a": 1, "b": "x"}], ["a"]) == checksum([{"b": "y", "a": 1}], ["a"])
    True
    """
    columns, digest = list(columns), hashlib.sha256()
    for row in rows:
        line = json.dumps([row[column] for column in columns], sort_keys=True)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _find(entry: ProblemSet, split: str, folder: Path) -> Path | None:
    """Our name for the file, or the hub's, in the hub's layout or without it."""
    ours, hubs = entry.files[split]
    places = (folder / entry.folder / name for name in (ours, hubs, Path(hubs).name))
    return next((path for path in places if path.exists()), None)


def _in_folder(entry: ProblemSet, split: str) -> Path:
    folder = data_dir()
    wanted = " or ".join(f"{entry.folder}/{name}" for name in entry.files[split])
    if folder is None:
        raise CasebookError(
            f"the {split} problems of {entry.hub} are not part of the casebook: name a folder "
            f"with {wanted} by {VARIABLE} or --data-dir; {HOW}"
        )
    if (path := _find(entry, split, folder)) is None:
        raise CasebookError(f"{folder} has no {wanted}: {HOW}")
    return path


def _fetch(entry: ProblemSet, split: str) -> Path:
    """The file of the pinned revision, from the hub or from its cache on this machine."""
    import huggingface_hub

    name, how = entry.files[split][1], {"repo_type": "dataset", "revision": entry.revision}
    try:
        return Path(huggingface_hub.hf_hub_download(entry.hub, name, **how))
    except (OSError, ValueError) as error:  # no network, offline mode, no such revision
        raise CasebookError(
            f"the hub did not give {name} of {entry.hub} at {entry.revision[:7]} "
            f"({str(error).partition(chr(10))[0]}); a local copy goes by {VARIABLE} or --data-dir"
        ) from error


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path).to_pylist()
        # Only a newline ends a line: the texts may hold the other characters `splitlines` knows.
        lines = (line for line in path.read_bytes().split(b"\n") if line.strip())
        return [dict(json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        form = "whole parquet" if path.suffix == ".parquet" else "JSON, one object a line"
        said = str(error).partition("\n")[0]
        raise CasebookError(f"{path} cannot be read as {form} ({said})") from error


def _check(entry: ProblemSet, split: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    for number, row in enumerate(rows, 1):
        if any(type(row.get(name)) is not kind for name, kind in entry.columns.items()):
            wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in entry.columns.items())
            found = ", ".join(f"{name} ({type(value).__name__})" for name, value in row.items())
            raise CasebookError(f"row {number} of {path} has {found}; expected are {wanted}")
    if len(rows) != entry.rows[split]:
        raise CasebookError(
            f"{path} has {len(rows):,} rows, the {split} split of {entry.hub} has "
            f"{entry.rows[split]:,}"
        )
