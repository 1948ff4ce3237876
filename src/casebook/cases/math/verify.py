r"""Whether two answers to a mathematics problem are the same answer.

`0.5`, `x = 1/2` and `\boxed{\tfrac12}` all equal the reference `\frac{1}{2}`. A reward that
compares strings accepts only one spelling. `equivalent` compares the meaning, in three steps:

1. One span is graded: the content of the last closed `\boxed{}`. Nothing around it is read.
2. The whole span counts. A word in it that is no unit makes it no answer, so that a hedge such as
   `5 or 6` or `5 million` is not accepted for 5.
3. Notation is normalised and a unit is removed. The rest is equal if it is the same text or the
   same number, or if math-verify says so, in a process that can be killed (`worker`).

`answers.yaml` shows what this decides; `POLICIES` are its rules.
"""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import yaml

from casebook.cases.math import worker

TIMEOUT = 4 * worker.CPU_SECONDS  # for a check, which asks math-verify four times at most
LONGEST = 1_000  # characters of an answer that is compared by more than its letters
TAIL = 4_000  # characters at the end of a text in which an answer without a box is looked for
ANSWERS = Path(__file__).with_name("answers.yaml")
POLICIES: dict[str, str] = yaml.safe_load(ANSWERS.read_text("utf-8"))["rules"]

_BRACE = re.compile(
    r"(?P<box>\\(?:f?boxed|fbox)(?![A-Za-z])\s*(?:\{|(?P<bare>[^\s{}\\$.,;]+)))|\\(?!\\f?box).|[{}]",
    re.DOTALL,
)


def last_boxed(text: str) -> str | None:
    r"""The content of the last closed `\boxed{}`; None when there is none.

    `\fbox{}` counts as well, and so does `\boxed 5`. Escaped braces, `\{`, do not count for the
    balance, and a box that is never closed is not a box. Linear in the length.

    >>> last_boxed(r"not \boxed{3} but \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_boxed(r"cut off: \boxed{\frac{1}{2") is None
    True
    """
    if not isinstance(text, str) or "box" not in text:
        return None
    opened: list[int | None] = []  # for each open brace: where its content begins, if a box's
    found = None
    for mark in _BRACE.finditer(text):
        if mark["bare"]:
            found = mark.span("bare")
        elif mark["box"] or mark[0] == "{":
            opened.append(mark.end() if mark["box"] else None)
        elif mark[0] == "}" and opened:
            start = opened.pop()
            found = found if start is None else (start, mark.start())
    return text[slice(*found)].strip() if found else None


def answer_of(text: str) -> str | None:
    r"""A completion's answer: its last box; without one, what math-verify extracts, if anything.

    >>> answer_of(r"First \boxed{2}, no, \boxed{7}.")
    '7'
    """
    box = last_boxed(text)
    found = worker.extracted(text[-TAIL:]) if box is None else box
    return found if found and is_answer(found) else None


def equivalent(prediction: str, gold: str) -> bool:
    r"""Whether two answers are the same answer, by `POLICIES`.

    Either is a bare answer, a formula between dollars, or a whole completion. The order matters:
    the reference is accepted as it is. False for anything that is not a string, for no answer, and
    for a comparison of more than `TIMEOUT` seconds of processor time. May be called from any
    thread, and never runs text as code.

    Raises:
        CasebookError: math-verify is needed and not installed. No text makes it raise.

    >>> equivalent(r"It is \boxed{x = 0.5}.", r"\frac{1}{2}")
    True
    """
    if not isinstance(prediction, str) or not isinstance(gold, str):
        return False
    stated = []
    for text in (prediction, gold):
        found = last_boxed(text)
        if found is None and not is_answer(found := text.strip()):
            found = worker.extracted(text[-TAIL:]) or found
        stated.append(found)
    return same_answer(*stated)


