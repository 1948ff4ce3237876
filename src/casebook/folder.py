"""A case that is a folder anywhere: `task.py`, and a YAML file for each profile.

`task.py` needs `load(split)`, rows as dicts with the texts `prompt` and `answer`, and columns of
their own; `grade(completion, answer)`, a `casebook.Grade`; and `rewards`, name -> TRL reward. The
rest has a default: `reference(row)`, what an oracle would write (the answer, in tags where they are
asked for); `demonstrations(seed)`, an endless corpus of `prompt` and `completion`; `cluster(row)`,
what no two splits may share; `labels`; `SYSTEM`, for chat models.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from casebook import case, paths
from casebook.case import Case, CasebookError, Grade, check_name
from casebook.rewards import completion_text

TASK, VARIANT = "task.py", "task"
FORMS = ("<answer>{}</answer>", "{}", "\\boxed{{{}}}", "#### {}")  # of a reference, tried in turn
FORMS += tuple(f"<{it}>\n</{it}>\n<answer>{{}}</answer>" for it in ("think", "reasoning"))
SKILLS: Mapping[str, tuple[float, str]] = {  # of the default corpus
    "right": (0.40, "the reference of its row"),
    "slip": (0.35, "the reference with one word, digit, capital or sign of another row's"),
    "swapped": (0.10, "the reference of another row"),
    "bare": (0.15, "the reference without its tags"),
}


def place(name: Any) -> Path | None:
    """Where the training files of a case lie: below `configs/`, or beside the `task.py` of a folder
    that is named from here or from the checkout. `None`: there is no such case."""
    if name in case.known_cases():
        return paths.CONFIGS / name
    bases = (Path(), paths.ROOT) if isinstance(name, str | Path) else ()
    return next((b / name for b in bases if (b / name / TASK).is_file()), None)


def beside(settings: dict[str, Any], file: Path) -> dict[str, Any]:
    """The settings of a file; a case and a model that begin with a dot lie beside the file."""
    for name in ("case", "model_name_or_path"):
        if str(settings.get(name)).startswith("."):
            settings[name] = short(file.parent / settings[name])
    return settings


def short(path: Path) -> str:
    """A path as one would type it in the checkout: from there if it lies inside, else absolute."""
    path = path.resolve()
    return str(path.relative_to(paths.ROOT) if path.is_relative_to(paths.ROOT) else path)


def case_of(name: Any) -> Case:
    """The case of a folder; `CasebookError`: there is none, or its `task.py` is not one."""
    if folder := place(name):
        return _read(folder.resolve() / TASK, (folder / TASK).stat().st_mtime_ns)
    raise case.UnknownName("case", name, (*case.known_cases(), f"any folder with a {TASK}"))


@lru_cache(maxsize=16)
def _read(file: Path, _changed: int) -> Case:
    sys.path += [str(file.parent)] * (str(file.parent) not in sys.path)  # for what lies beside it
    spec = importlib.util.spec_from_file_location(f"task_{file.parent.name}", file)
    task = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    _sentence(f"the import of {file}", spec.loader.exec_module)(task)
    own = {"reference": None, "demonstrations": None, "cluster": None, "labels": (), "SYSTEM": ""}
    own |= vars(task)
    if not (own.get("load") and own.get("grade") and isinstance(own.get("rewards"), Mapping)):
        raise CasebookError(f"{file} needs load, grade, and rewards, a mapping of names")
    calls = {it: _sentence(f"{it} of {file}", own[it]) for it in ("grade", "reference")}
    calls["load"] = _sentence(f"load of {file}", lambda split: list(own["load"](split)))
    skills = {VARIANT: {"right": (1.0, "as shown")} if own["demonstrations"] else SKILLS}

    def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None) -> Any:
        from datasets import Dataset

        check_name("split", split, case.SPLITS)
        check_name("profile", profile, case.PROFILES)
        check_name("variant", variant or VARIANT, (VARIANT,))
        rows, how = calls["load"](split), (own["SYSTEM"], case.PROFILES[profile].chat)
        names = ("prompt", "answer")
        texts = [isinstance(row, Mapping) and row.get(name) for row in rows for name in names]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise CasebookError(f"{file}: {split} needs rows with the texts prompt and answer")
        order = np.random.default_rng([seed, case.SPLITS.index(split)]).permutation(len(rows))
        return Dataset.from_list([rows[i] | {"prompt": _asked(rows[i], *how)} for i in order])

    def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
        check_name("variant", variant or VARIANT, (VARIANT,))
        asked = completion_text(completion), answer
        found = calls["grade"](*asked) if answer else Grade(False, None, False)
        if not isinstance(found, Grade):
            raise CasebookError(f"grade of {file} gave {found!r:.60}, and no Grade")
        return found

    def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
        if own["reference"]:
            return calls["reference"](row)
        texts = [form.format(row.get("solution") or row["answer"]) for form in FORMS]
        return next((it for it in texts if grade(it, row["answer"]).strict), texts[0])

    def demonstrations(seed: int, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
        case.check_skills(skills, without)
        for row in own["demonstrations"](seed) if own["demonstrations"] else ():
            yield {"skill": "right", "ends": True, **row, "prompt": _asked(row)}
        if own["demonstrations"]:
            raise CasebookError(f"demonstrations of {file} ended, and have to be endless")
        rng, rows = np.random.default_rng(seed), load("train").to_list()
        shares, texts = case.left(case.shares_of(SKILLS), without), [*map(reference, rows)]
        while True:
            i, other = rng.integers(len(rows), size=2)
            skill = str(rng.choice([*shares], p=[*shares.values()]))
            said = {"prompt": rows[i]["prompt"], "skill": skill, "ends": True}
            yield said | {"completion": _faulty(skill, texts[i], texts[other], rng)}

    def reward(name: str, **settings: Any) -> Callable[..., list[float]]:
        pay = _sentence(f"the reward {name} of {file}", partial(own["rewards"][name], **settings))
        pay.__name__ = name
        return pay

    rewards = case.RewardFactories({name: partial(reward, name) for name in own["rewards"]})
    given = {"load": load, "grade": grade, "rewards": rewards, "labels": tuple(own["labels"])}
    given |= {"style": lambda said, row: "right" * grade(said, row["answer"]).strict or "other"}
    given |= {"demonstrations": demonstrations, "skills": skills, "reference": reference}
    given |= {"cluster": own["cluster"] and _sentence(f"cluster of {file}", own["cluster"])}
    return Case(short(file.parent), number=0, title=file.parent.name, question="", **given)


def _sentence(what: str, function: Callable) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except CasebookError:
            raise
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise CasebookError(f"{what} raised {said}") from error

    return call


def _asked(row: Mapping, system: str = "", chat: bool = False) -> Any:
    """A row's prompt: messages, or a text that ends with its line."""
    said = {"system": system, "user": row["prompt"]}
    messages = [{"role": role, "content": text} for role, text in said.items() if text]
    return messages if chat else f"{row['prompt'].rstrip()}\n"


def _faulty(skill: str, text: str, other: str, rng: np.random.Generator) -> str:
    """A reference as a skill of `SKILLS` writes it."""
    words, others = (re.findall(r"</?\w+>|[A-Z\d]|\w+|\W", it) for it in (text, other))
    if skill == "slip" and words and others:
        words[rng.integers(len(words))] = str(rng.choice(others))
    bare = re.sub(r"</?\w+>", "", text).strip()
    return {"slip": "".join(words), "swapped": other, "bare": bare}.get(skill, text)
