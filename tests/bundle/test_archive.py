"""Any bytes in, a refusal out: what is no bundle is named before anything of it is read."""

import io
import json
import stat
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook.bundle import archive
from casebook.bundle.archive import Refused, packed, unpacked
from casebook.case import CasebookError

LINE = {"row": 0, "decoding": "greedy", "sample": 0, "ids": [1, 2], "completion": "a"}
FILES = dict.fromkeys(archive.REQUIRED, b"{}\n") | {
    "completions/before/test.jsonl": archive.lines_bytes([LINE]),
    "completions/after/test.jsonl": archive.lines_bytes([LINE]),
}
WHOLE = packed(FILES, {"case": "poker"})


def zipped(files, **changes):
    """A zip of (name, content) pairs; `changes` to each entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for field, value in changes.items():
                setattr(entry, field, value)
            file.writestr(entry, content)
    return buffer.getvalue()


def with_manifest(files):
    manifest = {"format": archive.FORMAT, "files": archive._hashes(files)}
    return [(archive.MANIFEST, archive.json_bytes(manifest)), *files.items()]


def test_what_was_packed_comes_back():
    manifest, files = unpacked(WHOLE)
    assert files == FILES
    assert (manifest["case"], manifest["format"]) == ("poker", archive.FORMAT)


def test_the_same_files_give_the_same_bytes():
    assert packed(FILES, {"case": "poker"}) == WHOLE


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "../record.json", "completions/../record.json", "C:\\record.json"),
        *("completions/before/test.jsonl/", "Record.json", "model.pkl"),
        *("completions/during/test.jsonl", "completions/before/also_100.jsonl", "", "run.py"),
        *("./record.json", "completions\\before\\test.jsonl", "adapter/adapter_model.safetensors"),
    ],
)
def test_a_file_of_another_name_is_refused(name):
    with pytest.raises(Refused, match="is no file of a bundle"):
        unpacked(zipped([*with_manifest(FILES), (name, b"{}")]))


def test_a_name_that_goes_on_behind_a_nul_is_refused():
    made = zipped([*with_manifest(FILES), ("preflight.json_.py", b"{}")])
    with pytest.raises(Refused, match="is no file of a bundle"):
        unpacked(made.replace(b"preflight.json_.py", b"preflight.json\0.py"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_is_refused(kind):
    with pytest.raises(Refused, match=r"'manifest.json' is a link or another thing"):
        unpacked(zipped(with_manifest(FILES), external_attr=(kind | 0o777) << 16))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(Refused, match=r"the file 'record.json' twice"):
        unpacked(zipped([*with_manifest(FILES), ("record.json", b'{"other": 1}')]))


def test_too_many_files_are_refused():
    many = {f"completions/before/also_{i}.jsonl": b"" for i in range(archive.MOST_FILES)}
    with pytest.raises(Refused, match="files, and at most 64 are taken"):
        unpacked(zipped(with_manifest(FILES | many)))


def test_a_file_that_is_too_large_is_refused():
    large = FILES | {"record.json": b" " * (archive.LARGEST_FILE + 1)}
    with pytest.raises(Refused, match=r"'record.json' is larger than the 8 MiB"):
        unpacked(zipped(with_manifest(large)))


def test_a_zip_bomb_is_refused_before_it_expands():
    bomb = FILES | {"completions/after/test.jsonl": b" " * (4 * archive.MEBIBYTE)}
    with pytest.raises(Refused, match="expands to more than 200 times its size"):
        unpacked(zipped(with_manifest(bomb)))


def test_all_files_together_may_be_too_large(monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_CONTENT", 100)
    with pytest.raises(Refused, match="expands to more than the"):
        unpacked(WHOLE)


def test_a_size_that_the_zip_lies_about_is_refused():
    """The size in the table of contents is what the limits are held against."""
    at = WHOLE.rindex(b"PK\x01\x02")
    size = struct.unpack_from("<I", WHOLE, at + 24)[0]
    lied = bytearray(WHOLE)
    struct.pack_into("<I", lied, at + 24, size - 1)
    with pytest.raises(Refused):
        unpacked(bytes(lied))


def test_a_bundle_that_is_too_large_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_BUNDLE", 100)
    (tmp_path / "large.zip").write_bytes(bytes(101))
    with pytest.raises(Refused, match=r"large.zip is larger than"):
        archive.read_bundle(tmp_path / "large.zip")
    with pytest.raises(CasebookError, match="test_limit"):
        packed(FILES, {})


def test_what_compresses_like_a_bomb_is_stored_as_it_is():
    same = archive.lines_bytes([LINE | {"completion": "high card " * 1000}] * 100)
    made = packed(FILES | {"completions/after/test.jsonl": same}, {})
    assert unpacked(made)[1]["completions/after/test.jsonl"] == same


def test_an_encrypted_file_is_refused():
    at, lied = WHOLE.index(b"PK\x01\x02"), bytearray(WHOLE)
    struct.pack_into("<H", lied, at + 8, 1)
    with pytest.raises(Refused, match="is encrypted"):
        unpacked(bytes(lied))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression_is_refused(method):
    with pytest.raises(Refused, match="is compressed in a way that is not read here"):
        unpacked(zipped(with_manifest(FILES), compress_type=method))


# The manifest


def test_a_bundle_without_a_manifest_is_refused():
    with pytest.raises(Refused, match=r"the bundle has no manifest.json"):
        unpacked(zipped(FILES.items()))


def test_a_bundle_of_another_format_is_refused():
    with pytest.raises(Refused, match="the bundle's format is 2"):
        unpacked(packed(FILES, {"format": 2}))


@pytest.mark.parametrize("name", [*archive.REQUIRED, "completions/after/test.jsonl"])
def test_a_missing_file_is_named(name):
    entries = [entry for entry in with_manifest(FILES) if entry[0] != name]
    with pytest.raises(Refused, match=f"{name} is missing from the bundle"):
        unpacked(zipped(entries))


def test_a_file_that_was_added_is_named():
    more = ("completions/after/pass_at_k.jsonl", b"")
    with pytest.raises(Refused, match=r"pass_at_k.jsonl is in the bundle and not in its manifest"):
        unpacked(zipped([*with_manifest(FILES), more]))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_is_named(name):
    entries = [(n, c + b"\n" if n == name else c) for n, c in with_manifest(FILES)]
    with pytest.raises(Refused, match=f"{name} is not the file that manifest.json names"):
        unpacked(zipped(entries))


# JSON


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"a": 1e999}', "not valid JSON"),
        (b'{"a": "\\ud800"}', "not valid JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not valid JSON"),
        (b'{"a": NaN}', "NaN, which is no number"),
        (b'{"a": -Infinity}', "-Infinity, which is no number"),
        (b'{"a": 1, "a": 2}', "a key twice"),
        (b"[1]", "holds no object"),
    ],
)
def test_json_that_is_none_is_named(content, sentence):
    with pytest.raises(Refused, match=sentence):
        archive.parse("record.json", content)


def test_lines_have_their_numbers():
    with pytest.raises(Refused, match=r"line 2 of metrics.jsonl is not valid JSON"):
        archive.parse_lines("metrics.jsonl", b"{}\n{\n")
    with pytest.raises(Refused, match=r"last line of metrics.jsonl does not end"):
        archive.parse_lines("metrics.jsonl", b"{}\n{}")


def test_a_line_that_is_too_long_is_refused():
    with pytest.raises(Refused, match="a line of more than 1 MiB"):
        archive.parse_lines("a.jsonl", b'{"a": "%s"}\n' % (b"a" * archive.LARGEST_LINE))


# Anything else


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(content):
    with pytest.raises(Refused):
        unpacked(content)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_bundle_with_other_bytes_is_refused_or_the_same(at, put, cut):
    """Wherever a few bytes are changed, or the end is cut off: never another error."""
    changed = WHOLE[:at] + put + (b"" if cut else WHOLE[at + len(put) :])
    try:
        manifest, files = unpacked(changed)
    except Refused:
        return
    assert (manifest, files) == unpacked(WHOLE)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_json_that_is_no_object_is_refused(value):
    with pytest.raises(Refused, match=r"^a\.json "):  # it draws no objects
        archive.parse("a.json", json.dumps(value).encode())
