"""The site as a whole: complete, without a warning, and nothing is fetched for it."""

import re
import shutil
import subprocess
import sys
from urllib.parse import unquote

import nbformat
import pytest
import yaml

from casebook import paths, records, site
from casebook.case import CasebookError, known_cases, load_case
from casebook.site import build
from casebook.site.pages import read_pages


@pytest.fixture
def sources(series, monkeypatch):
    """What Sphinx would read: name -> text."""

    def write(transcripts=()):
        pages = read_pages(paths.REPORTS, paths.NOTEBOOKS)
        build.write_sources(paths.REPORTS / ".source", pages, transcripts)
        files = (paths.REPORTS / ".source").glob("*.md")
        return {path.stem: path.read_text() for path in files}

    return write


def test_the_write_up_of_each_case_opens_with_its_box(sources, monkeypatch):
    monkeypatch.setattr(records, "write_up_box", lambda case: f"| BOX of {case} |")
    text = sources()
    for case in known_cases():
        assert text[f"source_{case}"].split("\n")[2] == f"| BOX of {case} |"


def test_pages_say_what_was_contributed_from_a_gpu(sources, write_record):
    none = "Nothing has been run on a GPU"
    assert none in sources()["results"]
    entry = {"row": 0, "prompt": "Hand", "answer": "flush", "completion": "flush"}
    entry |= {"well_formed": False, "extracted": None, "correct": False}
    kept = {"completions_before": [entry], "completions": [entry]}
    model = {"model": {"name": "Qwen/Qwen2.5-1.5B-Instruct"}}
    sent = {"contributed": {"overrides": {}}, "provenance": model | {"time": ""}}
    write_record(0, arm="as_configured", profile="t4", **kept, **sent)
    text = sources()
    assert none not in text["results"]
    assert "Runs on GPUs were [sent by others](ninety_minutes.md)" in text["results"]


def test_the_page_of_what_was_expected_has_every_prediction(sources):
    text = sources()["expected"]
    for case in known_cases():
        rows = records.predictions(case)
        assert (f"## {load_case(case).title}\n" in text) is bool(rows)
        for row in rows:
            assert f"| {' '.join(row['what'].split())} |" in text
    assert "**no recorded run**" in text
    assert "](expected.md)" in sources()["index"]


def test_a_page_without_figures_stands_as_it_is(sources):
    text = sources()
    plain = {path.stem: path.read_text() for path in build.DOCS.glob("*.md")}
    assert {"hardware", "using", "glossary", "evidence"} <= set(plain)
    for name, said in plain.items():
        assert text[name] == said
        assert not re.search(r"{[{%]", said), name


def test_the_page_of_profiles_names_the_models_of_all_settings():
    said = (build.DOCS / "hardware.md").read_text()
    for path in paths.CONFIGS.glob("*/*.yaml"):
        if path.stem not in ("smoke", "nano", "experiments"):
            model = yaml.safe_load(path.read_text())["model_name_or_path"]
            row = f"| `configs/{path.parent.name}/{path.name}` | `{model}` |"
            assert row in said.splitlines()


def test_the_phases_of_a_build_are_told(series, monkeypatch):
    monkeypatch.setattr(build, "_run_sphinx", lambda *folders: None)
    monkeypatch.setattr(build, "write_report", lambda *of: None)
    told = []
    site.build_site(say=told.append)
    assert [line.split()[0] for line in told] == ["Reading", "Rendering", "Joining"]


def test_names_of_runs_stay_text_in_the_listing(sources):
    run = "<img src=x onerror=alert(1)>"
    entry = {"case": "poker", "profile": run, "run": run, "rows": 3, "file": f"transcripts/{run}"}
    text = sources([entry])["transcripts"]
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 2


def test_the_landing_page_opens_with_the_picture(sources, series):
    assert "```{image}" not in sources()["index"]
    (series / "figures").mkdir()
    (series / "figures" / build.PICTURE).write_bytes(b"picture")
    text = sources()["index"]
    assert text.index(f"```{{image}} {build.PICTURE}") < text.index("## ")
    assert (paths.REPORTS / ".source" / build.PICTURE).read_bytes() == b"picture"


def test_what_is_not_installed_is_named(series, monkeypatch):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CasebookError, match=r"latex2mathml is not installed: pip install -e"):
        site.build_site()


@pytest.mark.slow
def test_the_site_is_whole_and_fetches_nothing(reports, rendered):
    pages = sorted(reports.glob("*.html"))
    assert {
        "index",
        "00_start_here",
        "10_poker_oracle",
        "status",
        "transcripts",
        "poker",
        "findings",
        "results",
    } <= {path.stem for path in pages}
    for path in pages:
        page = rendered(path)
        assert not page.external, path.name
        for address in page.fetched + page.anchors:
            local = unquote(address.split("#")[0].split("?")[0])
            if local and not re.match(r"[a-z]+:|//", local):
                assert (path.parent / local).exists(), f"{path.name} links to {address}"


@pytest.mark.slow
def test_the_pages_of_the_site_say_what_they_show(reports):
    text = {path.stem: path.read_text() for path in reports.glob("*.html")}
    assert "Committed outputs, from one clean run" in text["00_start_here"]
    assert "Outputs of this machine’s run, 20 November 2026" in text["10_poker_oracle"]
    assert 'id="failing-cell"' in text["11_poker_rewards"]
    assert "ValueError: a &lt; b in cell 6" in text["status"]
    assert "colab.research" not in text["10_poker_oracle"]
    assert "<math" in text["10_poker_oracle"]
    assert "A line &quot;rises&quot; in Is it right?" in text["10_poker_oracle"]
    assert "transcripts/poker-nano-one.html" in text["transcripts"]


@pytest.mark.slow
def test_a_second_build_writes_only_what_changed(series, run):
    run("10_poker_oracle")
    run("11_poker_rewards", status="failed", error="ValueError: a < b in cell 6")
    site.build_site()
    before = {path: path.stat().st_mtime_ns for path in paths.REPORTS.glob("1*.html")}
    (paths.REPORTS / "execution.json").unlink()
    site.build_site()
    changed = {path.stem for path, then in before.items() if path.stat().st_mtime_ns != then}
    assert changed == {"10_poker_oracle", "11_poker_rewards"}
    pages = [*paths.REPORTS.glob("1*.html"), paths.REPORTS / "poker.html"]
    before = {path: path.stat().st_mtime_ns for path in pages}
    site.build_site()
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


@pytest.mark.slow
def test_a_configured_address_brings_colab_buttons(series, rendered):
    project = series / "pyproject.toml"
    address = 'repository = "https://github.com/example/casebook"'
    project.write_text(re.sub(r"(?m)^repository = .*$", address, project.read_text()))
    site.build_site()
    anchors = rendered(paths.REPORTS / "10_poker_oracle.html").anchors
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
    shutil.copytree(build.DOCS, series / "docs")
    command = [sys.executable, "-c", "from casebook.site import build_site; build_site()"]
    builds = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    assert [build.wait(120) for build in builds] == [0, 0]
    assert (paths.REPORTS / "index.html").exists()


@pytest.mark.slow
def test_a_checkout_without_notebooks_has_a_site(bare):
    assert site.build_site().exists()
