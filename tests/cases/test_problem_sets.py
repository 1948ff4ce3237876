"""Real problem sets: what is read is checked, and what is wrong is one sentence."""

import json
from dataclasses import replace

import huggingface_hub
import pandas as pd
import pytest

from casebook.case import CasebookError, UnknownName
from casebook.cases import problem_sets

ROWS = [{"question": f"How many are {n} and {n}?", "answer": f"#### {2 * n}"} for n in range(3)]
COLUMNS = ["question", "answer"]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A set of three problems in the place of GSM8K, and an empty data folder."""
    stand_in(monkeypatch, ROWS)
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path))
    (tmp_path / "gsm8k").mkdir()
    return tmp_path / "gsm8k"


def stand_in(monkeypatch, rows):
    marks = dict.fromkeys(("train", "test"), problem_sets.checksum(rows, COLUMNS))
    entry = replace(problem_sets.SETS["gsm8k"], rows={"train": 3, "test": 3}, checksums=marks)
    monkeypatch.setitem(problem_sets.SETS, "gsm8k", entry)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def refused(hub=False):
    with pytest.raises(CasebookError) as caught:
        problem_sets.read("gsm8k", "test", hub)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("call", [problem_sets.data_dir, lambda: problem_sets.available("gsm8k")])
def test_a_folder_that_is_not_there_is_an_error_not_an_absence(call, monkeypatch, tmp_path):
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path / "typo"))
    with pytest.raises(CasebookError, match=r"CASEBOOK_DATA_DIR names .*typo"):
        call()


def test_a_local_file_is_read_in_order(toy):
    (toy / "test.jsonl").write_text(lines(ROWS))
    assert problem_sets.read("gsm8k", "test").to_dict("records") == ROWS
    assert not problem_sets.available("gsm8k")  # the train split is not there
    (toy / "train.jsonl").write_text("")
    assert problem_sets.available("gsm8k")


@pytest.mark.parametrize(
    "place", ["main/test-00000-of-00001.parquet", "test-00000-of-00001.parquet"]
)
def test_the_hubs_parquet_is_the_same_set(toy, place):
    (toy / place).parent.mkdir(exist_ok=True)
    pd.DataFrame(ROWS).to_parquet(toy / place)
    assert problem_sets.read("gsm8k", "test").to_dict("records") == ROWS


@pytest.mark.parametrize("text", ["a\u2028b\x85c\x1dd", "2020-01-01"])
def test_texts_stay_as_they_are_written(monkeypatch, toy, text):
    rows = [{**row, "answer": text, "more": 1} for row in ROWS]
    stand_in(monkeypatch, rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in rows)
    (toy / "test.jsonl").write_text(text, encoding="utf-8")
    frame = problem_sets.read("gsm8k", "test")
    assert list(frame) == COLUMNS
    assert list(frame["answer"]) == [row["answer"] for row in rows]


@pytest.mark.parametrize(("name", "split"), [("gsm9k", "test"), ("gsm8k", "validation")])
def test_an_unknown_name_lists_the_known(toy, name, split):
    with pytest.raises(UnknownName, match="known are"):
        problem_sets.read(name, split)


WRONG = {
    "a column is missing": (
        lines([{"question": "?"}]),
        r"row 1 of .*; expected are question \(str",
    ),
    "a value is of another type": (lines([{"question": "?", "answer": 4}]), r"answer \(int\)"),
    "too few rows": (lines(ROWS[:2]), "has 2 rows, the test split of openai/gsm8k has 3"),
    "other problems": (
        lines([*ROWS[:2], {"question": "?", "answer": "#### 5"}]),
        "not the problems of openai/gsm8k .*: their checksum is [0-9a-f]{16}, [0-9a-f]{16} was",
    ),
    "another order": (lines(reversed(ROWS)), "their checksum is"),
    "a line is cut": (lines(ROWS)[:-20], r"cannot be read as JSON, one object a line"),
    "a web page": ("<!doctype html>\n<html></html>", "cannot be read as JSON"),
    "deep nesting": ("[" * 100_000, "cannot be read as JSON"),
    "nothing": ("", "has 0 rows"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_says_what_was_expected_and_found(toy, what):
    content, sentence = WRONG[what]
    (toy / "test.jsonl").write_text(content)
    with pytest.raises(CasebookError, match=sentence) as caught:
        problem_sets.read("gsm8k", "test")
    assert "\n" not in str(caught.value)
    assert "test.jsonl" in str(caught.value)


def test_a_missing_file_says_how_to_fetch_it(toy):
    sentence = refused()
    assert "gsm8k/test.jsonl or gsm8k/main/test-00000-of-00001.parquet" in sentence
    assert problem_sets.HOW in sentence
    said = (problem_sets.paths.ROOT / problem_sets.HOW.split()[0]).read_text(encoding="utf-8")
    for entry in problem_sets.SETS.values():
        assert entry.revision in said


def test_without_a_folder_nothing_is_fetched(toy, monkeypatch):
    monkeypatch.delenv(problem_sets.VARIABLE)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", None)  # a call would be a TypeError
    sentence = refused()
    assert "not part of the casebook" in sentence
    assert "--data-dir" in sentence


@pytest.mark.parametrize("rows", [3, 2])
def test_the_hub_is_asked_for_the_pinned_revision_and_checked_as_well(
    rows, toy, monkeypatch, tmp_path
):
    asked = []

    def download(repo_id, filename, *, repo_type, revision):
        asked.append((repo_id, filename, repo_type, revision))
        pd.DataFrame(ROWS[:rows]).to_parquet(tmp_path / "hub.parquet")
        return str(tmp_path / "hub.parquet")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    if rows < 3:
        assert "has 2 rows" in refused(hub=True)
    else:
        assert problem_sets.read("gsm8k", "test", hub=True).to_dict("records") == ROWS
    entry = problem_sets.SETS["gsm8k"]
    assert asked == [(entry.hub, entry.files["test"][1], "dataset", entry.revision)]


def test_the_folder_never_stands_in_for_the_hub(toy, monkeypatch):
    (toy / "test.jsonl").write_text(lines(ROWS))

    def download(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    sentence = refused(hub=True)
    assert "the hub did not give main/test-00000-of-00001.parquet of openai/gsm8k" in sentence
    assert "(offline)" in sentence


@pytest.mark.parametrize(
    ("name", "split"), [("gsm8k", "train"), ("gsm8k", "test"), ("math500", "test")]
)
def test_the_real_problems_are_what_the_checksum_says(name, split):
    if not problem_sets.available(name):
        pytest.skip(f"CASEBOOK_DATA_DIR names no folder with {name}")
    frame, entry = problem_sets.read(name, split), problem_sets.SETS[name]
    assert len(frame) == entry.rows[split]
    mark = problem_sets.checksum(frame.to_dict("records"), entry.columns)
    assert mark == entry.checksums[split]
