"""GSM8K rows: the problems, the prompts, and the nano corpus.

There are two sources of problems, and neither silently replaces the other. The profiles for a
laptop (`smoke`, `nano`) use the generated problems of `templates`; those with a language model
(`smol`, `t4`, `a100`) use the real ones, from a named folder or else from the hub at a pinned
revision. The column `source` says which.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from casebook.case import PROFILES, SPLITS, check_name, check_skills, left, shares_of
from casebook.cases.gsm8k import templates
from casebook.cases.gsm8k.rewards import TAGS, VARIANTS, grade
from casebook.cases.gsm8k.templates import Problem
from casebook.rewards import completion_text, tag_blocks

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 2400, "validation": 256, "test": 1000}  # of generated problems
ROWS_SEED = 5
VALIDATION_ROWS = 256  # of the real training problems; the write-up held none back
COLUMNS = ("answer", "gold", "question", "solution", "steps", "source")

# The system prompt of the notebook that the write-up follows, and the write-up's own, with the
# sentence it added (GSM8K write-up, "System Prompt"; both quoted, their wording is what is tested).
SYSTEM_UNSLOTH = """Respond in the following format:
<reasoning>
...
</reasoning>
<answer>
...
</answer>"""
SYSTEM = f"""{SYSTEM_UNSLOTH}
You must put your reasoning between the <reasoning> tags and answer between the <answer> tags."""

# What the nano corpus plants, prompt by prompt; the shares of a prompt add up to 1.
SKILLS: Mapping[str, Mapping[str, tuple[float, str]]] = {
    "reason": {
        "careful": (0.30, "calculates every step, then gives the number alone"),
        "dressed answer": (0.18, "calculates every step, then adds a unit, a sign or a sum to it"),
        "no tags": (0.09, "calculates every step, then writes #### and the number without tags"),
        "careless": (0.21, "leaves out the last step, or mistakes the operation"),
        "in the head": (0.09, "writes no step: one operation on two numbers of the question"),
        "first number": (0.04, "gives back the first number of the question"),
        "rambling": (0.05, "repeats its first step and never comes to an answer"),
        "bare number": (0.04, "blurts out a number without reasoning or tags"),
    },
    "answer": {
        "guess": (0.60, "one operation on two numbers of the question"),
        "right answer": (0.40, "names the right number at once"),
    },
}
CAREFUL = ("careful", "dressed answer", "no tags")  # the skills that calculate every step
ANSWER_SHARE = 0.12  # of the corpus asks for the number alone; the rest lets the model think
# The last of several steps is left out more often than taken where it takes away or shares out, so
# that even the likeliest completion is wrong there; the rest of the share is for other problems.
OVERLOOKED, OVERLOOKED_SHARE = ("-", "/"), 0.42


def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None) -> "Dataset":
    """The rows of a split: `prompt` and `COLUMNS`.

    Args:
        split: `train`, `validation` or `test`. Generated: 2,400, 256 and 1,000 problems, no story
            with the same numbers in two splits. Real: 7,217, 256 held back from the training file
            by a hash of the question, and 1,319.
        profile, variant: see `prompt_maker`.
        seed: which generated problems, and the order of either.

    Beside the prompt stand `answer` (digits, without commas), `gold` (what stands after `####`),
    `question`, `solution` (the worked answer, with calculator notes), `steps` (how many notes) and
    `source` (`generated`, `folder` or `hub`).
    """
    from datasets import Dataset

    check_name("split", split, SPLITS)
    make_prompt = prompt_maker(profile, variant)
    if PROFILES[profile].embedded:
        rows = [_row(p.question, p.solution, "generated") for p in generated(split, seed)]
    else:
        order = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
        real = real_rows(split)
        rows = [real[i] for i in order.permutation(len(real))]
    return Dataset.from_dict(
        {"prompt": [make_prompt(row) for row in rows]}
        | {name: [row[name] for row in rows] for name in COLUMNS}
    )


@lru_cache(maxsize=16)
def generated(split: str, seed: int = 0) -> tuple[Problem, ...]:
    """The generated problems of a split: `ROWS[split]`, no two with the same text."""
    rng = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
    found: dict[str, Problem] = {}
    while len(found) < ROWS[split]:
        problem = templates.draw(rng, split)
        found.setdefault(problem.question, problem)
    return tuple(found.values())


def real_rows(split: str) -> tuple[dict[str, Any], ...]:
    """The real problems of a split as rows without a prompt, in the order of their file."""
    from casebook.cases import problem_sets

    return _real_rows(split, problem_sets.data_dir())


@lru_cache(maxsize=6)
def _real_rows(split: str, folder: Path | None) -> tuple[dict[str, Any], ...]:
    from casebook.cases import problem_sets

    source = "folder" if folder else "hub"
    file = "test" if split == "test" else "train"
    frame = problem_sets.read("gsm8k", file, hub=folder is None)
    pairs = zip(frame["question"], frame["answer"], strict=True)
    rows = [_row(question, solution, source) for question, solution in pairs]
    if split == "test":
        return tuple(rows)
    # The validation split are the training problems with the smallest hashes.
    marks = [templates.digest(question) for question in frame["question"]]
    bound = sorted(marks)[VALIDATION_ROWS - 1]
    wanted = split == "validation"
    return tuple(row for row, mark in zip(rows, marks, strict=True) if (mark <= bound) is wanted)


def _row(question: str, solution: str, source: str) -> dict[str, Any]:
    gold = solution.rpartition("####")[2].strip()
    return {
        "answer": gold.replace(",", ""),
        "gold": gold,
        "question": question,
        "solution": solution,
        "steps": len(notes(solution)),
        "source": source,
    }


def story(row: Mapping[str, Any]) -> int | str:
    """What rows share that are not independent: a generated problem's story. A real one has its
    own."""
    frame = templates.frame_of(row["question"])
    return row["question"] if frame is None else frame + 1


def notes(solution: str) -> list[str]:
    """The calculator notes of a worked answer, one for each step.

    >>> notes("He has 4*3=<<4*3=12>>12 pens, so 12-5=<<12-5=7>>7 are left.\\n#### 7")
    ['4*3=12', '12-5=7']
    """
    return re.findall(r"<<([^<>]*)>>", solution)


def worked(row: Mapping[str, Any]) -> str:
    """A row's solution as a completion in the asked form.

    The reasoning of a generated problem is its notes, one a line, which is all that the embedded
    model writes; that of a real one is its text without the notes.
    """
    if row["source"] == "generated":
        return _formed(_thought(notes(row["solution"])), row["answer"])
    text = row["solution"].rpartition("####")[0].strip()
    return _formed(re.sub(r"<<[^<>]*>>", "", text), row["answer"])


def _thought(calculated: Iterable[str]) -> str:
    # With blanks between them numbers are the same tokens as in the question: so 4 * 3 = 12.
    return "\n".join(re.sub(r"([-+*/=])", r" \1 ", f"so {note}") for note in calculated)


def _formed(thought: str, answer: str) -> str:
    return f"<reasoning>\n{thought}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def prompt_maker(profile: str, variant: str | None = None) -> Callable[[Mapping[str, Any]], Any]:
    """The function row -> prompt of a profile and variant.

    Args:
        profile: decides the form: the question and a line end (`smoke`, `nano`), text (`smol`), or
            a list of messages (`t4`, `a100`).
        variant: `reason`, the write-up's prompt; `unsloth`, that of the notebook it follows, which
            lacks one sentence (the embedded model is told neither); `answer`, the number alone;
            `shots5` and `shots8`, the write-up's after as many solved training problems. Those that
            begin with `chat` are lists of messages for `smol` as well: `chat`, `chat-unsloth`,
            either with solved examples, as in `chat-shots2`, and `chat-plain`, the question alone.
    """
    check_name("profile", profile, PROFILES)
    variant = variant or "reason"
    check_name("variant", variant, VARIANTS)
    count = variant.partition("shots")[2]
    shots = examples(profile, int(count)) if count else ()
    chat = variant.startswith("chat") and not PROFILES[profile].embedded
    if PROFILES[profile].chat or chat:
        return lambda row: _messages(row["question"], variant, shots)
    if PROFILES[profile].embedded:
        before = "".join(f"{shot['question']}\n{worked(shot)}\n" for shot in shots)
        end = "\nAnswer:" if variant == "answer" else "\n"
        return lambda row: f"{before}{row['question']}{end}"
    return lambda row: _text(row["question"], variant, shots)


def examples(profile: str, number: int) -> tuple[Mapping[str, Any], ...]:
    """The solved training problems before a question; generated ones have one step."""
    if not PROFILES[profile].embedded:
        return real_rows("train")[:number]
    short = [problem for problem in generated("train") if len(problem.steps) == 1]
    return tuple(_row(p.question, p.solution, "generated") for p in short[:number])


def _messages(question: str, variant: str, shots: Sequence[Mapping]) -> list[dict[str, str]]:
    if variant == "answer":
        text = f"{question}\n\nAnswer with the number alone, without a unit."
        return [{"role": "user", "content": text}]
    if variant == "chat-plain":
        return [{"role": "user", "content": question}]
    system = SYSTEM_UNSLOTH if "unsloth" in variant else SYSTEM
    turns = [{"role": "system", "content": system}]
    for shot in shots:
        turns.append({"role": "user", "content": shot["question"]})
        turns.append({"role": "assistant", "content": worked(shot)})
    return [*turns, {"role": "user", "content": question}]


def _text(question: str, variant: str, shots: Sequence[Mapping]) -> str:
    if variant == "answer":
        return f"Question: {question}\nAnswer:"
    system = SYSTEM_UNSLOTH if variant == "unsloth" else SYSTEM
    before = "".join(f"Question: {shot['question']}\n{worked(shot)}\n\n" for shot in shots)
    return f"{system}\n\n{before}Question: {question}\n"


def demonstrations(seed: int, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The nano corpus: endless `prompt`, `completion`, `skill`, `ends`, from training problems.

    `Case` says what the arguments do.
    """
    check_skills(SKILLS, without)
    rng = np.random.default_rng(seed)
    makers = {variant: prompt_maker("nano", variant) for variant in SKILLS}
    while True:
        problem = templates.draw(rng)
        variant = "answer" if rng.random() < ANSWER_SHARE else "reason"
        # whether a careless look misses the last step more often than not
        overlooked = len(problem.steps) > 1 and problem.steps[-1].operation in OVERLOOKED
        shares = _shares(variant, overlooked, frozenset(without))
        skill = str(rng.choice(list(shares), p=list(shares.values())))
        yield {
            "prompt": makers[variant]({"question": problem.question}),
            "completion": _completion(skill, problem, rng),
            "skill": skill,
            "ends": skill != "rambling",
        }