@lru_cache(maxsize=50_000)  # a training asks about the same few answers again and again
def same_answer(answer: str, gold: str) -> bool:
    """`equivalent` for two answers that were found."""
    if answer == gold or max(len(answer), len(gold)) > LONGEST:
        return answer == gold != ""
    (given, mark), (meant, other) = _without_unit(levelled(answer)), _without_unit(levelled(gold))
    if not given or not meant or (mark and other and mark != other):
        return False
    if _squeezed(given) == _squeezed(meant):
        return True
    if not is_answer(answer):
        return False
    # Each member of a calculation has to equal the reference: 2x = 10 is no answer for 10.
    listed = "=" in meant or re.search(r"=.*(?:,|\bor\b|\band\b).*=", given)
    members = [given] if listed else _members(given)
    verdicts = {member: _same_value(member, meant) for member in members}
    if False not in verdicts.values():
        asked = [member for member, verdict in verdicts.items() if verdict is None]
        if not asked or worker.equal(meant, asked):
            return True
    signs = [r"\%" * (side == "%") for side in (other, mark)]
    return signs[0] != signs[1] and worker.equal(meant + signs[0], [given + signs[1]])


def _same_value(one: str, gold: str) -> bool | None:
    """Whether two values are the same; None where only math-verify can say."""
    words, numbers = (_words(one), _words(gold)), (_number(one), _number(gold))
    if _squeezed(one) == _squeezed(gold) or (words[0] and words[0] == words[1]):
        return True
    # math-verify reads words as products, R as r, {1, 2} as (1, 2), and nothing behind some signs.
    if any(len(word) > 3 for word in words) or one.lower() == gold.lower():
        return False
    if {one[:1], gold[:1]} == {"(", "\\"} and r"\{" in (one[:2], gold[:2]):
        return False
    if not one or any(sign in one and sign not in gold for sign in _PARTLY_READ):
        return False
    if None in numbers or ("." in one) != ("." in gold):
        return None
    return numbers[0] == numbers[1]


# What an answer is

_PARTLY_READ = (r"\approx", r"\mod", r"\pmod", r"\equiv", r"\ldots", r"\ne", "'")
_HEDGE = re.compile(r"\?|\\(?:not|neg|(?:[Ll]ong)?[Rr]ightarrow|to|implies|iff)(?![A-Za-z])")
# What a bare word behind a number may be; an s behind it is left out
_UNITS = """mm millimeter cm centimeter m meter km kilometer in inch inche ft foot feet yd yard mi
mile mg g gram kg kilogram lb pound oz ounce s sec second min minute h hr hour day week month yr
year ml mL l L liter dollar cent euro rupee ° ¢ $ € £ ₹ degree deg radian rad mph kmh % percent pct
percentage unit square sq cubic squared cubed per of old people student boy girl way point side
solution digit page book coin ball apple a.m p.m am pm""".split()  # noqa: SIM905
# What a word in \text{} behind a number may not be: it would change or doubt the number
_CHANGING = """not no never nor neither or and but if unless is are was be maybe perhaps possibly
probably likely unlikely wrong incorrect false impossible more less fewer greater least most over
under above below than plus minus half halves third thirds quarter quarters fourths fifths dozen
dozens gross hundred hundreds thousand thousands million millions billion billions trillion
trillions factorial double doubled triple tripled sixths sevenths eighths ninths thousandths lakh
crore modulo invalid cannot nearly about roughly repeating otherwise either except mod base
almost squared cubed tenth tenths hundredth hundredths negative""".split()  # noqa: SIM905


def is_answer(text: str) -> bool:
    """Whether a span is one answer: a formula with nothing but units beside it, or words alone."""
    if len(text) > LONGEST:
        return "\n" not in text
    value = _without_unit(levelled(text))[0]
    if not _members(value)[-1] or _HEDGE.search(value) or re.match(r"<|>|\\[lgn]eq?", value):
        return False
    plain = re.sub(r"\\(?:begin|end) ?\{\w+\}|\\[A-Za-z]+", " ", value)
    words = set(re.findall(r"[A-Za-z]{3,}", plain.lower())) - {"and", "sqrt"}
    # abc is a product
    return bool(_words(value)) or all(len(word) == 3 and word not in _CHANGING for word in words)


