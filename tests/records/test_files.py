"""Records: whole or not at all, and read with care."""

import json
import math
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import CasebookError, paths, records
from casebook.case import PROFILES, UnknownName, known_cases

PROVENANCE = import_module("casebook.records.provenance")  # beside the function of this name
RECORD = {"case": "poker", "profile": "nano", "seed": 0, "provenance": {}}


# Writing


def test_a_record_survives_being_written_and_read(tmp_path):
    path = tmp_path / "new" / "folder" / "record.json"
    record = RECORD | {"after": {"greedy_accuracy": {"value": 0.9, "n": 1000}}, "text": "β = 0"}
    records.write_json(path, record)
    assert records.read_record(path) == record
    assert path.read_text().endswith("}\n")
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_keys_are_sorted_so_that_records_can_be_compared(tmp_path):
    records.write_json(tmp_path / "a.json", {"b": 1, "a": {"d": 1, "c": 2}})
    records.write_json(tmp_path / "b.json", {"a": {"c": 2, "d": 1}, "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(content=json_values)
def test_whatever_is_written_is_strict_json(tmp_path_factory, content):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    path = tmp_path_factory.mktemp("json") / "x.json"
    records.write_json(path, content)
    json.loads(path.read_text(), parse_constant=refuse)


def test_nan_becomes_null_and_numpy_becomes_plain(tmp_path):
    content = {
        "nan": math.nan,
        "inside": [np.float32("inf"), {"x": np.nan}],
        "count": np.int64(3),
        "table": np.eye(2, dtype=int),
        "flag": np.True_,
        7: (1, 2),
    }
    records.write_json(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "nan": None,
        "inside": [None, {"x": None}],
        "count": 3,
        "table": [[1, 0], [0, 1]],
        "flag": True,
        "7": [1, 2],
    }


@pytest.mark.parametrize("content", [{"a": {1, 2}}, [object()], {"p": Path("x")}, b"bytes"])
def test_what_is_not_json_is_refused_and_leaves_no_file(tmp_path, content):
    with pytest.raises(CasebookError, match="cannot be written as JSON"):
        records.write_json(tmp_path / "x.json", content)
    assert list(tmp_path.iterdir()) == []


def _full_disk(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("moment", ["while writing", "while moving"])
def test_a_failure_in_the_middle_leaves_the_old_record(tmp_path, monkeypatch, moment):
    path = tmp_path / "record.json"
    records.write_json(path, RECORD)
    if moment == "while writing":

        def half(self, text, **kwargs):
            with open(self, "w") as file:
                file.write(text[: len(text) // 2])
            _full_disk()

        monkeypatch.setattr(Path, "write_text", half)
    else:
        monkeypatch.setattr(os, "replace", _full_disk)
    with pytest.raises(OSError, match="No space left"):
        records.write_json(path, RECORD | {"seed": 1})
    assert records.read_record(path) == RECORD
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path):
    path = tmp_path / "record.json"
    writer = "import os, sys\nfrom casebook.records import write_json\n"
    writer += "os.replace = lambda *names: os.kill(os.getpid(), 9)\nwrite_json(sys.argv[1], {})"
    subprocess.run([sys.executable, "-c", writer, path])
    (left,) = tmp_path.iterdir()
    assert left.read_text() == "{}\n"
    others = [".other.json.1.part", ".record.json.mine.part", f".record.json.{os.getppid()}.part"]
    for name in others:  # of another record, no writer's, and of a writer that runs
        (tmp_path / name).write_text("half")
    records.write_json(path, RECORD)
    assert records.read_record(path) == RECORD
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*others, "record.json"])


# Reading


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b'{"case": "poker", "profile', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a record"),
        (b"null", "not a record"),
        (b'{"case": "poker", "profile": "nano", "seed": 0}', "no provenance"),
    ],
)
def test_a_damaged_record_is_one_clear_sentence(tmp_path, content, message):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(CasebookError, match=message) as caught:
        records.read_record(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_record_and_a_folder_are_named(tmp_path):
    with pytest.raises(CasebookError, match=r"there is no record at .*nowhere"):
        records.read_record(tmp_path / "nowhere.json")
    with pytest.raises(CasebookError, match="cannot be read"):
        records.read_record(tmp_path)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    for arm, seeds in {"grpo": (10, 2, 0), "control": (1,)}.items():
        for seed in seeds:
            path = tmp_path / "poker" / "nano" / arm / f"seed{seed}.json"
            records.write_json(path, RECORD | {"arm": arm, "seed": seed})
    return tmp_path / "poker" / "nano"


def test_committed_records_come_by_arm_and_seed(results):
    (results / "adapter").mkdir()
    found = [(record["arm"], record["seed"]) for record in records.committed("poker", "nano")]
    assert found == [("control", 1), ("grpo", 0), ("grpo", 2), ("grpo", 10)]
    assert [r["seed"] for r in records.committed("poker", "nano", "grpo")] == [0, 2, 10]


def test_no_committed_record_is_an_empty_list(results):
    assert records.committed("poker", "a100") == []
    assert records.committed("poker", "nano", "unheard of") == []


def test_committed_refuses_unknown_names_and_damaged_records(results):
    with pytest.raises(UnknownName, match="pokr"):
        records.committed("pokr", "nano")
    with pytest.raises(UnknownName, match="h100"):
        records.committed("poker", "h100")
    (results / "grpo" / "seed3.json").write_text("{")
    with pytest.raises(CasebookError, match=r"seed3\.json"):
        records.committed("poker", "nano")


def test_the_records_of_this_checkout_can_be_read():
    for case in known_cases():
        for profile in PROFILES:
            for record in records.committed(case, profile):
                assert (record["case"], record["profile"]) == (case, profile)


# Provenance


def test_provenance_says_what_ran_and_can_be_written(tmp_path):
    where = records.provenance()
    assert where["versions"]["numpy"] == np.__version__
    assert where["hardware"]["cores"] >= 1
    assert where["time"].endswith("+00:00")
    records.write_json(tmp_path / "x.json", where)


def test_provenance_needs_neither_git_nor_a_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "")
    where = records.provenance()
    assert where["git"] == {"revision": None, "dirty": None}
    assert where["hardware"]["gpu"] is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\nhip = None\n", "13.0"),
        ("__version__ = '2.11.0+cu126'\ncuda = '12.6'\n", "12.6"),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nrocm = '7.1'\n", None),
        (None, None),
    ],
    ids=["without a tag", "tagged", "for a CPU", "no such file"],
)
def test_provenance_says_the_cuda_of_torch_whatever_its_version_says(
    text, cuda, monkeypatch, tmp_path
):
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(PROVENANCE, "find_spec", lambda package: spec)
    assert records.provenance()["hardware"]["cuda"] == cuda


