"""The public address is written in one place: what follows where it is set, and where not."""

import runpy
import tomllib

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from casebook import execute, paths
from casebook.site import pages

ADDRESS = "https://github.com/an-organisation/rlvr-casebook"


@pytest.fixture(params=["", ADDRESS, ADDRESS + "/"], ids=["none", "set", "slash"])
def address(request, monkeypatch):
    """The setting in `pyproject.toml`, as somebody would write it."""
    line = 'repository = ""'
    text = (paths.ROOT / "pyproject.toml").read_text()
    assert text.count(f"\n{line}\n") == 1
    text = text.replace(line, f'repository = "{request.param}"')
    monkeypatch.setattr(paths, "project", lambda: tomllib.loads(text))
    return request.param.rstrip("/")


def test_the_setting_is_read(address):
    assert paths.repository() == address


@pytest.mark.parametrize("kind", ["light", "train"])
def test_install_cells_clone_it_or_unpack_what_was_uploaded(address, kind):
    cell = execute.install_cell(kind, "poker")
    assert (f'repository = "{ADDRESS}"\n' in cell) is bool(address)
    assert ("unzip" in cell) is not bool(address)


def test_it_is_written_into_every_notebook(address, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    for name in ("10_poker_oracle", "13_poker_grpo"):
        cell = new_code_cell("import sys", metadata={"tags": ["install"]})
        nbformat.write(new_notebook(cells=[cell]), tmp_path / f"{name}.ipynb")
    for path in execute.write_install_cells():
        assert (ADDRESS in path.read_text()) is bool(address)


def test_pages_have_a_button_for_colab_only_where_it_leads_somewhere(address):
    options = runpy.run_path(str(paths.ROOT / "docs" / "conf.py"))["html_theme_options"]
    assert options.get("repository_url") == (address or None)
    assert ("colab_url" in options.get("launch_buttons", {})) is bool(address)


def test_links_into_the_repository_lead_to_it_or_are_words(address):
    mended = pages.mend_links("see [the settings](../configs/poker/nano.yaml)", set())
    target = f"{ADDRESS}/blob/main/configs/poker/nano.yaml"
    assert mended == ("see [the settings](" + target + ")" if address else "see the settings")
