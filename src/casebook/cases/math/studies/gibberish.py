r"""Gibberish: what a policy writes that has come apart, and which number sees it first.

The MATH write-up ends with a riddle. Two trainings wrote sensible answers for most of the way and
word salad at the end, and nothing on the dashboard had said so. This module holds *signs* that a
run is coming apart: small functions over what the policy wrote, or numbers that a trainer logs
anyway. Each of them is blind to something (`SIGNS`), and three belong together: on the policy's own
tokens

    surprise of the base = entropy of the policy + KL(policy || base)      (the cross-entropy)

so a policy that repeats one easy phrase may surprise its base less than a healthy one does.

A sign is worth what it says *before* accuracy falls, and how seldom it speaks in a run that goes
well. `healthy_range` says where it stays in such runs; notebook 44 has the rest of the rule.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from casebook.case import load_case
from casebook.rewards import completion_text, repetition_penalty

# A tag, a LaTeX command, a word, a whole number, or any one mark.
PIECE = re.compile(r"</?[A-Za-z]\w*>|\\[A-Za-z]+|[^\W\d_]+|\d+|[^\w\s]|_")
NUMBER = "0"  # stands for every whole number: a sum nobody wrote before is no gibberish
ARGUMENTS = {"frac": 2, "dfrac": 2, "tfrac": 2, "sqrt": 1, "boxed": 1, "text": 1}
COMMAND = re.compile(rf"\\({'|'.join(ARGUMENTS)})(?![A-Za-z])")
PAIRS = re.compile(r"\\(left|right)(?![A-Za-z])|\\(begin|end)(?![A-Za-z])|\\.|([{}$])", re.DOTALL)
# An argument that is no group: one letter or digit, or a command. `\sqrt` may have an option.
SHORT = re.compile(r"\\[A-Za-z]+|[^\W_]")
OPTION = re.compile(r"\s*\[[^\[\]{}]{0,40}\]")
BLANKS = re.compile(r"\s*")
BATCH = 256  # completions scored together

CORPUS = 4_000  # demonstrations that "known" refers to, as many as the vocabulary was read from
HEALTHY = "grpo"  # the arm whose runs say what is healthy


class Sign(NamedTuple):
    """One number that may tell a run that comes apart."""

    way: int  # on which it leaves the healthy range: 1 too high, -1 too low, 0 either
    needs: str  # what has to be at hand
    sees: str  # what moves it
    misses: str  # what does not


SIGNS: Mapping[str, Sign] = {
    "entropy": Sign(
        0, "logs", "a policy that no longer knows, or no longer tries", "being surely wrong"
    ),
    "gradient norm": Sign(1, "logs", "steps that grow", "small steps in a bad direction"),
    "no-gradient groups": Sign(
        1, "logs", "groups that are all wrong or all right", "which of the two"
    ),
    "length": Sign(0, "logs", "rambling and breaking off", "nonsense of the usual length"),
    "cut off": Sign(1, "logs", "completions that find no end", "nonsense that ends"),
    "KL from base": Sign(
        1, "base model", "any distance from the base", "whether the way was a good one"
    ),
    "surprise of base": Sign(
        1, "base model", "text the base would not write", "phrases it would, again and again"
    ),
    "repetition": Sign(1, "texts", "loops", "nonsense that never repeats itself"),
    "one text": Sign(1, "texts", "the same text whatever is asked", "nonsense of many kinds"),
    "unknown words": Sign(1, "texts, a word list", "pieces of words", "salad of known words"),
    "unknown pairs": Sign(1, "texts, a corpus", "known words in no known order", "fluent nonsense"),
    "broken LaTeX": Sign(1, "texts", "what no renderer would show", "wrong but whole formulas"),
    "no answer": Sign(1, "texts, a grader", "no readable answer", "nonsense before a boxed guess"),
}
LOGGED = {
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "frac_reward_zero_std": "no-gradient groups",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
}


def pieces(text: str) -> list[str]:
    r"""Words, LaTeX commands, tags and marks of a text, lower-cased, every number as one.

    >>> pieces(r"So \frac{3}{14} of it")
    ['so', '\\frac', '{', '0', '}', '{', '0', '}', 'of', 'it']
    """
    found = PIECE.findall(completion_text(text))
    return [NUMBER if piece.isdigit() else piece.lower() for piece in found]


def ngrams(texts: Iterable[str], n: int) -> frozenset[tuple[str, ...]]:
    """All runs of `n` pieces that occur in some texts: what `unseen` takes for known."""
    return frozenset(gram for text in texts for gram in _runs(pieces(text), n))


def unseen(texts: Iterable[str], known: frozenset[tuple[str, ...]]) -> np.ndarray:
    """The share `(n,)` of each text's n-grams that are not among the known ones.

    With single pieces this is the rate of non-words; with pairs it sees known words in no known
    order. A text too short for one n-gram has none that is unknown.

    Args:
        known: from `ngrams`; its members' length decides what is looked up.

    >>> known = ngrams(["the sum of two", "two of the three"], 2)
    >>> unseen(["the sum of the three", "the of the sum"], known).round(2).tolist()
    [0.0, 0.33]
    """
    size = len(next(iter(known)))
    grams = [_runs(pieces(text), size) for text in texts]
    return np.array(
        [np.mean([run not in known for run in runs]) if runs else 0.0 for runs in grams]
    )


def repetition(texts: Iterable[str], n: int = 3) -> np.ndarray:
    """The share of each text's n-grams of pieces that stood in it before: 0 where all differ.

    Pieces and not words between blanks, since a loop without blanks is a single word.

    >>> repetition(["1+1+1+1+1", "x=5"], 3).round(2).tolist()
    [0.71, 0.0]
    """
    apart = [" ".join(pieces(text)) for text in texts]
    return np.abs(np.array(repetition_penalty(n, -1.0)(apart), dtype=float))


def one_text(texts: Sequence[str]) -> float:
    """The share of the most common text among texts for different prompts; 0.0 for none.

    >>> one_text(["5", "5", "7", "5"])
    0.75
    """
    counts = Counter(completion_text(text).strip() for text in texts)
    return max(counts.values(), default=0) / max(len(texts), 1)


def latex_fault(text: str) -> str | None:
    r"""What keeps a text from being LaTeX, in words, or `None`; in linear time.

    Braces, dollars, `\left` and `\right`, beginnings and ends have to match in number, braces in
    order too, and the commands of `ARGUMENTS` need their arguments (`\frac12` and `\boxed 5` have
    them). Whether a command exists, or a formula means anything, is not asked.

    >>> latex_fault(r"$\frac{1}{2}$"), latex_fault(r"\boxed{\frac{1}"), latex_fault(r"\frac{1}=")
    (None, 'braces that do not match', '\\frac lacks an argument')
    """
    text = completion_text(text)
    counts: Counter[str] = Counter()
    closing: dict[int, int] = {}  # place of an opening brace -> of the one that closes it
    opened: list[int] = []
    for match in PAIRS.finditer(text):
        mark = match[1] or match[2] or match[3]
        counts[mark] += 1
        if mark == "{":
            opened.append(match.start())
        elif mark == "}":
            if not opened:
                return "braces that do not match"
            closing[opened.pop()] = match.start()
    if opened:
        return "braces that do not match"
    if counts["$"] % 2:
        return "dollars that do not match"
    if counts["left"] != counts["right"] or counts["begin"] != counts["end"]:
        return "brackets or environments that do not match"
    for match in COMMAND.finditer(text):
        place = (OPTION.match(text, match.end()) or match).end()
        for _ in range(ARGUMENTS[match[1]]):
            place = BLANKS.match(text, place).end()
            short = SHORT.match(text, place)
            if place not in closing and not short:
                return f"\\{match[1]} lacks an argument"
            place = closing[place] + 1 if place in closing else short.end()
    return None


def broken_latex(texts: Iterable[str]) -> np.ndarray:
    """1.0 for each text with a `latex_fault`, else 0.0."""
    return np.array([float(latex_fault(text) is not None) for text in texts])


def surprise(
    model: Any, tokenizer: Any, prompts: Sequence[str], completions: Sequence[str], ended: Sequence
) -> np.ndarray:
    """How unlikely each completion is to a model: nats a token, `(n,)`; NaN with nothing to score.

    Of the base model, on what the policy wrote, this is the cross-entropy: the policy's own
    entropy plus its KL from the base. The texts are tokenized again. Word salad may not come out
    as the tokens it was sampled as: "1" after "17" has become a number the vocabulary may lack,
    and such tokens are left out of the mean.

    Args:
        model: a causal language model in `eval` mode, and its `tokenizer`.
        prompts, completions: `(n,)` plain texts.
        ended: `(n,)` whether each came to its end, which then counts as a token.
    """
    from casebook.evaluation import token_logps  # torch comes with it

    batch = [
        (
            list(tokenizer(prompt).input_ids),
            list(tokenizer(completion).input_ids) + [tokenizer.eos_token_id] * bool(end),
        )
        for prompt, completion, end in zip(prompts, completions, ended, strict=True)
    ]
    unknown = getattr(tokenizer, "unk_token_id", None)
    means = []
    for start in range(0, len(batch), BATCH):
        part = batch[start : start + BATCH]
        logps, _ = token_logps(model, part)
        for row, (prompt, completion) in zip(logps.numpy(force=True), part, strict=True):
            own = row[len(prompt) - 1 : len(prompt) - 1 + len(completion)]
            own = own[[token != unknown for token in completion]]
            means.append(-own.mean() if len(own) else math.nan)
    return np.array(means)


@functools.cache
def known_ngrams(case: str, n: int) -> frozenset[tuple[str, ...]]:
    """The n-grams of the corpus that a case's embedded base model was built on."""
    rows = islice(load_case(case).demonstrations(0), CORPUS)
    return ngrams((row["prompt"] + row["completion"] for row in rows), n)


