"""What a record is worth today: decided by files alone, and shown wherever it is not current."""

import shutil
import sys

import pytest

from casebook import paths, records
from casebook.case import CasebookError
from casebook.records import freshness, gate

RECORD = {
    "case": "poker",
    "profile": "nano",
    "arm": "grpo",
    "seed": 0,
    "config": {"model_name_or_path": "data/nano/poker"},
    "provenance": {"time": "2026-01-01T00:00:00+00:00"},
    "before": {"greedy_accuracy": {"value": 0.5, "n": 10}},
}
MODULES = ("casebook.case", "casebook.rewards", "casebook.cases.poker.rewards")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package's code that a test may change; the modules in memory stay."""
    copy = tmp_path / "src" / "casebook"
    shutil.copytree(freshness.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(freshness, "PACKAGE", copy)
    return copy


@pytest.fixture
def replayed(checkout):
    """A checkout with a model and one record that has been replayed: what the file then says."""
    model = checkout / "data" / "nano" / "poker"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(bytes(100))
    (model / "README.md").write_text("about the model")
    files, code = freshness.input_files(RECORD), freshness.module_hashes(MODULES)
    entry = {
        "verdict": "reproduces",
        "first_difference": None,
        "code": "c",
        "files": "f",
        "records": {
            "0": {"made": RECORD["provenance"]["time"], "content": freshness.digest(RECORD)}
        },
    }
    content = {"arms": {"nano/grpo": entry}, "code": {"c": code}, "files": {"f": files}}
    records.write_json(freshness.replays_file("poker"), content)
    return content


def rewrite(content, **changes):
    content["arms"]["nano/grpo"] |= changes
    records.write_json(freshness.replays_file("poker"), content)


def test_a_record_that_was_replayed_by_this_code_is_current(replayed):
    assert records.state(RECORD) == "current"
    assert records.state_line([RECORD]) == ""


def test_a_record_that_nobody_replayed_is_due(checkout):
    assert records.state(RECORD) == "replay due"
    assert "never replayed" in records.state_line([RECORD])


def test_what_differed_says_where(replayed):
    rewrite(replayed, verdict="differs", first_difference="before/x: recorded 1, replayed 2")
    assert records.state(RECORD) == "differs"
    assert "recorded 1, replayed 2" in records.state_line([RECORD])


def test_one_digit_changed_by_hand_differs(replayed):
    edited = RECORD | {"before": {"greedy_accuracy": {"value": 0.51, "n": 10}}}
    assert records.state(edited) == "differs"
    assert "edited" in records.state_line([edited])


def test_a_record_made_since_is_due_until_it_is_replayed(replayed):
    newer = RECORD | {"provenance": {"time": "2026-02-02T00:00:00+00:00"}}
    assert records.state(newer) == "replay due"
    assert records.state(RECORD | {"seed": 7}) == "replay due"


def test_a_record_names_the_code_that_made_it(checkout):
    modules = list(MODULES)
    made = freshness.code_of(RECORD, modules)
    assert records.state(RECORD | {"code": made}) == "current"
    assert records.state(RECORD | {"code": made | {"digest": "0" * 16}}) == "replay due"
    model = checkout / "data" / "nano" / "poker"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"other weights")
    assert records.state(RECORD | {"code": made}) == "replay due"


def test_what_cannot_be_trained_again_is_regraded(replayed):
    rewrite(replayed, verdict="regraded")
    assert records.state(RECORD) == "regraded"
    assert "regraded" in records.state_line([RECORD])


def test_a_contributed_record_is_at_best_regraded_and_called_so(replayed, checkout):
    made = freshness.code_of(RECORD, list(MODULES))
    sent = RECORD | {"arm": "as_configured", "code": made, "contributed": {"bundle": "0"}}
    assert records.state(sent) == "regraded"
    shown = "Not current. regraded (contributed): poker/nano/as_configured."
    assert records.state_line([sent]) == shown
    due = sent | {"code": made | {"digest": "0" * 16}}
    assert records.state(due) == "replay due"
    assert "replay due (contributed, never replayed)" in records.state_line([due])


