"""The pages: what they show, where it comes from, and that nothing is fetched for them."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from casebook import paths, records, site
from casebook.case import CasebookError, UnknownName, known_cases

FIGURE = {"value": 0.35, "low": 0.33, "high": 0.37, "n": 1000}
CLAIM = {
    "id": "constant-answer",
    "claim": "The tuned model earns a mean reward of 0.25.",
    "source": "results",
    "evidence": "computation",
    "verdict": "confirmed",
    "note": "So does the constant answer: $0.25 = 50 / 200$.",
    "computed_in": "notebook 10",
}
MATHS = r"""## The loss

The advantage is $\hat A_i = (r_i - \bar r) / s_r$, and

\begin{align}
p^G + (1-p)^G &= \Pr[\text{no gradient}]
\end{align}

Go to [the rewards](11_poker_rewards.ipynb), [a file](../configs/poker/nano.yaml) or
[the start](00_start_here.ipynb)."""


# Notebooks made up for these tests


def picture(tmp_path: Path) -> str:
    figure, _ = plt.subplots(figsize=(1, 1))
    figure.savefig(tmp_path / "picture.png")
    plt.close(figure)
    return base64.b64encode((tmp_path / "picture.png").read_bytes()).decode()


def notebook(title: str, png: str, outputs: bool = True) -> nbformat.NotebookNode:
    shown = [
        new_output(
            "display_data",
            data={"image/png": png, "text/plain": "<Figure>"},
            metadata={"image/png": {"alt": f'A line "rises" in {title}'}},
        ),
        new_output("display_data", data={"text/markdown": "Accuracy **0.35**, $p = 0.35$."}),
        new_output("stream", name="stdout", text="<answer>full house</answer>\n"),
    ]
    table = pd.DataFrame({"arm": ["base", "GRPO"]}).to_html()
    result = new_output("execute_result", data={"text/html": table}, execution_count=2)
    return new_notebook(
        cells=[
            new_markdown_cell(f"# {title}\n\nAbout 20 s."),
            new_code_cell("print('install')", metadata={"tags": ["install"]}),
            new_code_cell("SEED = 0", metadata={"tags": ["parameters"]}),
            new_markdown_cell(MATHS),
            new_code_cell("plots.show(figure)", outputs=shown if outputs else []),
            new_code_cell("table", outputs=[result] if outputs else [], execution_count=2),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


@pytest.fixture
def series(checkout, tmp_path):
    """A checkout with three notebooks: the start and two of the poker case."""
    titles = {"00_start_here": "Where to start?", "10_poker_oracle": "Is it right?"}
    for stem, title in (titles | {"11_poker_rewards": "Can it be fooled?"}).items():
        nbformat.write(notebook(title, picture(tmp_path)), paths.NOTEBOOKS / f"{stem}.ipynb")
    return checkout


def run(stem: str, status: str = "ok", profile: str = "nano", **fields) -> None:
    """Leave what an execution of a notebook leaves."""
    if status in ("ok", "failed"):
        folder = paths.REPORTS / {"ok": "executed", "failed": "failed"}[status]
        folder.mkdir(exist_ok=True)
        copy = nbformat.read(paths.NOTEBOOKS / f"{stem}.ipynb", as_version=4)
        if status == "failed":
            copy.cells[-1].outputs = [
                new_output("error", ename="ValueError", evalue="a < b", traceback=["\x1b[31ma < b"])
            ]
        nbformat.write(copy, folder / f"{stem}.ipynb")
    entry = {"status": status, "profile": profile, "seed": 0, "seconds": 21.4, "error": ""}
    entry |= {"started": "2026-11-20T18:03:11+00:00", "parameters": {}} | fields
    path = paths.REPORTS / "execution.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(entries | {stem: entry}))


def page(stem: str) -> site.Page:
    pages = {page.stem: page for page in site.read_pages(paths.REPORTS, paths.NOTEBOOKS)}
    return pages[stem]


# Which outputs a page shows


def test_a_page_without_run_shows_the_committed_outputs(series):
    assert page("10_poker_oracle").source == "committed"
    assert "Committed outputs" in page("10_poker_oracle").notebook.cells[0].source


def test_a_page_with_a_run_says_whose_and_which(series):
    run("10_poker_oracle")
    origin = page("10_poker_oracle").origin
    assert origin == (
        "Outputs of this machine’s run, 20 November 2026 (profile nano, seed 0, 21 s)."
    )


def test_a_smoke_run_is_never_shown_as_a_result(series):
    run("10_poker_oracle", profile="smoke")
    assert "its figures are no results" in page("10_poker_oracle").origin


def test_a_failed_run_is_shown_and_its_cell_marked(series):
    run("10_poker_oracle", status="failed", error="ValueError: a < b")
    shown = page("10_poker_oracle")
    assert shown.source == "failed"
    assert "#failing-cell" in shown.notebook.cells[0].source
    assert 'id="failing-cell"' in shown.notebook.cells[-2].source


def test_a_run_of_other_code_is_flagged(series):
    run("10_poker_oracle")
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    changed = nbformat.read(path, as_version=4)
    changed.cells[2].source = "SEED = 1"
    nbformat.write(changed, path)
    assert "changed since" in page("10_poker_oracle").origin


def test_injected_parameters_are_no_change(series):
    run("10_poker_oracle")
    path = paths.REPORTS / "executed" / "10_poker_oracle.ipynb"
    copy = nbformat.read(path, as_version=4)
    cell = new_code_cell("SEED = 3", metadata={"tags": ["injected-parameters"]})
    copy.cells.insert(3, cell)
    nbformat.write(copy, path)
    assert "changed since" not in page("10_poker_oracle").origin


def test_an_earlier_run_outlives_one_that_was_skipped(series):
    run("10_poker_oracle")
    run("10_poker_oracle", status="skipped", profile="smoke")
    assert page("10_poker_oracle").source == "run"
    assert "smoke" not in page("10_poker_oracle").origin


def test_a_half_written_copy_is_not_shown(series):
    run("10_poker_oracle")
    (paths.REPORTS / "executed" / "10_poker_oracle.ipynb").write_text('{"cells": [')
    assert page("10_poker_oracle").source == "committed"


def test_a_half_written_status_file_is_taken_for_none(series):
    (paths.REPORTS / "execution.json").write_text('{"10_poker_oracle": ')
    assert page("10_poker_oracle").entry == {}


def test_a_notebook_without_outputs_says_so(series, tmp_path):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    nbformat.write(notebook("Is it right?", picture(tmp_path), outputs=False), path)
    assert page("10_poker_oracle").source == "none"


def test_a_broken_committed_notebook_is_named(series):
    (paths.NOTEBOOKS / "11_poker_rewards.ipynb").write_text("{")
    with pytest.raises(CasebookError, match=r"11_poker_rewards\.ipynb is not a readable notebook"):
        site.read_pages(paths.REPORTS, paths.NOTEBOOKS)


@pytest.mark.parametrize("title", ["Is it right?", "10 Is it right?", "10 · Is it right?"])
def test_a_title_has_its_number_once(series, tmp_path, title):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    nbformat.write(notebook(title, picture(tmp_path)), path)
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
    assert site._mend_links(link, {"11_x"}) == mended


def test_links_into_the_repository_need_its_address(series, monkeypatch):
    monkeypatch.setattr(paths, "repository", lambda: "https://example.org/casebook")
    assert site._mend_links("[a](../configs/poker/nano.yaml)", set()) == (
        "[a](https://example.org/casebook/blob/main/configs/poker/nano.yaml)"
    )


# Formulas


@pytest.mark.parametrize("environment", ["align", "align*", "aligned", "split"])
def test_aligned_formulas_become_tables(environment):
    tex = rf"\begin{{{environment}}} a &= b \\ c &= d \end{{{environment}}}"
    assert site.mathml(tex, block=True).count("<mtr>") == 2


def test_a_formula_that_cannot_be_shown_is_named():
    with pytest.raises(CasebookError, match=r"cannot be shown: \\left\("):
        site.mathml(r"\left( a")


@given(st.text(max_size=60))
def test_any_text_is_mathml_or_a_clear_error(tex):
    try:
        formula = site.mathml(tex)
    except CasebookError:
        return
    assert formula.startswith("<math")


# What a page fetches


class Page(HTMLParser):
    """What an HTML page would fetch, its ids, its anchors, and the alternatives of its images."""

    def __init__(self, path: Path):
        super().__init__()
        self.fetched, self.ids, self.anchors, self.alts, self.tags = [], [], [], [], []
        text = path.read_text(encoding="utf-8")
        self.feed(text)
        self.fetched += re.findall(r"@import\s+\S+|url\(\s*['\"]?(https?:[^)]+)", text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.anchors.append(values.get("href") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(values["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and "src" in values:
            self.fetched.append(values["src"])
        if tag == "img":
            self.alts.append(values.get("alt"))


def external(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"(https?:)?//", address)]


# The single-file report


def test_a_report_is_one_file(series):
    path = site.single_file_report("poker")
    report = Page(path)
    assert path == paths.REPORTS / "poker.html"
    assert [address[:5] for address in report.fetched] == ["data:"] * 2
    assert len(report.ids) == len(set(report.ids))
    assert path.stat().st_size < 5_000_000


def test_a_report_holds_the_case_and_no_other_notebook(series):
    text = site.single_file_report("poker").read_text()
    assert re.findall(r'<section class="notebook" id="(\w+)">', text) == ["n10", "n11"]


def test_a_report_folds_code_and_shows_outputs(series):
    text = site.single_file_report("poker").read_text()
    assert text.count('<details class="code">') == 6  # the install cells are left out
    assert "&lt;answer&gt;full house" in text
    assert '<table border="1" class="dataframe">' in text


def test_a_report_draws_formulas_of_prose_and_outputs_as_mathml(series):
    text = site.single_file_report("poker").read_text()
    formulas = re.findall(r"<math.*?</math>", text, re.DOTALL)
    assert len(formulas) == 2 * 3
    for formula in formulas:
        ElementTree.fromstring(formula)


def test_pictures_of_a_report_have_their_alternative_text(series):
    alts = Page(site.single_file_report("poker")).alts
    assert alts == [f'A line "rises" in {title}' for title in ("Is it right?", "Can it be fooled?")]


def test_links_of_a_report_stay_inside_it(series):
    report = Page(site.single_file_report("poker"))
    assert "#n11" in report.anchors
    assert {anchor[1:] for anchor in report.anchors if anchor[0] == "#"} <= set(report.ids)
    assert not [anchor for anchor in report.anchors if "ipynb" in anchor]


def test_a_report_begins_with_summary_and_verdicts(series, monkeypatch):
    monkeypatch.setattr(records, "load_claims", lambda case: [CLAIM])
    for seed in range(3):
        write_record(seed)
    text = site.single_file_report("poker").read_text()
    summary = re.search(r'<div class="summary">(.*?)</div>', text, re.DOTALL)[1]
    assert "35.0 %" in summary
    assert "1 settled by computation; 0 refuted" in summary
    assert 60 < len(re.sub(r"<[^>]+>", "", summary).split()) < 170
    assert text.index("So does the constant answer") < text.index('id="n10"')


def test_a_report_without_record_gives_the_command(series):
    assert "casebook experiments poker" in site.single_file_report("poker").read_text()


def test_an_unchanged_report_is_not_written_again(series):
    before = site.single_file_report("poker").stat().st_mtime_ns
    assert site.single_file_report("poker").stat().st_mtime_ns == before
    run("10_poker_oracle")
    assert site.single_file_report("poker").stat().st_mtime_ns > before


def test_a_report_needs_a_known_case(series):
    with pytest.raises(UnknownName, match="known are"):
        site.single_file_report("pokr")


def test_a_report_needs_notebooks(checkout):
    with pytest.raises(CasebookError, match="no notebooks named 1"):
        site.single_file_report("poker")


def test_what_is_not_installed_is_named(series, monkeypatch):
    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CasebookError, match=r"latex2mathml is not installed: pip install -e"):
        site.single_file_report("poker")


# The transcript browser


def completions(step: int, rows: int = 4, **columns) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "step": step,
            "prompt": "Classify.\nHand: 2H 2D 2C 9S 9H\n",
            "answer": "full house",
            "completion": [f"<answer>{row}</answer></script><b>" for row in range(rows)],
            "tokens": 12,
            "truncated": False,
            "well_formed": True,
            "extracted": ["full house", None] * (rows // 2),
            "correct": [True, False] * (rows // 2),
            "strict": [True, False] * (rows // 2),
            "advantage": [1.5, np.nan] * (rows // 2),
            "reward": [1.2, 0.2] * (rows // 2),
            "reward/correct": [1.0, 0.0] * (rows // 2),
            "reward/tag_format": 0.2,
        }
    )
    return table.assign(**columns)


def write_run(runs: Path, name: str = "one", steps=(1, 10), profile="nano", **columns) -> Path:
    folder = runs / "poker" / profile / name / "completions"
    folder.mkdir(parents=True)
    for step in steps:
        completions(step, **columns).to_parquet(folder / f"train_{step:05d}.parquet")
    return folder.parent


def data_of(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_transcript_page_holds_every_completion(series, tmp_path):
    write_run(tmp_path / "runs")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    data = data_of(tmp_path / entry["file"])
    columns, texts = data["columns"], data["texts"]
    assert (entry["rows"], data["length"]) == (8, 8)
    assert columns["step"] == [1] * 4 + [10] * 4
    assert [texts[code] for code in columns["completion"][:2]] == [
        "<answer>0</answer></script><b>",
        "<answer>1</answer></script><b>",
    ]
    assert columns["extracted"][1] is None
    assert columns["advantage"][:2] == [1.5, None]
    assert data["rewards"] == ["correct", "tag_format"]


def test_no_completion_can_end_the_script_or_become_markup(series, tmp_path):
    write_run(tmp_path / "runs", name="a<b>c")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    tags = Page(tmp_path / entry["file"]).tags
    assert tags.count("script") == 2
    assert "b" not in tags


def test_a_transcript_page_is_written_again_only_for_new_completions(series, tmp_path):
    folder = write_run(tmp_path / "runs")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    before = (tmp_path / entry["file"]).stat().st_mtime_ns
    site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert (tmp_path / entry["file"]).stat().st_mtime_ns == before
    completions(20).to_parquet(folder / "completions" / "train_00020.parquet")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert entry["rows"] == 12


def test_the_page_of_a_run_that_is_gone_goes_too(series, tmp_path):
    folder = write_run(tmp_path / "runs")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    shutil.rmtree(folder)
    assert site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs") == []
    assert not (tmp_path / entry["file"]).exists()


def test_a_large_run_keeps_evenly_spaced_steps_and_says_so(series, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MOST_BYTES", 500)
    write_run(tmp_path / "runs", steps=range(10, 110, 10))
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    steps = set(data_of(tmp_path / entry["file"])["columns"]["step"])
    assert len(steps) < 10
    assert len({b - a for a, b in zip(sorted(steps), sorted(steps)[1:], strict=False)}) == 1
    assert "Left out" in (tmp_path / entry["file"]).read_text()


def test_only_the_newest_runs_get_a_page(series, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MOST_TRANSCRIPTS", 2)
    for age, name in enumerate(["new", "newer", "old"]):
        os.utime(write_run(tmp_path / "runs", name), (1000, 1000 + age * (-1) ** age))
    listing = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert [entry["run"] for entry in listing] == ["old", "new"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs a browser")
def test_filters_in_the_address_are_applied(series, tmp_path):
    write_run(tmp_path / "runs")
    [entry] = site.write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    address = f"file://{tmp_path / entry['file']}#outcome=right&step-from=5&reward-from=1"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert "2 of 8 completions" in shown
    assert shown.count("<article>") == 2


# The README's results


def write_record(seed: int, arm: str = "grpo") -> None:
    figures = {"sampled_accuracy": FIGURE, "greedy_accuracy": FIGURE}
    record = {"case": "poker", "profile": "nano", "arm": arm, "seed": seed, "provenance": {}}
    record |= {"before": figures, "after": figures, "train_seconds": 98.0 + seed}
    records.write_json(paths.RESULTS / "poker" / "nano" / arm / f"seed{seed}.json", record)


def test_the_results_have_one_row_for_each_arm(checkout):
    for seed in range(3):
        write_record(seed)
    write_record(0, arm="random reward")
    lines = site.readme_results().splitlines()
    rows = [line for line in lines if line.startswith("| poker")]
    assert [row.split("|")[1:3] for row in rows] == [
        [" poker, grpo ", " 3 "],
        [" poker, random reward ", " 1 "],
    ]
    assert "| 99 s | `casebook experiments poker --arm grpo` |" in rows[0]
    assert any(line.startswith("All 4 records of poker: 7 minutes") for line in lines)


def test_the_results_hold_the_benchmarks(checkout):
    speeds = {"hands_per_second": {"oracle": 32_000_000.0}, "repeats": 7, "provenance": {"n": 1}}
    records.write_json(paths.RESULTS / "benchmarks" / "oracle_speed.json", speeds)
    (row,) = (line for line in site.readme_results().splitlines() if "oracle |" in line)
    assert row.startswith("| hands per second oracle | 32,000,000 | `python benchmarks/oracle_sp")


def test_without_records_the_results_say_so(checkout):
    assert site.readme_results() == records.missing("casebook experiments poker")


MARKED = """# A
<!-- claims:begin -->{claims}<!-- claims:end -->
B
<!-- results:begin -->{results}<!-- results:end -->
C
"""


def test_claims_and_results_go_between_their_marks(checkout, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(MARKED.format(claims="", results="\nold\n"))
    assert site.write_readme_results(readme)
    made = {"claims": site.readme_claims(), "results": site.readme_results()}
    assert readme.read_text() == MARKED.format(**{k: f"\n\n{v}\n\n" for k, v in made.items()})
    assert not site.write_readme_results(readme)


def test_a_heading_that_a_page_has_not_is_a_link_to_the_page():
    link = site.heading_link("41 · Two rewards", {"41": "41_math"}, {"41": {"Another"}})
    assert link == "[41 · Two rewards](41_math.ipynb)"
    assert site.heading_link("42 · Two", {"41": "41_math"}) == "42 · Two"


def test_the_table_of_claims_adds_up(checkout):
    lines = [line.strip("| ").split(" | ") for line in site.readme_claims().splitlines()]
    assert lines[0][1] == "claims"
    *rows, together = ([int(cell) for cell in line[1:]] for line in lines[2:])
    assert all(row[0] == sum(row[1:]) for row in rows)
    assert together == [sum(column) for column in zip(*rows, strict=True)]
    known = [len(records.load_claims(name)) for name in known_cases()]
    assert sorted(row[0] for row in rows) == sorted(known)


@pytest.mark.parametrize("text", ["", "<!-- results:begin -->", "<!-- claims:begin -->"])
def test_a_readme_without_marks_is_left_alone(checkout, tmp_path, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(CasebookError, match=r"README\.md needs the lines"):
        site.write_readme_results(readme)
    assert readme.read_text() == text


def test_the_readme_shows_the_committed_results(tmp_path):
    copy = shutil.copy(paths.ROOT / "README.md", tmp_path)
    assert not site.write_readme_results(copy)


# The site


@pytest.fixture
def built(series):
    run("10_poker_oracle")
    run("11_poker_rewards", status="failed", error="ValueError: a < b in cell 6")
    write_run(series / "runs")
    return site.build_site()


@pytest.mark.slow
def test_the_site_is_whole_and_fetches_nothing(built):
    assert built == paths.REPORTS / "index.html"
    pages = sorted(paths.REPORTS.glob("*.html"))
    assert {"index", "00_start_here", "10_poker_oracle", "status", "transcripts", "poker"} <= {
        path.stem for path in pages
    }
    for path in pages:
        page = Page(path)
        assert not external(page.fetched), path.name
        for address in page.fetched + page.anchors:
            local = address.split("#")[0].split("?")[0]
            if local and not re.match(r"[a-z]+:|//", local):
                assert (path.parent / local).exists(), f"{path.name} links to {address}"


@pytest.mark.slow
def test_the_pages_of_the_site_say_what_they_show(built):
    text = {path.stem: path.read_text() for path in paths.REPORTS.glob("*.html")}
    assert "Committed outputs, from one clean run" in text["00_start_here"]
    assert "Outputs of this machine’s run, 20 November 2026" in text["10_poker_oracle"]
    assert 'id="failing-cell"' in text["11_poker_rewards"]
    assert "ValueError: a &lt; b in cell 6" in text["status"]
    assert "colab.research" not in text["10_poker_oracle"]
    assert "<math" in text["10_poker_oracle"]
    assert "A line &quot;rises&quot; in Is it right?" in text["10_poker_oracle"]
    assert "transcripts/poker-nano-one.html" in text["transcripts"]


@pytest.mark.slow
def test_a_second_build_writes_only_what_changed(built):
    before = {path: path.stat().st_mtime_ns for path in paths.REPORTS.glob("1*.html")}
    (paths.REPORTS / "execution.json").unlink()
    site.build_site()
    changed = {path.stem for path, then in before.items() if path.stat().st_mtime_ns != then}
    assert changed == {"10_poker_oracle", "11_poker_rewards"}
    before = {path: path.stat().st_mtime_ns for path in paths.REPORTS.glob("1*.html")}
    site.build_site()
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


@pytest.mark.slow
def test_a_configured_address_brings_colab_buttons(series):
    project = series / "pyproject.toml"
    address = 'repository = "https://github.com/example/casebook"'
    project.write_text(re.sub(r"(?m)^repository = .*$", address, project.read_text()))
    site.build_site()
    anchors = Page(paths.REPORTS / "10_poker_oracle.html").anchors
    colab = [anchor for anchor in anchors if "colab" in anchor]
    assert colab == [
        "https://colab.research.google.com/github/example/casebook/blob/main/notebooks/"
        "10_poker_oracle.ipynb"
    ]


@pytest.mark.slow
def test_a_warning_is_an_error_that_names_the_page(series):
    path = paths.NOTEBOOKS / "10_poker_oracle.ipynb"
    broken = nbformat.read(path, as_version=4)
    broken.cells[3].source = r"The formula $\left( a$ has no end."
    nbformat.write(broken, path)
    with pytest.raises(CasebookError, match=r"(?s)10_poker_oracle\.ipynb.*cannot be shown"):
        site.build_site()


@pytest.mark.slow
def test_two_builds_at_once_wait_for_each_other(series):
    shutil.copytree(site.DOCS, series / "docs")
    command = [sys.executable, "-c", "from casebook.site import build_site; build_site()"]
    builds = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    assert [build.wait(120) for build in builds] == [0, 0]
    assert (paths.REPORTS / "index.html").exists()


@pytest.mark.slow
def test_a_checkout_without_notebooks_has_a_site(checkout):
    assert site.build_site().exists()
