"""Real problem sets: one reader for a local folder and for the hub, and never one for the other.

A figure about GSM8K is worth something only if it was made from GSM8K. Copies go wrong in quiet
ways: half a download, a translated set of the same shape, last year's revision, the test split
under the name of the train split. So every set is pinned (a revision of its repository), and what
is read is checked: columns, types, number of rows, and a checksum over the content of the rows
in their order. The checksum is not of the file, so the hub's parquet and a `.jsonl` of the same
problems agree.

The files are read here and not by `datasets.load_dataset`: it takes answers that all look like
dates for dates, makes 3 and 3.0 one type before anybody can check, says of a damaged file only
that something failed, and leaves a copy of the problems in a cache.

Nothing is fetched unless it is asked for: without a folder, `read` says how to get the problems
and stops. The problems made by the casebook itself do not come through here. They belong to the
cases, and are labelled `generated` wherever they appear.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import CasebookError, check_name

VARIABLE = "CASEBOOK_DATA_DIR"
SOURCES = ("folder", "hub")
ATTRIBUTES = ("set", "split", "source", "revision", "checksum", "rows")
HOW = "data/README.md has the commands"


@dataclass(frozen=True)
class ProblemSet:
    """One published set of problems, pinned.

    Attributes:
        name: what the casebook calls it.
        hub: its repository on the Hugging Face hub.
        revision: the commit of that repository.
        folder: where it lies below the data folder.
        files: split -> file name in that folder, JSON lines.
        hub_files: split -> path in the repository; accepted in the folder as well.
        rows: split -> number of problems.
        columns: those that are checked, with their types; others may be there.
        checksums: split -> `checksum` of the rows; `None` where no copy was at hand to take it
            from, so that columns and rows are all that is checked.
        licence: as the set's own page states it.
        url: where people find it.
    """

    name: str
    hub: str
    revision: str
    folder: str
    files: Mapping[str, str]
    hub_files: Mapping[str, str]
    rows: Mapping[str, int]
    columns: Mapping[str, type]
    checksums: Mapping[str, str | None]
    licence: str
    url: str


_PARQUET = {split: f"data/{split}-00000-of-00001.parquet" for split in ("train", "test")}
_RLVR = {"messages": list, "ground_truth": str, "dataset": str}

SETS: Mapping[str, ProblemSet] = {
    entry.name: entry
    for entry in (
        ProblemSet(
            name="gsm8k",
            hub="openai/gsm8k",
            revision="740312add88f781978c0658806c59bc2815b9866",
            folder="gsm8k",
            files={"train": "train.jsonl", "test": "test.jsonl"},
            hub_files={split: f"main/{split}-00000-of-00001.parquet" for split in _PARQUET},
            rows={"train": 7473, "test": 1319},
            columns={"question": str, "answer": str},
            # Of the files of openai/grade-school-math (commit 3101c7d), which the hub's hold.
            checksums={
                "train": "937e90ecc5698135a95d098621de3388f3b63bec4dbd8fc1b349adf8612890aa",
                "test": "5b736e25f3d1e6cdeef6b3d89e3dc71a7e3c20288f93f1bda635f6fbeb4f41b5",
            },
            licence="MIT",
            url="https://github.com/openai/grade-school-math",
        ),
        ProblemSet(
            name="math500",
            hub="HuggingFaceH4/MATH-500",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            folder="math",
            files={"test": "math500.jsonl"},
            hub_files={"test": "test.jsonl"},
            rows={"test": 500},
            columns={
                "problem": str,
                "solution": str,
                "answer": str,
                "subject": str,
                "level": int,
                "unique_id": str,
            },
            checksums={"test": "e2a9f92a7aadc7e270406e018848b3ea20095478a9b49dc54eb5d52fa4e0e39b"},
            licence="MIT (MATH's authors; rights in the texts are disputed, see data/README.md)",
            url="https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
        ),
        ProblemSet(
            name="rlvr-gsm",
            hub="allenai/RLVR-GSM",
            revision="b14884519de816306cf8ce7fc74547284b9ac548",
            folder="rlvr-gsm",
            files={"train": "train.jsonl", "test": "test.jsonl"},
            hub_files=_PARQUET,
            rows={"train": 7473, "test": 1319},
            columns=_RLVR,
            checksums={"train": None, "test": None},
            licence="MIT",
            url="https://huggingface.co/datasets/allenai/RLVR-GSM",
        ),
        ProblemSet(
            name="rlvr-math",
            hub="allenai/RLVR-MATH",
            revision="bd2a93551b503a395fadd1a740d957559cfe6f3c",
            folder="rlvr-math",
            files={"train": "train.jsonl"},
            hub_files={"train": _PARQUET["train"]},
            rows={"train": 7500},
            columns=_RLVR,
            checksums={"train": None},
            licence="none stated on its page; MATH's authors publish under MIT",
            url="https://huggingface.co/datasets/allenai/RLVR-MATH",
        ),
        ProblemSet(
            name="numinamath-tir",
            hub="AI-MO/NuminaMath-TIR",
            revision="77a91d7b7a1a98ac4b1beb7d86c09d156b935dcd",
            folder="numinamath-tir",
            files={"train": "train.jsonl", "test": "test.jsonl"},
            hub_files=_PARQUET,
            rows={"train": 72441, "test": 99},
            columns={"problem": str, "solution": str, "messages": list},
            checksums={"train": None, "test": None},
            licence="Apache-2.0",
            url="https://huggingface.co/datasets/AI-MO/NuminaMath-TIR",
        ),
    )
}


def data_dir(value: str | os.PathLike | None = None) -> Path | None:
    """The folder of the real problem sets: `value`, else `$CASEBOOK_DATA_DIR`, else `None`.

    A relative path counts from the checkout.

    Raises:
        CasebookError: the folder that is named does not exist.
    """
    named = value or os.environ.get(VARIABLE)
    if not named:
        return None
    folder = (paths.ROOT / Path(named).expanduser()).resolve()
    if not folder.is_dir():
        said = "the data folder" if value else VARIABLE
        raise CasebookError(f"{said} names {folder}, and there is no such folder")
    return folder


_data_dir = data_dir  # `read` and `available` have an argument of that name


def available(
    name: str, split: str | None = None, data_dir: str | os.PathLike | None = None
) -> bool:
    """Whether the data folder has a set, or one split of it; the content is not looked at.

    Raises:
        CasebookError: unknown set or split, or a data folder that does not exist.
    """
    entry = _entry(name, split)
    folder = _data_dir(data_dir)
    splits = [split] if split else entry.files
    return folder is not None and all(_find(entry, part, folder) for part in splits)


def read(
    name: str,
    split: str,
    source: str | None = None,
    data_dir: str | os.PathLike | None = None,
) -> pd.DataFrame:
    """The problems of one split, checked.

    Args:
        name: one of `SETS`.
        split: one of the set's own; "validation" is the cases' affair.
        source: "folder" (the default) or "hub", the pinned revision. Neither stands in for
            the other.
        data_dir: instead of `$CASEBOOK_DATA_DIR`.

    Returns:
        One row a problem, in the published order, with the columns of `ProblemSet.columns`.
        `frame.attrs` says where it came from: "set", "split", "source", "revision" (`None` where
        there is no checksum to tell a folder's revision by), "checksum", "rows".

    Raises:
        CasebookError: unknown name; the file is not there, cannot be read, or is not what was
            expected. The sentence says what was expected and what was found.
    """
    entry = _entry(name, split)
    check_name("source", source or "folder", SOURCES)
    if source == "hub":
        path = _fetch(entry, split)
    else:
        path = _in_folder(entry, split, _data_dir(data_dir))
    rows = _rows(path)
    _check(entry, split, rows, path)
    frame = pd.DataFrame(rows, columns=list(entry.columns))
    found = checksum(rows, entry.columns)
    expected = entry.checksums[split]
    if expected and found != expected:
        raise CasebookError(
            f"{path} has the right columns and rows, but these are not the problems of "
            f"{entry.hub} ({split}): their checksum is {found[:16]}, {expected[:16]} was expected"
        )
    pinned = expected or source == "hub"
    frame.attrs = {
        "set": name,
        "split": split,
        "source": source or "folder",
        "revision": entry.revision if pinned else None,
        "checksum": found,
        "rows": len(frame),
    }
    return frame


def provenance(frame: pd.DataFrame) -> dict[str, Any]:
    """Where a table of `read` came from, for a record; of the whole split, if rows were cut.

    A table with a constant column `source` and nothing else to tell by, as generated problems
    have, gives that and its number of rows.

    Raises:
        CasebookError: the table says nothing of its source.
    """
    if "checksum" in frame.attrs:
        return {key: frame.attrs[key] for key in ATTRIBUTES}
    sources = set(frame["source"]) if "source" in frame else set()
    if len(sources) != 1:
        raise CasebookError("this table does not say where its problems came from")
    return dict.fromkeys(ATTRIBUTES) | {"source": sources.pop(), "rows": len(frame)}


def checksum(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """SHA-256 over the content: the values of `columns` of each row, as one JSON list a line.

    >>> checksum([{"a": 1, "b": "x"}], ["a"]) == checksum([{"b": "y", "a": 1}], ["a"])
    True
    """
    columns = list(columns)
    digest = hashlib.sha256()
    for row in rows:
        line = json.dumps([row[column] for column in columns], sort_keys=True)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


# Finding the file


def _entry(name: str, split: str | None) -> ProblemSet:
    check_name("problem set", name, SETS)
    entry = SETS[name]
    if split is not None:
        check_name(f"split of {name}", split, entry.files)
    return entry


def _candidates(entry: ProblemSet, split: str, folder: Path) -> list[Path]:
    """Where a split may lie: the `.jsonl`, or the hub's file, in the hub's layout or without it."""
    inside = folder / entry.folder
    published = entry.hub_files[split]
    return [inside / entry.files[split], inside / published, inside / Path(published).name]


def _find(entry: ProblemSet, split: str, folder: Path) -> Path | None:
    return next((path for path in _candidates(entry, split, folder) if path.exists()), None)


def _in_folder(entry: ProblemSet, split: str, folder: Path | None) -> Path:
    wanted = f"{entry.folder}/{entry.files[split]} or {entry.folder}/{entry.hub_files[split]}"
    if folder is None:
        raise CasebookError(
            f"the {split} problems of {entry.name} are not part of the casebook: name a folder "
            f"with {wanted} by {VARIABLE} or --data-dir; {HOW}"
        )
    path = _find(entry, split, folder)
    if path is None:
        packed = [p for p in _candidates(entry, split, folder) if Path(f"{p}.gz").exists()]
        hint = f"unpack {packed[0]}.gz first" if packed else HOW
        raise CasebookError(f"{folder} has no {wanted}: {hint}")
    return path


def _fetch(entry: ProblemSet, split: str) -> Path:
    """The file of the pinned revision, from the hub or from its cache on this machine."""
    import huggingface_hub

    name = entry.hub_files[split]
    try:
        return Path(
            huggingface_hub.hf_hub_download(
                entry.hub, name, repo_type="dataset", revision=entry.revision
            )
        )
    except (OSError, ValueError) as error:  # no network, offline mode, no such revision
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CasebookError(
            f"the hub did not give {name} of {entry.hub} at {entry.revision[:7]} ({reason}); "
            f"a local copy goes by {VARIABLE} or --data-dir"
        ) from error


# Reading it


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.is_dir():
        raise CasebookError(f"{path} is a folder, and a file with problems was expected there")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    if not content.strip():
        raise CasebookError(f"{path} is empty: perhaps its download failed")
    return _parquet(path) if path.suffix == ".parquet" else _json_lines(path, content)


def _json_lines(path: Path, content: bytes) -> list[dict[str, Any]]:
    rows = []
    # Only a newline ends a line: the texts may hold the other characters `splitlines` knows.
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise CasebookError(f"line {number} of {path} is not UTF-8 text") from None
        except (ValueError, RecursionError):
            raise CasebookError(
                f"line {number} of {path} is not valid JSON: one object a line was expected"
            ) from None
        if not isinstance(row, dict):
            raise CasebookError(
                f"line {number} of {path} is {type(row).__name__}, not an object with columns"
            )
        rows.append(row)
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise CasebookError(f"{path} is not a whole parquet file: {reason}") from error


def _check(entry: ProblemSet, split: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    for number, row in enumerate(rows, 1):
        missing = [column for column in entry.columns if column not in row]
        if missing:
            raise CasebookError(
                f"row {number} of {path} has no column {', '.join(missing)}: expected are "
                f"{', '.join(entry.columns)}, found {', '.join(map(str, row)) or 'none'}"
            )
        for column, kind in entry.columns.items():
            if type(row[column]) is not kind:
                raise CasebookError(
                    f"row {number} of {path}: {column} is {type(row[column]).__name__}, "
                    f"{kind.__name__} was expected"
                )
    if len(rows) != entry.rows[split]:
        raise CasebookError(
            f"{path} has {len(rows):,} rows, the {split} split of {entry.hub} has "
            f"{entry.rows[split]:,}"
        )
