"""No record is made from a tree with changes."""

import pytest
from typer.testing import CliRunner

from casebook.case import CasebookError
from casebook.cli import app
from casebook.experiments import run_experiments
from casebook.records import gate


@pytest.fixture
def dirty(monkeypatch):
    monkeypatch.setattr(gate, "revision", lambda: {"revision": "0" * 40, "dirty": True})


def test_neither_an_experiment_nor_a_study_writes_from_a_tree_with_changes(dirty):
    with pytest.raises(CasebookError, match="commit them first"):
        run_experiments("poker", "nano")
    study = CliRunner().invoke(app, ["study", "prompts"])
    assert "commit them first" in str(study.exception)
