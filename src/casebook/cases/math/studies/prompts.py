r"""How long prompts and solutions are, and what a limit on tokens takes away.

Two limits stand around a completion. A prompt that is too long is dropped, or cut: TRL until 0.27
kept the *last* `max_prompt_length` tokens of it, so the first thing to go was the opening mark of
the chat template, then the instruction and the solved examples. And a completion that is too long
ends in the middle, before its box. Nothing announces either of them.

Tokens are counted here without a tokenizer: words, numbers, LaTeX commands and single signs.
`casebook study prompts` makes the committed record, `results/math/data/prompts.json`, from the
real problems; it holds numbers only. Of Allen AI's prompt sets there is no copy to measure: the
prompts measured are of their shape (solved examples, then the problem, in one user message), put
together from GSM8K and MATH-500.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from casebook import problem_sets
from casebook.records import studies

TOKEN = re.compile(r"\\?[A-Za-z]+|\d+|[^\sA-Za-z\d]")
LIMITS = (128, 256, 512, 768, 1024, 2048)
OPENING = "<|user|>\n"  # of Tulu 3's chat template
SHOTS = {"gsm8k": 8, "math500": 3}  # as Allen AI's prompt sets have them


@lru_cache(maxsize=50_000)  # the same examples stand in every prompt
def tokens(text: str) -> int:
    r"""How many tokens a text has, near enough.

    >>> tokens(r"Solve $3x+4=19$.")
    10
    """
    return sum(1 for _ in TOKEN.finditer(text))


def shot_prompts(
    questions: Sequence[str], solutions: Sequence[str], shots: int
) -> list[dict[str, str]]:
    """Prompts of solved examples, part by part: `chat mark`, `example 1` ..., `problem`.

    The examples are the same for everybody, as in Allen AI's sets. Which ones those are is not
    known here, so they are the `shots` problems of middling length; the others are asked.

    >>> [list(parts) for parts in shot_prompts(["a", "b"], ["1", "2"], 1)]
    [['chat mark', 'example 1', 'problem']]
    """
    solved = [f"Question: {q}\nAnswer: {s}\n\n" for q, s in zip(questions, solutions, strict=True)]
    by_length = sorted(range(len(solved)), key=lambda i: (tokens(solved[i]), i))
    first = (len(solved) - shots) // 2
    chosen = by_length[first : first + shots]
    examples = {f"example {k}": solved[i] for k, i in enumerate(chosen, 1)}
    return [
        {"chat mark": OPENING, **examples, "problem": f"Question: {question}\nAnswer:"}
        for i, question in enumerate(questions)
        if i not in chosen
    ]


def left_after(parts: Mapping[str, str], limit: int) -> dict[str, float]:
    """The share of each part's tokens that are left when only the last `limit` are kept.

    >>> left_after({"mark": "<|user|>", "example": "a b c d", "problem": "e f"}, 4)
    {'mark': 0.0, 'example': 0.5, 'problem': 1.0}
    """
    left = {}
    for name, text in reversed(parts.items()):
        size = tokens(text)
        kept = min(size, limit)
        left[name] = kept / size if size else 1.0
        limit -= kept
    return {name: left[name] for name in parts}


def cut_table(prompts: Sequence[Mapping[str, str]], limits: Sequence[int]) -> pd.DataFrame:
    """What limits do to prompts, a row a limit: the share of prompts that are too long, `over`,
    and for each part the share of prompts in which it is still whole.
    """
    rows = {}
    for limit in limits:
        left = pd.DataFrame([left_after(parts, limit) for parts in prompts])
        whole = (left == 1).mean()
        rows[limit] = {"over": float((left < 1).any(axis=1).mean()), **whole.to_dict()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("limit")


def finished(solutions: Sequence[str], limits: Sequence[int]) -> np.ndarray:
    r"""The share of solutions whose last box is closed within so many tokens: one number a limit.

    A text of which a limit leaves no box earns nothing, however right it was on its way.

    >>> finished([r"so \boxed{5}.", r"well then, it is \boxed{5}."], [6, 100]).tolist()
    [0.5, 1.0]
    """
    ends = np.array([_box_end(solution) for solution in solutions])
    return (ends[:, None] <= np.asarray(limits)[None, :]).mean(axis=0)


def _box_end(solution: str) -> float:
    """The tokens up to the end of the last box; infinite where it is not closed."""
    depth, start = 0, solution.rfind("\\boxed")
    for brace in re.finditer("[{}]", solution[max(start, 0) :]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0 and brace[0] == "}":
            return tokens(solution[: max(start, 0) + brace.end()])
    return float("inf")


def sizes(prompts: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Mean bytes, mean tokens, and the 90th percentile and the most of the latter."""
    counts = np.array([sum(map(tokens, parts.values())) for parts in prompts])
    lengths = [len("".join(parts.values()).encode()) for parts in prompts]
    return {
        "bytes": float(np.mean(lengths)),
        "tokens": float(counts.mean()),
        "tokens_90": float(np.quantile(counts, 0.9)),
        "tokens_most": int(counts.max()),
    }


def describe(math500: pd.DataFrame, gsm8k: pd.DataFrame) -> dict[str, Any]:
    """The figures of notebook 41 about lengths: numbers, and no text of a problem."""
    asked = shot_prompts(list(math500["problem"]), list(math500["solution"]), SHOTS["math500"])
    worked = list(gsm8k["answer"].str.replace(r"<<.*?>>", "", regex=True))
    levels = math500.groupby("level")["solution"]
    return {
        "provenance": [problem_sets.provenance(frame) for frame in (math500, gsm8k)],
        "limits": list(LIMITS),
        "math500": {
            "alone": sizes([{"": text} for text in math500["problem"]]),
            "with examples": sizes(asked),
            "cut": cut_table(asked, LIMITS).rename(index=str).to_dict("index"),
        },
        "gsm8k": {
            "alone": sizes([{"": text} for text in gsm8k["question"]]),
            "with examples": sizes(shot_prompts(list(gsm8k["question"]), worked, SHOTS["gsm8k"])),
        },
        "solutions": sizes([{"": text} for text in math500["solution"]]),
        "finished": finished(list(math500["solution"]), LIMITS).tolist(),
        "finished_by_level": {
            str(level): finished(list(part), LIMITS).tolist() for level, part in levels
        },
    }


def record(data_dir: str | None = None) -> dict[str, Any]:
    """The figures of the real problems."""
    math500 = problem_sets.read("math500", "test", data_dir=data_dir)
    return describe(math500, problem_sets.read("gsm8k", "train", data_dir=data_dir))


def figures(data_dir: str | None = None) -> tuple[dict[str, Any], bool]:
    """The figures of the real problems, and whether they were found just now or are the record's.

    Args:
        data_dir: the folder of real problem sets; by default `$CASEBOOK_DATA_DIR`.
    """
    if all(problem_sets.available(name, data_dir=data_dir) for name in SHOTS):
        return record(data_dir), True
    return studies.read("prompts"), False
