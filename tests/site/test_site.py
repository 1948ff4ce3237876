"""The site, built once from a made-up series: complete, without a warning, nothing is fetched."""

import json
import re
import runpy
import tomllib
from urllib.parse import unquote

import nbformat
import pytest

from casebook import paths, records, site
from casebook.case import CasebookError
from casebook.site import build

pytestmark = pytest.mark.slow  # Sphinx renders the pages once

ADDRESS = "https://github.com/an-organisation/rlvr-casebook"


def words(path):
    return " ".join(re.sub(r"<[^>]+>", "", path.read_text()).split())


def test_the_site_is_whole_and_fetches_nothing(reports, rendered):
    pages = sorted(reports.glob("*.html"))
    named = {"index", "00_start_here", "10_poker_oracle", "status", "transcripts", "poker", "about"}
    assert named | {"findings", "lessons", "source_math"} <= {path.stem for path in pages}
    for path in pages:
        page = rendered(path)
        assert not page.external, path.name
        for address in page.fetched + page.anchors:
            local = unquote(address.split("#")[0].split("?")[0])
            if local and not re.match(r"[a-z]+:|//", local):
                assert (path.parent / local).exists(), f"{path.name} links to {address}"


def test_pages_say_whose_outputs_they_show(reports):
    text = {path.stem: path.read_text() for path in reports.glob("*.html")}
    assert "Committed outputs, from one clean run" in text["00_start_here"]
    assert (
        "Outputs of this machine’s run of 2026-11-20 (profile nano, seed 0)"
        in text["10_poker_oracle"]
    )
    assert 'id="failing-cell"' in text["11_poker_rewards"]
    assert "ValueError: a &lt; b in cell 6" in text["status"]
    assert "<math" in text["10_poker_oracle"]


def test_pages_show_the_records_the_predictions_and_the_claims(reports):
    results, source = words(reports / "results.html"), words(reports / "source_poker.html")
    assert "% [33.0,\N{NO-BREAK SPACE}37.0]" in (reports / "results.html").read_text()
    assert "casebook experiments poker --arm grpo" in results
    assert "predictions of ours, beyond the claims" in source
    claim = records.load_claims("poker")[0]["claim"]
    assert " ".join(claim.split()) in words(reports / "findings.html")


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_pages_have_a_button_for_colab_only_where_it_leads_somewhere(address, monkeypatch):
    project = (paths.ROOT / "pyproject.toml").read_text()
    text = project.replace('repository = ""', f'repository = "{address}"')
    monkeypatch.setattr(paths, "project", lambda: tomllib.loads(text))
    options = runpy.run_path(str(build.DOCS / "conf.py"))["html_theme_options"]
    assert ("colab_url" in options.get("launch_buttons", {})) is bool(address)
    mended = site.pages.mend_links("see [it](../configs/poker/nano.yaml)", set())
    link = f"[it]({ADDRESS}/blob/main/configs/poker/nano.yaml)"
    assert mended == f"see {link if address else 'it'}"


# The single-file report


def test_a_report_is_one_file_that_fetches_nothing(reports, rendered):
    page = rendered(reports / "poker.html")
    assert [address[:5] for address in page.fetched] == ["data:"] * 2
    assert not page.external
    assert len(page.ids) == len(set(page.ids))
    assert page.alts == [f'A line "rises" in {t}' for t in ("Is it right?", "Can it be fooled?")]
    assert "#n11" in page.anchors
    assert {anchor[1:] for anchor in page.anchors if anchor[:1] == "#"} <= set(page.ids)
    assert not [anchor for anchor in page.anchors if ".html" in anchor or "ipynb" in anchor]


# Transcripts


def test_a_transcript_page_holds_every_completion_of_a_case_as_text(reports):
    text = (reports / "transcripts" / "poker.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    columns, texts = data["columns"], data["texts"]
    assert data["length"] == 16
    assert columns["step"][:8] == [1] * 4 + [10] * 4
    assert texts[columns["completion"][0]] == "<answer>0</answer></script><b>"
    assert columns["extracted"][1] == -1  # nothing was read
    assert columns["advantage"][:2] == [1.5, None]
    # Neither names of runs nor completions can become markup.
    assert text.count("</script>") == 2
    assert not re.search("<img|<b>", text)
    assert "<img" not in (reports / "transcripts.html").read_text().partition("<h1>")[2]


# Building again


@pytest.mark.heavy
def test_a_second_build_touches_only_what_changed(series, made):
    made.run("10_poker_oracle")
    site.build_site()
    before = {path: path.stat().st_mtime_ns for path in paths.REPORTS.glob("*.html")}
    (paths.REPORTS / "execution.json").unlink()
    site.build_site()
    changed = {path.stem for path, then in before.items() if path.stat().st_mtime_ns != then}
    assert {"10_poker_oracle", "poker", "status"} <= changed
    assert not {"00_start_here", "glossary"} & changed
    broken = nbformat.read(paths.NOTEBOOKS / "10_poker_oracle.ipynb", as_version=4)
    broken.cells[3].source = r"The formula $\left( a$ has no end."
    (paths.REPORTS / "executed" / "10_poker_oracle.ipynb").unlink()
    nbformat.write(broken, paths.NOTEBOOKS / "10_poker_oracle.ipynb")
    with pytest.raises(CasebookError, match=r"(?s)10_poker_oracle\.ipynb.*cannot be shown"):
        site.build_site()
