r"""Whether two answers to a mathematics problem are the same answer.

first version; the chapter opening follows
"""

import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from casebook.case import CasebookError
from casebook.cases.math import worker

TIMEOUT = 4.5  # seconds a check may take in all, waiting for a free worker included
LONGEST = 2_000  # characters of an answer; a longer one is compared as a string only

# Reading a completion

_BOX = re.compile(r"\\f?boxed\s*|\\fbox\s*")


def last_boxed(text: str) -> str | None:
    r"""The content of the last balanced `\boxed{}`; None when there is none.

    `\fbox{}` counts as well, and `\boxed 5` boxes one character. Escaped braces, `\{`, do not
    count for the balance. Takes time linear in the length of the text.

    >>> last_boxed(r"so \boxed{3}, no: \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_boxed(r"\boxed{\frac{1}{2}") is None
    True
    """
    boxes = _boxes(text) if isinstance(text, str) else []
    return boxes[-1][2] if boxes else None


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every balanced box that is not inside another, in order."""
    openings = {match.end(): match.start() for match in re.finditer(r"\\(?:f?boxed|fbox)\s*\{", text)}
    found: list[tuple[int, int, str]] = []
    stack: list[int] = []
    if openings:
        for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
            mark = match.group()
            if mark == "{":
                stack.append(match.end())
            elif mark == "}" and stack:
                inside = stack.pop()
                if inside in openings:
                    found.append((openings[inside], match.end(), text[inside : match.start()].strip()))
    short = re.finditer(r"\\boxed\s+([^\s{\\])|\\boxed(\d)", text)
    found += [(m.start(), m.end(), m.group(1) or m.group(2)) for m in short]
    return sorted(found, key=lambda box: box[1])


def answer_of(text: str) -> str | None:
    r"""What a completion gives as its answer, or None.

    >>> answer_of(r"Then $x=3$, so the answer is $5$.")
    '5'
    """
    if not isinstance(text, str):
        return None
    box = last_boxed(text)
    if box is not None:
        return box
    start = text.lower().rfind("answer is")
    if start >= 0:
        line = text[start + len("answer is") :].lstrip(" :\n").split("\n")[0]
        inner = re.match(r"\$+([^$]+)\$+", line)
        said = inner.group(1) if inner else re.split(r"\.(?:\s|$)", line)[0]
        return said.strip() or None
    formulas = re.findall(r"\$+([^$]+)\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", text, re.DOTALL)
    return next((part.strip() for part in formulas[-1] if part), None) if formulas else None


_seen: dict[tuple[str, str], bool] = {}


def equivalent(prediction: str, gold: str) -> bool:
    r"""Whether two answers are the same answer.

    >>> equivalent(r"\boxed{0.5}", r"\frac{1}{2}")
    True
    """
    if not isinstance(prediction, str) or not isinstance(gold, str):
        return False
    given, meant = _answer(prediction), _answer(gold)
    if given is None or meant is None:
        return False
    if given == meant:
        return True
    if max(len(given), len(meant)) > LONGEST:
        return False
    key = given, meant
    if key not in _seen:
        verdict = worker.ask(meant, given, time.monotonic() + TIMEOUT)
        if verdict is None:
            return False
        if len(_seen) > 50_000:
            _seen.clear()
        _seen[key] = verdict == worker.EQUAL
    return _seen[key]


def _answer(text: str) -> str | None:
    box = last_boxed(text)
    return (box if box is not None else text.strip().strip("$").strip()) or None
