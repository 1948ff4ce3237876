"""The whole site: its sources written into a folder, rendered by Sphinx, reports on top.

A build takes the executed copy of a notebook if there is one and touches only what changed, so
that pages can be renewed while notebooks run.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from casebook import paths, records
from casebook.case import Case, CasebookError
from casebook.site import results
from casebook.site.files import write_if_changed
from casebook.site.pages import (
    Page,
    chapters_of,
    heading_link,
    headings_of,
    link_notebooks,
    read_pages,
)
from casebook.site.report import write_report
from casebook.site.transcripts import write_transcripts

DOCS = paths.ROOT / "docs"  # plain pages, and those that are filled in under templates/
PICTURE = "00_start_here__reported.png"  # what README and landing page open with


def build_site(
    output: str | os.PathLike | None = None,
    notebooks: str | os.PathLike | None = None,
    runs: str | os.PathLike | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Build the site, the transcript pages and the single-file reports; only what changed.

    Concurrent calls wait for each other. What `casebook.execute` left in `output` is shown:
    `executed/`, `failed/` and `execution.json`.

    Args:
        output: the folder of the pages; `reports` by default.
        notebooks: the folder of the committed notebooks.
        runs: the folder of training runs, for the transcripts.
        say: called with one line for each phase; the whole takes a minute or two the first time.

    Returns:
        The landing page, `output/index.html`, which opens from disk.

    Raises:
        CasebookError: Sphinx warned about something, or is not installed.
    """
    _check_installed()
    output = Path(output or paths.REPORTS).resolve()
    output.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(output / ".lock"):
        say("Reading the notebooks and the records ...")
        pages = read_pages(output, Path(notebooks or paths.NOTEBOOKS))
        transcripts = write_transcripts(output / "transcripts", paths.runs_dir(runs))
        write_sources(output / ".source", pages, transcripts)
        say(f"Rendering the pages of {len(pages)} notebooks ...")
        _run_sphinx(output / ".source", output)
        say("Joining the pages of each case into one file ...")
        for case in results.numbered_cases():
            if chapters := chapters_of(case, pages):
                write_report(case, chapters, output)
    return output / "index.html"


def write_sources(source: Path, pages: Sequence[Page], transcripts: Sequence[Mapping]) -> None:
    """Write what Sphinx reads, touching only files whose content changed."""
    source.mkdir(parents=True, exist_ok=True)
    environment = _environment(pages)
    counts = records.tally()
    cases = [
        _case_context(case, pages, transcripts) | {"counted": results.counted(counts[case.name])}
        for case in results.numbered_cases()
    ]
    others = [page for page in pages if not any(page in case["pages"] for case in cases)]
    picture = paths.ROOT / "figures" / PICTURE
    context = {
        "cases": cases,
        "pages": pages,
        "before": [page for page in others if int(page.number) < 10],
        "after": [page for page in others if int(page.number) >= 10],
        "transcripts": transcripts,
        "executed": any(page.source in ("run", "failed") for page in pages),
        "picture": picture.name if picture.exists() else "",
        "claims_table": results.claims_table(counts),
        "headlines": results.headlines(),
        "real_model": results.real_model(),
        "contributed": results.any_contributed(),
        "benchmarks": results.benchmarks_table(),
        "loops": results.loops_table(),
        "slower_loops": results.slower_loops_table(),
        "evaluations": results.evaluations_table(),
        "processes": results.processes_table(),
        "conversion": results.conversion_table(),
        "preflights": results.preflights_table(),
    }
    wanted = {f"{page.stem}.ipynb": nbformat.writes(page.notebook) for page in pages}
    if context["picture"]:
        wanted[picture.name] = picture.read_bytes()
    for path in DOCS.glob("*.md"):
        wanted[path.name] = path.read_bytes()
    for path in (DOCS / "templates").glob("*.md"):
        wanted[path.name] = environment.get_template(path.name).render(context)
    about_source = environment.get_template("for_each_case/source.md")
    for case in cases:
        wanted[f"source_{case['name']}.md"] = about_source.render(case=case)
    for name, content in wanted.items():
        write_if_changed(source / name, content)
    for path in source.iterdir():
        if path.name not in wanted:
            path.unlink()


def _environment(pages: Sequence[Page]):
    """The templates of `docs/templates/`; they make Markdown, so nothing is escaped by itself."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS / "templates"),
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).replace("|", "\\|").split())
    stems = {page.number: page.stem for page in pages}
    environment.filters["notebook"] = lambda text: link_notebooks(str(text), stems)
    headings = {page.number: headings_of(page.notebook) for page in pages}
    environment.filters["heading"] = lambda text: heading_link(text, stems, headings)
    return environment


def _case_context(case: Case, pages: Sequence[Page], transcripts: Sequence) -> dict[str, Any]:
    claims = records.load_claims(case.name)
    return {
        "name": case.name,
        "title": case.title,
        "question": case.question,
        "pages": chapters_of(case, pages),
        "box": records.write_up_box(case.name),
        "claims": claims,
        "note": results.claims_note(case.name, claims),
        "source": records.load_source(case.name),
        "result": results.result(case),
        "arms": results.arms_table(case),
        "real_models": results.real_models(case),
        "settled": [claim for claim in claims if claim["evidence"] == "computation"],
        "transcripts": [run for run in transcripts if run["case"] == case.name],
        "answers": results.answers(case.name),
        "before_and_after": results.before_and_after(case),
        "expected": results.expected_and_came(case),
    }


def _run_sphinx(source: Path, output: Path) -> None:
    """Run Sphinx in a process of its own: it keeps state that a second build would trip over."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html"]
    command += ["--doctree-dir", output / ".doctrees", "--conf-dir", DOCS, source, output]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.replace(f"{source}{os.sep}", "").strip() or done.stdout.strip()
        raise CasebookError(f"the site was not built cleanly: {said}")


def _check_installed() -> None:
    for package in ("latex2mathml", "myst_nb", "sphinx", "sphinx_book_theme"):
        if importlib.util.find_spec(package) is None:
            raise CasebookError(f"{package} is not installed: pip install -e '.[site]'")


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
