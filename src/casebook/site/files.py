"""Files of the site: the templates it is made with, and writing only what changed."""

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from casebook.case import CasebookError

TEMPLATES = Path(__file__).parent / "templates"


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write a file unless it is like that already; return whether it was written."""
    content = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    # Replaced in one step, so that whoever has the page open never reads half of it.
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(content)
    os.replace(draft, path)
    return True


def write_between_marks(page: Path, texts: Mapping[str, str]) -> bool:
    """Put each text between the marks of its name; return whether the page changed.

    Raises:
        CasebookError: the page lacks a mark, such as `<!-- results:begin -->`.
    """
    content = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = content.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise CasebookError(f"{page.name} needs the lines {begin} and {end}, in this order")
        content = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return write_if_changed(page, content)


def page_template(name: str):
    """A template of a whole HTML page; what is put into it is escaped unless marked `safe`."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


def css(*names: str) -> str:
    return "\n".join((TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in names)


def digest(*parts: bytes) -> str:
    """A hash of what a page is made from; a change of the site's own code makes it anew."""
    return hashlib.sha256(b"\0".join([_own_code().encode(), *parts])).hexdigest()[:16]


@cache
def _own_code() -> str:
    files = sorted(path for path in Path(__file__).parent.rglob("*") if path.is_file())
    files = [path for path in files if path.suffix != ".pyc"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def head_of(path: Path) -> str:
    """The first thousand characters of a file, where a page says what it was made from."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1000)
    except OSError:
        return ""
