r"""What is no answer, though it stands where one should.

Denials, comparisons, words that change a value, and choices side by side, by the rules of
`answers.yaml`.
"""

import re
from itertools import pairwise

from casebook.cases.math.notation import (
    CLOSE,
    LONGEST,
    OPEN,
    level,
    number_of,
    rounds_to,
    split_at,
    words_of,
)

DENIAL = (
    r"(?<![\\A-Za-z])(?:not|never|cannot|neither|nor|wrong|incorrect|impossible|unlikely|except|"
    r"rul(?:e|es|ed|ing) out|exclud(?:e|es|ed|ing)|eliminat(?:e|es|ed|ing)|nobody|doubt|unclear|"
    r"(?:any|every|no)thing but|all but|other than)\b|n't\b|"
    r"\\(?:not|neg|lnot)(?![A-Za-z])"
)
CHANGING = (
    r"(?:m|b|tr)illions?|thousands?|hundreds?|dozens?|gross|factorial|squared|cubed|doubled|"
    r"tripled|hal(?:f|ves)|quarters?|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?|"
    r"(?:hundred|thousand|million)ths?|plus|minus|maybe|perhaps|possibly|probably|or so"
)
_BESIDE = (
    r"as well as|otherwise|unless|alternatively|but|versus|vs|xor|or else|one of|opposite|false"
)
COMPARED = (
    r"(?:at (?:least|most)|(?:less|more|greater|fewer|larger|smaller|higher|lower) than|up to|"
    r"above|below|over|under|between|exceeds|exceeding)\s"
)
NO_VALUE = re.compile(
    rf"{DENIAL}|(?<![\\A-Za-z])(?:{CHANGING}|{_BESIDE})\b|"
    rf"(?<![\\A-Za-z])(?:{COMPARED}(?=[\d\\+(.-]|[A-Za-z]\b)|"
    r"(?:or|and) (?:more|less|fewer|greater|above|below|up|over)\b)|"
    r"\?|(?-i:\bno$)|[(\[] ?or\b|^(?:\\ne|\\le|\\ge|<|>)|"
    r"\\(?:(?:[Ll]ong)?(?:[Ll]eft)?[Rr]ightarrow|to|implies|iff|mapsto)(?![A-Za-z])",
    re.IGNORECASE,
)
_LETTERED = re.compile(r"(?<![A-Za-z\d)}])\(([A-J])\)|(?<=\))\(([A-J])\)")


def _contradicts(equation: str) -> bool:
    """Whether an equation says two different things: 6 = 5, odd = even, y = 2x = y = 3x."""
    members = split_at(equation, "=", r"\approx")
    numbers = [number for number in map(number_of, members) if number]
    if not all(rounds_to(one, other) for one, other in pairwise(numbers)):
        return True
    if len(members) > 1 and all(map(words_of, members)):
        return len(set(map(words_of, members))) > 1
    names = re.findall(r"\\?[A-Za-z]+", "=".join(members[1:])) if len(members) > 2 else []
    return len(members[0]) == 1 and members[0] in names


_TWO_CHOICES = re.compile(r"\(?[A-J]\)? ?(?:=|\\approx) ?\(?[A-J]\)?")
SQUARED = re.compile(r"(?<=[A-Za-z]) (?:squared|cubed)\b")  # of a unit


def is_answer(text: str) -> bool:
    """Whether a piece of text, found as an answer, is one and not a hedge.

    Denials, comparisons, words that change a value and choices side by side are none. Words alone
    are: "not even" is an answer.
    """
    if len(text) > LONGEST:
        return True
    levelled = level(text)
    plain = re.sub(f"[{OPEN}{CLOSE}]", " ", levelled)
    plain = re.sub(r"\s+", " ", plain).strip()
    if not plain:
        return False
    if words_of(plain) and not re.search(r"\b[A-J]\b", plain):
        return True
    if NO_VALUE.search(SQUARED.sub("", plain)) or _TWO_CHOICES.fullmatch(plain):
        return False
    if len({a or b for a, b in _LETTERED.findall(plain)}) > 1:
        return False
    return not any(map(_contradicts, split_at(levelled, ",", ";", "and", "or", r"\cup")))
