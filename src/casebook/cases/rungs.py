"""A ladder of small tasks for a small real model: questions that lie inside the four cases.

A null result of a training is informative only if the model could learn the task. A *rung* is a
task so small that a model of 135 M parameters solves some of it after a few worked examples in its
prompt. Then groups are not silent, and a reward can teach. Each rung is a variant of its case's
prompt, `rung-NAME`, for chat models. `records.gate` says whether a run had anything to learn
from.

Problems are drawn by a seeded generator, the kinds in turn (the place of the right answer, or the
operation). A hash of the operands decides the split, so that no held-out problem shares its
operands with a training problem. The worked examples are training problems, the same for all rows.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from casebook.case import PROFILES, SPLITS, Case, CasebookError, Grade, RewardFactories, check_name
from casebook.rewards import Reward, completion_text, part

ROWS = {"train": 1000, "validation": 200, "test": 200}  # or as many as there are
ROWS_SEED = 8
TRIES = 100  # for each row that is wanted
TENTHS = {"test": 3, "validation": 4, "train": 10}  # of all operands, in this order, up to here
COLUMNS = ("answer", "operands", "question", "choices", "reference")
PREFIX = "rung-"


class Problem(NamedTuple):
    """`operands` are what no two splits share; `choices`, all answers that the question offers;
    `reference`, what the oracle would write, where it is more than the answer."""

    operands: tuple
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    reference: str = ""


class Rung(NamedTuple):
    """`draw(rng, kind)` makes a problem of one of so many `kinds`, and `shots` of them stand
    solved in front. `answers` is a pattern for what may be an answer: then the whole completion
    has to be one. Without it the case's own grade decides."""

    draw: Callable[[np.random.Generator, int], Problem]
    kinds: int
    shots: int
    answers: str = ""


def with_rungs(case: Case, rungs: Mapping[str, Rung]) -> Case:
    """The case, whose prompts have the variants `rung-NAME` as well, and with two rewards more.

    Their rows have `COLUMNS` beside `prompt`. `rung` rewards a completion that is the right answer
    and nothing else. `rung_choice` is the format-only control: it rewards any of the answers that
    the question offers.
    """
    rungs = {f"{PREFIX}{name}": rung for name, rung in rungs.items()}

    def known(variant: Any) -> Rung | None:
        if not str(variant).startswith(PREFIX):
            return None
        check_name("rung", variant, rungs)
        return rungs[variant]

    def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None):
        rung = known(variant)
        if rung is None:
            return case.load(split, profile, seed, variant)
        check_name("split", split, SPLITS)
        check_name("profile", profile, PROFILES)
        if PROFILES[profile].embedded:
            raise CasebookError(f"{variant} needs a chat model, and {profile} has none")
        return _rows(rung, split, seed)

    def grade(completion: Any, answer: Any, variant: str | None = None) -> Grade:
        rung = known(variant)
        if rung is None or not rung.answers:
            return case.grade(completion, answer, None if rung else variant)
        return whole_answer(completion_text(completion), answer, rung.answers)

    def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
        return row["reference"] if known(variant) else case.reference(row, variant)

    def cluster(row: Mapping[str, Any]) -> Any:
        return row.get("operands") or (case.cluster and case.cluster(row))

    rewards = RewardFactories(case.rewards, rung=_right, rung_choice=_choice)
    made = {"load": load, "grade": grade, "reference": reference, "cluster": cluster}
    return replace(case, **made, rewards=rewards)


def whole_answer(text: str, answer: Any, answers: str) -> Grade:
    """Well formed is an answer and nothing else; leniently, the only one that stands in the text
    counts. Letters count as they are, for the rewards as well: "Corn" is not "corn".

    >>> whole_answer("87", "87", "[0-9]{2}").strict, whole_answer("It is 87", "87", "87").strict
    (True, False)
    """
    alone = text.strip()
    well_formed = re.fullmatch(answers, alone) is not None
    named = {alone} if well_formed else set(re.findall(rf"(?<!\w)(?:{answers})(?!\w)", text))
    found = named.pop() if len(named) == 1 else None
    return Grade(well_formed, found, found is not None and found == answer)


def numbers(rng: np.random.Generator, kind: int) -> tuple[int, int, int]:
    """Two numbers and their sum, difference or product, by `kind`."""
    low, high = (2, 10) if kind == 2 else (3, 30)
    a, b = (int(n) for n in sorted(rng.choice(np.arange(low, high), 2, False), reverse=True))
    return a, b, (a + b, a - b, a * b)[kind]


def _right() -> Reward:
    return part("rung", lambda text, answer: text.strip() == answer, "answer")


def _choice() -> Reward:
    return part("rung_choice", lambda text, choices: text.strip() in choices, "choices")


def split_of(operands: tuple) -> str:
    """The split to which a problem belongs."""
    tenth = int(hashlib.sha256(repr(operands).encode()).hexdigest(), 16) % 10
    return next(split for split, end in TENTHS.items() if tenth < end)


def _rows(rung: Rung, split: str, seed: int):
    from datasets import Dataset

    turns = []
    for shot in _drawn(rung, "train", 0, rung.shots):
        turns.append({"role": "user", "content": shot["question"]})
        turns.append({"role": "assistant", "content": shot["reference"]})
    rows = _drawn(rung, split, seed + 1, ROWS[split])
    asked = [[*turns, {"role": "user", "content": row["question"]}] for row in rows]
    return Dataset.from_dict({"prompt": asked} | {n: [row[n] for row in rows] for n in COLUMNS})


def _drawn(rung: Rung, split: str, seed: int, count: int) -> list[dict[str, Any]]:
    rng, found = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)]), {}
    for attempt in range(TRIES * count):
        one = rung.draw(rng, attempt % rung.kinds)
        if split_of(one.operands) == split:
            columns = one._asdict() | {"operands": repr(one.operands)}
            columns |= {"reference": one.reference or one.answer, "choices": list(one.choices)}
            found.setdefault(one.question, columns)
        if len(found) == count:
            break
    rows = list(found.values())
    return [rows[i] for i in rng.permutation(len(rows))]
