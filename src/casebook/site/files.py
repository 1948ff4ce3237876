"""Files of the site: the templates it is made with, and writing only what changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from casebook import paths

DOCS = paths.ROOT / "docs"  # plain pages, and those that are filled in under templates/
TEMPLATES = Path(__file__).parent / "templates"  # of whole HTML pages


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write a file unless it is like that already; return whether it was written."""
    content = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == content:
        return False
    with paths.replacing(path) as part:  # whoever has the page open never reads half of it
        part.write_bytes(content)
    return True


def _environment(folder: Path, **more: Any) -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(folder)
    return jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **more)


def markdown_templates(**filters: Callable) -> jinja2.Environment:
    """The templates of `docs/templates/`; `cell` puts any text into a cell of a table."""
    environment = _environment(DOCS / "templates", undefined=jinja2.ChainableUndefined)
    environment.filters["cell"] = lambda text: " ".join(str(text).replace("|", "\\|").split())
    environment.filters |= filters
    return environment


def page_template(name: str) -> jinja2.Template:
    """A template of a whole HTML page; what is put into it is escaped unless marked `safe`."""
    return _environment(TEMPLATES, autoescape=True).get_template(name)


def css(*names: str) -> str:
    return "\n".join((TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in names)
