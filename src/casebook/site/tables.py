"""The tables of README and of the page "What runs where" that records and claims decide."""

import re
from collections.abc import Mapping
from pathlib import Path

from casebook import paths
from casebook.case import PROFILES, CasebookError
from casebook.settings import read_arms
from casebook.site import results
from casebook.site.files import markdown_templates, write_if_changed


def write_tables(readme: Path | None = None, where: Path | None = None) -> bool:
    """Put the tables between their marks in `README.md` and `docs/hardware.md`.

    Returns:
        Whether one of them changed.

    Raises:
        CasebookError: a page lacks a mark, such as `<!-- results:begin -->`.
    """
    templates, cases = markdown_templates(), results.numbered_cases()
    context = {
        **{"claims": results.counted(), "told": [results.learned(case) for case in cases]},
        **{"real": results.real_model(), "profiles": profiles(), "extensions": extensions()},
    }

    def texts(*names: str) -> dict[str, str]:
        return {n: templates.get_template(f"tables/{n}.md").render(context).strip() for n in names}

    changed = [
        _write(readme or paths.ROOT / "README.md", texts("claims", "results", "real")),
        _write(where or paths.ROOT / "docs" / "hardware.md", texts("where", "extension")),
    ]
    return any(changed)


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
    for name, text in texts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if not (between := re.search(f"(?<={begin}).*?(?={end})", content, re.DOTALL)):
            raise CasebookError(f"{page.name} needs the lines {begin} and {end}, in this order")
        content = f"{content[: between.start()]}\n\n{text}\n\n{content[between.end() :]}"
    return write_if_changed(page, content)
