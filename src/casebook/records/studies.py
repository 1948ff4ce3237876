"""Records of studies: figures that no training is behind, counted once and committed.

The real problem sets are no part of the casebook, and run folders are not either. What a study
found in them is kept in `results/CASE/data/NAME.json`, numbers instead of problems, and
`casebook study NAME` makes it anew. Beside its figures a record has `code`: the hashes of the
modules that decide them. `study_line` says when one of those has changed since, and `read` says it
on every page that shows the figures.
"""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.records.files import write_json
from casebook.records.freshness import module_hashes
from casebook.records.gate import tell


class Study(NamedTuple):
    """Who makes a record.

    Attributes:
        case: the case it belongs to.
        modules: those whose code decides the figures, of the case unless their names begin with
            `casebook.`; `record()` of the first makes them.
        of_runs: `record` is given the case's finished runs and its base model.
    """

    case: str
    modules: tuple[str, ...]
    of_runs: bool = False


POKER_GRADER = ("rewards", "casebook.labels")
GSM8K_GRADER = ("rewards", "reading", "answers")
VERIFIER = ("verify", "reading", "comparing", "hedges", "notation", "worker")
EVALUATING = ("casebook.evaluation", "casebook.models.decoding", "casebook.models.generation")
WRITING = (*EVALUATING, "casebook.models.attention")  # with an attention of our own
STUDIES: Mapping[str, Study] = {
    "conversion": Study("poker", ("studies.conversion", "casebook.models.gguf")),
    "smol_poker": Study("poker", ("studies.smol", "data", *POKER_GRADER, *EVALUATING)),
    "exploration": Study("gsm8k", ("studies.exploration",)),
    "rewards": Study("gsm8k", ("studies.ranking", *GSM8K_GRADER)),
    "baseline": Study("gsm8k", ("studies.baselines", "studies.errors", *GSM8K_GRADER)),
    "embedding": Study("gsm8k", ("studies.embedding", "studies.exploration")),
    "smol_gsm8k": Study(
        "gsm8k", ("studies.smol", "data", *GSM8K_GRADER, "casebook.untrained", *WRITING)
    ),
    "forms": Study("math", ("studies.forms", "rewards", *VERIFIER)),
    "prompts": Study("math", ("studies.prompts",)),
    "verifiers": Study("math", ("studies.verifiers", *VERIFIER)),
    "smol_math": Study(
        "math", ("studies.smol", "data", "rewards", *VERIFIER, "casebook.untrained", *WRITING)
    ),
    "gibberish": Study("math", ("studies.gibberish",), of_runs=True),
}


def command(name: str) -> str:
    """What makes a record anew, for a page or a sentence that lacks it."""
    study = STUDIES[name]
    return f"casebook {f'experiments {study.case} && casebook ' * study.of_runs}study {name}"


def path(name: str) -> Path:
    """Where a study's record is kept.

    Raises:
        UnknownName: there is no such study; the message lists those there are.
    """
    check_name("study", name, STUDIES)
    return paths.RESULTS / STUDIES[name].case / "data" / f"{name}.json"


def completions_path(name: str) -> Path:
    """Where the completions of a study are kept, if it keeps them apart.

    Raises:
        UnknownName: as `path`.
    """
    return path(name).with_suffix(".jsonl.gz")


def read(name: str, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The committed record of a study.

    Args:
        name: one of `STUDIES`.
        say: called with `study_line`, if there is one; it is printed once a process.

    Raises:
        CasebookError: unknown study; there is no record, or none that can be read.
    """
    record = _read(name)
    tell(_line(name, record), say)
    return record


def study_line(name: str) -> str:
    """One line that says which code has changed since a record was made; empty if none has.

    Raises:
        CasebookError: as `read`.
    """
    return _line(name, _read(name))


def write(name: str, *given: Any) -> Path:
    """Make a study's record anew; its path.

    Args:
        name: one of `STUDIES`.
        given: what its `record` asks for: runs and base model, where it is `of_runs`.

    Raises:
        CasebookError: unknown study; the problems or runs that it needs are not there.
    """
    file = path(name)
    content = _maker(name).record(*given)
    write_json(file, {**content, "code": code(name)})
    return file


def code(name: str) -> dict[str, str]:
    """The modules whose code decides a study's figures, with their hashes."""
    return module_hashes(_modules(name))


def _read(name: str) -> dict[str, Any]:
    file = path(name)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = None
    whole = isinstance(record, dict) and "provenance" in record
    if not whole or not isinstance(record.get("code"), dict):
        raise CasebookError(
            f"there is no record of a study at {file} that can be read: {command(name)} makes it"
        )
    return record


def _line(name: str, record: Mapping[str, Any]) -> str:
    now = code(name)
    changed = [module for module, mark in now.items() if record["code"].get(module) != mark]
    if not changed:
        return ""
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    which = f"{STUDIES[name].case}/{name}"
    return f"Not current. replay due ({changed[0]} changed{more}): {which}; {command(name)}."


def _modules(name: str) -> list[str]:
    study = STUDIES[name]
    own = f"casebook.cases.{study.case}."
    return [name if name.startswith("casebook.") else own + name for name in study.modules]


def _maker(name: str) -> ModuleType:
    return import_module(_modules(name)[0])
