"""One case as one HTML file: its pages of the site, joined, with everything they need inside.

The articles that Sphinx has rendered are put behind one another, code is folded, pictures become
part of the file, and links between the pages become links within it.
"""

import base64
import mimetypes
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from pygments.formatters import HtmlFormatter

from casebook.case import Case
from casebook.site.files import TEMPLATES, css, page_template, write_if_changed
from casebook.site.pages import Page


def write_report(case: Case, chapters: Sequence[Page], output: Path) -> None:
    """Write `output/<case>.html` from the case's rendered pages unless it is like that."""
    sources = {f"source_{case.name}": "writeup"}
    sources |= {page.stem: f"n{page.number}" for page in chapters}
    with ProcessPoolExecutor() as pool:
        opening, *parts = pool.map(_part, sources, repeat(sources), repeat(output))
    styles = (f"a11y-high-contrast-{style}" for style in ("light", "dark"))
    light, dark = (HtmlFormatter(style=it).get_style_defs(".highlight pre") for it in styles)
    code = f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    text = page_template("report.html").render(
        case=case,
        opening=opening,
        parts=parts,
        css=css("page", "math", "report") + "\n" + code,
        font=base64.b64encode((TEMPLATES / "fonts" / "casebook-math.woff2").read_bytes()).decode(),
    )
    write_if_changed(output / f"{case.name}.html", text)


def _part(stem: str, sources: Mapping[str, str], output: Path) -> dict[str, Any]:
    """A page's article that needs nothing beside it, and its headings for the contents."""
    prefix = sources[stem]
    page = BeautifulSoup((output / f"{stem}.html").read_text(encoding="utf-8"), "html.parser")
    article = page.select_one("article.bd-article")
    for useless in article.find_all(class_=["tag_install", "headerlink"]):
        useless.decompose()
    for code in article.find_all(class_="cell_input"):
        fold = page.new_tag("details", attrs={"class": "code"})
        (code.find_parent("details") or code).replace_with(fold)
        fold.append(page.new_tag("summary", string="Code"))
        fold.append(code.div)
    for link in article.find_all("a", href=True):
        address, _, anchor = link["href"].partition("#")
        target = sources.get(address.removesuffix(".html")) if address else prefix
        if target:
            link["href"] = f"#{target}-{anchor}" if anchor else f"#{target}"
        elif not re.match(r"[a-z]+:", address):  # not in this file, or a picture's own
            link.unwrap()
    for tag in article.find_all(id=True):
        tag["id"] = f"{prefix}-{tag['id']}"
    for picture in article.find_all("img"):
        file = output / picture["src"]
        data = base64.b64encode(file.read_bytes()).decode()
        picture["src"] = f"data:{mimetypes.guess_type(file)[0]};base64,{data}"
    for heading in article.find_all(re.compile("^h[1-5]$")):
        heading.name = f"h{int(heading.name[1]) + 1}"  # the file's own title is the first
    headings = [(title.parent["id"], title.get_text()) for title in article.select("section > h3")]
    body, title = article.decode_contents(), article.h2.get_text()
    return {"id": prefix, "title": title, "body": body, "headings": headings}