_EQUALS = re.compile(r"(?<![<>!:\\])=")
# Atomic, and so linear: a sentence can be split into names in very many ways
_LETTERS = r"(?>(?:\\(?!frac|sqrt)[A-Za-z]+ ?|[A-Za-z]+)(?:_\{?\w+\}?)?'*(?: ?\([A-Za-z ,]+\))?)"
_NAME = re.compile(
    rf"\\text ?\{{[A-Za-z ]+\}}|{_LETTERS}(?: ?[+-]? ?{_LETTERS})*+"
    rf"|\((?: ?{_LETTERS} ?,)+ ?{_LETTERS} ?\)"
)


def _members(text: str) -> list[str]:
    """The value behind the name in x = 5, and the members of a calculation, 3 + 4 = 7."""
    members = [member.strip() for member in _EQUALS.split(text)]
    return members[1:] if len(members) > 1 and _NAME.fullmatch(members[0]) else members


_BASE = re.compile(r"([\dA-F]+) ?_ ?\{? ?(\d+) ?\}?")
_UNIT = re.compile(
    r"(?:(?P<value>.*[^\s\\]) ?\\text ?\{(?P<text>[^{}]*)\}|(?P<number>.*(?:[\d})]|\\pi)) ?"
    r"(?P<word>\^\\circ ?[CFK]?|[%°¢$€£₹]|(?: |\b)[A-Za-z][A-Za-z .,/]*)) ?(?:\^ ?\{?[23]\}?)?"
)


def _without_unit(text: str) -> tuple[str, str]:
    """A value without its unit, and beside it "%" or the base where it has one, else ""."""
    if found := _BASE.fullmatch(text):
        return found[1], found[2]
    found = _UNIT.fullmatch(text)
    if not found or re.search(r"\\(?:sin|cos|tan)", text):
        return text, ""
    value, words = found["value"] or found["number"], found["text"] or found["word"] or ""
    words = re.sub(r"[.,]+$|/|\^\\circ ?\w?", " ", words).split()
    known = all({word, word.lower(), word.lower().removesuffix("s")} & {*_UNITS} for word in words)
    if found["number"] and re.search(r"[\d})][A-Za-z]$", text):
        known = False  # 5m may be five times m
    known = known and words[:1] not in (["squared"], ["cubed"])
    counted = found["value"] and _number(value) is not None
    counted = counted and not {word.lower() for word in words} & {*_CHANGING}
    if not known and not (counted and all(re.fullmatch(r"[^\W\d_]{3,}", word) for word in words)):
        return text, ""
    return value.strip(), "%" if words and re.match("%|pct|percent", words[-1].lower()) else ""


