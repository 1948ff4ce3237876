"""The tables and the sentence of the README that come from claims and records."""

import os
from pathlib import Path

from casebook import paths, records
from casebook.site import results
from casebook.site.files import write_between_marks


def write_readme_results(readme: str | os.PathLike | None = None) -> bool:
    """Put what `site.results` says of claims, arms and the real model between the README's marks.

    Returns:
        Whether it changed.

    Raises:
        CasebookError: the README lacks a mark, such as `<!-- results:begin -->`.
    """
    made = {
        "claims": results.claims_table(records.tally()),
        "results": results.headlines(),
        "real": results.real_model(),
    }
    return write_between_marks(Path(readme or paths.ROOT / "README.md"), made)
