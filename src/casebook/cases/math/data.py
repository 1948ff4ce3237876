"""MATH rows: the problems, the prompts, and the nano corpus.

There are two sources of problems, and neither silently replaces the other. The profiles for a
laptop (`smoke`, `nano`) use the generated problems of `templates`. Those with a language model
(`smol`, `t4`, `a100`) use the real ones: Allen AI's RLVR-MATH to train on, with solved examples in
every prompt, and MATH-500 to test on, from a named folder, else from a pinned revision of the hub.
The column `source` says which.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from casebook.case import PROFILES, SPLITS, CasebookError, check_name, check_skills, left, shares_of
from casebook.cases.math import templates
from casebook.cases.math.rewards import VARIANTS, grade
from casebook.cases.math.templates import Problem
from casebook.cases.math.verify import last_boxed
from casebook.rewards import completion_text

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 2000, "validation": 256, "test": 1000}  # of generated problems
ROWS_SEED = 6
VALIDATION_ROWS = 256  # of the real training problems; RLVR-MATH has no split of its own
# MATH-500 divided in itself, in an order drawn once: for those who have no RLVR-MATH.
MATH500 = {"test": slice(100), "validation": slice(100, 150), "train": slice(150, None)}
COLUMNS = ("answer", "problem", "solution", "subject", "level", "source", "unique_id")
UNKNOWN = "unknown"  # subject of a row of RLVR-MATH, which names none; its level is 0
SHOTS = 3

# When the write-up was written, TRL kept the last 512 tokens of a prompt unless told otherwise; the
# embedded model's prompts have 6 to 21 tokens, so that a limit of 10 cuts most of them.
CUT = {"generated": 10, "real": 512}
TOKEN = re.compile(r" ?\\[A-Za-z]+| ?[A-Za-z]+| ?\d+|\n| ?[^\sA-Za-z\d]")  # near enough to count by

ASKED = (
    "Think step by step inside <think> and </think>. Then give the final answer, and nothing "
    "else, in \\boxed{}."
)
ASKED_ANSWER = "Give the final answer alone, without working and without a box."

# What the nano corpus plants, prompt by prompt; the shares of a prompt add up to 1. The likeliest
# single way goes wrong; those that work with care come in less than half of the completions, each
# of them in a form of its own. What a reward makes of that is the experiment.
CAREFUL = {
    "careful": (0.13, "works it out, and boxes the answer as MATH would write it"),
    "other form": (0.14, "works it out, and boxes the answer in another, equivalent form"),
    "no think": (0.07, "works it out without think tags, and boxes the answer"),
    "no box": (0.07, "works it out, and says the answer in a sentence instead of a box"),
    "calculation in the box": (0.04, "works it out, and boxes a whole calculation"),
    "two boxes": (0.02, "boxes a wrong answer first, then works it out and boxes the right one"),
}
SKILLS: Mapping[str, Mapping[str, tuple[float, str]]] = {
    "reason": {
        **CAREFUL,
        "careless": (0.37, "makes the mistake that pupils make on such a problem"),
        "guess": (0.08, "boxes the answer to another problem of the kind, without working"),
        "rambling": (0.08, "repeats its first line and never comes to an answer"),
    },
    "answer": {
        "right answer": (0.40, "names the right answer at once"),
        "wrong answer": (0.60, "names the answer that the common mistake leads to"),
    },
}
ANSWER_SHARE = 0.12  # of the corpus asks for the answer alone; the rest lets the model think


def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None) -> "Dataset":
    r"""The rows of a split: `prompt` and `COLUMNS`.

    Args:
        split: `train`, `validation` or `test`. Generated: 2,000, 256 and 1,000 problems, none in
            two splits. Real: 7,244 of RLVR-MATH, 256 held back from it by a hash of the problem,
            and MATH-500.
        profile: `smoke` and `nano` ask generated problems in a few words; `smol` real ones as
            text, `t4` and `a100` as lists of messages.
        seed: which generated problems, and the order of either.
        variant: see `prompt_maker`.

    Returns:
        Beside the prompt: `answer` (LaTeX, without the box), `problem`, `solution` (worked, with a
        box; empty for RLVR-MATH, which has none), `subject`, `level` (1 to 5; `unknown` and 0
        where the set names none), `source` (`generated`, `folder` or `hub`) and `unique_id`.

    Raises:
        CasebookError: the real problems cannot be had.
    """
    from datasets import Dataset

    check_name("split", split, SPLITS)
    make_prompt = prompt_maker(profile, variant)
    if PROFILES[profile].embedded:
        rows = [_row(problem) for problem in generated(split, seed)]
    else:
        order = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
        real = math500_rows(split) if variant == "chat-math500" else real_rows(split)
        rows = [real[i] for i in order.permutation(len(real))]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return Dataset.from_dict({"prompt": [make_prompt(row) for row in rows], **columns})


@lru_cache(maxsize=16)
def generated(split: str, seed: int = 0) -> tuple[Problem, ...]:
    """The generated problems of a split: `ROWS[split]`, no family more than its share of them."""
    rng = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
    pool = templates.pools()[split]
    order = rng.permutation(len(pool))
    taken: dict[str, int] = {}
    first, rest = [], []
    for i in order:
        family = pool[i].family
        taken[family] = taken.get(family, 0) + 1
        (first if taken[family] <= ROWS[split] * templates.LARGEST_SHARE else rest).append(pool[i])
    chosen = (first + rest)[: ROWS[split]]
    return tuple(chosen[i] for i in rng.permutation(len(chosen)))


def _row(problem: Problem) -> dict[str, Any]:
    return {
        "answer": problem.gold,
        "problem": problem.text,
        "solution": "\n".join((*problem.work, f"\\boxed{{{problem.gold}}}")),
        "subject": problem.subject,
        "level": problem.level,
        "source": "generated",
        "unique_id": f"generated/{problem.key.replace(' ', '/')}",
    }


def family(row: Mapping[str, Any]) -> str:
    """What rows share that are not independent: a generated problem's family, its template. A real
    problem is alone."""
    source, *parts = row["unique_id"].split("/")
    return parts[0] if source == "generated" else row["unique_id"]


def real_rows(split: str) -> tuple[dict[str, Any], ...]:
    """The real problems of a split as rows without a prompt, in the order of their file.

    They come from the folder that was named (`--data-dir` or `CASEBOOK_DATA_DIR`) if one was, else
    from the hub at a pinned revision; `source` says which.

    Raises:
        CasebookError: the problems cannot be had, or are not those that were expected.
    """
    from casebook.cases import problem_sets

    return _real_rows(split, problem_sets.data_dir())


def math500_rows(split: str) -> tuple[dict[str, Any], ...]:
    """A part of MATH-500: 100 problems to test on, 50 for validation, and 350 to train on."""
    whole = real_rows("test")
    order = np.random.default_rng(ROWS_SEED).permutation(len(whole))
    return tuple(whole[i] for i in order[MATH500[split]])


@lru_cache(maxsize=6)
def _real_rows(split: str, folder: Path | None) -> tuple[dict[str, Any], ...]:
    source = "folder" if folder else "hub"
    if split == "test":
        found = _read("math500", "test", folder)
        return tuple({n: row[n] for n in COLUMNS if n in row} | {"source": source} for row in found)
    without = {"solution": "", "subject": UNKNOWN, "level": 0, "source": source}
    rows = [
        {"answer": row["ground_truth"], "problem": _asked(row["messages"])[1], **without}
        | {"unique_id": f"rlvr-math/{i}"}
        for i, row in enumerate(_read("rlvr-math", "train", folder))
    ]
    marks = [templates.digest(row["problem"]) for row in rows]
    bound = sorted(marks)[min(VALIDATION_ROWS, len(marks)) - 1]
    held_back = split == "validation"
    return tuple(row for row, m in zip(rows, marks, strict=True) if (m <= bound) == held_back)


def _read(name: str, split: str, folder: Path | None) -> list[dict[str, Any]]:
    from casebook.cases import problem_sets

    return problem_sets.read(name, split, hub=folder is None).to_dict("records")


def _asked(messages: Any) -> tuple[str, str]:
    """The solved examples in front of a prompt of RLVR-MATH, and the problem behind them.

    Every example and the problem begin with `Question: `.
    """
    content = messages[0]["content"]
    examples, found, problem = content.rpartition("\n\nQuestion: ")
    if found:
        return examples + "\n\n", problem.strip()
    return "", content.removeprefix("Question: ").strip()


@lru_cache(maxsize=2)
def _real_examples(folder: Path | None) -> str:
    """The solved examples that stand in every prompt of RLVR-MATH."""
    return _asked(_read("rlvr-math", "train", folder)[0]["messages"])[0]


def prompt_maker(
    profile: str, variant: str | None = None
) -> Callable[[Mapping[str, Any]], str | list[dict[str, str]]]:
    """The function row -> prompt of a profile and variant.

    Args:
        profile: decides the form: the problem and a line end (`smoke`, `nano`), text (`smol`), or
            a list of messages (`t4`, `a100`).
        variant: `reason`, think and then box the answer (the embedded model is told neither);
            `answer`, the answer alone; `shots3`, after solved examples: those that RLVR-MATH
            itself puts there, or three generated ones; `cut`, a prompt that lost its beginning to
            a limit of tokens, as happened to the write-up: what `shots3` says, or for generated
            problems `reason`; `chat-math500`, what `reason` says, as a list of messages for `smol`
            as well, and on MATH-500 alone (see `math500_rows`).

    Raises:
        UnknownName: unknown profile or variant.
    """
    from casebook.cases import problem_sets

    check_name("profile", profile, PROFILES)
    variant = variant or "reason"
    check_name("variant", variant, VARIANTS)
    if PROFILES[profile].embedded:
        return _nano_prompt(variant)
    shown = variant in ("shots3", "cut")
    examples = _real_examples(problem_sets.data_dir()) if shown else ""

    def text(row: Mapping[str, Any]) -> str:
        if shown:
            whole = f"{examples}Question: {row['problem']}"
            return cut_left(whole, CUT["real"]) if variant == "cut" else whole
        return f"{row['problem']}\n\n{ASKED_ANSWER if variant == 'answer' else ASKED}"

    if PROFILES[profile].chat or variant == "chat-math500":
        return lambda row: [{"role": "user", "content": text(row)}]
    return lambda row: f"{text(row)}\n\n"


def _nano_prompt(variant: str) -> Callable[[Mapping[str, Any]], str]:
    if variant == "answer":
        return lambda row: f"{row['problem']}\nAnswer:"
    if variant == "cut":
        return lambda row: cut_left(f"{row['problem']}\n", CUT["generated"])
    before = ""
    if variant == "shots3":
        shots = [_row(problem) for problem in _examples()]
        before = "".join(f"{shot['problem']}\n{reference(shot)}\n" for shot in shots)
    return lambda row: f"{before}{row['problem']}\n"


def _examples() -> list[Problem]:
    """The first training problems of one line of working, each of another family."""
    found: dict[str, Problem] = {}
    for problem in templates.pools()["train"]:
        if len(problem.work) == 1:
            found.setdefault(problem.family, problem)
    return list(found.values())[:SHOTS]


def cut_left(text: str, tokens: int) -> str:
    r"""The last `tokens` tokens of a text, as a trainer cuts a prompt that is too long.

    Words, numbers, LaTeX commands and single signs are counted as tokens here, because rows are
    made before there is a tokenizer.

    >>> cut_left("Solve $3x+4=19$.", 5)
    '4=19$.'
    """
    found = list(TOKEN.finditer(text))
    return text if len(found) <= tokens else text[found[-tokens].start() :]


def demonstrations(seed: int, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The nano corpus: endless `prompt`, `completion`, `skill`, `ends`, from training problems.

    `Case` says what the arguments do.
    """
    check_skills(SKILLS, without)
    rng = np.random.default_rng(seed)
    makers = {variant: prompt_maker("nano", variant) for variant in SKILLS}
    shares = {v: left(shares_of(SKILLS[v]), without) for v in SKILLS}
    by_family: dict[str, list[Problem]] = {}
    for problem in templates.pools()["train"]:
        by_family.setdefault(problem.family, []).append(problem)
    families = list(by_family.values())
    sizes = np.sqrt([len(kin) for kin in families])  # small families are seen enough
    while True:
        kin = families[int(rng.choice(len(families), p=sizes / sizes.sum()))]
        problem = kin[int(rng.integers(len(kin)))]
        variant = "answer" if rng.random() < ANSWER_SHARE else "reason"
        skill = str(rng.choice(list(shares[variant]), p=list(shares[variant].values())))
        yield {
            "prompt": makers[variant]({"problem": problem.text}),
            "completion": _completion(skill, problem, kin, rng),
            "skill": skill,
            "ends": skill != "rambling",
        }


