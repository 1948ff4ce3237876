"""The install cell that every notebook begins with: on Colab it installs, elsewhere nothing."""

import json
from pathlib import Path

import nbformat

from casebook import __version__, paths
from casebook.case import known_cases
from casebook.site.normalise import write_notebook
from casebook.site.notebooks import group_of, stage_of

# After a restart the checkout is there already, and the folder is Colab's own again.
_INSTALL = """\
# On Colab: fetch the casebook and install what Colab lacks ({time}).
# It may ask for one restart: run it again then. Anywhere else it does nothing.
import sys

if "google.colab" in sys.modules:
    import os
    import subprocess
    from glob import glob

    if not os.path.isdir("src/casebook"):
        if not glob("*casebook*/src/casebook"):
{fetch}
        os.chdir(glob("*casebook*/src/casebook")[0] + "/../..")
    if os.path.abspath("src") not in sys.path:
        sys.path.insert(0, os.path.abspath("src"))  # a running kernel does not see -e
    from casebook.install import install

    install({arguments})"""

_CLONE = """\
            repository = "{address}"
            tag = "--branch=v{version}"
            clone = ["git", "clone", "-q", "--depth=1", tag, repository, "casebook"]
            subprocess.check_call(clone)"""

# What was uploaded once stays on Drive.
_UNPACK = """\
            import shutil
            from google.colab import drive

            try:
                drive.mount(os.path.abspath("drive"))
            except ValueError:
                print("Without Drive the file has to be uploaded each time.")
            files = glob("*casebook*.zip") + glob("drive/MyDrive/*casebook*.zip")
            if not files:
                print("Upload casebook-{case}.zip (Files, left), run this again.")
                sys.exit("`make colab` makes it; GitHub's Download ZIP will do, too.")
            file = min(files, key=lambda name: "-{case}." not in name)
            subprocess.check_call(["unzip", "-qo", file])
            if os.path.isdir("drive/MyDrive") and not file.startswith("drive"):
                shutil.copy(file, "drive/MyDrive")"""


def variant_of(notebook: Path) -> str:
    """Which install cell a notebook has: `light` where nothing is trained.

    >>> variant_of(Path("10_poker_oracle.ipynb")), variant_of(Path("13_poker_grpo.ipynb"))
    ('light', 'train')
    """
    return "light" if stage_of(notebook) in ("oracle", "rewards", "cancels") else "train"


def install_cell(variant: str, case: str | None = None) -> str:
    """The first code cell of every notebook: on Colab it installs, elsewhere it does nothing.

    It clones the release or, as long as no public address is configured, unpacks the file of `make
    colab` or GitHub's own zip, from Drive or just uploaded; `casebook.install` does the rest, for
    `light` or `train`, with the extra of a case. The failure clinic trains GSM8K's model.
    """
    light = variant == "light"
    optional = paths.project()["project"]["optional-dependencies"]
    extras = [name for name in ("train" * (not light), case) if name in optional]
    address = paths.repository()
    zipped = {"failure_clinic": "gsm8k"}.get(case, case if case in known_cases() else "poker")
    fetch = _CLONE if address else _UNPACK
    return _INSTALL.format(
        time="1 min" if light else "2 min, T4 4, A100 8",
        fetch=fetch.format(address=address, version=__version__, case=zipped),
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
