"""What a model writes before any training, under several prompts and ways of decoding.

A training starts from what its base does already: how often it keeps to the form, how often it is
right, and how many groups would be silent. `study` measures that in parts that can be stopped and
resumed; `graded` grades what was written, also later, from the file that a study keeps.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import comb

from casebook import paths
from casebook.case import load_case
from casebook.records import digest, provenance, studies, write_rows
from casebook.stats import Figure, mean_interval

KEPT = ("part", "row", "decoding", "sample", "completion", "tokens", "truncated")
SIZES = (2, 4, 8, 16)  # of groups


class Part(NamedTuple):
    """One prompt and way of decoding.

    Attributes:
        variant: of the prompt.
        split: which rows.
        rows: how many of them, from the first on.
        samples: of each row; 0 decodes greedily instead.
        temperature: of the samples.
    """

    variant: str
    split: str
    rows: int
    samples: int = 0
    temperature: float = 1.0

    @property
    def name(self) -> str:
        """Which part it is, as records name it."""
        how = f"{self.samples} samples at {self.temperature:g}" if self.samples else "greedy"
        return f"{self.variant}, {self.split}, {how}"


def study(
    name: str,
    case: str,
    profile: str,
    parts: Sequence[Part],
    settings: Mapping[str, Any],
    found: Callable[[pd.DataFrame], Mapping[str, Any]],
) -> dict[str, Any]:
    """What a study of a case's base model records; its completions are kept beside that.

    What is written is kept below the runs folder at once, and is not written again by the same
    model at the same commit.

    Args:
        name: of the study.
        settings: fields of the profile's configuration that take another value.
        found: what is made of the completions, one a row with the columns `KEPT`.

    Raises:
        CasebookError: the problems or the model are not here.
    """
    from casebook.evaluation import evaluate
    from casebook.models import base_weights, describe, load_base, read_settings

    made = provenance()  # of the code that writes
    asked = read_settings(case, profile) | dict(settings)
    model, tokenizer = load_base(asked)
    model.requires_grad_(False)  # as the base of a training is measured
    mark = digest([asked, base_weights(asked), made["git"]["revision"]])
    tables = []
    for part in parts:
        print(part.name, file=sys.stderr, flush=True)
        written = evaluate(
            model,
            tokenizer,
            case,
            split=part.split,
            profile=profile,
            limit=part.rows,
            samples=part.samples,
            greedy=not part.samples,
            variant=part.variant,
            settings=asked | {"temperature": part.temperature},
            store=paths.runs_dir() / "untrained" / case / mark / f"{digest(part)}.jsonl",
        )
        tables.append(written.rows.assign(part=part.name)[list(KEPT)])
    completions = pd.concat(tables, ignore_index=True)
    write_rows(completions, studies.completions_path(name))
    return {
        "provenance": made | {"model": describe(model, asked)},
        "settings": settings,
        "parts": found(completions),
    }


def graded(
    case: str, profile: str, parts: Iterable[Part], completions: pd.DataFrame
) -> pd.DataFrame:
    """Completions with the columns of their rows, and `well_formed`, `correct`, `strict` and
    `answered`: whether an answer could be read."""
    judge, known = load_case(case), {part.name: part for part in parts}
    rows = []
    for name, table in completions.groupby("part", sort=False):
        part = known[name]
        data = judge.load(part.split, profile=profile, variant=part.variant)
        for completion in table.to_dict("records"):
            row = {k: v for k, v in data[completion["row"]].items() if k != "prompt"}
            grade = judge.grade(completion["completion"], row["answer"], variant=part.variant)
            found = {"well_formed": grade.well_formed, "correct": grade.correct}
            found |= {"strict": grade.strict, "answered": grade.answer is not None}
            rows.append({**row, **completion, **found})
    return pd.DataFrame(rows)


def figures(completions: pd.DataFrame, columns: Iterable[str]) -> dict[str, Figure]:
    """The mean of each column with its interval over rows; samples of one row are averaged."""
    by_row = completions.groupby("row")
    return {name: mean_interval(by_row[name].mean().astype(float)) for name in columns}


def form_and_answers(completions: pd.DataFrame) -> dict[str, int]:
    """How many completions are well formed, right, both or neither."""
    form, right = completions["well_formed"], completions["correct"]
    return {
        "both": int((form & right).sum()),
        "form alone": int((form & ~right).sum()),
        "answer alone": int((~form & right).sum()),
        "neither": int((~form & ~right).sum()),
    }


def silent(values: ArrayLike, size: int) -> np.ndarray:
    """The chance that a group of a row's samples all earn the same, without bias (notebook 42).

    Groups of `size` are drawn without putting back, so rates are not estimated from themselves.

    Args:
        values: `(rows, samples)` rewards; they are compared to six digits.
        size: of the group, at most the number of samples.

    Returns:
        `(rows,)` shares.

    >>> silent([[1, 1, 0, 0], [0, 0, 0, 0]], 2).round(3).tolist()
    [0.333, 1.0]
    """
    values = np.round(np.asarray(values, dtype=float), 6)
    counts = [np.unique(row, return_counts=True)[1] for row in values]
    return np.array([comb(one, size).sum() / comb(one.sum(), size) for one in counts])


def silent_groups(completions: pd.DataFrame, rewards: Sequence[str]) -> dict[str, dict]:
    """The expected share of silent groups: column of a reward -> size of a group -> figure.

    Args:
        completions: samples of one part, as many of each row.
        rewards: columns with what a completion earns.
    """
    ordered = completions.sort_values(["row", "sample"])
    rows = completions["row"].nunique()
    found = {}
    for name in rewards:
        values = ordered[name].to_numpy(float).reshape(rows, -1)
        sizes = [size for size in SIZES if size <= values.shape[1]]
        found[name] = {str(size): mean_interval(silent(values, size)) for size in sizes}
    return found
