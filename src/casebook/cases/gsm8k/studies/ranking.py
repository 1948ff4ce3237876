"""What a defect of a reward costs: how often it orders two completions the wrong way.

GRPO learns from differences inside a group, so a reward's defects matter as far as they turn an
order around, or leave two completions level that are not. To count that, one has to know which
completion is the better one. So completions are *made*: each worked solution is rendered in the
ways of `WAYS`, right and wrong, in the asked form and out of it, and what each deserves is known
by construction and not by another reader's verdict.

The ways are as frequent here as we made them; what a model writes is in notebooks 31 and 32. The
problems are the real ones where they are at hand. What was found in them is kept in
`results/gsm8k/data/rewards.json`, numbers only: `casebook study rewards` writes it anew.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from casebook import problem_sets
from casebook.cases.gsm8k import data, rewards

PARTS = ("correctness", "soft_correctness", "integer", "strict_format", "soft_format", "xml_count")
SAME = 1e-6  # payments that differ by no more are the same
PROBLEMS = 1_500  # rendered in every way: the test set, or as many generated ones


class Way(NamedTuple):
    """One way to write a worked solution down.

    Attributes:
        write: from the reasoning, the row and its answer to the completion; `None`: not possible.
        right, plain, form: whether its answer is right, whether the answer block is a number and
            nothing else, whether it is both blocks, each once, and nothing else.
    """

    write: Callable[[str, Mapping[str, Any], int], str | None]
    right: bool = True
    plain: bool = True
    form: bool = True


def _formed(reasoning: str, answer: Any) -> str:
    return f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def _in_block(content: str) -> Callable[[str, Mapping[str, Any], int], str]:
    return lambda text, row, n: _formed(text, content.format(n=n, more=n + 1, less=n - 1))


def _equation(text: str, row: Mapping[str, Any], number: int) -> str | None:
    """The last calculator note for an answer, if it leads to it and does not begin with it."""
    left, _, result = (data.notes(row["solution"]) or [""])[-1].partition("=")
    first = re.match(r"\d+", left)
    if result != str(number) or first is None or first[0] == result:
        return None
    return _formed(text, f"{left} = {result}")


WAYS: Mapping[str, Way] = {
    "as asked": Way(_in_block("{n}")),
    "final line break": Way(lambda text, row, n: _formed(text, n) + "\n"),
    "commas": Way(lambda text, row, n: _formed(text, f"{n:,}") if abs(n) >= 1000 else None),
    "with .00": Way(_in_block("{n}.00")),
    "unit": Way(_in_block("{n} in all"), plain=False),
    "currency": Way(_in_block("${n}"), plain=False),
    "equation": Way(_equation, plain=False),
    "text after": Way(lambda text, row, n: _formed(text, n) + "\nI hope this helps.", form=False),
    "####, no tags": Way(lambda text, row, n: f"{text}\n#### {n}", plain=False, form=False),
    "bare number": Way(lambda text, row, n: str(n), plain=False, form=False),
    "one too many": Way(_in_block("{more}"), right=False),
    "other sign": Way(lambda text, row, n: _formed(text, -n if n else 1), right=False),
    "and a half": Way(_in_block("{n}.5"), right=False),
    "half of it": Way(
        lambda text, row, n: _formed(text, f"{n}/2" if n else "1/2"), right=False, plain=False
    ),
    "begins right": Way(_in_block("{n} - 1 = {less}"), right=False, plain=False),
    "does not know": Way(_in_block("I do not know"), right=False, plain=False),
    "two answers": Way(
        lambda text, row, n: f"{_formed(text, n)}\n<answer>\n{n + 1}\n</answer>",
        right=False,
        form=False,
    ),
    "restated": Way(
        lambda text, row, n: f"{n} of them? I find {n + 1}", right=False, plain=False, form=False
    ),
}
# Defect -> the reward, its form, the better way and the worse one.
DEFECTS: Mapping[str, tuple[str, str, str, str]] = {
    "the sign is lost": ("soft_correctness", "as_published", "as asked", "other sign"),
    "decimals are cut off": ("soft_correctness", "as_published", "as asked", "and a half"),
    "a fraction is its top": ("soft_correctness", "as_published", "as asked", "half of it"),
    "the first number, not the last": (
        *("soft_correctness", "as_published", "equation", "begins right"),
    ),
    "a comma stays in the gold": ("soft_correctness", "as_published", "as asked", "one too many"),
    "no digit is a 0": ("soft_correctness", "as_published", "unit", "does not know"),
    "no tags: all is the answer": ("soft_correctness", "as_published", "as asked", "restated"),
    "strings are compared": ("correctness", "as_published", "with .00", "one too many"),
    "isdigit, not a number": ("integer", "as_published", "commas", "unit"),
    "an answer may hide": ("strict_format", "as_published", "as asked", "two answers"),
    "anything may follow": ("soft_format", "as_published", "as asked", "text after"),
    "charged for no line break": ("xml_count", "as_published", "as asked", "text after"),
    "no DOTALL": ("strict_format", "unsloth", "final line break", "bare number"),
    "a line break at the end": ("strict_format", "unsloth", "as asked", "bare number"),
}
# The gold answers that a defect needs to show.
_NEEDS = {"a comma stays in the gold": r",", "no digit is a 0": r"^0$"}


def rows(real: bool, limit: int = PROBLEMS) -> list[Mapping[str, Any]]:
    """The problems to render: the real test set, or generated ones.

    Raises:
        CasebookError: the real ones were asked for and are not in a folder that was named.
    """
    if real:
        problem_sets.read("gsm8k", "test")  # what is missing is said by a sentence of its own
        return list(data.real_rows("test"))[:limit]
    return [dict(row) for row in data.load("test", "nano")][:limit]


def rendered(problems_at_hand: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Every problem in every way that applies.

    Returns:
        One row a completion: `problem` (a number), `way`, `completion`, `answer`, `gold`, and
        what is true of it: `right`, `plain`, `form`.
    """
    made = []
    for number, row in enumerate(problems_at_hand):
        text = re.sub(r"<<[^<>]*>>", "", row["solution"].rpartition("####")[0]).strip()
        for name, way in WAYS.items():
            completion = way.write(text, row, int(row["answer"]))
            if completion is not None:
                truth = (way.right, way.plain, way.form)
                made.append((number, name, completion, row["answer"], row["gold"], *truth))
    columns = ["problem", "way", "completion", "answer", "gold", "right", "plain", "form"]
    return pd.DataFrame(made, columns=columns)