def test_without_torch_there_is_no_cuda(monkeypatch):
    monkeypatch.setattr(PROVENANCE, "find_spec", lambda package: None)
    assert PROVENANCE.torch_cuda() is None


# Text


def test_figures_as_text():
    figure = {"value": 0.5, "low": 0.45, "high": 0.55, "n": 100}
    assert records.figure_text(figure) == "50.0 % [45.0, 55.0]"
    assert records.figure_text(figure, percent=False) == "0.5 [0.45, 0.55]"
    assert "`casebook experiments poker`" in records.missing("casebook experiments poker")


def test_shares_end_at_nought_and_one():
    assert records.figure_text({"value": 1.0, "low": 0.99, "high": 1.01}) == "100.0 % [99.0, 100.0]"


# Figures of a run


def test_a_run_is_told_by_its_test_rows_or_else_by_its_validation():
    curve = {"greedy_accuracy": [0.1, 0.9, 0.3]}
    figures = {when: {"greedy_accuracy": {"value": v}} for when, v in (("before", 0), ("after", 1))}
    nothing = {"test": None, "before": None, "after": None}
    for measured, told in ((figures, (0, 1)), (nothing, (0.1, 0.3))):
        record = RECORD | {"validation": curve} | measured
        assert records.has_test_figures(record) is (measured is figures)
        assert records.first_and_last(record, "greedy_accuracy") == told
