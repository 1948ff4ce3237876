"""What a run folder remembers of what made it, so that nothing else goes on with it."""

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any

from casebook import pretrained, processes
from casebook.case import CasebookError, load_case
from casebook.evaluation import OTHER_ROWS, OTHER_TEXT
from casebook.records.files import read_json, write_json
from casebook.records.freshness import digest, input_files, loaded_modules, module_hashes
from casebook.training.config import Config

# Seeds, and what only concerns logging: the runs of one arm share everything else.
NOT_OF_THE_ARM = (
    *("seed", "report_to", "disable_tqdm"),
    *("save_steps", "save_total_limit", "save_minutes"),
)


def settings_mark(config: Config, left_out: Collection[str] = NOT_OF_THE_ARM) -> str:
    """A hash of a training's settings without those left out: 16 hexadecimal digits."""
    return digest({name: v for name, v in config.settings.items() if name not in left_out})


def write_origin(path: Path, config: Config) -> None:
    """Write down the code, weights and data that a run starts with."""
    made = {"code": module_hashes(loaded_modules()), "files": _files(config)}
    write_json(path, made | {"processes": processes.count()})


def check_origin(path: Path, config: Config) -> None:
    """Raise a `CasebookError` that names what changed since `write_origin`."""
    then = read_json(path)
    kinds = ("code", "files")
    if not isinstance(then, dict) or not all(isinstance(then.get(kind), dict) for kind in kinds):
        raise CasebookError(f"{path} is damaged: name another folder")
    begun = then.get("processes", 1)
    if begun != processes.count():
        raise CasebookError(
            f"the run in {path.parent} was begun with another number of processes ({begun}): go on "
            "with as many, or name another folder"
        )
    now = {"code": module_hashes(then["code"]), "files": _files(config)}
    for kind in kinds:
        for name, mark in then[kind].items():
            if now[kind].get(name) != mark:
                raise CasebookError(
                    f"the run in {path.parent} was made by other code, data or weights ({name} "
                    "has changed): name another folder"
                )


def input_digests(config: Config) -> dict[str, Any]:
    """Hashes of every column of the rows, by split, and of the corpus's text: what was asked."""
    case = load_case(config.case)
    rows = {}
    for split in ("train", "validation", "test"):
        data = case.load(split, config.profile, config.seed, config.variant)
        rows[split] = digest({name: data[name][:] for name in data.column_names})
    text = list(islice(case.demonstrations(OTHER_TEXT), OTHER_ROWS))
    return {"rows": rows, "demonstrations": digest(text)}


def _files(config: Config) -> dict[str, str]:
    files = input_files({"case": config.settings["case"], "config": config.settings})
    name = config.settings["model_name_or_path"]
    which = pretrained.which(name)  # neither a fetched nor a trained model lies in the checkout
    return files | ({f"the source of {name}": which} if which else {})
