"""A bundle as a file: a zip of JSON with a manifest, bounded in every direction.

    manifest.json                  format, what it is of, and SHA-256 and size of each other file
    record.json  config.json       what was measured, and what was asked for
    metrics.jsonl                  the logged steps and the evaluations on the way
    preflight.json                 where the run has one
    environment.json  model.json   driver, CUDA, GPU, versions; base model and adapter, with hashes
    measured.json                  how each file of completions was decoded
    completions/<when>/<name>.jsonl   every completion, with its row and its decoding

Nothing is unpacked to the disk, and nothing but JSON is read: no pickle, no code. What is larger
than the limits below, or has another name, is refused before it is read.
"""

import hashlib
import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from casebook.case import CasebookError

FORMAT = 1
MANIFEST = "manifest.json"
REQUIRED = (
    *("record.json", "config.json", "metrics.jsonl"),
    *("environment.json", "model.json", "measured.json"),
)
OPTIONAL = ("preflight.json",)
COMPLETIONS = re.compile(r"completions/(before|after)/(test|pass_at_k|also_[0-9]{1,2})\.jsonl")

MEBIBYTE = 2**20
LARGEST_BUNDLE = 64 * MEBIBYTE  # 1,319 rows x 5 completions of 1,024 tokens have about 40
LARGEST_CONTENT = 256 * MEBIBYTE  # of all files together, expanded
LARGEST_FILE = 8 * MEBIBYTE  # of a file that holds no completions
LARGEST_LINE = MEBIBYTE  # of a file of completions; 65,536 tokens with their text have about that
MOST_FILES = 64
LARGEST_RATIO = 200  # expanded to compressed, of one file; text of a collapsed model has about 100
SMALL = 64 * 1024  # bytes below which the ratio says nothing

# What zipfile and zlib raise on bytes that are no zip, or a broken one.
FAULTS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, OSError, EOFError),
    *(RuntimeError, ValueError, OverflowError, IndexError, KeyError, TypeError, AttributeError),
)


class Refused(CasebookError):
    """A bundle that is not what it says: one sentence that names what differs."""


class CannotCheck(CasebookError):
    """A bundle about which nothing can be said here: what it would be checked by is missing."""


def packed(files: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    """A bundle of files, with its manifest.

    Args:
        files: name -> content.
        about: what else the manifest says.

    Raises:
        CasebookError: it would be larger than a bundle may be.
    """
    manifest = {"format": FORMAT, **about, "files": _hashes(files)}
    content = {MANIFEST: json_bytes(manifest), **files}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            # A fixed date: the same run gives the same bytes.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = _compression(data)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    made = buffer.getvalue()
    if len(made) > LARGEST_BUNDLE or sum(map(len, content.values())) > LARGEST_CONTENT:
        raise CasebookError(
            f"the bundle would have {len(made) / MEBIBYTE:.0f} MiB, and no more than "
            f"{LARGEST_BUNDLE // MEBIBYTE} are taken: measure fewer rows (test_limit)"
        )
    return made


def write_bundle(path: Path, content: bytes) -> None:
    """Write a bundle whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read_bundle(path: Path) -> bytes:
    """The bytes of a file, if it is not larger than a bundle may be.

    Raises:
        CasebookError: there is no such file, or it cannot be read.
        Refused: it is too large.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_BUNDLE + 1)
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > LARGEST_BUNDLE:
        raise Refused(
            f"{path.name} is larger than {LARGEST_BUNDLE // MEBIBYTE} MiB, the most a bundle has"
        )
    return content


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of a bundle, and its other files, each as its manifest says.

    Raises:
        Refused: anything else; the sentence names the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            _check_entries(entries)
            files = {entry.filename: _read(archive, entry) for entry in entries}
    except CasebookError:
        raise
    except FAULTS as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"the file is no whole zip: {said[:200]!r}") from None
    if MANIFEST not in files:
        raise Refused(f"the bundle has no {MANIFEST}")
    manifest = parse(MANIFEST, files.pop(MANIFEST))
    _check_manifest(manifest, files)
    return manifest, files


def parse(name: str, content: bytes) -> dict[str, Any]:
    """A JSON file of a bundle, which holds an object."""
    value = _parsed(name, content)
    if not isinstance(value, dict):
        raise Refused(f"{name} holds no object")
    return value


