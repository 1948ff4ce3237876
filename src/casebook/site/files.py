"""Files of the site: the templates it is made with, and writing only what changed."""

from collections.abc import Callable, Mapping
from pathlib import Path

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


def markdown_templates(filters: Mapping[str, Callable] | None = None) -> jinja2.Environment:
    """The templates of `docs/templates/`; `cell` puts any text into a cell of a table."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS / "templates"),
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).replace("|", "\\|").split())
    environment.filters |= filters or {}
    return environment


def page_template(name: str) -> jinja2.Template:
    """A template of a whole HTML page; what is put into it is escaped unless marked `safe`."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


def css(*names: str) -> str:
    return "\n".join((TEMPLATES / f"{name}.css").read_text(encoding="utf-8") for name in names)