def merits(table: pd.DataFrame) -> pd.DataFrame:
    """What each part of `PARTS` is meant to pay for, 1 or 0, one column a part."""
    return pd.DataFrame(
        {
            "correctness": table["right"] & table["plain"],
            "soft_correctness": table["right"] & table["completion"].str.contains("</answer>"),
            "integer": table["plain"] & (table["way"] != "and a half"),
            "strict_format": table["form"],
            "soft_format": table["form"],
            "xml_count": table["form"],
        }
    ).astype(int)


def payments(table: pd.DataFrame, form: str) -> pd.DataFrame:
    """What each part pays every completion, one column a part.

    In the `unsloth` form the parts it has; the source added the soft correctness.
    """
    columns = {name: list(table[name]) for name in ("answer", "gold")}
    parts = [name for name in PARTS if (form, name) != ("unsloth", "soft_correctness")]
    return pd.DataFrame(
        {name: rewards.REWARDS[name](form)(list(table["completion"]), **columns) for name in parts},
        index=table.index,
    )


def wrong_pairs(
    paid: Sequence[float], merit: Sequence[float], groups: Sequence[Any]
) -> dict[str, float]:
    """How a reward orders the pairs of a group of which one deserves more.

    Returns:
        `pairs`, and the shares of them that are `reversed` (the better one is paid less) and
        `level` (both are paid the same, to a millionth).

    >>> wrong_pairs([1.0, 1.0, 0.0], [1, 0, 1], ["a"] * 3)
    {'pairs': 2, 'reversed': 0.5, 'level': 0.5}
    """
    frame = pd.DataFrame({"paid": paid, "merit": merit, "group": groups})
    gaps = [np.empty(0)]
    for _, group in frame.groupby("group", sort=False):
        pay, worth = group["paid"].to_numpy(float), group["merit"].to_numpy(float)
        better = worth[:, None] > worth[None, :]
        gaps.append((pay[:, None] - pay[None, :])[better])
    gap = np.concatenate(gaps)
    pairs = max(gap.size, 1)
    return {
        "pairs": gap.size,
        "reversed": float((gap < -SAME).sum() / pairs),
        "level": float((np.abs(gap) <= SAME).sum() / pairs),
    }


