"""The tables and the sentence of the README that come from claims and records."""

import os
from pathlib import Path

from casebook import paths, records
from casebook.case import CasebookError
from casebook.site import results
from casebook.site.files import write_if_changed


def write_readme_results(readme: str | os.PathLike | None = None) -> bool:
    """Put what `site.results` says of claims, arms and the real model between the README's marks.

    Returns:
        Whether it changed.

    Raises:
        CasebookError: the README lacks a mark, such as `<!-- results:begin -->`.
    """
    readme = Path(readme or paths.ROOT / "README.md")
    text = readme.read_text(encoding="utf-8")
    made = {
        "claims": results.claims_table(records.tally()),
        "results": results.headlines(),
        "real": results.real_model(),
    }
    for name, text_made in made.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise CasebookError(f"{readme.name} needs the lines {begin} and {end}, in this order")
        text = f"{before}{begin}\n\n{text_made}\n\n{end}{after}"
    return write_if_changed(readme, text)
