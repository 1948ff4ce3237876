"""The install cell that every notebook begins with: on Colab it installs, elsewhere nothing."""

import json
from pathlib import Path

import nbformat

from casebook import __version__, paths
from casebook.site.normalise import write_notebook
from casebook.site.notebooks import group_of, stage_of

# After a restart the checkout is there already, and the folder is Colab's own again.
_INSTALL = """\
# On Colab: fetch the casebook and install what Colab lacks ({time}).
# It may be run again, also after a restart. Anywhere else it does nothing.
import sys

if "google.colab" in sys.modules:
    import os
    import subprocess

    if os.path.isdir("casebook/src/casebook"):
        os.chdir("casebook")
    elif not os.path.isdir("src/casebook"):
{fetch}
        os.chdir("casebook")
    if os.path.abspath("src") not in sys.path:
        sys.path.insert(0, os.path.abspath("src"))  # a running kernel does not see -e
    from casebook.install import install

    install({arguments})"""

_CLONE = """\
        repository = "{address}"
        tag = "--branch=v{version}"
        clone = ["git", "clone", "-q", "--depth=1", tag, repository, "casebook"]
        subprocess.check_call(clone)"""

_UNPACK = """\
        if not os.path.exists("casebook.zip"):
            print("Upload casebook.zip (Files, on the left), then run this cell again.")
            sys.exit("Make it by: git archive --format=zip --output casebook.zip HEAD")
        subprocess.check_call(["unzip", "-qo", "casebook.zip", "-d", "casebook"])"""


def variant_of(notebook: Path) -> str:
    """Which install cell a notebook has: `light` where nothing is trained.

    >>> variant_of(Path("10_poker_oracle.ipynb")), variant_of(Path("13_poker_grpo.ipynb"))
    ('light', 'train')
    """
    return "light" if stage_of(notebook) in ("oracle", "rewards") else "train"


def install_cell(variant: str, case: str | None = None) -> str:
    """The first code cell of every notebook: on Colab it installs, elsewhere it does nothing.

    It clones the release, or unpacks an uploaded `casebook.zip` as long as no public address is
    configured; `casebook.install` does the rest, for `light` or `train`, with the extra of a case.
    """
    light = variant == "light"
    optional = paths.project()["project"]["optional-dependencies"]
    extras = [name for name in ("train" * (not light), case) if name in optional]
    address = paths.repository()
    return _INSTALL.format(
        time="1 min" if light else "2 min, T4 4, A100 8",
        fetch=_CLONE.format(address=address, version=__version__) if address else _UNPACK,
        arguments=f'"{variant}"' + (f", {json.dumps(extras)}" if extras else ""),
    )


def write_install_cells() -> list[Path]:
    """Write the generated install cell into every notebook; the paths of those that changed."""
    changed = []
    for path in sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        (cell,) = (c for c in notebook.cells if "install" in c.metadata.get("tags", []))
        source = install_cell(variant_of(path), group_of(path))
        if cell.source != source:
            cell.source = source
            write_notebook(path, notebook)
            changed.append(path)
    return changed