def _number(text: str) -> Fraction | None:
    """The value of a plain number: an integer, a decimal or a quotient."""
    plain = re.sub(r"(?<!\d)\\frac ?\{ ?(\d+) ?\} ?\{ ?(\d+) ?\}(?!\d)", r"\1/\2", text)
    if re.fullmatch(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", plain):
        plain = plain.replace(",", "")
    number = re.fullmatch(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+|\d+ ?/ ?0*[1-9]\d*)", plain)
    return Fraction(plain.replace(" ", "")) if number else None


def _words(text: str) -> str:
    """A text of words alone, without case, spacing and articles; "" for anything else."""
    plain = re.sub(r"\\text|[{}\"'`]|\b(?:the|an?) ", "", text.lower()).strip()
    alone = re.fullmatch(r"[^\W\d_]{2,}(?:[ ,.\-]+[^\W\d_]+)*[.!]?", plain)
    return " ".join(re.findall(r"[^\W\d_]+", plain)) if alone else ""


# Notation

_SYMBOLS = str.maketrans(
    dict.fromkeys("−–—‐‑﹣－", "-")
    | {"×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "÷": "/", "∕": "/", "π": r"\pi "}
    | {"√": r"\sqrt ", "∞": r"\infty ", "°": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne "}
    | {"∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "≈": r"\approx ", "\0": " "}
    | {"≡": r"\equiv ", "≅": r"\approx ", "≃": r"\approx "}
)
_FUNCTIONS = "sin|cos|tan|cot|sec(?! ?(?:\\}|$))|csc|log|ln|arcsin|arccos|arctan|pi|infty"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<!\\)\\(?:f?boxed|fbox|[,;:> ]|(?:q?quad|displaystyle)(?![A-Za-z]))|~|\*\*", " "),
        (r"(?<!\\)\$|(?<!\\)\\[()\[\]]|\\(?:left|right) ?\.", ""),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])", ""),
        (r"\\([$%#&])", r"\1"),
        (r"(?<=\d)(?:\{,\}|,? *\\!|,(?= *\\!)| ) *(?:\\! *)?(?=\d{3}(?!\d))|\\!", ""),
        (r"^([+-]?) ?(?:\$|Rs\.?|USD|[€£¥₹]) ?(?=[\d.\\(-])", r"\1"),
        (r"\\l(?:angle|paren)(?![A-Za-z])|⟨", "("),
        (r"\\r(?:angle|paren)(?![A-Za-z])|⟩", ")"),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac ?(\d) ?(\d)", r"\\frac{\1}{\2}"),
        (r"^\{+ ?(\\frac ?\{[^{}]*\} ?\{[^{}]*\})\}*$", r"\1"),  # the box was cut off
        (r"(?<![\w.^)}\]] )(?<![\w.^])(\d+) (\d+) ?/ ?(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
        (r"(\^|\\sqrt(?: ?\[\w+\])?) ?(\\frac ?\{[^{}]*\} ?\{[^{}]*\})", r"\1{\2}"),
        (r"\^ ?(-\d+)", r"^{\1}"),
        (r"(\d*)\.(\d*)\\overline ?\{ ?(\d+) ?\}", r"\1.\2\3\3\3\3\3\3\3\3\3\3"),
        (r"\^ ?\{? ?\\circ(?![A-Za-z]) ?\}?|\\degrees?(?![A-Za-z])", r"^\\circ "),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\(?:text\w*|[mh]box|math(?:rm|bf|it|sf)|operatorname\*?) ?\{", r"\\text{"),
        (r"\\text\{ ?(and|or) ?\}", r" \1 "),
        (r"\\text\{ ?([^{}A-Za-z]*|[eid]|\([A-J]\)) ?\}|^\\text\{([^{}]*)\}\.?$", r" \1\2 "),
        (r"(?i:(?:the )?(?:set of )?(?:all )?real numbers)", r"\\mathbb{R}"),
        (rf"(?<![\\A-Za-z])({_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
        (r"^\((.)\)$|^\{([^{}]*)\}$", r"\1\2"),
        (r"^(?:=|\\approx|\\sim) ?|(?<!\.)[.,;:\\ ]+$", ""),
        (r"\s+", " "),
    ]
]


def levelled(text: str) -> str:
    """One way of writing for what can be written in several."""
    text = re.sub("[¼-¾⅐-⅞]", lambda sign: " " + sign[0], text)  # 1½ is not 11/2
    text = re.sub(r"√ ?(?:(\d[\d.]*)|\(([^()]*)\))", r"\\sqrt{\1\2}", text)
    text = re.sub("[⁰¹²³⁴-⁹⁻ⁿ]+", r"^{\g<0>}", text.translate(_SYMBOLS))
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).replace("⁄", "/"))
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # escaped twice
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text).strip(" *`\"'")
    return text


def _squeezed(text: str) -> str:
    """A text without the spaces and braces that change nothing."""
    text = re.sub(r"\\text ?\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"([\^_]) ?\{ ?(\w) ?\}", r"\1\2", text)
    return re.sub(r"(?<!\d) | (?!\d)", "", text)
