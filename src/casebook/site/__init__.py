"""The pages people read: the site, the transcript browser, one self-contained file per case.

A reader should open `reports/index.html` seconds after installation and find every notebook
there, with the outputs of their own run where there is one and the committed ones elsewhere, and
each page should say which. Nothing on any page comes from the network: formulas are MathML.

`series` runs the notebooks that `notebooks` selects; `normalise` makes them fit to commit, and
`colab` writes their first cell. `build` puts the pages together: `pages` makes notebooks ready,
`results` reads what the records say, the templates of `docs/templates/` put it into words, Sphinx
renders all of it, `report` joins the rendered pages of a case into one file, `transcripts` shows
what models wrote, and `tables` keeps what README and docs show of the records up to date.
"""

import sys

# For nbformat, jsonschema would load a grammar that takes longer than all the rest together.
sys.modules.setdefault("rfc3987_syntax", None)

from casebook.site.build import build_site
from casebook.site.pages import link_notebooks, mathml, reading_minutes
from casebook.site.tables import write_tables

__all__ = ["build_site", "link_notebooks", "mathml", "reading_minutes", "write_tables"]