def of_run(run: Any, known: Mapping[int, frozenset], base: tuple | None = None) -> pd.DataFrame:
    """All signs of a run: a row for each step at which anything is known, NaN for the rest.

    Args:
        run: with metrics, validations and recorded completions.
        known: n -> known n-grams, for 1 and 2.
        base: the run's base model and tokenizer; without them its surprise is left out.

    Returns:
        Indexed by step; columns as in `SIGNS`, and `accuracy` (held out, sampled).
    """
    logged = run.metrics().set_index("step").rename(columns=LOGGED)
    held_out = {"sampled_accuracy": "accuracy", "kl_from_base": "KL from base"}
    measured = run.validation().set_index("step").rename(columns=held_out)
    rows = {}
    for step, written in run.completions().groupby("step"):
        texts = written["completion"].tolist()
        rows[step] = {
            "repetition": float(repetition(texts).mean()),
            "one text": one_text(texts),
            "unknown words": float(unseen(texts, known[1]).mean()),
            "unknown pairs": float(unseen(texts, known[2]).mean()),
            "broken LaTeX": float(broken_latex(texts).mean()),
            "no answer": float(written["extracted"].isna().mean()),
        }
        if base:
            ended = (~written["truncated"]).tolist()
            scored = surprise(*base, written["prompt"].tolist(), texts, ended)
            rows[step]["surprise of base"] = float(np.nanmean(scored))
    read = pd.DataFrame.from_dict(rows, orient="index")
    parts = (logged.filter(list(LOGGED.values())), measured.filter(list(held_out.values())), read)
    signs = pd.concat(parts, axis=1).sort_index().rename_axis("step")
    return signs.reindex(columns=[*SIGNS, "accuracy"]).astype(float)


