"""What a case is, and how one is found by name.

A case is a folder under `casebook/cases/` whose `__init__.py` defines `CASE`, or any folder with a
`task.py`. None is imported before it is asked for, so heavy dependencies cost the others nothing.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datasets import Dataset

SPLITS = ("train", "validation", "test")
Settings = Mapping[str, Any]  # of a training: field -> value


class Profile(NamedTuple):
    """What a profile is; `configs/<case>/<name>.yaml` has its settings.

    Attributes:
        embedded: the model is the case's own, of `data/nano/`: prompts are short and the problems
            those that it was made for.
        chat: the model reads lists of messages, not one text.
        device: what it is meant for, `"cpu"` or `"gpu"`.
    """

    embedded: bool
    chat: bool
    device: str


_GPU = Profile(embedded=False, chat=True, device="gpu")
PROFILES: Mapping[str, Profile] = {
    **dict.fromkeys(("smoke", "nano"), Profile(embedded=True, chat=False, device="cpu")),
    "smol": Profile(embedded=False, chat=False, device="cpu"),
    **dict.fromkeys(("t4", "gpu24", "a100"), _GPU),
    # The write-ups' full settings, where they differ from the two above
    **dict.fromkeys(("t4_source", "a100_source"), _GPU),
}
KL_PART = "kl_penalty"  # the reward part that holds a KL, as the poker write-up has it


class CasebookError(ValueError):
    """A mistake that the user can correct: one sentence, without a traceback."""


class UnknownName(CasebookError, KeyError):
    """A name that is not known, with the names that are."""

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        super().__init__(f"unknown {kind} {name!r}: known are {', '.join(known)}")

    def __str__(self) -> str:  # KeyError would show the repr
        return self.args[0]


def check_name(kind: str, name: object, known: Iterable[str]) -> None:
    """Raise `UnknownName`, which lists `known`, unless `name` is one of them."""
    known = tuple(known)
    if name not in known:
        raise UnknownName(kind, name, known)


NO_ANSWER = "none"  # stands in tables for a completion from which no answer can be read


@dataclass(frozen=True)
class Grade:
    """What one completion is worth.

    Attributes:
        well_formed: the completion has the form the prompt asks for.
        answer: the answer read from it, normalised; `None` where none can be read.
        correct: the answer is right, whatever the form (lenient).
    """

    well_formed: bool
    answer: str | None
    correct: bool

    @property
    def strict(self) -> bool:
        """Well formed and correct."""
        return self.well_formed and self.correct


class RewardFactories(dict[str, Callable[..., Callable]]):
    """Ordered mapping name -> reward factory; an unknown name is an error that lists the known."""

    def __missing__(self, name: object):
        raise UnknownName("reward", name, self)


@dataclass(frozen=True)
class Case:
    """One write-up's task: where its rows come from and how its completions are judged.

    Attributes:
        name, number, title: the folder; its notebooks' first digit, else 0; what pages say.
        question: the one question its report answers.
        labels: the answers there are, in a fixed order; empty where answers are open.
        load: `load(split, profile="nano", seed=0, variant=None)` -> `datasets.Dataset` with the
            columns `prompt`, `answer` and the case's own. The splits are disjoint whatever the
            seeds; `seed` chooses the rows of a split's pool, and their order. An unknown split,
            profile or variant is a `CasebookError`.
        grade: `grade(completion, answer, variant=None)` -> `Grade`, of a string or a list of
            messages; anything else is an empty completion, and an invalid right answer never
            matches. Takes bounded time, and raises only for an unknown variant.
        rewards: name -> factory; `factory(**reward_kwargs)` is a TRL reward function.
        demonstrations: `demonstrations(seed, without=())` -> endless iterator of `{"prompt",
            "completion", "skill", "ends"}`, the corpus of the embedded model; `ends` is false for
            a completion that breaks off, after which no end-of-sequence token belongs. `seed`
            decides problems, skills and guesses. The skills of `without` are left out, and the
            others of their prompt share what they had; an unknown one, or all: `CasebookError`.
        skills: what the corpus plants: variant of the prompt -> name -> (share, one sentence).
            The shares of a variant add up to 1.
        style: `style(completion, row)` -> which of `skills` a completion shows, or `"other"`.
        reference: `reference(row, variant=None)` -> the completion the oracle would write, which
            supervised controls are taught.
        rules: `rules()` -> name -> share of the test rows that a one-line rule gets right; `None`
            where the case has no rules of its own.
        cluster: `cluster(row)` -> a key shared by rows that depend on each other; `None` where all
            rows are independent.
        caution: what held-out rows of the embedded model cannot show, for its model card.
    """

    name: str
    number: int
    title: str
    question: str
    labels: tuple[str, ...]
    load: Callable[..., "Dataset"]
    grade: Callable[..., Grade]
    rewards: RewardFactories
    demonstrations: Callable[..., Iterable[dict[str, Any]]]
    skills: Mapping[str, Mapping[str, tuple[float, str]]]
    style: Callable[[Any, Mapping[str, Any]], str]
    reference: Callable[..., str]
    rules: Callable[[], Mapping[str, float]] | None = None
    cluster: Callable[[Mapping[str, Any]], Any] | None = None
    caution: str = ""


def known_cases() -> tuple[str, ...]:
    """The names of all cases, without importing any."""
    folders = (Path(__file__).parent / "cases").glob("*/__init__.py")
    return tuple(sorted(path.parent.name for path in folders))


def load_case(name: str) -> Case:
    """The case called `name`, or the one in the folder `name` (`casebook.folder`).

    Raises:
        UnknownName: there is no such case; the message lists those there are.

    >>> load_case("poker").labels[0]
    'high card'
    """
    known = name in known_cases()
    found = importlib.import_module(f"casebook.cases.{name}" if known else "casebook.folder")
    return found.CASE if known else found.case_of(name)


def check_skills(
    skills: Mapping[str, Mapping[str, tuple[float, str]]], without: Collection[str]
) -> None:
    """Raise a `CasebookError` where a corpus cannot leave out the skills of `without`."""
    for name in without:
        check_name("skill", name, [name for planted in skills.values() for name in planted])
    for variant, planted in skills.items():
        if set(planted) <= set(without):
            raise CasebookError(f"no skill is left for the prompt {variant!r}")


def shares_of(planted: Mapping[str, tuple[float, str]]) -> dict[str, float]:
    """Skill -> share, without the sentences."""
    return {name: share for name, (share, _) in planted.items()}


def left(shares: Mapping[str, float], without: Collection[str]) -> dict[str, float]:
    """The shares of the skills that are not left out; they share what those had.

    >>> left({"careful": 0.4, "guess": 0.4, "rambling": 0.2}, ["rambling"])
    {'careful': 0.5, 'guess': 0.5}
    """
    kept = {name: share for name, share in shares.items() if name not in without}
    return {name: share / sum(kept.values()) for name, share in kept.items()}
