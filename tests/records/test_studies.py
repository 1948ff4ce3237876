"""Records of studies: who makes them, and what is said when they are not there."""

from importlib import import_module

import pytest

from casebook import paths
from casebook.case import CasebookError
from casebook.records import studies

# Of a real model: they take hours, and may wait for their records.
OF_A_REAL_MODEL = {"smol_poker", "smol_gsm8k", "smol_math"}


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_study_has_a_record_and_a_module_that_makes_it(name):
    case, module = studies.STUDIES[name]
    assert callable(import_module(f"casebook.cases.{case}.studies.{module}").record)
    if name in OF_A_REAL_MODEL and not studies.path(name).exists():
        pytest.skip(f"no recorded run: {studies.command(name)}")
    assert "provenance" in studies.read(name)


def test_an_unknown_study_is_told_the_known_ones():
    with pytest.raises(CasebookError, match="unknown study 'ranks': known are conversion, smol"):
        studies.path("ranks")


@pytest.mark.parametrize("content", [None, "{"])
def test_a_missing_or_broken_record_says_how_to_make_it(content, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    if content is not None:
        studies.path("prompts").parent.mkdir(parents=True)
        studies.path("prompts").write_text(content)
    with pytest.raises(CasebookError, match=r"no record of a study .*casebook study prompts make"):
        studies.read("prompts")


def test_a_study_of_runs_needs_the_experiments_first():
    assert studies.command("gibberish") == "casebook experiments math && casebook study gibberish"
