"""The pages people read: the site, the transcript browser, one self-contained file per case.

A reader should open `reports/index.html` seconds after installation and find every notebook
there, with the outputs of their own run where there is one and the committed ones elsewhere, and
each page should say which. Nothing on any page comes from the network: formulas are MathML.

`build` puts it together: `pages` makes notebooks ready, `results` writes what the records and
claims say, Sphinx renders all of it, `report` joins the rendered pages of a case into one file,
`transcripts` shows what models wrote, and `readme` keeps the README's tables up to date.
"""

from casebook.site.build import build_site
from casebook.site.pages import heading_link, mathml
from casebook.site.readme import write_readme_results
from casebook.site.where import write_where

__all__ = ["build_site", "heading_link", "mathml", "write_readme_results", "write_where"]