def parse_lines(name: str, content: bytes) -> list[dict[str, Any]]:
    """A file of a bundle with one JSON object a line."""
    lines = content.split(b"\n")
    if lines.pop() != b"":
        raise Refused(f"the last line of {name} does not end")
    if max(map(len, lines), default=0) > LARGEST_LINE:
        raise Refused(f"{name} has a line of more than {LARGEST_LINE // MEBIBYTE} MiB")
    return [parse(f"line {number} of {name}", line) for number, line in enumerate(lines, 1)]


def json_bytes(value: Any) -> bytes:
    """JSON as a bundle holds it: keys sorted, UTF-8."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def lines_bytes(rows: list[Mapping[str, Any]]) -> bytes:
    """Objects, one a line."""
    lines = (json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _compression(data: bytes) -> int:
    """Deflated, unless that would look like a zip bomb."""
    deflated = len(zlib.compress(data))
    bomb = len(data) > SMALL and len(data) > LARGEST_RATIO * deflated * 0.9
    return zipfile.ZIP_STORED if bomb else zipfile.ZIP_DEFLATED


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Look at the table of contents; nothing has been read so far."""
    if len(entries) > MOST_FILES:
        raise Refused(f"the bundle has {len(entries)} files, and at most {MOST_FILES} are taken")
    total, seen = 0, set()
    for entry in entries:
        # zipfile cuts a name at a NUL: what the archive really says is compared.
        shown = repr(entry.orig_filename)[:120]
        if entry.orig_filename in seen:
            raise Refused(f"the bundle has the file {shown} twice")
        seen.add(entry.orig_filename)
        if not _is_known(entry.orig_filename):
            raise Refused(f"{shown} is no file of a bundle")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise Refused(f"{shown} is a link or another thing than a file")
        if entry.flag_bits & 1:
            raise Refused(f"{shown} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused(f"{shown} is compressed in a way that is not read here")
        total += entry.file_size
        if not COMPLETIONS.fullmatch(entry.filename) and entry.file_size > LARGEST_FILE:
            raise Refused(f"{shown} is larger than the {LARGEST_FILE // MEBIBYTE} MiB it may have")
        large = entry.file_size > SMALL
        if large and entry.file_size > LARGEST_RATIO * max(entry.compress_size, 1):
            raise Refused(f"{shown} expands to more than {LARGEST_RATIO} times its size")
    if total > LARGEST_CONTENT:
        raise Refused(
            f"the bundle expands to more than the {LARGEST_CONTENT // MEBIBYTE} MiB that are read"
        )


def _is_known(name: str) -> bool:
    known = name == MANIFEST or name in REQUIRED or name in OPTIONAL
    return known or COMPLETIONS.fullmatch(name) is not None


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as file:
        content = file.read(entry.file_size + 1)
    if len(content) != entry.file_size:
        raise Refused(f"{entry.filename} has another size than the zip says")
    return content


def _check_manifest(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    if manifest.get("format") != FORMAT:
        raise Refused(
            f"the bundle's format is {manifest.get('format')!r}, and {FORMAT} is read here"
        )
    named = manifest.get("files")
    if not isinstance(named, dict):
        raise Refused(f"{MANIFEST} names no files")
    for name in sorted({*named, *files, *REQUIRED}):
        if name not in files:
            raise Refused(f"{str(name)[:100]} is missing from the bundle")
        if name not in named:
            raise Refused(f"{name} is in the bundle and not in its {MANIFEST}")
    for name, mark in _hashes(files).items():
        if named[name] != mark:
            raise Refused(f"{name} is not the file that {MANIFEST} names: its SHA-256 differs")


def _hashes(files: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: {"sha256": sha256(data), "bytes": len(data)} for name, data in files.items()}


def _parsed(name: str, content: bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Refused(f"{name} has a key twice")
        return found

    def no_number(word: str) -> Any:
        raise Refused(f"{name} has {word}, which is no number")

    try:
        value = json.loads(content, object_pairs_hook=once, parse_constant=no_number)
        # Neither half characters nor 1e999 can be written again.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except Refused:
        raise
    except (ValueError, RecursionError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"{name} is not valid JSON: {said[:120]}") from None
    return value
