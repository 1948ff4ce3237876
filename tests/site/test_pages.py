"""Notebooks as pages: what they show, where it comes from, and where their links lead."""

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mdit_py_plugins.anchors.index import slugify
from nbformat.v4 import new_code_cell, new_notebook

from casebook import paths
from casebook.case import CasebookError
from casebook.site import pages


def page(stem: str) -> pages.Page:
    found = {page.stem: page for page in pages.read_pages(paths.REPORTS, paths.NOTEBOOKS)}
    return found[stem]


# Which outputs a page shows


def test_a_page_without_run_shows_the_committed_outputs(series):
    assert page("10_poker_oracle").source == "committed"
    assert "Committed outputs" in page("10_poker_oracle").notebook.cells[0].source


def test_a_page_with_a_run_says_whose_and_which(series, run):
    run("10_poker_oracle")
    origin = page("10_poker_oracle").origin
    assert origin == (
        "Outputs of this machine’s run, 20 November 2026 (profile nano, seed 0, 21 s)."
    )


def test_a_smoke_run_is_never_shown_as_a_result(series, run):
    run("10_poker_oracle", profile="smoke")
    assert "its figures are no results" in page("10_poker_oracle").origin


def test_a_failed_run_is_shown_and_its_cell_marked(series, run):
    run("10_poker_oracle", status="failed", error="ValueError: a < b")
    shown = page("10_poker_oracle")
    assert shown.source == "failed"
    assert "#failing-cell" in shown.notebook.cells[0].source
    assert 'id="failing-cell"' in shown.notebook.cells[-2].source


def test_a_run_of_other_code_is_flagged(series, run):
    run("10_poker_oracle")
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    changed = nbformat.read(path, as_version=4)
    changed.cells[2].source = "SEED = 1"
    nbformat.write(changed, path)
    assert "changed since" in page("10_poker_oracle").origin


def test_injected_parameters_are_no_change(series, run):
    run("10_poker_oracle")
    path = paths.REPORTS / "executed" / "10_poker_oracle.ipynb"
    copy = nbformat.read(path, as_version=4)
    cell = new_code_cell("SEED = 3", metadata={"tags": ["injected-parameters"]})
    copy.cells.insert(3, cell)
    nbformat.write(copy, path)
    assert "changed since" not in page("10_poker_oracle").origin


def test_an_earlier_run_outlives_one_that_was_skipped(series, run):
    run("10_poker_oracle")
    run("10_poker_oracle", status="skipped", profile="smoke")
    assert page("10_poker_oracle").source == "run"
    assert "smoke" not in page("10_poker_oracle").origin


def test_a_half_written_copy_is_not_shown(series, run):
    run("10_poker_oracle")
    (paths.REPORTS / "executed" / "10_poker_oracle.ipynb").write_text('{"cells": [')
    assert page("10_poker_oracle").source == "committed"


@pytest.mark.parametrize("text", ['{"10_poker_oracle": ', "[]", '{"10_poker_oracle": 3}', "null"])
def test_a_status_file_that_is_none_is_taken_for_none(series, text):
    (paths.REPORTS / "execution.json").write_text(text)
    assert page("10_poker_oracle").entry == {}


def test_a_notebook_without_outputs_says_so(series, notebook):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    nbformat.write(notebook("Is it right?", outputs=False), path)
    assert page("10_poker_oracle").source == "none"


def test_a_broken_committed_notebook_is_named(series):
    (paths.NOTEBOOKS / "11_poker_rewards.ipynb").write_text("{")
    with pytest.raises(CasebookError, match=r"11_poker_rewards\.ipynb is not a readable notebook"):
        pages.read_pages(paths.REPORTS, paths.NOTEBOOKS)


@pytest.mark.parametrize("title", ["Is it right?", "10 Is it right?", "10 · Is it right?"])
def test_a_title_has_its_number_once(series, notebook, title):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    nbformat.write(notebook(title), path)
    assert page("10_poker_oracle").title == "10 · Is it right?"


def test_a_notebook_without_a_heading_is_named_after_its_file(series):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("1")]), path)
    assert page("10_poker_oracle").title == "10 · poker oracle"


@pytest.mark.parametrize(
    ("link", "mended"),
    [
        ("[a](11_x.ipynb)", "[a](11_x.ipynb)"),
        ("[a](../notebooks/11_x.ipynb#two)", "[a](11_x.ipynb#two)"),
        ("[a](12_none.ipynb)", "a"),
        ("[a](../configs/poker/nano.yaml)", "a"),
        ("[a](https://example.org/x.ipynb)", "[a](https://example.org/x.ipynb)"),
        ("[a](#here)", "[a](#here)"),
    ],
)
def test_links_lead_somewhere_or_are_words(series, link, mended):
    assert pages.mend_links(link, {"11_x"}) == mended


def test_links_into_the_repository_need_its_address(series, monkeypatch):
    monkeypatch.setattr(paths, "repository", lambda: "https://example.org/casebook")
    assert pages.mend_links("[a](../configs/poker/nano.yaml)", set()) == (
        "[a](https://example.org/casebook/blob/main/configs/poker/nano.yaml)"
    )


# Formulas


@pytest.mark.parametrize("environment", ["align", "align*", "aligned", "split"])
def test_aligned_formulas_become_tables(environment):
    tex = rf"\begin{{{environment}}} a &= b \\ c &= d \end{{{environment}}}"
    assert pages.mathml(tex, block=True).count("<mtr>") == 2


def test_a_formula_that_cannot_be_shown_is_named():
    with pytest.raises(CasebookError, match=r"cannot be shown: \\left\("):
        pages.mathml(r"\left( a")


@given(st.text(max_size=60))
def test_any_text_is_mathml_or_a_clear_error(tex):
    try:
        formula = pages.mathml(tex)
    except CasebookError:
        return
    assert formula.startswith("<math")


def test_a_heading_that_a_page_has_not_is_a_link_to_the_page():
    link = pages.heading_link("41 · Two rewards", {"41": "41_math"}, {"41": {"Another"}})
    assert link == "[41 · Two rewards](41_math.ipynb)"
    assert pages.heading_link("42 · Two", {"41": "41_math"}) == "42 · Two"


@pytest.mark.parametrize(
    "heading",
    ["Exact, or equal?", "`pass@k`: what it is", "p^G + (1 − p)^G", "A and B_c", "Zoë's"],
)
def test_a_link_to_a_heading_has_the_anchor_that_the_page_gives_it(heading):
    link = pages.heading_link(f"41 · {heading}", {"41": "41_math"})
    assert link.endswith(f"(41_math.ipynb#{slugify(heading)})")