def test_other_weights_make_a_replay_due_and_another_readme_does_not(replayed, checkout):
    (checkout / "data" / "nano" / "poker" / "README.md").write_text("other words")
    assert records.state(RECORD) == "current"
    (checkout / "data" / "nano" / "poker" / "model.safetensors").write_bytes(bytes(99) + b"1")
    assert records.state(RECORD) == "replay due"
    assert "model.safetensors" in records.state_line([RECORD])


def test_another_version_of_torch_makes_a_replay_due(replayed, checkout):
    pins = checkout / "requirements.txt"
    pins.write_text(pins.read_text().replace("torch==", "torch==9"))
    assert records.state(RECORD) == "replay due"


def test_code_counts_and_its_words_do_not(replayed, package):
    path = package / "cases" / "poker" / "rewards.py"
    code = path.read_text()
    path.write_text('"""Other words."""\n# a comment\n' + code.partition('"""\n')[2] + "\n\n")
    assert records.state(RECORD) == "current"
    path.write_text(code + "\nANOTHER = 1\n")
    assert records.state(RECORD) == "replay due"
    assert "casebook.cases.poker.rewards" in records.state_line([RECORD])
    path.unlink()
    assert records.state(RECORD) == "replay due"


def test_code_that_no_replay_imported_does_not_count(replayed, package):
    (package / "plots.py").write_text("ANOTHER = 1\n")
    (package / "cases" / "landuse" / "data.py").write_text("ANOTHER = 1\n")
    assert records.state(RECORD) == "current"


def test_a_docstring_is_not_code_and_a_string_is(package):
    path = package / "case.py"
    code = path.read_text()
    marks = []
    for more in ("'A docstring.'\n    return 5", "return 5", "return '5'"):
        path.write_text(f"{code}\n\ndef more():\n    {more}\n")
        marks.append(freshness.module_hashes(["casebook.case"])["casebook.case"])
    assert marks[0] == marks[1] != marks[2]


def test_the_modules_of_a_process_are_those_it_imported_without_the_command_line():
    import casebook.cli  # noqa: F401, it must not be listed

    modules = freshness.loaded_modules()
    assert {"casebook.records.freshness", "casebook.case"} <= set(modules)
    assert "casebook.cli" not in modules
    assert all(name in sys.modules for name in modules)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"arms": {}}', '{"arms": 1, "code": 1, "files": 2}']
)
def test_a_damaged_file_of_replays_is_one_sentence(checkout, content):
    path = freshness.replays_file("poker")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(CasebookError, match=r"replays\.json is damaged"):
        records.state(RECORD)


# The gate


def test_who_reads_committed_records_is_told_where_one_is_not_current(
    replayed, capsys, monkeypatch
):
    monkeypatch.setattr(gate, "_PRINTED", set())
    path = paths.RESULTS / "poker" / "nano" / "grpo" / "seed0.json"
    records.write_json(path, RECORD)
    assert records.committed("poker", "nano") == [RECORD]
    assert capsys.readouterr().out == ""
    rewrite(replayed, verdict="differs", first_difference="x: recorded 1, replayed 2")
    said = []
    records.committed("poker", "nano", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("Not current. differs")
    for _ in range(2):  # a page is told once
        records.committed("poker", "nano", "grpo")
    assert capsys.readouterr().out == said[0] + "\n"


def test_completions_come_back_as_they_were_written(checkout):
    assert records.committed_completions("poker").empty
    path = paths.RESULTS / "poker" / "nano" / "completions.jsonl.gz"
    path.parent.mkdir(parents=True)
    import pandas as pd

    rows = pd.DataFrame(
        {"step": [1, 1], "completion": ["007", "2020-01-01"], "extracted": ["12", None]}
    )
    rows.to_json(path, orient="records", lines=True)
    back = records.committed_completions("poker")
    assert back["completion"].tolist() == ["007", "2020-01-01"]
    assert back["extracted"].tolist() == ["12", None]
