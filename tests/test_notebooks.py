"""Every notebook, as it is committed and as it runs: by itself, in an empty clone, in `smoke`."""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from casebook.execute import (
    group_of,
    install_cell,
    normalise,
    variant_of,
)

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
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def texts(notebook):
    """Everything a reader sees as text: sources and textual outputs."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            for kind, value in output.get("data", {}).items():
                if kind.startswith("text/"):
                    yield value


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_names_are_a_number_and_a_slug(path):
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", path.name)


# As committed


def test_format_is_4_5_with_ids_and_kernel_python3(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    ids = [cell["id"] for cell in notebook.cells]
    assert len(ids) == len(set(ids))
    assert notebook.metadata.kernelspec.name == "python3"


def test_it_is_as_normalising_leaves_it(path, notebook):
    """No widget state, injected parameters, timings, paths of a machine; at most 300 kB."""
    assert normalise(notebook) == notebook, "run: make notebooks"


def test_outputs_are_those_of_one_clean_run(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error"]
    assert not [o.text for o in outputs if o.get("name") == "stderr"]


def test_it_begins_with_a_title_and_the_install_cell(notebook):
    assert notebook.cells[0].source.startswith("# ")
    assert "install" in code_cells(notebook)[0].metadata.get("tags", [])
    assert len(tagged(notebook, "install")) == 1


def test_the_install_cell_is_the_generated_one(path, notebook):
    (cell,) = tagged(notebook, "install")
    assert cell.source == install_cell(variant_of(path), group_of(path)), "run: make notebooks"


def test_no_notebook_asks_colab_for_a_gpu(notebook):
    # Each works with an embedded model by default; a T4 was asked for, and Unsloth met nano.
    assert not {"accelerator", "colab"} & set(notebook.metadata)


def test_one_parameters_cell_has_the_common_names(notebook):
    (cell,) = tagged(notebook, "parameters")
    assignments = ast.parse(cell.source).body
    assert all(isinstance(node, ast.Assign) for node in assignments)
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in assignments}
    assert {name: values.get(name) for name in COMMON} == COMMON
    assert len(values) <= len(COMMON) + 5


def test_parameters_follow_the_install_cell(notebook):
    tags = [cell.metadata.get("tags", [None])[0] for cell in code_cells(notebook)]
    assert tags[:2] == ["install", "parameters"]


def test_code_cells_are_short_and_narrow(notebook):
    for cell in code_cells(notebook):
        lines = cell.source.splitlines()
        assert len(lines) <= 40, lines[0]
        assert max(map(len, lines)) <= 88, max(lines, key=len)


def test_code_parses_without_magics_that_only_colab_has(notebook):
    for cell in code_cells(notebook):
        ast.parse(cell.source)


def test_folded_cells_are_folded_on_the_site_and_in_jupyterlab(notebook):
    apart = {
        place_of(notebook, cell)
        for cell in notebook.cells
        if ("hide-input" in cell.metadata.get("tags", []))
        != cell.metadata.get("jupyter", {}).get("source_hidden", False)
    }
    assert not apart, "the tag hide-input and jupyter.source_hidden go together"


def test_cells_that_only_draw_or_format_are_folded(notebook):
    open_ = {
        place_of(notebook, cell)
        for cell in code_cells(notebook)
        if only_shows(cell.source) and "hide-input" not in cell.metadata.get("tags", [])
    }
    assert not open_, "tag them hide-input and set jupyter.source_hidden"


def place_of(notebook, cell):
    return f"cell {notebook.cells.index(cell)}: {(cell.source.splitlines() or [''])[0]}"


def only_shows(source):
    """Whether a cell does nothing but draw pictures and format text.

    Its statements, those inside loops and conditions included, are calls on `plots`, `plt` or
    what these returned, displays of Markdown, and assignments that call nothing else.
    """
    tree, drawn = ast.parse(source), {"plots", "plt"}

    def shows(statement):
        match statement:
            case ast.For(body=body, orelse=rest) | ast.If(body=body, orelse=rest):
                return all(map(shows, body + rest))
            case ast.With(body=body):
                return all(map(shows, body))
            case ast.Expr(value=ast.Call() as call):
                return root_of(call) in drawn or is_markdown(call)
            case ast.Assign(targets=targets, value=value):
                if root_of(value) in drawn:
                    drawn.update(n.id for n in ast.walk(targets[0]) if isinstance(n, ast.Name))
                    return True
                quiet = not any(isinstance(node, ast.Call) for node in ast.walk(value))
                return quiet or root_of(targets[0]) in drawn
        return False

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    drawing = [call for call in calls if root_of(call) in ("plots", "plt") or is_markdown(call)]
    return bool(drawing) and all(map(shows, tree.body))


def is_markdown(call):
    return root_of(call) == "display" and [*map(root_of, call.args)] == ["Markdown"]


def root_of(node):
    """The name that an expression such as `axes[0].plot(…)` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("plots.show(figure)", True),
        ("figure, axes = plots.figure('A finding')\naxes[0].plot(x)\nplots.show(figure)", True),
        ("fig, ax = plt.subplots()\nfor x in xs:\n    ax.axvline(x)\nax.title = str(3)", True),
        ("if rows:\n    display(Markdown(f'{rows[0]:.2f}'))", True),
        ("labels = ['base', 'GRPO']\nplt.bar(labels, shares)", True),
        ("display(Markdown(text))", True),
        ("labels = ['base', 'GRPO']", False),
        ("print(case.grade(completion, answer))", False),
        ("display(table)", False),
        ("run = training.train(config)\nplots.show(plots.learning_curve(run))", False),
        ("if rows:\n    plots.show(figure)\nelse:\n    train()", False),
        ("def mean(x):\n    return sum(x) / len(x)\nplt.plot(mean(x))", False),
    ],
)
def test_what_only_draws_or_formats_is_seen(source, expected):
    assert only_shows(source) is expected