def healthy_range(
    curves: Iterable[pd.Series], way: int, margin: float = 0.25
) -> tuple[float, float]:
    """Between which values a sign stays in runs that are known to be healthy.

    Args:
        curves: the sign in each of these runs, by step.
        way: the side that is watched, as in `SIGNS`; the other end is infinite.
        margin: the range is widened by this share of itself: few runs do not show all that
            healthy ones do.

    >>> healthy_range([pd.Series([1.0, 2.0]), pd.Series([3.0])], way=1)
    (-inf, 3.5)
    """
    readings = np.concatenate([np.asarray(curve, dtype=float) for curve in curves])
    low, high = np.nanmin(readings), np.nanmax(readings)
    wider = margin * (high - low)
    return (
        -math.inf if way > 0 else float(low - wider),
        math.inf if way < 0 else float(high + wider),
    )


def recorded(study: Mapping[str, Any]) -> dict[str, dict[int, pd.DataFrame]]:
    """The committed signs: arm -> seed -> frame as `of_run` gives it."""
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for arm, seeds in study["arms"].items():
        for seed, kept in seeds.items():
            signs = pd.DataFrame(kept["signs"], columns=[*SIGNS, "accuracy"], dtype=float)
            found.setdefault(arm, {})[int(seed)] = signs.rename(index=int).sort_index()
    return found


def _runs(items: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(items[i:] for i in range(n)), strict=False))
