"""Notebooks as they are committed: nothing in them but what comes from source and results."""

import json
import re
import sys
from pathlib import Path

import nbformat

from casebook import paths
from casebook.case import CasebookError

LARGEST = 300_000  # bytes of a committed notebook
PYTHON = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
RANDOM = re.compile(r"(?<=\bT_)[0-9a-f]{5}(?=[_\" ])|(?<= at 0x)[0-9a-f]+")  # of a styled table


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The executed notebook as it is committed: everything in it is from its source or results.

    Removed are the injected parameters, papermill's and the kernel's notes, timings, widget state,
    random ids and the path of the checkout; streams are merged, cells numbered, their ids kept.

    Raises:
        CasebookError: larger than 300 kB; the message names the largest cell.
    """
    clean, count = nbformat.v4.new_notebook(metadata=PYTHON), 0
    for cell in map(nbformat.from_dict, notebook.cells):
        if "injected-parameters" in cell.metadata.get("tags", []):
            continue
        # Papermill gives every cell a list of tags, which is mostly empty.
        kept = ((name, cell.metadata.get(name)) for name in ("tags", "mystnb", "jupyter"))
        cell.metadata = {name: value for name, value in kept if value}
        if cell.cell_type == "code":
            # A cell without code is never executed, and has no number.
            count += bool(cell.source.strip())
            cell.execution_count = count if cell.source.strip() else None
            cell.outputs = _clean_outputs(cell.outputs, count)
        clean.cells.append(cell)
    size = len(nbformat.writes(clean).encode())
    if size > LARGEST:
        worst = max(clean.cells, key=lambda cell: len(json.dumps(cell)))
        said = f"{size // 1000} kB with its outputs, {LARGEST // 1000} are allowed; the largest"
        raise CasebookError(f"{said} cell begins with {worst.source.splitlines()[0]!r}")
    return clean


def _clean_outputs(outputs: list, count: int) -> list:
    clean: list = []
    for output in map(nbformat.from_dict, outputs):
        if "execution_count" in output:
            output.execution_count = count
        if output.output_type == "stream" and clean and clean[-1].get("name") == output.name:
            clean[-1].text += output.text
            continue
        for kind in [kind for kind in output.get("data", {}) if "jupyter.widget" in kind]:
            del output.data[kind]
        if output.get("data", True):
            clean.append(output)
    for output in clean:
        if output.output_type == "stream":
            # A line that was written over and over again is what it was in the end.
            lines = output.text.replace("\r\n", "\n").split("\n")
            output.text = _without_paths("\n".join(line.rpartition("\r")[2] for line in lines))
        for kind, value in output.get("data", {}).items():
            if kind.startswith("text/"):
                output.data[kind] = RANDOM.sub(f"{count:05x}", _without_paths(value))
    return clean


def _without_paths(text: str) -> str:
    for path, instead in ((paths.ROOT, "."), (Path(sys.prefix), ".venv"), (Path.home(), "~")):
        if path != Path(path.anchor):
            text = text.replace(f"{path}/", "" if instead == "." else f"{instead}/")
            text = re.sub(rf"{re.escape(str(path))}(?![\w.-])", instead, text)
    return text


def write_notebook(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write a notebook whole or not at all."""
    with paths.replacing(path) as part:
        part.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
