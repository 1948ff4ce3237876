import json
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pandas as pd
import pytest

from casebook import problem_sets
from casebook.case import CasebookError, UnknownName

ROWS = [{"question": f"How many are {n} and {n}?", "answer": f"#### {2 * n}"} for n in range(3)]
COLUMNS = ["question", "answer"]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A set of three problems in the place of GSM8K, and an empty data folder."""
    marks = dict.fromkeys(("train", "test"), problem_sets.checksum(ROWS, COLUMNS))
    entry = replace(problem_sets.SETS["gsm8k"], rows={"train": 3, "test": 3}, checksums=marks)
    monkeypatch.setattr(problem_sets, "SETS", {"gsm8k": entry})
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path))
    (tmp_path / "gsm8k").mkdir()
    return tmp_path / "gsm8k"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def refused(split="test", source=None):
    with pytest.raises(CasebookError) as caught:
        problem_sets.read("gsm8k", split, source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The data folder


def test_without_a_name_there_is_no_data_folder(monkeypatch):
    monkeypatch.delenv(problem_sets.VARIABLE, raising=False)
    assert problem_sets.data_dir() is None
    assert not problem_sets.available("gsm8k")


def test_an_argument_goes_before_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path / "elsewhere"))
    assert problem_sets.data_dir(tmp_path) == tmp_path.resolve()


def test_a_relative_folder_counts_from_the_checkout(monkeypatch):
    monkeypatch.setenv(problem_sets.VARIABLE, "data")
    monkeypatch.chdir("/")
    assert problem_sets.data_dir() == problem_sets.paths.DATA


@pytest.mark.parametrize("call", [problem_sets.data_dir, lambda: problem_sets.available("gsm8k")])
def test_a_folder_that_is_not_there_is_an_error_not_an_absence(call, monkeypatch, tmp_path):
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path / "typo"))
    with pytest.raises(CasebookError, match=r"CASEBOOK_DATA_DIR names .*typo"):
        call()


def test_a_file_is_no_data_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CasebookError, match="no such folder"):
        problem_sets.data_dir(tmp_path / "file")


# Reading


def test_a_local_file_is_read_in_order_and_says_where_it_came_from(toy):
    (toy / "test.jsonl").write_text(lines(ROWS))
    frame = problem_sets.read("gsm8k", "test")
    assert frame.to_dict("records") == ROWS
    assert frame.attrs == {
        "set": "gsm8k",
        "split": "test",
        "source": "folder",
        "revision": problem_sets.SETS["gsm8k"].revision,
        "checksum": problem_sets.checksum(ROWS, COLUMNS),
        "rows": 3,
    }
    assert problem_sets.available("gsm8k", "test")
    assert not problem_sets.available("gsm8k")  # the train split is not there


@pytest.mark.parametrize("place", ["main/test-00000-of-00001.parquet", None])
def test_the_hubs_parquet_is_the_same_set(toy, place):
    path = toy / (place or "test-00000-of-00001.parquet")
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame(ROWS).to_parquet(path)
    frame = problem_sets.read("gsm8k", "test")
    assert frame.to_dict("records") == ROWS


def test_other_columns_and_blank_lines_do_not_matter(toy):
    text = lines([row | {"more": 1} for row in ROWS]).replace("\n", "\n\n")
    (toy / "test.jsonl").write_text(text)
    assert list(problem_sets.read("gsm8k", "test")) == COLUMNS


def test_only_a_newline_ends_a_line(monkeypatch, toy):
    rows = [row | {"question": "a\u2028b\x85c\x1dd"} for row in ROWS]
    marks = {"test": problem_sets.checksum(rows, COLUMNS)}
    entry = replace(problem_sets.SETS["gsm8k"], checksums=marks)
    monkeypatch.setattr(problem_sets, "SETS", {"gsm8k": entry})
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (toy / "test.jsonl").write_text(text, encoding="utf-8")
    assert len(problem_sets.read("gsm8k", "test")) == 3


def test_answers_that_look_like_dates_stay_as_written(monkeypatch, toy):
    rows = [{**row, "answer": f"2020-01-0{day}"} for day, row in enumerate(ROWS, 1)]
    marks = dict.fromkeys(("train", "test"), problem_sets.checksum(rows, COLUMNS))
    entry = replace(problem_sets.SETS["gsm8k"], checksums=marks)
    monkeypatch.setattr(problem_sets, "SETS", {"gsm8k": entry})
    (toy / "test.jsonl").write_text(lines(rows))
    assert list(problem_sets.read("gsm8k", "test")["answer"]) == [row["answer"] for row in rows]


def test_the_folder_may_be_named_in_the_call(toy, monkeypatch):
    (toy / "test.jsonl").write_text(lines(ROWS))
    monkeypatch.delenv(problem_sets.VARIABLE)
    assert len(problem_sets.read("gsm8k", "test", data_dir=toy.parent)) == 3
    assert problem_sets.available("gsm8k", "test", data_dir=toy.parent)


@pytest.mark.parametrize(
    ("name", "split", "source"),
    [("gsm9k", "test", None), ("gsm8k", "validation", None), ("gsm8k", "test", "generated")],
)
def test_an_unknown_name_lists_the_known(toy, name, split, source):
    with pytest.raises(UnknownName, match="known are"):
        problem_sets.read(name, split, source)


# Wrong files, one clear sentence each

WRONG = {
    "a column is missing": (
        lines([{"question": "?", "solution": "1"}]),
        "row 1 of .*has no column answer: expected are question, answer, found question, solution",
    ),
    "a later row misses it": (
        lines([*ROWS[:2], {"question": "?"}]),
        "row 3 of .* no column answer",
    ),
    "a value is of another type": (
        lines([*ROWS[:2], {"question": "?", "answer": 4}]),
        "row 3 of .*: answer is int, str was expected",
    ),
    "a value is missing": (
        lines([{"question": "?", "answer": None}]),
        "row 1 of .*: answer is NoneType, str was expected",
    ),
    "too few rows": (lines(ROWS[:2]), "has 2 rows, the test split of openai/gsm8k has 3"),
    "too many rows": (lines([*ROWS, ROWS[0]]), "has 4 rows, the test split .* has 3"),
    "other problems": (
        lines([*ROWS[:2], {"question": "?", "answer": "#### 5"}]),
        "not the problems of openai/gsm8k .*: their checksum is [0-9a-f]{16}, [0-9a-f]{16} was",
    ),
    "another order": (lines(reversed(ROWS)), "their checksum is"),
    "a line is cut": (lines(ROWS)[:-20], r"line 3 of .*test\.jsonl is not valid JSON"),
    "a list of rows": (json.dumps(ROWS), "line 1 of .* is list, not an object"),
    "numbers": ("1\n2\n3\n", "line 1 of .* is int, not an object"),
    "JSON over many lines": (json.dumps(ROWS, indent=1), "line 1 of .* is not valid JSON"),
    "a web page": ("<!doctype html>\n<html></html>", "line 1 of .* is not valid JSON"),
    "deep nesting": ("[" * 100_000, "line 1 of .* is not valid JSON"),
    "not text": (b"\x1f\x8b\x08\x00\xff\xfe", "line 1 of .* is not UTF-8 text"),
    "nothing": ("", "is empty: perhaps its download failed"),
    "blank lines": ("\n \n", "is empty"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_says_what_was_expected_and_found(toy, what):
    content, sentence = WRONG[what]
    content = content if isinstance(content, bytes) else content.encode()
    (toy / "test.jsonl").write_bytes(content)
    with pytest.raises(CasebookError, match=sentence) as caught:
        problem_sets.read("gsm8k", "test")
    assert "\n" not in str(caught.value)
    assert "test.jsonl" in str(caught.value)


def test_a_folder_in_the_place_of_the_file(toy):
    (toy / "test.jsonl").mkdir()
    assert "is a folder, and a file with problems was expected" in refused()


def test_a_file_that_may_not_be_read(toy, monkeypatch):
    (toy / "test.jsonl").write_text(lines(ROWS))

    def read_bytes(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert "cannot be read: Permission denied" in refused()


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" * 20, b"version https://git-lfs\n"])
def test_a_broken_parquet_file(toy, content):
    (toy / "test-00000-of-00001.parquet").write_bytes(content)
    assert "is not a whole parquet file" in refused()


def test_a_packed_file_is_seen(toy):
    (toy / "test.jsonl.gz").write_bytes(b"\x1f\x8b")
    assert "unpack" in refused()
    assert refused().endswith("test.jsonl.gz first")


def test_a_missing_file_says_how_to_fetch_it(toy):
    sentence = refused()
    assert "gsm8k/test.jsonl or gsm8k/main/test-00000-of-00001.parquet" in sentence
    assert problem_sets.HOW in sentence
    said = (problem_sets.paths.ROOT / problem_sets.HOW.split()[0]).read_text(encoding="utf-8")
    assert "-o gsm8k/$split.jsonl" in said
    assert problem_sets.SETS["gsm8k"].revision in said


def test_without_a_folder_nothing_is_fetched(toy, monkeypatch):
    monkeypatch.delenv(problem_sets.VARIABLE)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", None)  # a call would be a TypeError
    sentence = refused()
    assert "not part of the casebook" in sentence
    assert "--data-dir" in sentence


# The hub


@pytest.fixture
def hub(toy, monkeypatch, tmp_path):
    """A stand-in for the hub: files in its layout, and what was asked of it."""
    asked = []

    def download(repo_id, filename, *, repo_type, revision):
        asked.append((repo_id, filename, repo_type, revision))
        return str(tmp_path / "hub" / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    (tmp_path / "hub" / "main").mkdir(parents=True)
    return tmp_path / "hub" / "main" / "test-00000-of-00001.parquet", asked


def test_the_hub_is_asked_for_the_pinned_revision(hub):
    path, asked = hub
    pd.DataFrame(ROWS).to_parquet(path)
    frame = problem_sets.read("gsm8k", "test", source="hub")
    entry = problem_sets.SETS["gsm8k"]
    assert asked == [(entry.hub, entry.hub_files["test"], "dataset", entry.revision)]
    assert frame.attrs["source"] == "hub"
    assert frame.to_dict("records") == ROWS


def test_what_the_hub_gives_is_checked_as_well(hub):
    path, _ = hub
    pd.DataFrame(ROWS[:2]).to_parquet(path)
    assert "has 2 rows" in refused(source="hub")


def test_the_folder_never_stands_in_for_the_hub(hub, toy, monkeypatch):
    (toy / "test.jsonl").write_text(lines(ROWS))

    def download(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    sentence = refused(source="hub")
    assert "the hub did not give main/test-00000-of-00001.parquet of openai/gsm8k" in sentence
    assert "(offline)" in sentence


def test_messages_agree_between_parquet_and_json_lines(monkeypatch, tmp_path):
    rows = [
        {
            "messages": [{"role": "user", "content": "1 + 1?"}],
            "ground_truth": "2",
            "dataset": "gsm8k",
        }
    ] * 2
    entry = replace(problem_sets.SETS["rlvr-gsm"], rows={"train": 2, "test": 2})
    monkeypatch.setattr(problem_sets, "SETS", {"rlvr-gsm": entry})
    folder = tmp_path / "rlvr-gsm"
    (folder / "data").mkdir(parents=True)
    (folder / "train.jsonl").write_text(lines(rows))
    # Parquet keeps the fields of a message in an order of its own.
    turned = [row | {"messages": [dict(reversed(row["messages"][0].items()))]} for row in rows]
    pd.DataFrame(turned).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
    first, second = (problem_sets.read("rlvr-gsm", s, data_dir=tmp_path) for s in ("train", "test"))
    assert first.attrs["checksum"] == second.attrs["checksum"]
    assert second["messages"][0] == rows[0]["messages"]
    assert first.attrs["revision"] is None  # nothing to tell a folder's revision by


# Provenance


def test_provenance_is_that_of_the_split_also_for_a_few_rows(toy):
    (toy / "test.jsonl").write_text(lines(ROWS))
    frame = problem_sets.read("gsm8k", "test")
    assert problem_sets.provenance(frame.head(1)) == frame.attrs


def test_generated_problems_are_called_so():
    frame = pd.DataFrame({"question": ["?"] * 2, "source": ["generated"] * 2})
    found = problem_sets.provenance(frame)
    assert (found["source"], found["rows"], found["checksum"]) == ("generated", 2, None)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(ROWS), pd.DataFrame({"source": ["generated", "hub"]})]
)
def test_a_table_without_a_source_has_no_provenance(frame):
    with pytest.raises(CasebookError, match="does not say where"):
        problem_sets.provenance(frame)


# The sets themselves


@pytest.mark.parametrize("name", problem_sets.SETS)
def test_the_sets_are_pinned_and_whole(name):
    entry = problem_sets.SETS[name]
    assert entry.name == name
    assert len(entry.revision) == 40
    assert int(entry.revision, 16)
    splits = set(entry.files)
    assert set(entry.hub_files) == set(entry.rows) == set(entry.checksums) == splits
    for mark in entry.checksums.values():
        assert mark is None or len(mark) == 64


def test_no_two_sets_share_a_file():
    places = [Path(e.folder, file) for e in problem_sets.SETS.values() for file in e.files.values()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("name", "split"), [("gsm8k", "train"), ("gsm8k", "test"), ("math500", "test")]
)
def test_the_real_problems_are_what_the_checksum_says(name, split):
    if not problem_sets.available(name, split):
        pytest.skip(f"CASEBOOK_DATA_DIR names no folder with {name}")
    frame = problem_sets.read(name, split)
    assert len(frame) == problem_sets.SETS[name].rows[split]
    assert frame.attrs["checksum"] == problem_sets.SETS[name].checksums[split]
    assert problem_sets.provenance(frame)["source"] == "folder"
