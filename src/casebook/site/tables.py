"""The tables of README and docs that records, claims and notebook 00 decide."""

import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

from casebook import paths, records
from casebook.case import PROFILES, CasebookError
from casebook.settings import read_arms
from casebook.site import results
from casebook.site.files import markdown_templates, write_if_changed
from casebook.site.pages import link_notebooks

PAGES = ("README.md", "docs/hardware.md", "docs/findings.md")


def write_tables(root: Path | None = None) -> bool:
    """Put the tables between their marks in README.md and two pages of docs/, under `root`.

    Returns:
        Whether one of them changed.

    Raises:
        CasebookError: a mark such as `<!-- results:begin -->` has no end, or no such table.
    """
    stems = {path.stem[:2]: f"../notebooks/{path.stem}" for path in paths.NOTEBOOKS.glob("*.ipynb")}
    templates = markdown_templates(notebook=lambda text: link_notebooks(str(text), stems))
    cases = results.numbered_cases()
    told = [results.learned(case) for case in cases]
    context = {
        **{"claims": results.counted(), "told": told, "transcripts": transcripts()},
        **{"real": results.real_model(), "profiles": profiles(), "extensions": extensions()},
    }
    texts = {
        name: templates.get_template(f"tables/{name}.md").render(context).strip()
        for name in ("claims", "results", "real", "transcripts", "where", "extension")
    }
    for case, learned in zip(cases, told, strict=True):
        claims = [row for row in records.load_claims(case.name) if row["weight"] == "central"]
        context = {"claims": [c for c in claims if c["evidence"] == "computation"]}
        case_table = templates.get_template("tables/case.md")
        texts[case.name] = case_table.render(context, learned=learned).strip()
    changed = [_write((root or paths.ROOT) / page, texts) for page in PAGES]
    return any(changed)


def transcripts(number: int = 3) -> list[str]:
    """The first lines of the table of transcripts of notebook 00, with its head."""
    cells = nbformat.read(paths.NOTEBOOKS / "00_start_here.ipynb", as_version=4).cells
    data = (output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))
    shown = (one.get("text/markdown", "") for one in data)
    return next((text for text in shown if text[:6] == "| hand"), "").splitlines()[: 2 + number]


def profiles() -> dict[str, dict[str, str]]:
    """Profile -> case -> how many records of it there are, or that there is no such profile."""

    def said(case: str, profile: str) -> str:
        known = (paths.CONFIGS / case / f"{profile}.yaml").exists()
        return (recorded(case, profile) or "not run") if known else "–"

    names = [case.name for case in results.numbered_cases()]
    return {p: {case: said(case, p) for case in names} for p in PROFILES if p != "smoke"}


def extensions() -> list[dict[str, str | float]]:
    """The arms that are made only when somebody names them, with their commands."""
    return [
        {
            "asks": arm["question"],
            "command": f"casebook experiments {case.name} --profile {arm['profile']} --arm {name}",
            "hours": arm["extension_hours"],
            "records": recorded(case.name, arm["profile"], name) or "no recorded run",
        }
        for case in results.numbered_cases()
        for name, arm in read_arms(case.name).items()
        if "extension_hours" in arm
    ]


def recorded(case: str, profile: str, arm: str = "*") -> str:
    """How many records of a profile or an arm the checkout has, in words; empty where none."""
    count = len([*(paths.RESULTS / case / profile).glob(f"{arm}/seed*.json")])
    return f"{count} record{'s' * (count > 1)}" if count else ""


def _write(page: Path, texts: Mapping[str, str]) -> bool:
    content = page.read_text(encoding="utf-8")
    for name in re.findall("<!-- (.*?):begin -->", content):
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        between = re.search(f"(?<={begin}).*?(?={end})", content, re.DOTALL)
        if not between or name not in texts:
            raise CasebookError(f"{page.name} has a mark {begin} without {end}, or of no table")
        text = f"\n\n{texts[name]}\n\n"
        content = f"{content[: between.start()]}{text}{content[between.end() :]}"
    return write_if_changed(page, content)