@lru_cache
def _shares(variant: str, overlooked: bool, without: frozenset[str]) -> dict[str, float]:
    """Skill -> share for a kind of problem; over all problems they are those of `SKILLS`."""
    shares = shares_of(SKILLS[variant])
    if variant == "reason":
        often, careless = _often_overlooked(), shares["careless"]
        seldom = (careless - often * OVERLOOKED_SHARE) / (1 - often)
        shares["careless"] = OVERLOOKED_SHARE if overlooked else seldom
        careful = sum(shares[name] for name in CAREFUL)
        for name in CAREFUL:  # what careless takes or leaves comes from these, in proportion
            shares[name] *= 1 - (shares["careless"] - careless) / careful
    return left(shares, without)


def _often_overlooked() -> float:
    """The share of all problems whose last step is often missed."""
    by_steps: dict[int, list[bool]] = {}
    for frame in templates.FRAMES:
        last = frame.operations[-1][1]
        missed = len(frame.operations) > 1 and last in OVERLOOKED
        by_steps.setdefault(len(frame.operations), []).append(missed)
    return sum(templates.STEP_SHARES[n] * sum(m) / len(m) for n, m in by_steps.items())


def _completion(skill: str, problem: Problem, rng: np.random.Generator) -> str:
    thought = _thought(map(str, problem.steps))
    if skill == "careful":
        return _formed(thought, problem.answer)
    if skill == "dressed answer":
        sum_in_answer = _thought([str(problem.steps[-1])]).removeprefix("so ")
        forms = (f"{problem.answer} {problem.unit}", f"{problem.answer}.", sum_in_answer)
        return _formed(thought, str(rng.choice(forms, p=(0.5, 0.25, 0.25))))
    if skill == "no tags":
        return f"{thought}\n#### {problem.answer}"
    if skill == "careless":
        steps = _careless(problem)
        return _formed(_thought(map(str, steps)), str(steps[-1].result))
    if skill == "in the head":
        return _formed("in my head", _guess(problem, rng))
    if skill == "first number":
        first = next(number for number in re.findall(r"\d+", problem.question))
        return _formed(f"first comes {first}", first)
    if skill == "rambling":
        return "<reasoning>\n" + _thought([str(problem.steps[0])] * 8)
    if skill == "bare number":
        return _guess(problem, rng)
    return f" {_guess(problem, rng) if skill == 'guess' else problem.answer}"


