"""Records: read with care, made from a commit, and with their way back."""

import numpy as np
import pandas as pd
import pytest

from casebook import CasebookError, paths, records
from casebook.case import UnknownName
from casebook.experiments.arms import run_experiments
from casebook.records import studies

RECORD = {"case": "poker", "profile": "nano", "seed": 0, "provenance": {}}


# Committed records


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    for arm, seeds in {"grpo": (10, 2, 0), "control": (1,)}.items():
        for seed in seeds:
            path = tmp_path / "poker" / "nano" / arm / f"seed{seed}.json"
            paths.write_json(path, RECORD | {"arm": arm, "seed": seed})
    return tmp_path / "poker" / "nano"


def test_committed_records_come_by_arm_and_seed(results):
    (results / "adapter").mkdir()
    found = [(record["arm"], record["seed"]) for record in records.committed("poker", "nano")]
    assert found == [("control", 1), ("grpo", 0), ("grpo", 2), ("grpo", 10)]
    assert [r["seed"] for r in records.committed("poker", "nano", "grpo")] == [0, 2, 10]
    assert records.committed("poker", "a100") == []


def test_unknown_names_and_damaged_records_are_told(results):
    with pytest.raises(UnknownName, match="pokr"):
        records.committed("pokr", "nano")
    with pytest.raises(UnknownName, match="h100"):
        records.committed("poker", "h100")
    for content, said in (("{", "not valid JSON"), ("[]", "not a record"), ("{}", "has no case")):
        (results / "grpo" / "seed3.json").write_text(content)
        with pytest.raises(CasebookError, match=rf"seed3\.json.*{said}"):
            records.committed("poker", "nano")


def test_the_first_seed_stands_for_its_arm(results):
    found = [path.relative_to(results).as_posix() for path in records.recorded(["poker"], "nano")]
    assert found == ["control/seed1.json", "grpo/seed0.json"]
    assert [path.stem for path in records.recorded(["poker"], "nano", ["grpo"], 10)] == ["seed10"]


def test_completions_keep_their_texts_and_the_same_rows_give_the_same_bytes(tmp_path):
    texts = ["007", "2026-01-01", "β\n"]
    rows = pd.DataFrame({"completion": texts, "reward": [1 / 3, 0.0, np.nan]})
    for folder in ("a", "b"):
        records.write_rows(rows, tmp_path / folder / "rows.jsonl.gz")
    assert len({path.read_bytes() for path in tmp_path.rglob("*.gz")}) == 1
    again = records.read_rows(tmp_path / "a" / "rows.jsonl.gz")
    assert again["completion"].tolist() == texts
    assert again["reward"][0] == 0.333333
    (tmp_path / "a" / "rows.jsonl.gz").write_bytes(b"cut")
    with pytest.raises(CasebookError, match="no completions can be read"):
        records.read_rows(tmp_path / "a" / "rows.jsonl.gz")


def test_an_experiment_does_not_write_from_a_tree_with_changes(monkeypatch):
    monkeypatch.setattr(records, "revision", lambda: {"revision": "0" * 40, "dirty": True})
    with pytest.raises(CasebookError, match="commit them first"):
        run_experiments("poker", "nano")


# Figures


def test_a_run_is_told_by_its_test_rows_or_else_by_its_validation():
    curve = {"greedy_accuracy": [0.1, 0.9, 0.3]}
    figures = {when: {"greedy_accuracy": {"value": v}} for when, v in (("before", 0), ("after", 1))}
    nothing = {"test": None, "before": None, "after": None}
    for measured, told in ((figures, (0, 1)), (nothing, (0.1, 0.3))):
        record = RECORD | {"validation": curve} | measured
        assert records.has_test_figures(record) is (measured is figures)
        assert records.first_and_last(record, "greedy_accuracy") == told


def test_provenance_needs_neither_git_nor_a_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "")
    where = records.provenance()
    assert where["versions"]["numpy"] == np.__version__
    assert where["git"] == {"revision": None, "dirty": None}
    assert where["hardware"]["gpu"] is None


# Studies


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_study_has_a_record(name):
    assert "provenance" in studies.read(name)


@pytest.mark.parametrize("content", [None, "{"])
def test_a_missing_or_broken_study_says_what_brings_it_back(content, results):
    if content is not None:
        studies.path("prompts").parent.mkdir(parents=True)
        studies.path("prompts").write_text(content)
    with pytest.raises(CasebookError, match=r"study's record .*git restore results.*restores"):
        studies.read("prompts")
    with pytest.raises(CasebookError, match="unknown study 'ranks': known are conversion, smol"):
        studies.path("ranks")
