"""The single-file report of a case: all of it inside one file, as the site renders it."""

import re
from xml.etree import ElementTree

import pytest

from casebook import records
from casebook.case import load_case
from casebook.site import report
from casebook.site.pages import Page as NotebookPage

pytestmark = pytest.mark.slow  # Sphinx renders the pages once


@pytest.fixture
def path(reports):
    return reports / "poker.html"


def test_a_report_is_one_file_that_fetches_nothing(path, rendered):
    page = rendered(path)
    assert [address[:5] for address in page.fetched] == ["data:"] * 2
    assert not page.external
    assert len(page.ids) == len(set(page.ids))


def test_a_report_opens_with_the_write_up_and_its_verdicts(path):
    text = re.sub(r"<[^>]+>", "", path.read_text())
    text = " ".join(text.split())
    assert "35.0 %" in text
    order = [text.index(words) for words in ("The write-up: Poker", "one minute", "What it claims")]
    assert order == sorted(order)
    assert order[-1] < text.index("Is it right?", order[-1])
    first = " ".join(records.load_claims("poker")[0]["claim"].split())
    assert first in text


def test_a_report_holds_the_case_and_no_other_notebook(path):
    text = path.read_text()
    assert re.findall(r'<section class="notebook" id="(\w+)">', text) == ["n10", "n11"]


def test_a_report_folds_code_and_shows_outputs(path, reports):
    text = path.read_text()
    assert text.count('<details class="code">') == 6  # the install cells are left out
    installing = re.compile("(&#39;|')install\\1")
    assert installing.search((reports / "10_poker_oracle.html").read_text())
    assert not installing.search(text)
    assert text.count("<details") == text.count("</details>")
    assert text.count("<div") == text.count("</div>")
    assert "&lt;answer&gt;full house" in text
    assert 'class="dataframe"' in text


def test_a_report_draws_formulas_of_prose_and_outputs_as_mathml(path):
    formulas = re.findall(r"<math.*?</math>", path.read_text(), re.DOTALL)
    assert len(formulas) >= 2 * 3
    for formula in formulas:
        ElementTree.fromstring(formula)


def test_pictures_of_a_report_have_their_alternative_text(path, rendered):
    alts = [f'A line "rises" in {title}' for title in ("Is it right?", "Can it be fooled?")]
    assert rendered(path).alts == alts


def test_links_of_a_report_stay_inside_it(path, rendered):
    page = rendered(path)
    assert "#n11" in page.anchors
    assert {anchor[1:] for anchor in page.anchors if anchor[:1] == "#"} <= set(page.ids)
    assert not [anchor for anchor in page.anchors if ".html" in anchor or "ipynb" in anchor]


def test_the_headings_of_a_report_have_the_anchors_of_the_site(path, reports, rendered):
    anchors = set(rendered(reports / "10_poker_oracle.html").ids)
    inside = {name.removeprefix("n10-") for name in rendered(path).ids if name.startswith("n10-")}
    assert "the-loss" in inside
    assert inside <= anchors


def test_an_unchanged_report_is_not_written_again(path, reports):
    chapters = [
        NotebookPage(stem, "", None, "run", "", {})
        for stem in ("10_poker_oracle", "11_poker_rewards")
    ]
    before = path.stat().st_mtime_ns
    report.write_report(load_case("poker"), chapters, reports)
    assert path.stat().st_mtime_ns == before
    report.write_report(load_case("poker"), chapters[:1], reports)
    assert path.stat().st_mtime_ns > before
    report.write_report(load_case("poker"), chapters, reports)