def _completion(skill: str, problem: Problem, kin: list[Problem], rng: np.random.Generator) -> str:
    thought, box = "\n".join(problem.work), f"\\boxed{{{problem.gold}}}"
    if skill == "other form":
        return _formed(thought, str(rng.choice(problem.other)))
    if skill == "guess":
        return f"\\boxed{{{kin[int(rng.integers(len(kin)))].gold}}}"
    return {
        "careful": _formed(thought, problem.gold),
        "no think": f"{thought}\n{box}",
        "no box": f"<think>\n{thought}\n</think>\nThe answer is ${problem.gold}$.",
        "calculation in the box": _formed(problem.work[0], problem.calculation),
        "two boxes": f"\\boxed{{{problem.slip}}}\n{thought}\n{box}",
        "careless": _formed("\n".join(problem.slip_work), problem.slip),
        "rambling": "<think>\n" + "\n".join([problem.work[0]] * 8),
        "right answer": f" {problem.gold}",
        "wrong answer": f" {problem.slip}",
    }[skill]


def _formed(thought: str, answer: str) -> str:
    return f"<think>\n{thought}\n</think>\n\\boxed{{{answer}}}"


def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
    r"""The completion that the oracle would write, used by supervised controls.

    `row` needs `answer` and `solution`; without a worked solution it is a `CasebookError`.

    >>> reference({"answer": "5", "solution": "3x=15\nx=5\n\\boxed{5}"})
    '<think>\n3x=15\nx=5\n</think>\n\\boxed{5}'
    """
    check_name("variant", variant or "reason", VARIANTS)
    if variant == "answer":
        return f" {row['answer']}"
    if not row["solution"]:
        raise CasebookError("this row has no solution to teach: RLVR-MATH has only answers")
    box = f"\\boxed{{{row['answer']}}}"
    worked = row["solution"].removesuffix(box).strip().replace("\\fbox", "\\boxed")
    return _formed(worked.replace("\\boxed", ""), row["answer"])  # one box, at the end


def style(completion: Any, row: Mapping[str, Any]) -> str:
    """Which planted skill or fault of the reasoning prompt it shows, or `"other"`.

    `row` needs `answer`. What is right counts as worked out with care if something was worked out
    at all: the lines themselves are not read.
    """
    text = completion_text(completion).strip()
    thinks, box = text.startswith("<think>"), last_boxed(text)
    if box is None:
        if "</think>" in text and "The answer is $" in text:
            return "no box"
        return "rambling" if thinks and "</think>" not in text else "other"
    if text.startswith("\\boxed"):
        return "guess" if text.count("\\boxed") == 1 else "two boxes"
    if text.count("\\boxed") > 1 or thinks != ("</think>" in text):
        return "other"
    if "=" in box.removeprefix("x="):
        return "calculation in the box"
    if not grade(text, row["answer"]).correct:
        return "careless" if thinks else "other"
    if not thinks:
        return "no think"
    return "careful" if box == row["answer"] else "other form"
