r"""The ways in which one answer can be written, and what the answers of MATH-500 look like.

A reward that compares letters pays one writing of an answer, the reference's. How much that
misses depends on how many other writings there are, so here they are, as small rules: each takes
an answer in LaTeX and returns the same answer written otherwise, or `None` where it does not
apply. They are things a solver does without a thought (`\dfrac` for `\frac`, a slash, a decimal,
no space after a comma, no unit), and nothing far-fetched: 5 is left as 5.

`casebook study forms` makes the committed record, `results/math/data/forms.json`, from the real
problems; it holds numbers only.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pandas as pd

from casebook import problem_sets
from casebook.cases.math.rewards import exact_match
from casebook.cases.math.verify import equivalent
from casebook.records import studies

_FRACTION = re.compile(r"(-?)\\[dt]?frac\s*(?:\{(\d+)\}|(\d))\s*(?:\{(\d+)\}|(\d))")
_UNIT = re.compile(
    r"\s*\\(?:text|mbox)\s*\{\s*[^{}]*[A-Za-z][^{}]*\}(?:\^\{?\d\}?)?$|\^\s*\{?\\circ\}?$"
)


def _whole(answer: str) -> Fraction | None:
    """The value of an answer that is one fraction of integers and nothing else."""
    match = _FRACTION.fullmatch(answer.strip())
    if not match:
        return None
    sign, top, short_top, bottom, short_bottom = match.groups()
    below = int(bottom or short_bottom)
    return Fraction(int(f"{sign}{top or short_top}"), below) if below else None


def _slash(answer: str) -> str | None:
    value = _whole(answer)
    return None if value is None else f"{value.numerator}/{value.denominator}"


def _decimal(answer: str) -> str | None:
    value = _whole(answer)
    if value is None or (10_000 * value).denominator != 1:
        return None
    return f"{float(value):.6f}".rstrip("0").rstrip(".")


def _sized_brackets(answer: str) -> str | None:
    if answer[:1] != "(" or answer[-1:] != ")" or answer.count("(") != 1:
        return None
    return rf"\left({answer[1:-1]}\right)"


def _without_unit(answer: str) -> str | None:
    bare = _UNIT.sub("", answer)
    return bare if bare != answer and re.search(r"\d", bare) else None


def _without_commas(answer: str) -> str | None:
    commas = r"(?<=\d),(?:\\!)?\s*(?=\d{3}(?!\d))"
    return None if "(" in answer else re.sub(commas, "", answer)


def _inside(pattern: str) -> Callable[[str], str | None]:
    """What the one group of a pattern holds, where the pattern is the whole answer."""
    return lambda answer: m[1] if (m := re.fullmatch(pattern, answer.strip())) else None


WRITINGS: Mapping[str, Callable[[str], str | None]] = {
    r"\dfrac for \frac": lambda answer: answer.replace(r"\frac", r"\dfrac"),
    r"\frac12 for \frac{1}{2}": lambda a: re.sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", a),
    "a slash": _slash,
    "a decimal": _decimal,
    "other spaces": lambda a: re.sub(r"\s*([,=+\-])\s*", r"\1", a).replace(r"\,", "").strip(),
    r"brackets without \left": lambda a: re.sub(r"\\(?:left|right)(?![A-Za-z])\s*", "", a),
    r"brackets with \left": _sized_brackets,
    "without its unit": _without_unit,
    r"words without \text": _inside(r"\\text\s*\{\s*([^{}]*?)\s*\}"),
    "no thousands comma": _without_commas,
    "without its name": _inside(r"[a-z]\s*(?:=|\\in(?![A-Za-z]))\s*([^=]+)"),
}


def writings(answer: str) -> dict[str, str]:
    r"""The other writings of an answer: name of the rule -> text, each different from `answer`.

    >>> writings(r"\frac{1}{2}")["a slash"]
    '1/2'
    >>> writings("5")
    {}
    """
    made = {name: rule(answer) for name, rule in WRITINGS.items()}
    return {name: text for name, text in made.items() if text and text != answer}


KINDS: Mapping[str, str] = {  # the first pattern that is found anywhere decides
    "matrix or vector": r"\\begin\{pmatrix\}",
    "with a unit": r"\d.*(?:\\(?:text|mbox)\s*\{\s*[^}]*[A-Za-z]|\\circ)|\\\$|\\%",
    "words": r"\\text",
    "equation": r"=",
    "interval or set": r"\\infty|\\cup|\\in(?![A-Za-z])|\\\{|^\\left\[|^\[|\]$|\\right\]$",
    "tuple": r"^(?:\\left)?\(.*,.*\)$",
    "several numbers": r",(?!\\!)(?!\d{3}(?!\d))",
    "expression": r"(?<![\\A-Za-z])[a-hj-z](?![A-Za-z])",
    "root or other constant": r"\\sqrt|\\pi|(?<!\\)(?:\d|\})i\b|\^",
    "fraction": r"frac|/",
    "integer": r"^-?[\d,\\! ]+(?:_\{?\d+\}?)?$",
}


def kind_of(answer: str) -> str:
    r"""What kind of thing an answer is: a key of `KINDS`, `"decimal"` or `"other"`.

    >>> kind_of("42"), kind_of(r"\frac{3}{4}"), kind_of(r"(3, \frac{\pi}{2})"), kind_of("2x+1")
    ('integer', 'fraction', 'tuple', 'expression')
    """
    if re.fullmatch(r"-?\d*\.\d+", answer.strip()):
        return "decimal"
    return next(
        (kind for kind, found in KINDS.items() if re.search(found, answer.strip())), "other"
    )


def paid(answers: Sequence[str]) -> pd.DataFrame:
    """What three rewards pay for each writing of each answer, the reference's own included.

    Returns:
        A row a writing: `answer` (its number), `writing` (`"as it stands"` or a key of
        `WRITINGS`), `exact` and `documentation` (`exact_match` with either box) and `equivalence`,
        each true or false.
    """
    rows = [
        (number, name, text, gold)
        for number, gold in enumerate(answers)
        for name, text in {"as it stands": gold, **writings(gold)}.items()
    ]
    table = pd.DataFrame(rows, columns=["answer", "writing", "text", "gold"])
    boxes, golds = [rf"\boxed{{{text}}}" for text in table["text"]], list(table["gold"])
    table["exact"] = [v == 1 for v in exact_match()(boxes, answer=golds)]
    table["documentation"] = [v == 1 for v in exact_match("documentation")(boxes, answer=golds)]
    table["equivalence"] = [equivalent(*one) for one in zip(table["text"], golds, strict=True)]
    return table.drop(columns=["text", "gold"])


def missed(table: pd.DataFrame) -> pd.DataFrame:
    """Of each answer, the share of its writings that a reward misses, from what `paid` returns.

    That is the chance of no pay if a solver who is right takes one of the `writings` by lot.
    """
    grouped = table.groupby("answer")
    shares = 1 - grouped[["exact", "documentation", "equivalence"]].mean()
    return shares.assign(writings=grouped.size())


def describe(frame: pd.DataFrame) -> dict[str, Any]:
    """The figures of notebooks 41 and 42 about the answers of MATH-500: numbers, and no text."""
    answers = list(frame["answer"])
    table = paid(answers)
    other = table[table["writing"] != "as it stands"]
    by_writing = other.groupby("writing")[["exact", "documentation", "equivalence"]].mean()
    each = missed(table).assign(subject=list(frame["subject"]), brace=["}" in a for a in answers])
    columns = ["exact", "documentation", "equivalence"]
    levels = frame["level"].astype(str).reset_index(drop=True)
    kinds = pd.Series([kind_of(answer) for answer in answers])
    commonest = pd.Series(answers).value_counts()
    constant = [equivalent(commonest.index[0], gold) for gold in answers]
    return {
        "provenance": problem_sets.provenance(frame),
        "by_writing": by_writing.assign(answers=other.groupby("writing").size()).to_dict("index"),
        "missed": each[columns].mean().to_dict(),
        "missed_by_subject": each.groupby("subject")[columns].mean().to_dict("index"),
        "one_writing": float((each["writings"] == 1).mean()),
        "with_brace": float(each["brace"].mean()),
        "with_brace_by_subject": each.groupby("subject")["brace"].mean().to_dict(),
        "subject_by_level": pd.crosstab(each["subject"], levels).to_dict("index"),
        "kinds": kinds.value_counts().to_dict(),
        "kinds_by_level": pd.crosstab(kinds, levels).to_dict("index"),
        "distinct_answers": len(commonest),
        "commonest": {str(name): int(n) for name, n in commonest.head(5).items()},
        "constant": {"answer": str(commonest.index[0]), "right": int(sum(constant))},
        "constant_by_level": {
            level: [int(part.sum()), len(part)]
            for level, part in pd.Series(constant).groupby(levels.to_numpy())
        },
    }


def record(data_dir: str | None = None) -> dict[str, Any]:
    """The figures of the real answers."""
    return describe(problem_sets.read("math500", "test", data_dir=data_dir))


def figures(data_dir: str | None = None) -> tuple[dict[str, Any], bool]:
    """The figures of the real answers, and whether they were found just now or are the record's.

    Args:
        data_dir: the folder of real problem sets; by default `$CASEBOOK_DATA_DIR`.
    """
    if problem_sets.available("math500", data_dir=data_dir):
        return record(data_dir), True
    return studies.read("forms"), False
