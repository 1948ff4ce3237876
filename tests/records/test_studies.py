"""Records of studies: who makes them, what is said when they are not there or not current."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from casebook import paths
from casebook.case import CasebookError
from casebook.records import gate, studies


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A record of the study of prompts, made by the code that is here."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(gate, "_PRINTED", set())
    made_by = importlib.import_module("casebook.cases.math.studies.prompts")
    monkeypatch.setattr(made_by, "record", lambda: {"provenance": [], "limits": [1]})
    assert studies.write("prompts") == tmp_path / "math" / "data" / "prompts.json"
    return tmp_path / "math" / "data" / "prompts.json"


def age(file):
    """Make a record look as if other code had made it."""
    record = json.loads(file.read_text())
    record["code"] = dict.fromkeys(record["code"], "0" * 12)
    file.write_text(json.dumps(record))


# Of a real model: they take hours, and may wait for their records.
OF_A_REAL_MODEL = {"smol_poker", "smol_gsm8k", "smol_math"}


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_study_has_a_record_and_modules_that_are_there(name):
    if name in OF_A_REAL_MODEL and not studies.path(name).exists():
        pytest.skip(f"no recorded run: {studies.command(name)}")
    found = studies.read(name, say=lambda line: None)
    assert set(found["code"]) == set(studies._modules(name))
    for module in studies._modules(name):
        importlib.import_module(module)
    assert callable(studies._maker(name).record)


def test_an_unknown_study_is_told_the_known_ones():
    with pytest.raises(CasebookError, match="unknown study 'ranks': known are conversion, smol"):
        studies.path("ranks")


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"provenance": 1, "code": "a"}'])
def test_a_missing_or_broken_record_says_how_to_make_it(content, made):
    made.unlink()
    if content is not None:
        made.write_text(content)
    with pytest.raises(CasebookError, match=r"no record of a study .*casebook study prompts make"):
        studies.read("prompts")


def test_a_study_of_runs_needs_the_experiments_first():
    assert studies.command("gibberish") == "casebook experiments math && casebook study gibberish"


def test_a_record_is_current_until_its_code_changes(made, capsys):
    assert studies.study_line("prompts") == ""
    age(made)
    line = studies.study_line("prompts")
    assert line == (
        "Not current. replay due (casebook.cases.math.studies.prompts changed): math/prompts; "
        "casebook study prompts."
    )
    for _ in range(2):
        assert studies.read("prompts")["limits"] == [1]
    assert capsys.readouterr().out == line + "\n"  # once a process
    said = []
    studies.read("prompts", say=said.append)
    assert said == [line]


def test_the_line_counts_the_other_modules(made, monkeypatch):
    study = studies.Study("math", ("studies.prompts", "studies.forms", "verify"))
    monkeypatch.setitem(studies.STUDIES, "prompts", study)
    assert "studies.forms changed and 1 more)" in studies.study_line("prompts")


@pytest.mark.parametrize("name", studies.STUDIES)
def test_the_code_of_a_study_has_every_grader_that_it_calls(name):
    """A grader that is taken apart into modules leaves none of them out of the mark."""
    study = studies.STUDIES[name]
    graders = {
        "poker": studies.POKER_GRADER,
        "gsm8k": studies.GSM8K_GRADER,
        "math": studies.VERIFIER,
    }[study.case]
    for module in studies._modules(name):
        text = Path(importlib.util.find_spec(module).origin).read_text()
        called = set(re.findall(rf"from casebook\.cases\.{study.case}\.(\w+) import", text))
        assert called & set(graders) <= set(study.modules)
