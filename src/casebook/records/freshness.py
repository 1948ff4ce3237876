"""Whether a record still says what the code does.

A record is judged by behaviour. `casebook replay` repeats what it says and writes what came out
into `results/<case>/replays.json`, together with a digest of the code that ran and of the files
it read. `state` compares those digests with the files of the checkout, so that it needs neither
torch nor the machine that made the record:

    current      made or replayed under the code as it is
    replay due   the code, the weights or the data have changed since
    differs      the last replay gave other figures, or somebody edited the record
    regraded     cannot be trained again here (GPU, contributed): its completions graded again

A contributed record, one that somebody else sent, is at best regraded, and called contributed
wherever it is shown.

The digest of the code covers the package's modules that were imported in the process that
replayed, and is blind to comments, docstrings and layout.
"""

import ast
import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError
from casebook.records.files import plain

STATES = ("current", "replay due", "differs", "regraded")
PACKAGE = Path(__file__).parents[1]
# Rooms that a notebook or the command line imports, and that no training or measurement uses.
LEFT_OUT = {"cli", "__main__", "plots", "exercises", "studies", "execute", "site", "claims"}
LEFT_OUT |= {"tracking", "wandb_files"}  # they look on
LEFT_OUT |= {"preflight"}  # it looks at a training before, and compares afterwards
LEFT_OUT |= {"replay", "repeat"}  # they compare
# The packages whose pinned versions decide what a training on a CPU gives.
PINS = ("accelerate", "datasets", "math-verify", "numpy", "peft", "torch", "transformers", "trl")

# What a record is held against


def digest(value: Any) -> str:
    """A hash of anything that JSON can hold: 16 hexadecimal digits."""
    text = json.dumps(plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def module_hashes(names: Iterable[str]) -> dict[str, str]:
    """Module name -> hash of its code; a module that is gone has the hash `gone`."""
    return {name: _module_hash(name) for name in sorted(names)}


def code_of(record: Mapping[str, Any], modules: Sequence[str]) -> dict[str, Any]:
    """What a new record says of its making: the `modules` that ran, and one digest of their code
    and of the files that the run read."""
    made_by = [module_hashes(modules), input_files(record)]
    return {"modules": list(modules), "digest": digest(made_by)}


def loaded_modules() -> list[str]:
    """The package's modules that this process has imported, without the rooms of `LEFT_OUT`."""
    names = (name for name in sys.modules if name.split(".")[0] == PACKAGE.name)
    return sorted(name for name in names if LEFT_OUT.isdisjoint(name.split(".")))


def input_files(record: Mapping[str, Any]) -> dict[str, str]:
    """What a record's run read besides code: path -> hash, and the pinned versions.

    The base model's folder, where it is one of the checkout, and the case's own data.
    """
    model = paths.ROOT / str(record["config"].get("model_name_or_path"))
    folders = [folder for folder in (model, paths.DATA / record["case"]) if folder.is_dir()]
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()]
    hashes = {
        _named(file): _file_hash(file, _changed(file)) for file in files if file.suffix != ".md"
    }
    return hashes | {"pins": digest(_pins())}


def _named(file: Path) -> str:
    """A file as a record names it: by its place in the checkout, never by one of this machine."""
    inside = file.is_relative_to(paths.ROOT)
    return (
        file.relative_to(paths.ROOT) if inside else Path(file.parent.name, file.name)
    ).as_posix()


# What became of the replays


def replays_file(case: str) -> Path:
    """Where the replays of a case are kept."""
    return paths.RESULTS / case / "replays.json"


def read_replays(case: str) -> dict[str, Any]:
    """The replays of a case: `arms` ("profile/arm" -> its newest replay), `code` and `files`.

    Both of the latter map a digest to what was digested, so that a page can name what changed.

    Raises:
        CasebookError: the file is damaged.
    """
    path = replays_file(case)
    if not path.exists():
        return {"arms": {}, "code": {}, "files": {}}
    remembered = _parsed(path, _changed(path))
    return {name: dict(part) for name, part in remembered.items()}


