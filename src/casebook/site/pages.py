"""Notebooks as pages: whose outputs they show, what readers see of them, how they link.

A page shows the executed copy of a notebook if there is one, else the committed outputs, and says
which at its top.
"""

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from casebook import paths
from casebook.case import Case, CasebookError
from casebook.site.files import DOCS
from casebook.site.normalise import PYTHON
from casebook.site.series import read_status

FOLDED = {  # cells that a page shows folded: tag -> what stands on the fold
    "install": "Install (does nothing outside Colab)",
    "parameters": "Parameters",
    "injected-parameters": "Parameters of this run",
}


@dataclass(frozen=True)
class Page:
    """One notebook as readers see it.

    Attributes:
        stem: the file's name without its ending, `13_poker_grpo`.
        title: its first heading, with the number in front.
        notebook: the notebook, made ready for the pages.
        source: which outputs it shows: "run", "failed", "committed" or "none".
        entry: what `execution.json` says about it; empty where it says nothing.
    """

    stem: str
    title: str
    notebook: NotebookNode = field(repr=False)
    source: str
    entry: Mapping[str, Any]

    @property
    def number(self) -> str:
        return self.stem[:2]

    @property
    def minutes(self) -> int:
        """Minutes to read it, as its first cell says; a test compares them with the count."""
        said = re.search(r"\*Reading:?\*\D*(\d+) minutes", self.notebook.cells[0].source)
        return int(said[1]) if said else reading_minutes(self.notebook)

    @property
    def headings(self) -> set[str]:
        texts = [cell.source for cell in self.notebook.cells if cell.cell_type == "markdown"]
        return set(re.findall(r"^##+ +(.+?) *$", "\n".join(texts), re.MULTILINE))


def read_pages(output: Path) -> list[Page]:
    """The pages of all numbered notebooks: the executed copy where there is one."""
    committed = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    stems, execution = {path.stem for path in committed}, read_status(output)
    return [_page(path, output, execution.get(path.stem, {}), stems) for path in committed]


def chapters_of(case: Case, pages: Sequence[Page]) -> list[Page]:
    """The pages of one case, in order: those whose number starts with the case's."""
    return [page for page in pages if page.number[0] == str(case.number)]


def _page(path: Path, output: Path, entry: Mapping[str, Any], stems: set[str]) -> Page:
    committed = nbformat.read(path, as_version=4)
    failed = entry.get("status") == "failed"
    copy = output / ("failed" if failed else "executed") / path.name
    if copy.exists():
        notebook, source = nbformat.read(copy, as_version=4), "failed" if failed else "run"
    else:
        has_outputs = any(cell.get("outputs") for cell in committed.cells)
        notebook, source = committed, "committed" if has_outputs else "none"
    # A copy of an earlier run outlives a later one that was skipped or has not come to it yet.
    about = entry if entry.get("status") in ("ok", "failed") else {}
    run = "an earlier day"
    if about:
        run = f"{about['started'][:10]} (profile {about['profile']}, seed {about['seed']})"
    origin = {
        "run": f"Outputs of this machine’s run of {run}.",
        "failed": f"This machine’s run of {run} stopped with an error in this notebook.",
        "committed": "Committed outputs, from one clean run of the notebook.",
        "none": "This notebook has no outputs yet: it has not been run here.",
    }[source]
    if _code(notebook) != _code(committed):
        origin += " The notebook has changed since."
    if about.get("profile") == "smoke":
        origin += " The smoke profile only shows that the code runs: its figures are no results."
    return _prepare(notebook, path.stem, source, origin, entry, stems)


def _code(notebook: NotebookNode) -> list[str]:
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [cell.source for cell in cells if "injected-parameters" not in _tags(cell)]


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _prepare(notebook, stem, source, origin, entry, stems) -> Page:
    """Number the title, put the origin under it, and drop what readers have no use for."""
    cells = [cell for cell in notebook.cells if "papermill-error-cell-tag" not in _tags(cell)]
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = mend_links(cell.source, stems)
        for tag in FOLDED.keys() & set(_tags(cell)):
            cell.metadata["tags"] = [*_tags(cell), "hide-cell"]
            cell.metadata["mystnb"] = dict.fromkeys(
                ("code_prompt_show", "code_prompt_hide"), FOLDED[tag]
            )
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    origin = html.escape(origin)
    outputs = [(n, output) for n, cell in enumerate(cells) for output in cell.get("outputs", [])]
    errors = [n for n, output in outputs if output.output_type == "error"]
    if source == "failed" and errors:
        origin += ' <a href="#failing-cell">To the failing cell.</a>'
        mark = '<p class="origin failed" id="failing-cell">The run stopped here.</p>'
        cells.insert(errors[0], nbformat.v4.new_markdown_cell(mark, id="casebook-failed"))
    heading, _, rest = cells[0].source.partition("\n")  # "# 13 · A title"
    title = re.sub(rf"^[#\s]*({stem[:2]}[\s.:·]*)?", f"{stem[:2]} · ", heading)
    banner = f'<p class="origin {source}">{origin}</p>'
    head = nbformat.v4.new_markdown_cell(f"# {title}\n\n{banner}\n\n{rest}".strip())
    head.id = "casebook-head"
    notebook = nbformat.v4.new_notebook(cells=[head, *cells[1:]], metadata=PYTHON)
    return Page(stem, title, notebook, source, entry)


def reading_minutes(notebook: NotebookNode) -> int:
    """Minutes to read a notebook: 200 words of prose, 8 lines of open code or one figure each."""
    words = lines = figures = 0
    for cell in notebook.cells:
        outputs = [output.get("data", {}) for output in cell.get("outputs", [])]
        figures += sum("image/png" in data for data in outputs)
        said = [data.get("text/markdown", "") for data in outputs]
        if cell.cell_type == "markdown":
            said.append(re.sub(r"\]\([^)]*\)", "]", cell.source))
        elif not {"hide-input", *FOLDED} & set(_tags(cell)):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
        prose = (line for text in said for line in text.splitlines() if line[:1] != "|")
        words += sum(len(line.split()) for line in prose)
    return round(words / 200 + lines / 8 + figures)


LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def mend_links(text: str, stems: set[str]) -> str:
    """Point links between notebooks at the pages, those into the repository at its address.

    A file that has no page and no public address keeps its words and loses the link.
    """

    def mend(match: re.Match) -> str:
        words, target, anchor = match.groups(default="")
        name = Path(target).name
        plain = target.startswith("../docs/") and (DOCS / name).exists()
        if plain or (name.endswith(".ipynb") and name.removesuffix(".ipynb") in stems):
            return f"[{words}]({name}{anchor})"
        if repository := paths.repository():
            inside = os.path.normpath(os.path.join("notebooks", target))
            return f"[{words}]({repository}/blob/main/{inside}{anchor})"
        return words

    return LINK.sub(mend, text)


def link_notebooks(text: str, stems: Mapping[str, str]) -> str:
    """Link the numbers of notebooks in a text: "notebook 10", "notebooks 41, 42 and 43".

    >>> link_notebooks("notebooks 41 and 99", {"41": "41_math_rewards"})
    'notebooks [41](41_math_rewards.ipynb) and 99'
    """

    def number(found: re.Match) -> str:
        return f"[{found[0]}]({stems[found[0]]}.ipynb)" if found[0] in stems else found[0]

    return re.sub(
        r"\bnotebooks? \d\d\b(?:(?:,| and) \d\d\b)*",
        lambda listed: re.sub(r"\d\d", number, listed[0]),
        text,
    )


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