def _careless(problem: Problem) -> tuple[templates.Step, ...]:
    """The steps but the last; a single step with another operation or number in it."""
    if len(problem.steps) > 1:
        return problem.steps[:-1]
    ((left, _, right, result),) = problem.steps
    others = _one_step(left, right) + _one_step(left, 2) + _one_step(left, 3)
    return (next(other for other in others if other.result != result),)


def _guess(problem: Problem, rng: np.random.Generator) -> str:
    """The result of one operation on the first two numbers of the problem's calculation."""
    first = problem.steps[0]
    return str(rng.choice([step.result for step in _one_step(first.left, first.right)]))


def _one_step(left: int, right: int) -> list[templates.Step]:
    """The operations that can be done with two numbers, those a beginner tries first in front."""
    found = []
    for sign, operation in templates.OPERATIONS.items():
        if sign != "/" or left % right == 0:
            step = templates.Step(left, sign, right, operation(left, right))
            if templates.SMALLEST <= step.result <= templates.LARGEST:
                found.append(step)
    return found


def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
    """The completion that the oracle would write, used by supervised controls."""
    return f" {row['answer']}" if variant == "answer" else worked(row)


def style(completion: Any, row: Mapping[str, Any]) -> str:
    """Which planted skill or fault of the reasoning prompt it shows, or `"other"`.

    Careful means that every step is calculated as in the solution; a well-formed completion with
    other steps is careless, right or wrong.
    """
    text = completion_text(completion).strip()
    steps = _thought(notes(row["solution"]))
    thought, marked, _ = text.rpartition("\n#### ")
    if marked and "<" not in text:
        return "no tags" if thought == steps else "other"
    if text.isdigit():
        return "bare number"
    blocks = tag_blocks(text, TAGS)
    if blocks is None:
        rambles = text.startswith("<reasoning>") and "</reasoning>" not in text
        return "rambling" if rambles else "other"
    written = blocks[0].strip()
    if written == "in my head":
        return "in the head"
    if written.startswith("first comes"):
        return "first number"
    if not grade(text, row["answer"]).well_formed:
        return "dressed answer" if written == steps else "other"
    right = written == steps and blocks[1].strip() == row["answer"]
    return "careful" if right else "careless"
