"""Nothing shows a figure of a record without asking whether the record is current."""

import re
import shutil
from copy import deepcopy

import nbformat
import pytest

from casebook import load_case, paths, records
from casebook.records import freshness, gate

PACKAGE = freshness.PACKAGE
# Who may name the folder of records: the gate itself, who writes records, and who only asks
# which files there are. Whoever shows figures goes through the gate.
WRITERS = {
    "records/gate.py",
    "records/freshness.py",
    "records/studies.py",  # the gate of the studies, which says when their code has changed
    "experiments/arms.py",
    "experiments/repeat.py",
    "experiments/replay.py",
    "bundle/importing.py",  # writes contributed records, and shows none
    "execute/series.py",  # is a notebook's output older than what it read?
    "policy.py",  # loads a committed adapter, by the settings it was trained with
    "site/where.py",  # counts records
    "site/results.py",  # results/benchmarks: no training is behind them
    "paths.py",
}
# What a notebook may take from there itself: benchmarks, and the adapters that it measures.
TAKEN = re.compile(r'RESULTS / "benchmarks"|RESULTS / "\w+" / "nano" / "adapter"')


def test_only_the_gate_reads_committed_records():
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "RESULTS" in path.read_text(encoding="utf-8")
    }
    assert named - WRITERS == set()


@pytest.mark.parametrize("path", sorted(paths.NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_read_records_through_the_gate_only(path):
    cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    lines = [line for cell in cells for line in cell.splitlines()]
    assert [n for n in lines if "RESULTS" in n and not TAKEN.search(n)] == []
    assert [n for n in lines if re.search(r"\brecords\.read_(record|json)\(|seed\*\.json", n)] == []


@pytest.fixture
def edited(monkeypatch, tmp_path):
    """The committed records of poker, one of them changed by hand after its replay."""
    results = tmp_path / "results"
    shutil.copytree(paths.RESULTS / "poker", results / "poker")
    path = results / "poker" / "nano" / "grpo" / "seed0.json"
    record = records.read_record(path)
    kept = deepcopy(freshness.read_replays("poker"))  # what it returns is remembered
    monkeypatch.setattr(paths, "RESULTS", results)
    monkeypatch.setattr(gate, "_PRINTED", set())
    entry = {"content": freshness.digest(record), "made": record["provenance"]["time"]}
    key = "nano/grpo"
    kept["arms"][key] = kept["arms"].get(key, {}) | {"records": {"0": entry}}
    records.write_json(freshness.replays_file("poker"), kept)
    record["after"]["greedy_accuracy"]["value"] += 0.001
    records.write_json(path, record)


def test_a_verdict_that_rests_on_an_edited_record_says_so(edited, capsys):
    records.figures_at("poker", "grpo/after/greedy_accuracy")
    assert "differs (the file was edited): poker/nano/grpo" in capsys.readouterr().out


def test_the_pages_say_so(edited):
    from casebook.site import results

    assert "the file was edited" in results.result(load_case("poker"))
