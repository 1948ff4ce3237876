"""The comparison with llama.cpp, on made-up models, and what its committed record says."""

import dataclasses
import sys

import numpy as np
import pytest

from casebook import pretrained
from casebook.case import CasebookError
from casebook.cases.poker.studies import conversion
from casebook.records import studies


class Made:
    """A model of four tokens whose logits are a table: the next token depends on the last."""

    def __init__(self, table):
        self.table = np.asarray(table, float)

    def logits(self, ids):
        return self.table[list(ids)]

    def greedy(self, ids):
        written = [int(self.table[ids[-1]].argmax())]
        while len(written) < 3:
            written.append(int(self.table[written[-1]].argmax()))
        return written


TABLE = np.eye(4)[[1, 2, 3, 0]] * 3
PROMPTS = [[0, 1, 2], [3]]


def test_the_same_model_does_not_differ():
    found = conversion.compared(Made(TABLE), Made(TABLE), PROMPTS)
    assert (found["positions"], found["same_token"], found["kl"]) == (4, 1.0, 0.0)
    assert found["same_continuations"] == 2
    assert [row["differs"] for row in found["by_prompt"]] == [None, None]


def test_another_model_is_seen_where_it_differs():
    other = TABLE.copy()
    other[2] = [3, 0, 0, 0]  # after token 2 comes 0 instead of 3
    found = conversion.compared(Made(TABLE), Made(other), PROMPTS)
    assert found["same_token"] == 0.75
    assert [row["same_token"] for row in found["by_prompt"]] == [pytest.approx(2 / 3), 1.0]
    one_position = conversion.kl(other[2:3], TABLE[2:3])[0]
    assert found["largest_kl"] == pytest.approx(one_position)
    assert found["kl"] == pytest.approx(one_position / 4)
    assert [row["differs"] for row in found["by_prompt"]] == [0, None]


def test_without_the_model_the_study_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path))
    with pytest.raises(CasebookError, match="casebook models fetch smollm2"):
        conversion.record()


def test_without_llama_cpp_the_study_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path))
    entry = dataclasses.replace(pretrained.MODELS["smollm2"])
    entry.folder.mkdir()
    with pytest.raises(CasebookError, match="fetch it again"):
        conversion.record()
    entry.weights.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(CasebookError, match="pip install llama-cpp-python"):
        conversion.record()


def test_the_record_is_of_the_pinned_file_and_keeps_its_bounds():
    record = studies.read("conversion")
    assert record["file"]["sha256"] == pretrained.MODELS["smollm2"].sha256
    assert record["prompts"] == list(conversion.PROMPTS)
    assert len(record["prompts"]) >= 20
    assert record["same_token_ids"] == len(record["prompts"])
    for name, bounds in conversion.BOUNDS.items():
        found = record[name]
        assert found["bounds"] == bounds
        assert found["kl"] <= bounds["kl"]
        assert found["same_token"] >= bounds["same_token"]
        assert len(found["by_prompt"]) == len(record["prompts"])
