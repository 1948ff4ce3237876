"""One case as one HTML file: its pages of the site, joined, with everything they need inside.

Sphinx has rendered the pages, so there is one reading of Markdown, one rule for anchors and one
look of formulas. Here their articles are put behind one another, code is folded, pictures become
part of the file, and links between the pages become links within it.
"""

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pygments.formatters import HtmlFormatter

from casebook.case import Case
from casebook.site.files import TEMPLATES, css, page_template, write_if_changed
from casebook.site.pages import Page

INSTALL = re.compile(r'<div class="cell tag_install[^"]*">.*?</details>\s*</div>', re.DOTALL)
CODE = re.compile(  # one code cell's source, folded by the site or not
    r'(?:<details class="admonition hide above-input">\s*<summary.*?</summary>\s*)?'
    r'<div class="cell_input docutils container">\s*'
    r'(<div class="highlight-.*?</pre></div>\s*</div>)\s*</div>(?:\s*</details>)?',
    re.DOTALL,
)
LINK = re.compile(r'<a\b[^>]*\bhref="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
TAG = re.compile(r'<(/?)([a-z][a-z0-9]*)((?:[^<>"]|"[^"]*")*)>')


def write_report(case: Case, chapters: Sequence[Page], output: Path) -> Path:
    """Write `output/<case>.html` from the case's rendered pages unless it is like that."""
    path = output / f"{case.name}.html"
    sources = {f"source_{case.name}": "writeup"}
    sources |= {page.stem: f"n{page.number}" for page in chapters}
    parts = []
    for stem, prefix in sources.items():
        page = (output / f"{stem}.html").read_text(encoding="utf-8")
        article = page.partition('<article class="bd-article">')[2].rpartition("</article>")[0]
        parts.append(_part(prefix, _made_whole(article.strip(), prefix, sources, output)))
    light, dark = (
        HtmlFormatter(style=f"a11y-high-contrast-{style}").get_style_defs(".highlight pre")
        for style in ("light", "dark")
    )
    code = f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    text = page_template("report.html").render(
        case=case,
        opening=parts[0],
        parts=parts[1:],
        css=css("page", "math", "report") + "\n" + code,
        font=base64.b64encode((TEMPLATES / "fonts/casebook-math.woff2").read_bytes()).decode(),
    )
    write_if_changed(path, text)
    return path


def _made_whole(text: str, prefix: str, sources: dict[str, str], output: Path) -> str:
    """An article that needs nothing beside it: see the module's first lines."""
    text = INSTALL.sub("", text)
    text = re.sub(r'<a class="headerlink".*?</a>', "", text, flags=re.DOTALL)
    text = CODE.sub(r'<details class="code"><summary>Code</summary>\1</details>', text)

    def link(match: re.Match) -> str:
        address, words = match.groups()
        page, _, anchor = html.unescape(address).partition("#")
        stem = page.removesuffix(".html")
        if re.match(r"[a-z]+:", address):
            return match[0]
        if page and stem not in sources:  # a page that is not in this file, or a picture's own
            return words
        target = sources[stem] if page else prefix
        return f'<a href="#{target}{f"-{anchor}" if anchor else ""}">{words}</a>'

    def tag(match: re.Match) -> str:
        closing, name, attributes = match.groups()
        if re.fullmatch(r"h[1-5]", name):
            name = f"h{int(name[1]) + 1}"  # the file's own title is the first
        attributes = re.sub(r'(\sid=")', rf"\1{prefix}-", attributes)
        if name == "img":
            attributes = re.sub(
                r'\ssrc="([^"]*)"', lambda found: _picture(found[1], output), attributes
            )
        return f"<{closing}{name}{attributes}>"

    return TAG.sub(tag, LINK.sub(link, text))


def _picture(address: str, output: Path) -> str:
    file = output / html.unescape(address)
    kind = {".svg": "svg+xml", ".jpg": "jpeg"}.get(file.suffix, file.suffix[1:])
    data = base64.b64encode(file.read_bytes()).decode()
    return f' src="data:image/{kind};base64,{data}"'


def _part(prefix: str, body: str) -> dict[str, Any]:
    """A body with its title and its headings, for the table of contents."""
    plain = [
        (f"{prefix}-{anchor}", html.unescape(re.sub(r"<[^>]+>", "", text)))
        for anchor, text in re.findall(
            rf'<section[^>]* id="{prefix}-([^"]+)">\s*<h3>(.*?)</h3>', body, re.DOTALL
        )
    ]
    title = re.search(r"<h2>(.*?)</h2>", body, re.DOTALL)
    words = html.unescape(re.sub(r"<[^>]+>", "", title[1])) if title else ""
    return {"id": prefix, "title": words, "body": body, "headings": plain}
