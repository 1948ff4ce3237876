"""Every notebook, as it is committed and as it runs: by itself, in an empty clone, in `smoke`."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from casebook.site import reading_minutes
from casebook.site.colab import install_cell, variant_of
from casebook.site.normalise import normalise
from casebook.site.notebooks import group_of, stage_of
from casebook.site.series import START

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
COMMON = {"PROFILE": "nano", "SEED": 0, "RUNS_DIR": "runs", "DATA_DIR": "", "LIMIT": 0}
ABSOLUTE = re.compile(  # Drive lies at the same place on everybody's Colab
    r"(?<![\w.~:/}$])/(?:home|root|tmp|Users|work|opt|mnt|var|usr|content(?!/drive/My))/\w"
)
SECRET = re.compile(
    r"hf_[A-Za-z]{20,}|(?<!\w)sk-[A-Za-z0-9-]{20,}|gh[pousr]_\w{30,}|AKIA[0-9A-Z]{16}"
    r"|(?i:api[_-]?key|token|password)\s*=\s*['\"][^'\"]{12,}['\"]"
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def texts(notebook):
    """Everything a reader sees as text: sources and textual outputs."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            yield from (v for kind, v in output.get("data", {}).items() if kind.startswith("text/"))


# As committed


def test_it_is_as_normalising_leaves_one_clean_run(path, notebook):
    """No widget state, injected parameters, timings, paths of a machine; at most 300 kB."""
    nbformat.validate(notebook)
    assert normalise(notebook) == notebook, "run: make notebooks"
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


def test_it_begins_with_a_title_the_install_cell_and_the_parameters(path, notebook):
    assert notebook.cells[0].source.startswith("# ")
    install, parameters, *rest = code_cells(notebook)
    assert install.metadata.tags == ["install"]
    assert install.source == install_cell(variant_of(path), group_of(path)), "run: make notebooks"
    assert "parameters" in parameters.metadata.tags
    assert not [c for c in rest if {"install", "parameters"} & set(c.metadata.get("tags", []))]
    assignments = ast.parse(parameters.source).body
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in assignments}
    assert {name: values.get(name) for name in COMMON} == COMMON
    assert len(values) <= len(COMMON) + 5


def test_cells_are_short_narrow_python_folded_everywhere_alike(notebook):
    for cell in code_cells(notebook):
        ast.parse(cell.source)
        lines = cell.source.splitlines()
        assert len(lines) <= 40, lines[0]
        assert max(map(len, lines)) <= 88, max(lines, key=len)
        folded = "hide-input" in cell.metadata.get("tags", [])  # on the site, and in JupyterLab
        assert folded == cell.metadata.get("jupyter", {}).get("source_hidden", False), lines[0]


def test_pictures_have_alt_text_and_links_lead_somewhere(path, notebook):
    for cell in notebook.cells:
        for picture, words, target in LINK.findall("" if "outputs" in cell else cell.source):
            assert words.strip() or not picture, target
            if not re.match(r"[a-z]+:|#", target):
                assert (path.parent / target.partition("#")[0]).exists(), target
        for output in cell.get("outputs", []):
            for kind in output.get("data", {}):
                if kind.startswith("image/"):
                    assert output.metadata.get(kind, {}).get("alt", "").strip(), cell.source


def test_no_secret_and_no_path_of_a_machine(notebook):
    assert SECRET.search("HF_TOKEN='" + "abc" * 6 + "'")
    assert ABSOLUTE.search("(/opt/x)")
    assert not ABSOLUTE.search("https://a.b/home/c")
    for text in texts(notebook):
        assert not SECRET.search(text)
        assert not ABSOLUTE.search(text), ABSOLUTE.search(text)


# As a page

PATH = {"00", "01", "02", "03", "04", "10", "11", "12", "13", "14", "16"}  # 25 minutes, else 30


def test_a_page_is_short_and_says_what_one_learns_and_where_to_go_on(path, notebook):
    assert reading_minutes(notebook) <= (27 if path.stem[:2] in PATH else 33)
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert re.search(r"(?s)\*You learn\*.*\*You need\*.*\*Reading:?\*.* minutes", prose[0])
    said = re.search(r"\*Reading:?\*\D*(\d+) minutes", prose[0])  # what the landing page adds up
    assert abs(int(said[1]) - reading_minutes(notebook)) <= 5
    foot = "\n".join(prose[-6:])
    assert re.search(r"(?s)Remember.*\*\*Try.*\*\*Next", foot)
    title, target = re.search(r"\*\*Next:?\*\*:? \[(.*?)\]\((\d\d_\w+\.ipynb)\)", foot).groups()
    assert f"# {title}" == nbformat.read(path.parent / target, 4).cells[0].source.splitlines()[0]


def test_the_series_has_at_most_7000_lines_of_code():
    cells = [cell for path in NOTEBOOKS for cell in code_cells(nbformat.read(path, 4))]
    own = [cell for cell in cells if "install" not in cell.metadata.get("tags", [])]
    assert sum(bool(line.strip()) for c in own for line in c.source.splitlines()) <= 7000


# As run


@pytest.fixture(scope="module")
def clone(tmp_path_factory, copy_checkout):
    """The checkout as a fresh clone has it: what git keeps, and nothing that was ever run."""
    return copy_checkout(tmp_path_factory.mktemp("clone"))


# The longest stages are left to `make test-heavy`.
LONG = {path: stage_of(path) in ("baseline", "analysis") for path in NOTEBOOKS}
MARKED = [pytest.param(p, marks=[pytest.mark.heavy] * LONG[p], id=p.stem) for p in NOTEBOOKS]


@pytest.mark.slow
@pytest.mark.parametrize("path", MARKED)
def test_it_runs_alone_in_an_empty_clone(path, clone, copy_checkout, tmp_path):
    kept = {k: v for k, v in os.environ.items() if k not in ("CASEBOOK_ROOT", "RUNS_DIR")}
    environment = kept | {"PYTHONPATH": str(clone / "src")}
    environment["JUPYTER_PATH"] = f"{sys.prefix}/share/jupyter"
    # From the root and from notebooks/: either is where a reader may have started Jupyter.
    start = clone if int(path.stem[:2]) % 2 else clone / "notebooks"
    copy = tmp_path / path.name
    given = json.dumps({"PROFILE": "smoke", "RUNS_DIR": str(tmp_path / "runs")})
    command = [sys.executable, "-c", START, clone / "notebooks" / path.name, copy, given, start]
    done = subprocess.run(command, cwd=start, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    changed = copy_checkout.git(clone, "status", "--porcelain")
    assert not changed, "a run wrote into tracked folders"
    normalise(nbformat.read(copy, as_version=4))
