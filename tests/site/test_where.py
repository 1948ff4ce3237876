import ast
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from casebook import paths
from casebook.case import PROFILES, CasebookError, known_cases
from casebook.paths import write_json
from casebook.records import committed
from casebook.settings import read_arms
from casebook.site import where, write_where

MARKS = ("claims", "results", "real")  # of the README


def test_the_page_has_the_table_that_the_file_makes(tmp_path):
    copy = shutil.copy(where.PAGE, tmp_path)
    changed = write_where(copy)
    assert not changed, "run: make tables"


def test_every_profile_is_in_the_file_but_the_one_of_tests():
    assert set(where.read_where()["profiles"]) == set(PROFILES) - {"smoke"}


@pytest.mark.parametrize("name", where.read_where()["emulated"])
def test_each_emulation_names_a_test_that_is_there(name):
    file, _, function = where.read_where()["emulated"][name]["test"].partition("::")
    tree = ast.parse((paths.ROOT / file).read_text())
    assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}


def test_run_all_counts_only_for_profiles_that_its_test_runs():
    text = (paths.ROOT / "tests/colab/test_run_all.py").read_text()
    tree = ast.parse(text)
    (test,) = (n for n in tree.body if isinstance(n, ast.FunctionDef))
    named = {n.value for n in ast.walk(test.decorator_list[0]) if isinstance(n, ast.Constant)}
    claimed = {p for p, done in where.read_where()["profiles"].items() if "run_all" in done}
    assert claimed == named & set(PROFILES)


def test_no_profile_of_a_gpu_is_called_run_without_a_record():
    for file in paths.CONFIGS.glob("*/*.yaml"):
        if file.stem in PROFILES and file.stem != "smoke":
            said = where.state(file.parent.name, file.stem)
            there = any((paths.RESULTS / file.parent.name / file.stem).glob("*/seed*.json"))
            assert (said in (where.RUN, where.CONTRIBUTED)) is there


@pytest.fixture
def write_record(tmp_path, monkeypatch):
    """Writes a record of poker on the profile t4, as good as counting needs it."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")

    def write(arm, seed=0, **more):
        record = {"case": "poker", "profile": "t4", "arm": arm, "seed": seed, "provenance": {}}
        path = paths.RESULTS / "poker" / "t4" / arm / f"seed{seed}.json"
        write_json(path, record | {"before": {}, "after": {}, "train_seconds": 1.0} | more)

    return write


def test_a_record_turns_a_profile_into_one_that_was_run(write_record):
    assert where.state("poker", "t4") == where.EMULATED
    assert where.state("poker", "gpu24") == where.NOT_RUN
    write_record("grpo")
    assert where.state("poker", "t4") == where.RUN
    assert where.state("poker", "t4_source") == ""
    assert "| run: 1 record |" in where.where_table()


def test_what_goes_beyond_a_core_has_its_command_its_hours_and_its_records():
    rows = where.extension_table().splitlines()[2:]
    beyond = {
        (case, name): arm
        for case in known_cases()
        for name, arm in read_arms(case).items()
        if "extension_hours" in arm
    }
    for row, ((case, name), arm) in zip(rows, beyond.items(), strict=True):
        command = f"casebook experiments {case} --profile {arm['profile']} --arm {name}"
        made = len(committed(case, arm["profile"], name))
        assert f"{arm['question']}<br>`{command}` | {arm['extension_hours']} |" in row
        assert ("no recorded run" in row) is not made


def test_records_of_others_are_counted_apart(write_record):
    for seed in (0, 1):
        write_record("as_configured", seed, contributed={"bundle": "0" * 64})
    assert where.state("poker", "t4") == where.CONTRIBUTED
    assert "| contributed: 2 records |" in where.where_table()
    write_record("grpo")
    assert where.state("poker", "t4") == where.RUN
    assert "| run: 1 record; contributed: 2 records |" in where.where_table()


def test_make_writes_all_tables_that_a_record_changes(write_record, tmp_path, monkeypatch):
    write_record("as_configured", contributed={"bundle": "0" * 64})
    command = ["make", "-n", "-C", paths.ROOT, "tables"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if "write_where" in line]
    _, flag, code = shlex.split(line)
    (tmp_path / "docs").mkdir()
    page = shutil.copy(where.PAGE, tmp_path / "docs")
    readme = tmp_path / "README.md"
    marks = (f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in MARKS)
    readme.write_text("".join(marks))
    monkeypatch.setattr(where, "PAGE", page)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert flag == "-c"
    exec(code, {})
    assert "| contributed: 1 record |" in Path(page).read_text()
    assert "| verdicts |" in readme.read_text()


def test_a_page_without_marks_is_told(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(CasebookError, match=r"page\.md needs the lines <!-- where:begin -->"):
        write_where(page)
    assert yaml.safe_load(where.FILE.read_text())
