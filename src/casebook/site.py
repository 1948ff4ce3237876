"""The pages people read: the site, the transcript browser, one self-contained file per case.

A reader should open `reports/index.html` seconds after installation and find every notebook
there, with the outputs of their own run where there is one and the committed ones elsewhere, and
each page should say which. So a build takes the executed copy of a notebook if there is one,
writes the sources of the site into a folder of its own, touches only what changed, and leaves
the rest to Sphinx. Nothing on any page comes from the network: formulas are MathML.
"""

import base64
import datetime
import hashlib
import html
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from casebook import paths, records
from casebook.case import Case, CasebookError, known_cases, load_case
from casebook.stats import pool_seeds

TEMPLATES = Path(__file__).parent / "templates"
DOCS = paths.ROOT / "docs"
FOLDED = {  # cells that a page shows folded: tag -> what stands on the fold
    "install": "Install (does nothing outside Colab)",
    "parameters": "Parameters",
    "injected-parameters": "Parameters of this run",
}
MOST_TRANSCRIPTS = 5  # newest runs of one case and profile that get a page
MOST_BYTES = 15_000_000  # of completions on one transcript page


def build_site(
    output: str | os.PathLike | None = None,
    notebooks: str | os.PathLike | None = None,
    runs: str | os.PathLike | None = None,
) -> Path:
    """Build the site, the transcript pages and the single-file reports; only what changed.

    Concurrent calls wait for each other. What `casebook.execute` left in `output` is shown:
    `executed/`, `failed/` and `execution.json`.

    Args:
        output: the folder of the pages; `reports` by default.
        notebooks: the folder of the committed notebooks.
        runs: the folder of training runs, for the transcripts.

    Returns:
        The landing page, `output/index.html`, which opens from disk.

    Raises:
        CasebookError: Sphinx warned about something, or is not installed.
    """
    _check_installed()
    output = Path(output or paths.REPORTS).resolve()
    output.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(output / ".lock"):
        pages = read_pages(output, Path(notebooks or paths.NOTEBOOKS))
        transcripts = write_transcripts(output / "transcripts", paths.runs_dir(runs))
        for case in map(load_case, known_cases()):
            if chapters_of(case, pages):
                _write_report(case, pages, output / f"{case.name}.html")
        _write_sources(output / ".source", pages, transcripts, output)
        _run_sphinx(output / ".source", output)
    return output / "index.html"


def single_file_report(
    case: str,
    output: str | os.PathLike | None = None,
    notebooks: str | os.PathLike | None = None,
) -> Path:
    """Write one case as one HTML file that needs no other: `output/<case>.html`.

    Raises:
        UnknownName: there is no such case.
        CasebookError: the case has no notebooks, or what draws the pages is not installed.
    """
    _check_installed()
    output = Path(output or paths.REPORTS).resolve()
    known, pages = load_case(case), read_pages(output, Path(notebooks or paths.NOTEBOOKS))
    if not chapters_of(known, pages):
        raise CasebookError(f"case {case!r} has no notebooks named {known.number}?_*.ipynb")
    return _write_report(known, pages, output / f"{case}.html")


# Notebooks as pages


@dataclass(frozen=True)
class Page:
    """One notebook as readers see it.

    Attributes:
        stem: the file's name without its ending, `13_poker_grpo`.
        title: its first heading, with the number in front.
        notebook: the notebook, made ready for the pages.
        source: which outputs it shows: "run", "failed", "committed" or "none".
        origin: the same as a sentence.
        entry: what `execution.json` says about it; empty where it says nothing.
    """

    stem: str
    title: str
    notebook: NotebookNode = field(repr=False)
    source: str
    origin: str
    entry: Mapping[str, Any]

    @property
    def number(self) -> str:
        return self.stem[:2]


def read_pages(output: Path, notebooks: Path) -> list[Page]:
    """The pages of all numbered notebooks: the executed copy where there is a readable one."""
    committed = {path.stem: path for path in sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))}
    execution = read_execution(output)
    return [
        _page(path, output, execution.get(stem, {}), set(committed))
        for stem, path in committed.items()
    ]


