"""The whole site: its sources written into a folder, rendered by Sphinx, reports on top.

A build takes the executed copy of a notebook if there is one and touches only what changed, so
that pages can be renewed while notebooks run.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from casebook import paths, records
from casebook.case import PROFILES, Case, CasebookError
from casebook.site import results, tables
from casebook.site.files import DOCS, markdown_templates, write_if_changed
from casebook.site.pages import Page, chapters_of, heading_link, link_notebooks, read_pages
from casebook.site.report import write_report
from casebook.site.transcripts import write_transcripts


def build_site(
    output: str | os.PathLike | None = None, say: Callable[[str], None] = lambda line: None
) -> Path:
    """Build the site, the transcript pages and the single-file reports; only what changed.

    Concurrent calls wait for each other.

    Args:
        output: the folder of the pages, and of what `casebook execute` left; `reports` by default.
        say: called with one line for each phase; the whole takes a minute or two the first time.

    Returns:
        The landing page, `output/index.html`, which opens from disk.

    Raises:
        CasebookError: Sphinx warned about something.
    """
    output = Path(output or paths.REPORTS).resolve()
    output.mkdir(parents=True, exist_ok=True)
    with open(output / ".building", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        say("Reading the notebooks and the records ...")
        pages = read_pages(output)
        transcripts = write_transcripts(output / "transcripts")
        write_sources(output / ".source", pages, transcripts)
        say(f"Rendering the pages of {len(pages)} notebooks ...")
        _run_sphinx(output / ".source", output)
        say("Joining the pages of each case into one file ...")
        for case in results.numbered_cases():
            if chapters := chapters_of(case, pages):
                write_report(case, chapters, output)
    return output / "index.html"


def write_sources(source: Path, pages: Sequence[Page], transcripts: Mapping[str, int]) -> None:
    """Write what Sphinx reads, touching only files whose content changed."""
    stems = {page.number: page.stem for page in pages}
    headings = {page.number: page.headings for page in pages}
    templates = markdown_templates(
        expected=results.expected,
        notebook=lambda text: link_notebooks(str(text), stems),
        heading=lambda text: heading_link(text, stems, headings),
    )
    cases = [_case_context(case, pages) for case in results.numbered_cases()]
    others = [page for page in pages if not any(page in case["pages"] for case in cases)]
    context = {
        "cases": cases,
        "pages": pages,
        "before": [page for page in others if page.number < "10"],
        "after": [page for page in others if page.number >= "10"],
        "shown": transcripts,
        "transcripts": tables.transcripts(),
        "real": results.real_model(),
        "benchmarks": results.benchmarks(),
        "grades": results.GRADES,
        "told": [case["learned"] for case in cases],
    }

    wanted: dict[str, Any] = {f"{p.stem}.ipynb": nbformat.writes(p.notebook) for p in pages}
    pictures = (paths.ROOT / "figures").glob("*.png")  # of the landing page and of plain ones
    wanted |= {path.name: path.read_bytes() for path in (*pictures, *DOCS.glob("*.md"))}
    for path in (DOCS / "templates").glob("*.md"):
        wanted[path.name] = templates.get_template(path.name).render(context)
    about_source = templates.get_template("for_each_case/source.md")
    wanted |= {f"source_{case['name']}.md": about_source.render(case=case) for case in cases}
    for name, content in wanted.items():
        write_if_changed(source / name, content)
    for path in source.iterdir():
        if path.name not in wanted:
            path.unlink()


def _case_context(case: Case, pages: Sequence[Page]) -> dict[str, Any]:
    return {
        "name": case.name,
        "title": case.title,
        "pages": chapters_of(case, pages),
        "box": records.write_up_box(case.name),
        "source": records.load_source(case.name),
        "claims": records.load_claims(case.name),
        "predictions": records.predictions(case.name),
        "learned": results.learned(case),
        "arms": [results.arms(case.name, name) for name in PROFILES if name != "smoke"],
        "answers": results.answers(case.name),
        "before_and_after": results.before_and_after(case.name),
    }


def _run_sphinx(source: Path, output: Path) -> None:
    """Run Sphinx in a process of its own: it keeps state that a second build would trip over."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--jobs", "auto"]
    command += ["--doctree-dir", output / ".doctrees", "--conf-dir", DOCS, source, output]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.replace(f"{source}{os.sep}", "").strip() or done.stdout.strip()
        raise CasebookError(f"the site was not built cleanly: {said}")