def test_pictures_have_alt_text(notebook):
    for cell in notebook.cells:
        for alt, source in PICTURE.findall(cell.source if cell.cell_type == "markdown" else ""):
            assert alt.strip(), source
        for output in cell.get("outputs", []):
            for kind, value in output.get("data", {}).items():
                if kind.startswith("image/"):
                    assert output.metadata.get(kind, {}).get("alt", "").strip(), cell.source
                elif kind == "text/html":
                    assert all(alt.strip() for alt in Alts.of(value)), cell.source
                elif kind == "text/markdown":
                    assert all(alt.strip() for alt, _ in PICTURE.findall(value)), cell.source


class Alts(HTMLParser):
    """The alt texts of the pictures in a piece of HTML; empty for one without."""

    @classmethod
    def of(cls, html):
        parser = cls()
        parser.alts = []
        parser.feed(html)
        return parser.alts

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.alts.append(dict(attributes).get("alt") or "")


def test_links_lead_to_files_of_the_checkout(path, notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            targets = LINK.findall(cell.source) + [s for _, s in PICTURE.findall(cell.source)]
            for target in targets:
                if not re.match(r"[a-z]+:|#", target):
                    assert (path.parent / target.partition("#")[0]).exists(), target


def test_no_secret_and_no_path_of_a_machine(notebook):
    for text in texts(notebook):
        assert not SECRET.search(text)
        assert not ABSOLUTE.search(text), ABSOLUTE.search(text)


@pytest.mark.parametrize("text", ["/Users/someone/x", "in '/var/run1'", "(/opt/x)", "=/content/a"])
def test_a_path_of_a_machine_is_seen(text):
    assert ABSOLUTE.search(text)


@pytest.mark.parametrize("text", ["runs/tmp/x", "https://a.b/home/c", "~/work/x", "</tmp>", "a/b"])
def test_other_paths_are_not(text):
    assert not ABSOLUTE.search(text)


@pytest.mark.parametrize(
    "text", ["hf_" + "a" * 34, 'api_key = "' + "0" * 40 + '"', "HF_TOKEN='" + "abc" * 6 + "'"]
)
def test_a_secret_is_seen(text):
    assert SECRET.search(text)


# As run


@pytest.fixture
def clone(tmp_path):
    """The checkout as a fresh clone has it: what git keeps, and nothing that was ever run."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def digests(folder):
    """Path -> hash of every file that a run must not touch."""
    own = ("reports", "runs", "unsloth_compiled_cache")
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
        and path.relative_to(folder).parts[0] not in own
        and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_it_runs_alone_in_an_empty_clone(path, clone, monkeypatch):
    for name in ("CASEBOOK_ROOT", "CASEBOOK_FIGURES_DIR", "RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(clone / "src"))
    monkeypatch.setenv("JUPYTER_PATH", f"{sys.prefix}/share/jupyter")
    before = digests(clone)
    # From the root and from notebooks/: either is where a reader may have started Jupyter.
    start = clone if int(path.stem[:2]) % 2 else clone / "notebooks"
    copy = clone / "reports" / path.name
    copy.parent.mkdir()
    command = ["papermill", str(clone / "notebooks" / path.name), str(copy), "-p", "PROFILE"]
    done = subprocess.run(
        [sys.executable, "-m", *command, "smoke", "--no-progress-bar"],
        cwd=start,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert digests(clone) == before, "a run wrote into tracked folders"
    executed = nbformat.read(copy, as_version=4)
    normalise(executed)
    assert not [text for text in texts(executed) if SECRET.search(text)]