def read_execution(output: Path) -> dict[str, dict[str, Any]]:
    """`execution.json` of an output folder, by notebook stem; empty where there is none."""
    try:
        entries = json.loads((output / "execution.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries


def chapters_of(case: Case, pages: Sequence[Page]) -> list[Page]:
    """The pages of one case, in order: those whose number starts with the case's."""
    return [page for page in pages if page.number[0] == str(case.number)]


def _page(path: Path, output: Path, entry: Mapping[str, Any], stems: set[str]) -> Page:
    try:
        committed = nbformat.read(path, as_version=4)
    except (ValueError, AttributeError) as error:
        raise CasebookError(f"{path.name} is not a readable notebook: {error}") from error
    failed = entry.get("status") == "failed"
    copy = output / ("failed" if failed else "executed") / path.name
    try:
        notebook, source = nbformat.read(copy, as_version=4), "failed" if failed else "run"
    except (OSError, ValueError, AttributeError):  # none, or half-written
        has_outputs = any(cell.get("outputs") for cell in committed.cells)
        notebook, source = committed, "committed" if has_outputs else "none"
        return _prepare(notebook, path.stem, source, _origin(source), entry, stems)
    # A copy of an earlier run outlives a later one that was skipped or has not come to it yet.
    about = entry if entry.get("status") in ("ok", "failed") else {}
    when = _date(about.get("started"), copy)
    origin = _origin(source, when, about, changed=not _same_code(notebook, committed))
    return _prepare(notebook, path.stem, source, origin, entry, stems)


def _origin(source: str, when: str = "", about: Mapping | None = None, changed=False) -> str:
    """The sentence at the top of a page that says whose outputs these are."""
    about = about or {}
    details = [f"{name} {about[name]}" for name in ("profile", "seed") if name in about]
    if "seconds" in about:
        details.append(f"{about['seconds']:.0f} s")
    run = when + (f" ({', '.join(details)})" if details else "")
    said = {
        "run": f"Outputs of this machine’s run, {run}.",
        "failed": f"This machine’s run of {run} stopped with an error in this notebook.",
        "committed": "Committed outputs, from one clean run of the notebook.",
        "none": "This notebook has no outputs yet: it has not been run here.",
    }[source]
    if changed:
        said += " The notebook has changed since."
    if about.get("profile") == "smoke":
        said += " The smoke profile only shows that the code runs: its figures are no results."
    return said


def _date(started: Any, copy: Path) -> str:
    try:
        moment = datetime.datetime.fromisoformat(str(started))
    except ValueError:
        moment = datetime.datetime.fromtimestamp(copy.stat().st_mtime)
    return f"{moment.day} {moment:%B %Y}"


def _same_code(executed: NotebookNode, committed: NotebookNode) -> bool:
    """Whether both hold the same code; a copy that failed holds what papermill adds, too."""

    def code(notebook: NotebookNode) -> list[str]:
        cells = (cell for cell in notebook.cells if cell.cell_type == "code")
        return [cell.source for cell in cells if "injected-parameters" not in _tags(cell)]

    return code(executed) == code(committed)


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _prepare(notebook, stem, source, origin, entry, stems) -> Page:
    """Number the title, put the origin under it, and drop what readers have no use for."""
    tops = "papermill-error-cell-tag"
    cells = [cell for cell in notebook.cells if tops not in _tags(cell)]
    if source == "failed":
        origin_html = f'{html.escape(origin)} <a href="#failing-cell">To the failing cell.</a>'
    else:
        origin_html = html.escape(origin)
    banner = f'<p class="origin {source}">{origin_html}</p>'
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = _mend_links(cell.source, stems)
    title = _title(cells, stem)
    first = re.sub(r"\A\s*#[^\n]*\n?", "", cells[0].source) if _has_title(cells) else None
    head = nbformat.v4.new_markdown_cell(f"# {title}\n\n{banner}\n\n{first or ''}".strip())
    head.id = "casebook-head"
    cells = [head, *(cells[1:] if first is not None else cells)]
    if source == "failed":
        _mark_failing_cell(cells)
    for cell in cells:
        for tag in FOLDED.keys() & set(_tags(cell)):
            cell.metadata["tags"] = [*_tags(cell), "hide-cell"]
            cell.metadata["mystnb"] = dict.fromkeys(
                ("code_prompt_show", "code_prompt_hide"), FOLDED[tag]
            )
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    language = {"name": "python", "pygments_lexer": "ipython3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"language_info": language})
    return Page(stem, title, notebook, source, origin, entry)


def _has_title(cells: Sequence[NotebookNode]) -> bool:
    return bool(cells) and cells[0].cell_type == "markdown" and cells[0].source.lstrip()[:2] == "# "


def _title(cells: Sequence[NotebookNode], stem: str) -> str:
    title = stem[3:].replace("_", " ")
    if _has_title(cells):
        title = cells[0].source.lstrip().splitlines()[0].lstrip("# ").strip()
    number = stem[:2]
    bare = re.sub(rf"^{number}[\s.:·]*", "", title)
    return f"{number} · {bare}"


def _mark_failing_cell(cells: list[NotebookNode]) -> None:
    for position, cell in enumerate(cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            mark = nbformat.v4.new_markdown_cell(
                '<p class="origin failed" id="failing-cell">The run stopped here.</p>'
            )
            mark.id = "casebook-failed"
            cells.insert(position, mark)
            return


LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def _mend_links(text: str, stems: set[str]) -> str:
    """Point links between notebooks at the pages, those into the repository at its address.

    A file that has no page and no public address keeps its words and loses the link.
    """

    def mend(match: re.Match) -> str:
        words, target, anchor = match.groups(default="")
        name = Path(target).name
        if name.endswith(".ipynb") and name.removesuffix(".ipynb") in stems:
            return f"[{words}]({name}{anchor})"
        if repository := paths.repository():
            inside = os.path.normpath(os.path.join("notebooks", target))
            return f"[{words}]({repository}/blob/main/{inside}{anchor})"
        return words

    return LINK.sub(mend, text)


# The sources of the site


def _write_sources(source: Path, pages: Sequence[Page], transcripts: list, output: Path) -> None:
    """Write what Sphinx reads, touching only files whose content changed."""
    import jinja2

    source.mkdir(exist_ok=True)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS),
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).replace("|", "\\|").split())
    stems = {page.number: page.stem for page in pages}
    environment.filters["notebook"] = lambda text: re.sub(  # "notebook 10" -> a link
        r"notebook (\d\d)",
        lambda found: f"[{found[0]}]({stems[found[1]]}.ipynb)" if found[1] in stems else found[0],
        text,
    )
    headings = {page.number: _headings(page.notebook) for page in pages}
    environment.filters["heading"] = lambda text: heading_link(text, stems, headings)
    cases = [_case_context(case, pages, transcripts) for case in _numbered_cases()]
    others = [page for page in pages if not any(page in case["pages"] for case in cases)]
    context = {
        "cases": cases,
        "pages": pages,
        "before": [page for page in others if int(page.number) < 10],
        "after": [page for page in others if int(page.number) >= 10],
        "transcripts": transcripts,
        "executed": any(page.source in ("run", "failed") for page in pages),
    }
    wanted = {f"{page.stem}.ipynb": nbformat.writes(page.notebook) for page in pages}
    for path in sorted(DOCS.glob("*.md")):
        wanted[path.name] = environment.get_template(path.name).render(context)
    about_source = environment.get_template("for_each_case/source.md")
    for case in cases:
        wanted[f"source_{case['name']}.md"] = about_source.render(case=case)
    for name, text in wanted.items():
        _write_if_changed(source / name, text)
    for path in source.iterdir():
        if path.name not in wanted:
            path.unlink()


def _headings(notebook: NotebookNode) -> set[str]:
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return set(re.findall(r"^##+ +(.+?) *$", "\n".join(texts), re.MULTILINE))


def heading_link(
    shown_in: str, stems: Mapping[str, str], headings: Mapping[str, set[str]] | None = None
) -> str:
    """A correction's "41 · Heading" as a link to that heading of the notebook's page.

    With `headings` (number -> those of the page), one that is not there is a link to the page.

    >>> heading_link("41 · Two rewards", {"41": "41_math_rewards"})
    '[41 · Two rewards](41_math_rewards.ipynb#two-rewards)'
    """
    number, _, heading = shown_in.partition(" · ")
    if number not in stems:
        return shown_in
    if headings is not None and heading not in headings.get(number, ()):
        return f"[{shown_in}]({stems[number]}.ipynb)"
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{shown_in}]({stems[number]}.ipynb#{anchor})"


def _case_context(case: Case, pages: Sequence[Page], transcripts: list) -> dict[str, Any]:
    claims = records.load_claims(case.name)
    return {
        "name": case.name,
        "title": case.title,
        "question": case.question,
        "pages": chapters_of(case, pages),
        "claims": claims,
        "source": records.load_source(case.name),
        "result": _result(case),
        "settled": [claim for claim in claims if claim["evidence"] == "computation"],
        "transcripts": [run for run in transcripts if run["case"] == case.name],
    }


def _write_if_changed(path: Path, text: str) -> bool:
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except (OSError, ValueError):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    # Replaced in one step, so that whoever has the page open never reads half of it.
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
    return True


def _run_sphinx(source: Path, output: Path) -> None:
    """Run Sphinx in a process of its own: it keeps state that a second build would trip over."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html"]
    command += ["--doctree-dir", output / ".doctrees", "--conf-dir", DOCS, source, output]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.replace(f"{source}{os.sep}", "").strip() or done.stdout.strip()
        raise CasebookError(f"the site was not built cleanly: {said}")


def _check_installed() -> None:
    for package in ("latex2mathml", "myst_nb", "nbconvert", "sphinx", "sphinx_book_theme"):
        if importlib.util.find_spec(package) is None:
            raise CasebookError(f"{package} is not installed: pip install -e '.[site]'")


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Formulas


def mathml(tex: str, block: bool = False) -> str:
    r"""A formula in TeX as MathML, which every browser draws without a script.

    Raises:
        CasebookError: the formula is not valid TeX.

    >>> "<msub><mi>x</mi><mi>i</mi></msub>" in mathml("x_i")
    True
    """
    from latex2mathml.converter import convert

    # latex2mathml aligns only `align*`, and has no double-struck digit.
    tex = re.sub(r"\\(begin|end)\{(align|aligned|split|gathered)\*?\}", r"\\\1{align*}", tex)
    tex = tex.replace(r"\mathbb{1}", "𝟙").strip()
    try:
        return convert(tex, display="block" if block else "inline")
    except Exception as error:  # its errors have no common base, and some are plain IndexError
        raise CasebookError(f"this formula cannot be shown: {tex}") from error


# The single-file report


def _write_report(case: Case, pages: Sequence[Page], path: Path) -> Path:
    """Write the report of one case unless the one there was made from the same inputs."""
    chapters, claims = chapters_of(case, pages), records.load_claims(case.name)
    summary = _summary(case, claims, chapters)
    inputs = _digest(
        [nbformat.writes(page.notebook) for page in chapters], claims, summary, _own_code()
    )
    if _made_from(path, inputs):
        return path
    parts = [_part(page) for page in chapters]
    text = _page_template("report.html").render(
        case=case,
        inputs=inputs,
        claims=claims,
        summary=_markdown().render(summary),
        parts=[{**part, "body": _link_within(part["body"], chapters)} for part in parts],
        css="\n".join([*_css("page", "math", "report"), _pygments_css()]),
        font=base64.b64encode((TEMPLATES / "fonts/casebook-math.woff2").read_bytes()).decode(),
    )
    _write_if_changed(path, text)
    return path


def _part(page: Page) -> dict[str, Any]:
    """One notebook of a report: its body as HTML, and its headings."""
    notebook = nbformat.from_dict(page.notebook)
    notebook.cells = [cell for cell in notebook.cells if "install" not in _tags(cell)]
    body, _ = _exporter(page.number).from_notebook_node(notebook)
    headings = re.findall(r'<h3 id="([^"]+)">(.*?)</h3>', body, re.DOTALL)
    plain = [(slug, html.unescape(re.sub(r"<[^>]+>", "", text))) for slug, text in headings]
    return {"number": page.number, "title": page.title, "body": body, "headings": plain}


def _exporter(number: str):
    """nbconvert's exporter with our template and the Markdown reader of the site."""
    from nbconvert import HTMLExporter

    class ReportExporter(HTMLExporter):
        def markdown2html(self, context, source):
            return _markdown(f"n{number}-").render(source)

        def default_filters(self):
            yield from super().default_filters()
            yield "markdown2html", lambda source: _markdown(f"n{number}-").render(source)

    return ReportExporter(template_name="report", extra_template_basedirs=[str(TEMPLATES)])


def _markdown(prefix: str = ""):
    """The Markdown reader: the same parser and extensions as the site's, headings one lower."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.amsmath import amsmath_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    reader = MarkdownIt("commonmark", {"html": True, "highlight": _highlight})
    reader.enable(["table", "strikethrough"])
    dollarmath_plugin(
        reader, double_inline=True, renderer=lambda tex, how: _formula(tex, how["display_mode"])
    )
    amsmath_plugin(reader, renderer=lambda tex: _formula(tex, True))

    def lower(state) -> None:
        for position, token in enumerate(state.tokens):
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
            if token.type == "heading_open":
                words = re.sub(r"[^\w]+", "-", state.tokens[position + 1].content.lower())
                token.attrSet("id", prefix + words.strip("-"))

    reader.core.ruler.push("lower_headings", lower)
    return reader


def _formula(tex: str, block: bool) -> str:
    try:
        return mathml(tex, block)
    except CasebookError:
        return f"<code>{html.escape(tex)}</code>"  # the site's build names it as a warning


def _highlight(code: str, language: str, _: Any) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    return f"<pre>{highlight(code, lexer, HtmlFormatter(nowrap=True))}</pre>"


def _link_within(body: str, chapters: Sequence[Page]) -> str:
    """Turn links to notebooks of this report into anchors, and others into plain words."""
    inside = {f"{page.stem}.ipynb": page.number for page in chapters}

    def mend(match: re.Match) -> str:
        name, anchor, words = match.groups(default="")
        if name not in inside:
            return words
        target = f"n{inside[name]}" + (f"-{anchor[1:]}" if anchor else "")
        return f'<a href="#{target}">{words}</a>'

    return re.sub(r'<a href="([^":#]+\.ipynb)(#[^"]*)?">(.*?)</a>', mend, body, flags=re.DOTALL)


def _summary(case: Case, claims: Sequence[Mapping], chapters: Sequence[Page]) -> str:
    """About 150 words of Markdown on what the report holds, made from claims and records."""
    parts = [
        "A published write-up answered this question. Here its claims are taken apart in "
        f"{len(chapters)} notebooks: they check the oracle, attack the reward, measure the base "
        "model under one harness, train with GRPO, and read what changed, with intervals.",
        _result(case),
    ]
    if claims:
        kinds = Counter(claim["evidence"] for claim in claims)
        counted = [f"{kinds[kind]} {words}" for kind, words in COUNTED.items() if kinds[kind]]
        refuted = sum(claim["verdict"] == "refuted" for claim in claims)
        parts.append(
            f"Claims checked: {len(claims)}, of which {_listed(counted)}; {refuted} refuted. "
            "The embedded model shows mechanisms at work and reproduces nothing: its figures are "
            "not to be ranked against those of the write-up, whose model and data are others."
        )
    return "\n\n".join(parts)


def _numbered_cases() -> list[Case]:
    """All cases, in the order of their notebooks."""
    return sorted(map(load_case, known_cases()), key=lambda case: case.number)


def _result(case: Case) -> str:
    """What GRPO did to the embedded model, from the committed records, in two sentences."""
    runs = records.committed(case.name, "nano", MAIN_ARM)
    if not runs:
        return records.missing(f"casebook experiments {case.name}")
    before, after = _arm_figures(runs, "before"), _arm_figures(runs, "after")
    others = [
        f"{words} reached {_arm_figures(taught, 'after')['sampled_accuracy']}"
        for method, words in TAUGHT.items()
        if (taught := _taught(case.name, method, _variant(runs[0])))
    ]
    compared = f" With as many completions, {_listed(others)}." if others else ""
    return (
        f"**{case.title}, on the embedded model:** GRPO took strict sampled accuracy on held-out "
        f"prompts from {before['sampled_accuracy']} to **{after['sampled_accuracy']}** "
        f"({len(runs)} seeds, {_seconds(runs)} of training each). Greedy decoding, which shows "
        f"more of what the base model could do already, went from {before['greedy_accuracy']} "
        f"to {after['greedy_accuracy']}: much of a gain in sampling can be sharpening.{compared}"
    )


def _taught(case: str, method: str, variant: str | None) -> list[dict[str, Any]]:
    """The runs of a supervised control with the main arm's prompt."""
    runs = [run for run in records.committed(case, "nano") if _variant(run) == variant]
    return [run for run in runs if run.get("config", {}).get("method") == method]


def _variant(run: Mapping[str, Any]) -> str | None:
    return run.get("config", {}).get("variant")


# The supervised controls that a result is never told without: method -> its name in a sentence.
TAUGHT = {
    "rejection": "fine-tuning on the base's own right answers (rejection sampling)",
    "sft": "supervised fine-tuning on the oracle's",
}
MAIN_ARM = "grpo"  # the arm whose figures a report and its summary lead with
COUNTED = {
    "computation": "settled by computation",
    "same model": "run with the write-up’s own model",
    "other real model": "run with another real model",
    "nano": "tried on the embedded model",
    "none": "not run here",
}


def _arm_figures(runs: Sequence[Mapping], when: str) -> dict[str, str]:
    """The accuracies of an arm's runs, "before" or "after", pooled over its seeds, as text."""
    names = ("sampled_accuracy", "greedy_accuracy")
    return {
        name: records.figure_text(pool_seeds([run[when][name] for run in runs])) for name in names
    }


def _seconds(runs: Sequence[Mapping]) -> str:
    return f"{statistics.mean(run['train_seconds'] for run in runs):.0f} s"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


# The results block of the README


def readme_results() -> str:
    """The committed `nano` records and benchmarks, as the README shows them: folded tables."""
    cases = _numbered_cases()
    said = [
        f"{_result(case)}\n" for case in cases if records.committed(case.name, "nano", MAIN_ARM)
    ]
    lines = [
        "| case and arm | seeds | strict, sampled: base → trained | strict, greedy: base → trained "
        "| training, wall time | command |",
        "| --- | ---: | --- | --- | ---: | --- |",
    ]
    totals = []
    for case in (case.name for case in cases):
        runs = records.committed(case, "nano")
        for arm, group in groupby(runs, key=lambda run: run["arm"]):
            group = list(group)
            before, after = _arm_figures(group, "before"), _arm_figures(group, "after")
            change = [f"{before[name]} → {after[name]}" for name in after]
            asked = {_variant(run) for run in (*runs, *group) if run["arm"] in (MAIN_ARM, arm)}
            other = f" (`{_variant(group[0])}`)" if len(asked) > 1 else ""  # than the main arm
            lines.append(
                f"| {case}, {arm}{other} | {len(group)} | {change[0]} | {change[1]} "
                f"| {_seconds(group)} | `casebook experiments {case} --arm {arm}` |"
            )
        if runs:
            seconds = sum(run["train_seconds"] + run.get("measure_seconds", 0) for run in runs)
            totals.append(
                f"All {len(runs)} records of {case}: {seconds / 60:.0f} minutes of training and "
                f"measuring. `casebook experiments {case} --jobs 2` makes two at a time."
            )
    if len(lines) == 2:
        lines = [records.missing("casebook experiments poker")]
    if totals:
        summary = "<summary>All arms, with the command of each</summary>"
        totals = [f"{line}\n" for line in totals]
        lines = [*said, "<details>", summary, "", *lines, "", *totals, "</details>"]
    benchmarks = sorted((paths.RESULTS / "benchmarks").glob("*.json"))
    if benchmarks:
        summary = "<summary>Benchmarks, with the command of each</summary>"
        lines += ["", "<details>", summary, ""]
        lines += ["| benchmark | figure | command |", "| --- | ---: | --- |"]
    for path in benchmarks:
        made_by = f"`python benchmarks/{path.stem}.py --output results/benchmarks/{path.name}`"
        content = json.loads(path.read_text(encoding="utf-8"))
        lines += [f"| {name} | {value} | {made_by} |" for name, value in _numbers(content)]
    return "\n".join([*lines, "", "</details>"] if benchmarks else lines)


def readme_claims() -> str:
    """A table for the README: how many claims of each write-up got which verdict."""
    verdicts = [verdict for kind in records.VERDICTS.values() for verdict in kind]
    counts = {
        case.title: Counter(claim["verdict"] for claim in records.load_claims(case.name))
        for case in _numbered_cases()
    }
    counts["together"] = sum(counts.values(), Counter())
    used = [v for v in dict.fromkeys(verdicts) if counts["together"][v]]
    lines = [f"| write-up | claims | {' | '.join(used)} |", f"| --- |{' ---: |' * (len(used) + 1)}"]
    for title, found in counts.items():
        cells = [title, found.total(), *(found[verdict] for verdict in used)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def write_readme_results(readme: str | os.PathLike | None = None) -> bool:
    """Put `readme_claims()` and `readme_results()` between their marks in the README.

    Returns:
        Whether it changed.

    Raises:
        CasebookError: the README lacks a mark, such as `<!-- results:begin -->`.
    """
    readme = Path(readme or paths.ROOT / "README.md")
    text = readme.read_text(encoding="utf-8")
    for name, made in (("claims", readme_claims), ("results", readme_results)):
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise CasebookError(f"{readme.name} needs the lines {begin} and {end}, in this order")
        text = f"{before}{begin}\n\n{made()}\n\n{end}{after}"
    return _write_if_changed(readme, text)


def _numbers(content: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The figures of a benchmark's record with their names: what is not about how it was made."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            if key not in ("provenance", "repeats"):
                yield from _numbers(value, f"{name} {key}".replace("_", " ").strip())
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield name, f"{float(f'{content:.3g}'):,.0f}" if abs(content) >= 100 else f"{content:.3g}"


# The transcript browser


def write_transcripts(folder: Path, runs: Path) -> list[dict[str, Any]]:
    """Write one page per run that kept its completions; return what the listing needs."""
    listing = []
    for case in known_cases():
        for profile in sorted(path for path in (runs / case).glob("*") if path.is_dir()):
            kept = [run for run in profile.iterdir() if [*run.glob("completions/train_*.parquet")]]
            kept.sort(key=lambda run: run.stat().st_mtime, reverse=True)
            for run in kept[:MOST_TRANSCRIPTS]:
                page = folder / f"{case}-{profile.name}-{run.name}.html"
                rows = _write_transcript(page, case, profile.name, run)
                listing.append(
                    {"case": case, "profile": profile.name, "run": run.name, "rows": rows}
                    | {"file": f"transcripts/{page.name}"}
                )
    pages = {Path(entry["file"]).name for entry in listing}
    for stale in folder.glob("*.html"):
        if stale.name not in pages:
            stale.unlink()
    return listing


def _write_transcript(page: Path, case: str, profile: str, run: Path) -> int:
    """Write the page of one run unless it is current; return how many completions it shows."""
    files = sorted((run / "completions").glob("train_*.parquet"))
    inputs = _digest([[file.name, file.stat().st_size, file.stat().st_mtime] for file in files])
    inputs = _digest(inputs, _own_code())
    if (known := re.search(rf"{inputs} (\d+)", _head(page))) is not None:
        return int(known[1])
    import pandas as pd

    rows = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    total = len(rows)
    rows = _thinned(rows)
    steps = rows["step"].nunique()
    note = f"{len(rows):,} completions of {steps} recorded steps of the run {run.name}."
    if len(rows) < total:
        note += f" Left out, to keep the page light: {total - len(rows):,} of the steps between."
    if profile == "smoke":
        note += " The smoke profile only shows that the code runs: these are no results."
    text = _page_template("transcripts.html").render(
        title=f"{load_case(case).title}: {profile}",
        inputs=f"{inputs} {len(rows)}",
        note=html.escape(note),
        css="\n".join(_css("page", "transcripts")),
        script=(TEMPLATES / "transcripts.js").read_text(encoding="utf-8"),
        # `<` is the one character that could end the script element early.
        data=json.dumps(_columns(rows), ensure_ascii=False).replace("<", "\\u003c"),
    )
    _write_if_changed(page, text)
    return len(rows)


def _thinned(rows):
    """The rows of evenly spaced steps, as many as make a page of bearable size."""
    size = rows["prompt"].astype(str).str.len().sum() + rows["completion"].str.len().sum()
    steps = sorted(rows["step"].unique())
    every = -(-int(size) // MOST_BYTES)
    return rows[rows["step"].isin(steps[:: max(every, 1)])]


def _columns(rows) -> dict[str, Any]:
    """The rows as columns for the page's script, each distinct text written once.

    A number that is not finite is `null`: JSON has no other way to say so.
    """
    rows = rows.astype(object).where(rows.notna(), None)
    texts: dict[str, int] = {}
    coded = ["prompt", "answer", "completion", "extracted"]
    rewards = [name for name in rows.columns if name.startswith("reward/")]
    numbers = ["step", "tokens", "advantage", "reward", *rewards]
    flags = ["truncated", "well_formed", "correct", "strict"]

    def code(value: Any) -> int | None:
        return None if value is None else texts.setdefault(str(value), len(texts))

    def number(value: Any) -> float | None:
        finite = value is not None and math.isfinite(value)
        return round(float(value), 6) if finite else None

    columns = {name: [code(value) for value in rows[name]] for name in coded}
    columns |= {name: [number(value) for value in rows[name]] for name in numbers}
    columns |= {name: [bool(value) for value in rows[name]] for name in flags}
    return {
        "length": len(rows),
        "coded": coded,
        "rewards": [name.removeprefix("reward/") for name in rewards],
        "answers": sorted({str(answer) for answer in rows["answer"]}),
        "columns": columns,
        "texts": list(texts),
    }


# Pages and their inputs


def _page_template(name: str):
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["inline"] = lambda text: _markdown().renderInline(text)
    return environment.get_template(name)


def _css(*names: str) -> list[str]:
    return [(TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in names]


def _pygments_css() -> str:
    from pygments.formatters import HtmlFormatter

    def rules(style: str) -> str:
        return HtmlFormatter(style=style).get_style_defs(".highlight pre")

    dark = rules("a11y-high-contrast-dark")
    return (
        rules("a11y-high-contrast-light") + f"\n@media screen and (prefers-color-scheme: dark)"
        f" {{\n{dark}\n}}"
    )


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _own_code() -> str:
    """What the pages are made with: a change of it makes them anew."""
    files = sorted(path for path in TEMPLATES.rglob("*") if path.is_file())
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in [Path(__file__), *files])
    ).hexdigest()


def _head(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1000)
    except OSError:
        return ""


def _made_from(path: Path, inputs: str) -> bool:
    return f'content="{inputs}"' in _head(path)