def defects(table: pd.DataFrame) -> pd.DataFrame:
    """For every defect, in how many problems it ranks its two ways wrongly, and the fixed form.

    Returns:
        One row a defect: `reward`, `form`, `better`, `worse`, `problems` (where both ways
        apply), and shares of them: `reversed`, `level`, and `fixed`, what the mended reward
        gets wrong of either kind.
    """
    paid = {form: payments(table, form) for form in rewards.FORMS}
    gold = table.groupby("problem")["gold"].first()
    found = {}
    for defect, (part, form, better, worse) in DEFECTS.items():
        gap = {}
        for kind in (form, "fixed"):
            pay = paid[kind][part].groupby([table["problem"], table["way"]]).first().unstack()
            both = (pay.get(better, np.nan) - pay.get(worse, np.nan) + 0 * pay["as asked"]).dropna()
            gap[kind] = both[gold[both.index].str.contains(_NEEDS.get(defect, ""))]
        shares = {
            "reversed": gap[form] < -SAME,
            "level": gap[form].abs() <= SAME,
            "fixed": gap["fixed"] <= SAME,
        }
        found[defect] = {
            **{"reward": part, "form": form, "better": better, "worse": worse},
            "problems": len(gap[form]),
            **{name: float(share.mean()) for name, share in shares.items()},
        }
    return pd.DataFrame.from_dict(found, orient="index")


def limits(golds: Sequence[str]) -> dict[str, float]:
    """The most that any completion can get as published, as shares of the problems.

    A gold answer with a comma or a sign is never met by `soft_correctness`, whose reading has
    neither; and to meet it by `correctness` means to forgo `integer`, which wants digits only.
    """
    reached = [(re.fullmatch(r"\d+", gold) is not None) for gold in golds]
    return {
        "problems": len(golds),
        "with a comma": sum("," in gold for gold in golds),
        "negative": sum(gold.startswith("-") for gold in golds),
        "zero": sum(gold == "0" for gold in golds),
        "soft_correctness": float(np.mean(reached)),
        "all four points": float(np.mean(reached)),
    }


def study(problems_at_hand: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All figures of notebook 31 about rendered completions: plain numbers, keyed by name."""
    table = rendered(problems_at_hand)
    merit = merits(table)
    found: dict[str, Any] = {
        "problems": len(problems_at_hand),
        "completions": len(table),
        "ways": table["way"].value_counts().to_dict(),
        "limits": limits([row["gold"] for row in problems_at_hand]),
        "defects": defects(table).astype(object).replace({np.nan: None}).to_dict("index"),
    }
    strict = (table["right"] & table["plain"] & table["form"]).astype(int)
    for form in rewards.FORMS:
        paid = payments(table, form)
        pairs = {
            part: wrong_pairs(paid[part], merit[part], table["problem"]) for part in paid.columns
        }
        pairs["sum"] = wrong_pairs(paid.sum(axis=1), strict, table["problem"])
        found[form] = {
            "mean": paid.groupby(table["way"]).mean().round(6).to_dict("index"),
            "pairs": pairs,
            "correlation": paid.corr().round(6).to_dict("index"),
        }
    return found


def readings(solutions: Sequence[str]) -> dict[str, int]:
    """How many worked solutions are read right: whole, and without the line that gives it away.

    Returns:
        `solutions`; `right`; and of the same texts cut before `####`: `last`, what
        `extract_number` takes there, and `first`, by a reader that takes the first number.
    """
    found = dict.fromkeys(("solutions", "right", "last", "first"), 0)
    for solution in solutions:
        body, _, gold = solution.rpartition("####")
        right = rewards.extract_number(gold)
        first = re.search(r"\d[\d,]*(?:\.\d+)?", body)
        found["solutions"] += 1
        found["right"] += rewards.extract_number(solution) == right
        found["last"] += rewards.extract_number(body) == right
        found["first"] += first is not None and rewards.extract_number(first[0]) == right
    return found


def record() -> dict[str, Any]:
    """The study of the real test set, and what concerns all real problems.

    Raises:
        CasebookError: the real problems are not in a folder that was named.
    """
    frames = [problem_sets.read("gsm8k", split) for split in ("train", "test")]
    solutions = [solution for frame in frames for solution in frame["answer"]]
    return {
        "provenance": [problem_sets.provenance(frame) for frame in frames],
        "readings": readings(solutions),
        "all": limits([solution.rpartition("####")[2].strip() for solution in solutions]),
        **study(rows(real=True)),
    }