def state(record: Mapping[str, Any]) -> str:
    """What a record is worth today, one of `STATES`.

    Args:
        record: as `read_record` gives it.

    Raises:
        CasebookError: the file of replays is damaged.
    """
    return _judged(record)[0]


def state_line(records: Sequence[Mapping[str, Any]]) -> str:
    """One line that says which of the records are not current, and why; empty if all are."""
    found: dict[str, list[str]] = {}
    for record in records:
        name, why = _judged(record)
        if name != "current":
            arm = f"{record['case']}/{record['profile']}/{record.get('arm')}"
            found.setdefault(f"{name}{why and f' ({why})'}", []).append(arm)
    said = [f"{name}: {', '.join(dict.fromkeys(arms))}" for name, arms in found.items()]
    return f"Not current. {'; '.join(said)}." if said else ""


def _judged(record: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a record, and a few words that say why it is not current."""
    name, why = _held_against(record)
    if "contributed" not in record:
        return name, why
    # What its sender trained, nobody repeated; `code` is what graded it here.
    said = ["contributed", why] if why else ["contributed"]
    return ("regraded" if name == "current" else name), ", ".join(said)


def _held_against(record: Mapping[str, Any]) -> tuple[str, str]:
    """What replays and code say of a record, wherever it comes from."""
    replays = read_replays(record["case"])
    last = replays["arms"].get(f"{record['profile']}/{record.get('arm')}")
    held = last["records"].get(str(record["seed"])) if last else None
    replayed = held is not None and held["made"] == record["provenance"]["time"]
    if replayed and held["content"] != digest(record):
        return "differs", "the file was edited"
    if replayed and last["verdict"] == "differs":
        return "differs", last["first_difference"]
    made = record.get("code")
    if made and made == code_of(record, made["modules"]):
        return "current", ""
    if not replayed:
        return "replay due", "made since the last replay" if last else "never replayed"
    if changed := _changes(replays, last, record):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return "replay due", f"{changed[0]} changed{more}"
    return ("regraded", "") if last["verdict"] == "regraded" else ("current", "")


def _changes(replays: Mapping, last: Mapping, record: Mapping[str, Any]) -> list[str]:
    """The modules and files that are not what they were at the last replay."""
    code, files = replays["code"][last["code"]], replays["files"][last["files"]]
    now = {**module_hashes(code), **input_files(record)}
    return [name for name, then in {**code, **files}.items() if now.get(name) != then]


# Hashes


def _module_hash(name: str) -> str:
    stem = PACKAGE.parent.joinpath(*name.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.exists():
            return _code_hash(path, _changed(path))
    return "gone"


def _changed(path: Path) -> tuple[int, int]:
    """What a file's content is remembered by while a process goes on."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=1024)
def _code_hash(path: Path, changed: tuple[int, int]) -> str:
    tree = _syntax(ast.parse(path.read_bytes()))
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()[:12]


@functools.lru_cache(maxsize=1024)
def _file_hash(path: Path, changed: tuple[int, int]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


@functools.lru_cache(maxsize=16)
def _parsed(path: Path, changed: tuple[int, int]) -> dict[str, Any]:
    try:
        replays = json.loads(path.read_text(encoding="utf-8"))
        return {name: dict(replays[name]) for name in ("arms", "code", "files")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CasebookError(f"{path} is damaged, restore it: {error}") from None


def _pins() -> list[str]:
    file = paths.ROOT / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return sorted(line.strip() for line in lines if line.split("=")[0] in PINS)


def _syntax(node: Any) -> Any:
    """A syntax tree as nested lists, without docstrings.

    `ast.dump` would not do: Python 3.13 writes it differently from 3.11.
    """
    if isinstance(node, list):
        return [_syntax(entry) for entry in node if not _is_bare_string(entry)]
    if isinstance(node, ast.AST):
        fields = [(name, _syntax(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    return None if node is None else repr(node)


def _is_bare_string(node: Any) -> bool:
    """A docstring, or another statement that is nothing but a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
