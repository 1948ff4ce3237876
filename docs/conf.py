"""Sphinx settings of the site; `casebook site` assembles the sources and calls Sphinx."""

import base64
import hashlib
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

from casebook import __version__, paths
from casebook.case import CasebookError
from casebook.site import mathml
from casebook.site.files import TEMPLATES

project = "RLVR Casebook"
author = "The RLVR Casebook authors"
copyright = "The RLVR Casebook authors, Apache-2.0"
version = release = __version__

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
root_doc = "index"
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_enable_extensions += ["tasklist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
nb_execution_mode = "off"  # papermill is the one executor
nb_merge_streams = True
nb_render_markdown_format = "myst"  # formulas in displayed Markdown, too
nb_ipywidgets_js = {}
nb_code_prompt_show = "Show the code of this output"
nb_code_prompt_hide = "Hide the code of this output"

html_theme = "sphinx_book_theme"
html_title = "RLVR Casebook"
html_math_renderer = "mathml"
html_static_path = ["_static", str(TEMPLATES / "fonts"), str(TEMPLATES / "math.css")]
html_css_files = ["math.css", "casebook.css"]
html_sourcelink_suffix = ""
html_show_sphinx = False
html_use_index = False
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 2,
    "show_toc_level": 2,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the sidebar has the search box
    "footer_content_items": ["copyright.html"],
    "toc_title": "On this page",
}
if address := paths.repository():
    html_theme_options |= {
        "repository_url": address,
        "use_repository_button": True,
        "repository_branch": "main",
        "path_to_docs": "notebooks",
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }


def setup(app):
    app.add_html_math_renderer("mathml", (formula, None), (displayed_formula, None))
    app.connect("builder-inited", keep_pictures_inside, priority=900)
    app.connect("source-read", find_notebooks)
    app.connect("doctree-read", describe_pictures)
    app.connect("html-page-context", mend_page)
    return {"parallel_read_safe": True}


def formula(writer, node):
    writer.body.append(as_mathml(node, block=False))
    raise nodes.SkipNode


def displayed_formula(writer, node):
    for name in node.get("ids", []):
        writer.body.append(f'<span id="{name}"></span>')
    writer.body.append(as_mathml(node, block=True))
    raise nodes.SkipNode


def as_mathml(node, block):
    try:
        return mathml(node.astext(), block)
    except CasebookError as error:
        logging.getLogger(__name__).warning(str(error), location=node)
        return ""


def keep_pictures_inside(app):
    """MyST-NB would write its pictures beside the output folder."""
    inside = str(Path(app.doctreedir) / "pictures")
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=inside)


def find_notebooks(app, name, source):
    """Plain pages link to `../notebooks/` and `../figures/`; here all lies beside them."""

    def mend(link):
        here = Path(app.srcdir, link[2]).exists()
        return f"[{link[1]}]({link[2]})" if here else link[1]

    source[0] = source[0].replace("](../figures/", "](")
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./notebooks/(\w+\.ipynb)\)", mend, source[0])


def mend_page(app, page, template, context, doctree):
    """A line may end before the interval of "33.9 % [29.4, 38.3]" and nowhere else in it, and not
    between a formula and its full stop. A styled table looks like any other of a notebook, and the
    name of an index stands in the corner, not in a row of its own."""
    space = r"<pre.*?</pre>|(?<=\d) (?=%)|(?<=[\d%],) (?=[-+\d.%]+\])"

    def kept(found):
        return found[0] if found[0].startswith("<pre") else "\N{NO-BREAK SPACE}"

    body = re.sub(space, kept, context.get("body", ""), flags=re.DOTALL)
    body = re.sub(r"</math>(?=[.,;:)])", "</math>\N{WORD JOINER}", body)
    head = r"(<thead>\s*<tr[^>]*>\s*<th>)(</th>(?:(?!</tr>).)*</tr>)"
    named = head + r"\s*<tr>\s*<th>([^<]+)</th>(?:\s*<th></th>)+\s*</tr>"
    body = re.sub(named, r"\1\3\2", body, flags=re.DOTALL)
    context["body"] = body.replace('<table id="T_', '<table class="dataframe" id="T_')


def describe_pictures(app, doctree):
    """Give pictures the alternative text of their output's metadata, which MyST-NB leaves out.

    MyST-NB names the file of a picture by the hash of its bytes; that is how they are matched.
    """
    source = Path(app.env.doc2path(app.env.docname))
    if source.suffix != ".ipynb":
        return
    texts = {}
    for cell in json.loads(source.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            for kind, about in output.get("metadata", {}).items():
                if kind in ("image/png", "image/jpeg") and "alt" in about:
                    data = output["data"][kind]
                    picture = base64.b64decode("".join(data))
                    texts[hashlib.sha256(picture).hexdigest()] = about["alt"]
    for image in doctree.findall(nodes.image):
        if (name := Path(image["uri"]).stem) in texts:
            image["alt"] = texts[name]
