"""The install cell that every notebook begins with: on Colab it installs, elsewhere nothing."""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import nbformat

from casebook import __version__, paths
from casebook.case import CasebookError, check_name
from casebook.execute.names import group_of, stage_of
from casebook.execute.normalise import write_notebook

_INSTALL = """\
# On Colab: fetch the casebook and install what Colab lacks (@time@).
# Anywhere else this cell does nothing.
import sys

if "google.colab" in sys.modules:
    import os
    import subprocess
    from importlib.metadata import version

    def pip(*args):
        subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", *args])

    if not os.path.exists("src/casebook"):
@fetch@
        os.chdir("casebook")
    # Another torch would cost minutes and break what Colab built against its own.
    keep = [f"{name}=={version(name)}" for name in ("torch", "numpy", "pillow")]
    pins = [@pins@]
    pip("-e", "@package@", *pins, *keep)
    sys.path.insert(0, os.path.abspath("src"))  # a running kernel does not see -e
"""

_CLONE = """\
        repository = "@address@"
        tag = "--branch=v@version@"
        clone = ["git", "clone", "-q", "--depth=1", tag, repository, "casebook"]
        subprocess.check_call(clone)"""

_UNPACK = """\
        if not os.path.exists("casebook.zip"):
            print("Upload casebook.zip (Files, on the left), then run this cell again.")
            sys.exit("Make it by: git archive --format=zip --output casebook.zip HEAD")
        subprocess.check_call(["unzip", "-q", "casebook.zip", "-d", "casebook"])"""

# Unsloth is installed without its requirements, which would replace half of what Colab has.
_GPU = """\
    gpu = os.popen("nvidia-smi --query-gpu=compute_cap --format=csv,noheader").read()
    unsloth = [@unsloth@]
    # Colab's own torchao is too old for PEFT.
    pip("--no-deps", "@torchao@", *(unsloth if gpu else []))
    # vLLM fits one torch each, and no longer runs on a T4.
    wheel = {
        "2.11.0+cu12": "@release@"
        "@wheel@",
        "2.13.0+cu13": "@vllm@",
    }.get(version("torch")[:11])
    if wheel and gpu and float(gpu.split()[0]) >= 8:
        os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
        pip(wheel, *pins, *keep)
"""


def variant_of(notebook: Path) -> str:
    """Which install cell a notebook has: `light` where nothing is trained.

    >>> variant_of(Path("10_poker_oracle.ipynb")), variant_of(Path("13_poker_grpo.ipynb"))
    ('light', 'train')
    """
    return "light" if stage_of(notebook) in ("oracle", "rewards") else "train"


def install_cell(variant: str, case: str | None = None) -> str:
    """The first code cell of every notebook: on Colab it installs, elsewhere it does nothing.

    It clones the release (or unpacks an uploaded `casebook.zip` as long as no public address is
    configured), installs what the notebook needs beside what Colab has, never another torch,
    and changes into the checkout.

    Args:
        variant: `light`; or `train`, which adds TRL and PEFT, on a GPU Unsloth, and vLLM where
            it runs.
        case: the case whose own libraries come along, where `pyproject.toml` has an extra of
            its name.

    Raises:
        UnknownName: another variant.
    """
    check_name("install cell", variant, ("light", "train"))
    cpu, cu12, cu13 = (_pins(f"requirements{kind}.txt") for kind in ("", "-gpu-cu12", "-gpu-cu13"))
    light = variant == "light"
    names = ["datasets"] if light else ["accelerate", "datasets", "peft", "transformers", "trl"]
    extras = [name for name in ("train" * (not light), case) if name in paths.extras()]
    release, slash, wheel = cu12["vllm"].partition(" @ ")[2].rpartition("/")
    values = {
        "fetch": _CLONE if paths.repository() else _UNPACK,
        "address": paths.repository(),
        "version": __version__,
        "time": "1 min" if light else "2 min, T4 4, A100 8",
        "package": f".[{','.join(extras)}]" if extras else ".",
        "pins": _wrap(cpu[name] for name in names),
        "torchao": cu12["torchao"],
        "unsloth": _wrap(cu12[name] for name in ("unsloth", "unsloth-zoo", "bitsandbytes")),
        "release": release + slash,
        "wheel": wheel,
        "vllm": cu13["vllm"],
    }
    cell = _INSTALL + ("" if light else _GPU)
    for name, value in values.items():
        cell = cell.replace(f"@{name}@", value)
    return cell.rstrip("\n")


def write_install_cells() -> list[Path]:
    """Write the generated install cell into every notebook; the paths of those that changed.

    A notebook that trains asks Colab for a GPU; the others must not, since that costs quota.

    Raises:
        CasebookError: a notebook without exactly one cell tagged `install`.
    """
    changed = []
    for path in sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        before = nbformat.writes(notebook)
        cells = [c for c in notebook.cells if "install" in c.metadata.get("tags", [])]
        if len(cells) != 1:
            raise CasebookError(f"{path.name} has {len(cells)} cells tagged 'install', not one")
        cells[0].source = install_cell(variant_of(path), group_of(path))
        for key in ("accelerator", "colab"):
            notebook.metadata.pop(key, None)
        if stage_of(path) in ("baseline", "grpo"):
            notebook.metadata["accelerator"] = "GPU"
            notebook.metadata["colab"] = {"gpuType": "T4", "provenance": []}
        if nbformat.writes(notebook) != before:
            write_notebook(path, notebook)
            changed.append(path)
    return changed


def _wrap(pins: Iterable[str]) -> str:
    """The inside of a list of strings, over several lines where one would be too wide."""
    text = ", ".join(f'"{pin}"' for pin in pins)
    if len(text) <= 72:
        return text
    indent = " " * 8
    lines = textwrap.wrap(text + ",", 88, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(["", *lines, "    "])


def _pins(file: str) -> dict[str, str]:
    """Canonical name -> the requirement as it stands in one of the pinned files."""
    lines = [line.partition(" ;")[0].strip() for line in (paths.ROOT / file).open()]
    pins = [line for line in lines if line and not line.startswith("#")]
    return {re.split(r"[^\w.-]", pin)[0].lower().replace("_", "-"): pin for pin in pins}
