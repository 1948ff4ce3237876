"""Prints, as JSON, how configurations' models are loaded where Unsloth is installed.

Run with `standin` on PYTHONPATH and STANDIN_RECORD=1, on configurations that one backend trains.
Each line: `file`, who asks (`package`, or a notebook), the `calls` that reached Unsloth, and
`error` where one was refused.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import torch

from casebook import paths
from casebook.backend import choose_backend
from casebook.settings import read_yaml


def cells(case: str) -> list[tuple[str, str]]:
    """Notebook and source of each cell of a case that loads a model by Unsloth's calls."""
    found = []
    for path in sorted(paths.NOTEBOOKS.glob(f"[1-4]?_{case}_*.ipynb")):
        code = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        found += [(path.stem, source) for source in code if "FastLanguageModel." in source]
    return found


def report(file: Path, who: str, names: dict[str, Any], code: str) -> None:
    made = sys.modules["loading"].CALLS if "loading" in sys.modules else []
    made.clear()
    line = {"file": f"{file.parent.name}/{file.name}", "who": who}
    try:
        exec(code, names)
    except (AssertionError, TypeError, NameError) as error:
        line["error"] = f"{type(error).__name__}: {error}"
    line["calls"] = [(name, {k: str(v) for k, v in call.items()}) for name, call in made]
    print("RESULT", json.dumps(line), flush=True)


def main(files: list[Path]) -> None:
    for file in files:
        settings = read_yaml(file)
        case, profile = settings["case"], settings["profile"]
        choose_backend(profile)
        from casebook import models, training

        names = {
            "models": models,
            "training": training,
            "settings": settings,
            "case_name": case,
            "PROFILE": profile,
            "SEED": 0,
            "set_seed": models.set_seed,
            "FastLanguageModel": models.FastLanguageModel,
            "tempfile": tempfile,
            "torch": torch,
        }
        report(file, "package", names, "models.load_policy(case_name, PROFILE, 0, settings)")
        for notebook, source in cells(case):
            report(file, notebook, names, source)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
