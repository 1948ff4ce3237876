r"""Whether two answers to a mathematics problem are the same answer.

A label like `\frac{1}{2}` can be met by `0.5`, by `x = 1/2` and by `\boxed{\tfrac12}`. A reward
that compares strings pays one of them; which one, the policy finds out at the price of its
reasoning.
`equivalent` compares what is meant:

1. **The answer is found.** What the last balanced `\boxed{}` holds; without one, what follows "the
   answer is", the last formula, or the text itself. Thoughts are no answer, and neither is a hedge
   such as `not 5` or `5 million` (`answer_of`).
2. **Notation is levelled**: `\dfrac`, `\left`, `{,}`, `−`, `\text{ cm}` and the like (`_level`).
3. **The answer is taken apart** into lists, sets, tuples and intervals, unions, matrices and what
   an equation says of a name, down to single values (`_read`), and compared part by part.
4. **Single values** are compared exactly where both are numbers, as words where both are words,
   and by math-verify in a worker process otherwise (`worker.ask`).

Steps 1 to 3 are ours because that is where a computer algebra system has no opinion: whether order
matters, whether `50\%` is `0.5`, whether a unit may be left out. What was decided stands in
`answers.yaml`: `POLICIES`, with examples on both sides.

A check never raises, never evaluates text as code, and thinks for at most `TIMEOUT` seconds of
processor time, from any thread. What cannot be decided in that time is not equivalent.
"""

import re
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml

from casebook.case import CasebookError
from casebook.cases.math import worker

TIMEOUT = 4.5  # seconds of processor time that a check may take in all
PATIENCE = 60.0  # seconds that a check may wait, for workers to start, to be free, to get on
LONGEST = 1_000  # characters; a longer answer is compared as a string
_MOST_PARTS = 64  # of a list or a matrix; the answers of MATH have ten at most
_REMEMBERED = 50_000  # verdicts; a training asks about the same few answers again and again

ANSWERS = Path(__file__).with_name("answers.yaml")
POLICIES: Mapping[str, str] = yaml.safe_load(ANSWERS.read_text("utf-8"))["rules"]

# Reading a completion

_MOST_BOXES = 1_000
_LONGEST_BOX = 100_000
_TAIL = 20_000  # characters at the end of a text without a box in which its answer is looked for
_BRACE = re.compile(r"\\[\s\S]|[{}]")
_BOX = re.compile(r"\\(?:f?boxed|fbox)\s*(?:\{|(?P<bare>[^\s{}\\]))")


def last_boxed(text: str) -> str | None:
    r"""The content of the last balanced `\boxed{}`; None when there is none.

    `\fbox{}` counts as well, and `\boxed 5` boxes one character. Escaped braces, `\{`, do not
    count for the balance, and a box that is never closed is not a box. Linear in the length. Of
    more than a thousand boxes only the last are looked at.

    >>> last_boxed(r"not \boxed{3} but \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_boxed(r"cut off: \boxed{\frac{1}{2") is None
    True
    """
    boxes = _boxes(text)
    return boxes[-1].content(text) if boxes else None


class _Box(NamedTuple):
    """Where a box is and where its content is."""

    start: int
    end: int
    content_start: int
    content_end: int

    def content(self, text: str) -> str:
        return text[self.content_start : self.content_end].strip()


def _boxes(text: str) -> list[_Box]:
    """Every balanced box, by where it ends."""
    if not isinstance(text, str):
        return []
    # Found from the end, so that a megabyte before the last box costs nothing.
    begin, seen = len(text), 0
    while seen < _MOST_BOXES and (at := text.rfind("box", 0, begin)) >= 0:
        begin, seen = at, seen + 1
    begin = max(0, begin - len(r"\fbox"))
    boxes = []
    opened = {}  # where the content begins -> where the box does
    for match in _BOX.finditer(text, begin):
        if match["bare"]:
            boxes.append(_Box(match.start(), match.end(), *match.span("bare")))
        else:
            opened[match.end()] = match.start()
    if opened:
        open_braces = []
        furthest = max(opened) + _LONGEST_BOX
        for match in _BRACE.finditer(text, min(opened.values()), min(furthest, len(text))):
            if match.group() == "{":
                open_braces.append(match.end())
            elif match.group() == "}" and open_braces:
                inside = open_braces.pop()
                if inside in opened:
                    boxes.append(_Box(opened[inside], match.end(), inside, match.start()))
    return sorted(boxes, key=lambda box: box.end)


_SAID = re.compile(
    r"(?P<what>answer|result|solution)(?:\s+is(?!n't)|\s*:)(?:\s*equal to)?[\s:]*", re.IGNORECASE
)
_BECAUSE = (
    r"(?:since|because|which|where|given that|due to|"
    r"(?<!well )as(?! (?:well|much|many|long|an?)\b))(?!\s+(?:or|and|but|not|maybe)\b)\s"
)
_SENTENCE_END = re.compile(rf"\n|\.(?=\s|\*|$)|\s{_BECAUSE}")
_DOLLAR = re.compile(r"\\[\s\S]|\$\$?")
_IN_PROSE = re.compile(r"(?<![\w.,])-?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?: ?%)?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


def answer_of(text: str) -> str | None:
    r"""What a completion gives as its answer, as it stands there; None when it gives none.

    In this order: the last balanced box, what follows the last "answer is" or "answer:" up to the
    end of the sentence, the last formula between dollars, `\( \)` or `\[ \]`. Boxes or formulas
    joined by a comma, "and" or "or" make one list. A reason behind the answer is left out.

    A text with none of these gives no answer, nor does one that was cut off while it was thinking,
    one that denies or compares what it names (`not 5`, `at least 5`), one that names different
    answers and does not say which of them holds, or one whose words change the value (`5 million`).

    >>> answer_of(r"Hence $x = 3$, and the answer is $5$.")
    '5'
    >>> answer_of(r"Either \boxed{2} or \boxed{7}.")
    '2 or 7'
    >>> answer_of("It cannot be $5$.") is None
    True
    """
    if not isinstance(text, str) or _OPENS_WITH_NOT.match(text):
        return None
    text = _after_thoughts(text)
    found = _in_boxes(text)
    if found is None:
        found = _in_prose(text[-_TAIL:])
    return found if found and is_answer(found) else None


def boxed_answer(text: str) -> str | None:
    """`answer_of` where it stands in a box; None for an answer elsewhere, and for none."""
    return answer_of(text) if isinstance(text, str) and _boxes(_after_thoughts(text)) else None


# A denial of all that follows, unless it is of words alone: "not even" is an answer.
_OPENS_WITH_NOT = re.compile(r"\s*not\s(?=[\s\S]*[\d$\\])(?![\s\S]{0,999}\bbut\b)")


def _after_thoughts(text: str) -> str:
    """What follows the thoughts: "" where they never end."""
    end = text.rfind("</think>")
    if text.rfind("<think>") > end:
        return ""
    return text[end + len("</think>") :] if end >= 0 else text


def _in_boxes(text: str) -> str | None:
    """What the boxes give as the answer: None without a box, "" when they give none."""
    boxes = _boxes(text)
    if not boxes:
        return None
    inner = [box for box in boxes if not _BOX.search(text, box.content_start, box.content_end)]
    runs = _runs(text, inner or boxes[-1:], boxed=True)
    start, end, content = runs[-1]
    for (_, before, other), (after, _, _) in pairwise(runs):
        if not _alike(other, content) and not _replaced(text[before:after]):
            return ""
    if _denied(text, start, end, content, boxed=True) or _taken_back(text[end:], content):
        return ""
    return content


def _in_prose(text: str) -> str | None:
    """What a text without boxes gives as its answer: None for nothing, "" for a hedge."""
    said = list(_SAID.finditer(text))
    if said:
        last = said[-1]
        for earlier, later in pairwise(said):
            other = _sentence(text, earlier)
            if (
                earlier["what"].lower() == "answer"
                and not _alike(other, _sentence(text, last))
                and not _replaced(text[earlier.end() + len(other) : later.start()])
            ):
                return ""
        sentence = _sentence(text, last)
        formulas = _formulas(sentence)
        if formulas and len(_WORD.findall(_prose_in(sentence))) > 3:
            runs = _runs(sentence, formulas)
            run = runs[0] if runs[0][0] == 0 else runs[-1]
            found = "" if _denied(sentence, *run) else run[2]
        else:
            found = _without_reason(_bare(sentence))
        if _DENIED_BEFORE.search(_CLAUSE_END.split(text[: last.start()][-300:])[-1]):
            return ""
        if found:
            return "" if _taken_back(text[last.end() + len(sentence) :], found) else found
        if sentence:
            return ""
    formulas = [formula for formula in _formulas(text) if formula.content(text)]
    if not formulas:
        return None
    run = _runs(text, formulas)[-1]
    return "" if _denied(text, *run) or _taken_back(text[run[1] :], run[2]) else run[2]


def _sentence(text: str, said: re.Match) -> str:
    sentence = text[said.end() : said.end() + LONGEST]
    return _SENTENCE_END.split(sentence, maxsplit=1)[0].strip()


_JOINT = re.compile(r"\s*[,;]?\s*(?:\\text\{)?\s*(?:and|or|and/or|,)?\s*\}?\s*")
_REPLACES = re.compile(
    r"\b(?:no|not|wrong|wait|actually|instead|mistake|mistaken|correct(?:ion|ed|ing)?|error|oops|"
    r"sorry|but|rather|however|so|thus|hence|therefore|final(?:ly)?)\b(?![\s\S]*\b(?:or|maybe)\b)",
    re.IGNORECASE,
)


def _replaced(between: str) -> bool:
    """Whether what stands between two answers says that the second counts, or works it out."""
    if re.match(r"\W*(?:or|maybe)\b", between):
        return False
    near = f"{between[:100]} {between[-200:]}"
    return bool(_REPLACES.search(_prose_in(near)) or re.search(r"\w\s*=\s*[\w\\-]", near))


def _listed(one: str, other: str, between: str) -> bool:
    """Whether two formulas, joined so, are a list: both values, or both of one unknown.

    Of "$x + 1 = 3$, and $x = 2$" or "$a = 1$, $b = 2$" the last one is the conclusion.
    """
    names = [formula.split("=")[0].strip() if "=" in formula else "" for formula in (one, other)]
    if not all(not name or _is_name(name) for name in names) or re.search(
        r"[<>]|\\[lg]eq?(?![A-Za-z])", one
    ):
        return False
    return "or" in between or names[0] == names[1]


def _runs(text: str, spans: list[_Box], boxed: bool = False) -> list[tuple[int, int, str]]:
    """Boxes or formulas, those joined to a list as one: begin, end and what it holds."""
    runs: list[tuple[int, int, list[str], bool]] = []
    for span in spans:
        if runs and runs[-1][1] <= span.start <= runs[-1][1] + 20:
            between = text[runs[-1][1] : span.start].replace("$", "")
            joined = between.strip() and _JOINT.fullmatch(between)
            if joined and (boxed or _listed(runs[-1][2][-1], span.content(text), between)):
                start, _, contents, either = runs.pop()
                contents = [*contents, _without_reason(span.content(text))]
                runs.append((start, span.end, contents, either or "or" in between))
                continue
        runs.append((span.start, span.end, [_without_reason(span.content(text))], False))
    found = []
    for start, end, contents, either in runs:
        # The same in two forms, "\boxed{1\frac12} or \boxed{\frac32}", is one answer.
        if all(_alike(one, contents[-1]) for one in contents[:-1]):
            contents = contents[-1:]
        joint = " or " if either else ", "
        found.append((start, end, joint.join(dict.fromkeys(contents))))
    return found


def _formulas(text: str) -> list[_Box]:
    """Each formula between its delimiters, by where it ends."""
    found = []
    opened: dict[str, re.Match] = {}
    for mark in _DOLLAR.finditer(text):
        sign = mark.group()
        if sign in ("\\(", "\\["):
            opened[sign] = mark
            continue
        name = {"\\)": "\\(", "\\]": "\\[", "$": "$", "$$": "$"}.get(sign)
        begin = opened.pop(name, None) if name else None
        if begin:
            found.append(_Box(begin.start(), mark.end(), begin.end(), mark.start()))
        elif name == "$":
            opened["$"] = mark
    return sorted(found, key=lambda formula: formula.end)


def _prose_in(text: str) -> str:
    """A text without its formulas."""
    kept, at = [], 0
    for formula in _formulas(text):
        kept.append(text[at : formula.start])
        at = max(at, formula.end)
    return " ".join([*kept, text[at:]])


def _bare(text: str) -> str:
    """A bare answer without the delimiters of its formulas."""
    text = text.strip().strip("*`").strip()
    formulas = _formulas(text)
    if len(formulas) == 1 and formulas[0].start == 0 and formulas[0].end == len(text):
        return formulas[0].content(text)
    return text


def _stated(text: str) -> str:
    """The answer a side of the comparison states, "" for none: a completion's, or the text."""
    text = _after_thoughts(text)
    found = _in_boxes(text)
    if found is not None:
        return found
    if len(text) > _TAIL:
        found = _in_prose(text[-_TAIL:])
        return text if found is None else found
    words = len(_WORD.findall(_prose_in(text)))
    formulas = _formulas(text)
    in_the_end = formulas and not text[formulas[-1].end :].strip(" .*\n")
    if _SAID.search(text) or (formulas and (words > 3 or (words and in_the_end))):
        found = _in_prose(text)
        if found is not None:
            return found
    if words > 3 and not formulas and (numbers := list(_IN_PROSE.finditer(text))):
        return _number_in_prose(text, numbers)
    return _without_reason(_bare(text))


_CONCLUDES = re.compile(
    r"=|\b(?:is|are|was|be|equals?|g[ai]ves?|makes?|leaves|left|get|ha(?:s|ve))\b"
)


def _number_in_prose(text: str, numbers: list[re.Match]) -> str:
    """The last number of a sentence without formulas, or a list of numbers; "" for a hedge."""
    runs = _runs(text, [_Box(*number.span(), *number.span()) for number in numbers])
    start, end, content = runs[-1]
    before = _CLAUSE_END.split(re.sub("[?:]", ",", text[:start]))[-1]
    after = _CLAUSE_END.split(text[end:])[0]
    beside = _IN_PROSE.search(before)
    if beside and not _CONCLUDES.search(before, beside.end()):
        return ""
    # A part of a formula is no number of its own.
    part = re.search(r"[^\sA-Za-z=*,:]\s*$|\\[A-Za-z]+\s*$", before)
    part = part or re.match(r"\s*[!^:*/+-]|_|\\\w", after)
    hedged = _NO_VALUE.search(before) or _NO_VALUE.search(after)
    return "" if part or hedged or _denied(text, start, end, content) else content


# What is no answer

_REASON = re.compile(
    r"[\s,;:(]*(?:\\(?:text|mbox|textrm|mathrm)\s*\{[\s,;(]*)?(?<![\\A-Za-z])"
    rf"{_BECAUSE}[\s\S]*"
)
_DETAILS = re.compile(r"(\$?-?[\d.,]+\$?) ?(?:\\text\s*\{)?[A-Za-z ]*[A-Za-z]\}?:[ }]+\S[\s\S]*")


_ARROW = re.compile(
    r"\\(?:(?:[Ll]ong)?(?:[Ll]eft)?[Rr]ightarrow|implies|iff)(?![A-Za-z])(?:\s|\\q?quad)*"
)


def _without_reason(answer: str) -> str:
    """An answer without its reason: 42 since 6 * 7 = 42, 42 people: 21 and 21, or 2x = 84 => 42."""
    if len(answer) > LONGEST:
        return answer
    details = _DETAILS.fullmatch(answer)
    if details:
        return details[1]
    reason = _REASON.search(answer)
    if reason and reason.start():
        answer = answer[: reason.start()]
    *steps, conclusion = _ARROW.split(answer)
    return conclusion if all("=" in step or not step.strip() for step in steps) else answer


_DENIAL = (
    r"(?<![\\A-Za-z])(?:not|never|cannot|neither|nor|wrong|incorrect|impossible|unlikely|except|"
    r"rul(?:e|es|ed|ing) out|exclud(?:e|es|ed|ing)|eliminat(?:e|es|ed|ing)|nobody|doubt|unclear|"
    r"(?:any|every|no)thing but|all but|other than)\b|n't\b|"
    r"\\(?:not|neg|lnot)(?![A-Za-z])"
)
_DENIED = re.compile(_DENIAL, re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[.;:!?](?=\s)|\n|,\s+(?=[A-Za-z])|"
    r"(?<![\\A-Za-z])(?:so|thus|hence|therefore|(?<!thing )(?<!all )but(?! also))\b"
)
_DENIED_BEFORE = re.compile(
    rf"(?:{_DENIAL}|\\neq?|"
    r"\b(?:false(?= that)|maybe|perhaps|possibly|(?:may|might|could)(?= be\b)))"
    r"(?:\s+(?:be|is|are|it|ever|equals?|to|that|if|whether|sure|true|thinks?|believes?|say|the|"
    r"number|value|answer))*[\s$\\(\[*]*$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s$.,)\]\\}*]*(?:(?:is|are|was|were|seems|must be)(?:n't|\s+not)\s+"
    r"(?:it|right|correct|true|possible|the|an?|my)\b|"
    r"(?:is|are|was|were|seems|(?:must|would|may|might|could) be)\s+"
    r"(?:an? )?(?:wrong|incorrect|false|impossible|ruled out|excluded)\b|can(?:not|'t)\s+be\b|"
    r"\?|(?:(?:but\s+)?(?:that|this|it)(?:'s|\s+is)\s+)?(?:wrong|incorrect|false|"
    r"not (?:right|correct|true))[\s.!]*$|no[\s.!]*$)",
    re.IGNORECASE,
)
_OR_AFTER = re.compile(
    r"[\s$.,;()\]\\}*]*(?:\\text\s*\{)?\s*(?:(?:and/)?or|and(?=\s+\$?-?\d+\$?[\s.]*$))\b\s*\}?\s*"
    r"(?:maybe|perhaps|possibly|even)?\s*"
    r"(?P<other>\$[^$]{1,99}\$|\\\(.{1,99}?\\\)|\S+)",
    re.IGNORECASE,
)
_OR_BEFORE = re.compile(
    r"(?P<other>\$[^$]{1,99}\$|\\\([^()]{1,99}\\\)|\S{1,99})[\s,$]*(?:\.\s+)?(?:\\text\s*\{)?\s*"
    r"(?<![\\A-Za-z])(?:(?:and/)?or|maybe|perhaps|alternatively)\b\s*\}?[\s$\\(\[*]*$",
    re.IGNORECASE,
)
_UNLESS_AFTER = re.compile(
    r"[\s$.,;()\]\\}*]*(?:unless|otherwise|alternatively|maybe|perhaps|possibly|"
    r"(?:but )?it (?:could|may|might) be)\b",
    re.IGNORECASE,
)
_PLAIN_WORD = re.compile(r"[A-Za-z]{2,}\W*")


_VALUE_AFTER = r"(?:\$[^$]{1,99}\$|\\\(.{1,99}?\\\)|\(?[A-J]\)|\(?[^\sA-Za-z$(][^\n]{0,60})"
_ANOTHER = re.compile(
    r"[\s$.,;)]*(?:(?:no|wait|actually|sorry|correction)\W+)?(?:it(?:'s| is)\s+)?"
    r"(-?\$?(?:\d|\\[dt]?frac)[^\s$]{0,60})[\s.$]*$",
    re.IGNORECASE,
)
_OR_IN_THE_END = re.compile(
    rf"[.\n]\s*or\s+(?:maybe\s+|perhaps\s+)?({_VALUE_AFTER})[\s.]*$", re.IGNORECASE
)
_SAID_AFTER = re.compile(rf"answer\s+is\s+({_VALUE_AFTER}|\d\S*)", re.IGNORECASE)


def _taken_back(after: str, answer: str) -> bool:
    """Whether what follows an answer ends with "or" and another, or says another is the answer."""
    found = [_OR_IN_THE_END.search(after[-200:]), *_SAID_AFTER.finditer(after[:2000])]
    if len(after) < 100:
        found.append(_ANOTHER.match(after))
    others = [_without_reason(match[1].split(". ")[0].rstrip(".,;")) for match in found if match]
    return any(not _alike(_bare(other), answer) for other in others)


_CHANGING = (
    r"(?:m|b|tr)illions?|thousands?|hundreds?|dozens?|gross|factorial|squared|cubed|doubled|"
    r"tripled|hal(?:f|ves)|quarters?|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?|"
    r"(?:hundred|thousand|million)ths?|plus|minus|maybe|perhaps|possibly|probably|or so"
)
# What stands right before or behind a box and makes another value of what is in it.
_CHANGED_BEFORE = re.compile(
    r"(?:\d|(?<!\w)-|(?:[\d)}\]]|(?<![A-Za-z])[a-z])\s*(?:[-+/^_]|(?<!\*)\*)\s*|"
    r"\\(?:times|cdot|div|pm|mp|log|ln|sqrt(?:\[\w+\])?|[cdt]?frac(?:\s*\{[^{}]*\})?)\s*)"
    r"\$?\{?\$?\Z"
)
_CHANGED_BEHIND = re.compile(
    r"\s*\{|[\dxynike](?![A-Za-z])|[\s$}]*(?:\^(?!\s*\{?\s*\\circ)|[-+*/]\s*[\d\\(]|"
    rf"\\(?:times|cdot|div|pi|sqrt|[cdt]?frac|pm)(?![a-z])|(?:\\text\s*\{{)?\s*(?:{_CHANGING})\b)"
)
_BESIDE = (
    r"as well as|otherwise|unless|alternatively|but|versus|vs|xor|or else|one of|opposite|false"
)
_COMPARED = (
    r"(?:at (?:least|most)|(?:less|more|greater|fewer|larger|smaller|higher|lower) than|up to|"
    r"above|below|over|under|between|exceeds|exceeding)\s"
)
_COMPARED_BEFORE = re.compile(rf"(?<![\\A-Za-z]){_COMPARED}[\s$\\(\[]*$", re.IGNORECASE)
_NO_VALUE = re.compile(
    rf"{_DENIAL}|(?<![\\A-Za-z])(?:{_CHANGING}|{_BESIDE})\b|"
    rf"(?<![\\A-Za-z])(?:{_COMPARED}(?=[\d\\+(.-]|[A-Za-z]\b)|"
    r"(?:or|and) (?:more|less|fewer|greater|above|below|up|over)\b)|"
    r"\?|(?-i:\bno$)|[(\[] ?or\b|^(?:\\ne|\\le|\\ge|<|>)|"
    r"\\(?:(?:[Ll]ong)?(?:[Ll]eft)?[Rr]ightarrow|to|implies|iff|mapsto)(?![A-Za-z])",
    re.IGNORECASE,
)
_LETTERED = re.compile(r"(?<![A-Za-z\d)}])\(([A-J])\)|(?<=\))\(([A-J])\)")


def _contradicts(equation: str) -> bool:
    """Whether an equation says two different things: 6 = 5, odd = even, y = 2x = y = 3x."""
    members = _split(equation, "=", r"\approx")
    numbers = [number for number in map(_number, members) if number]
    if not all(_rounds(one, other) for one, other in pairwise(numbers)):
        return True
    if len(members) > 1 and all(map(_words, members)):
        return len(set(map(_words, members))) > 1
    names = re.findall(r"\\?[A-Za-z]+", "=".join(members[1:])) if len(members) > 2 else []
    return len(members[0]) == 1 and members[0] in names


def _denied(text: str, start: int, end: int, answer: str, boxed: bool = False) -> bool:
    """Whether the words around an answer take it back or name another one beside it.

    A box says that this is the answer, whatever the clause before it denies or compares; directly
    before it a denial counts.
    """
    before, after = text[max(0, start - 300) : start], text[end : end + 200]
    clause = _CLAUSE_END.split(before)[-1]
    if before.endswith(", ") and "=" in answer:
        clause = ""  # "as x cannot be 0, x = 5"
    if _DENIED_AFTER.match(after) or _DENIED_BEFORE.search(clause) or _UNLESS_AFTER.match(after):
        return True
    if boxed and (_CHANGED_BEFORE.search(before) or _CHANGED_BEHIND.match(after)):
        return True
    if not boxed and (_DENIED.search(clause) or _COMPARED_BEFORE.search(clause)):
        return True
    for match in filter(None, (_OR_AFTER.match(after), _OR_BEFORE.search(before))):
        other = _bare(match["other"].rstrip(".,;"))
        # "5 or, in words, five" names nothing else; "5 or more" and "even or odd" do
        word = _PLAIN_WORD.match(other) and other not in ("more", "less")
        if not boxed and not _listed(other, answer, "or"):
            continue  # "x + 2 = 7, or x = 5" concludes
        if not (word and not _words(_level(answer[:LONGEST]))) and not _alike(other, answer):
            return True
    return False


_TWO_CHOICES = re.compile(r"\(?[A-J]\)? ?(?:=|\\approx) ?\(?[A-J]\)?")
_SQUARED = re.compile(r"(?<=[A-Za-z]) (?:squared|cubed)\b")  # of a unit


def is_answer(text: str) -> bool:
    """Whether a piece of text, found as an answer, is one and not a hedge.

    Denials, comparisons, words that change a value and choices side by side are none. Words alone
    are: "not even" is an answer.
    """
    if len(text) > LONGEST:
        return True
    levelled = _level(text)
    plain = re.sub(f"[{_OPEN}{_CLOSE}]", " ", levelled)
    plain = re.sub(r"\s+", " ", plain).strip()
    if not plain:
        return False
    if _words(plain) and not re.search(r"\b[A-J]\b", plain):
        return True
    if _NO_VALUE.search(_SQUARED.sub("", plain)) or _TWO_CHOICES.fullmatch(plain):
        return False
    if len({a or b for a, b in _LETTERED.findall(plain)}) > 1:
        return False
    return not any(map(_contradicts, _split(levelled, ",", ";", "and", "or", r"\cup")))


def _alike(one: str, other: str) -> bool:
    """Whether two answers are the same as far as can be told without a worker."""
    if one.strip() == other.strip():
        return True
    if max(len(one), len(other)) > 200:
        return False
    try:
        return _same(_read(_level(one)), _read(_level(other)), lambda *_: False)
    except (RecursionError, ArithmeticError, ValueError):
        return False


# Levelling notation

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-", "×": r"\times ", "⋅": r"\cdot ",  # noqa: E501
    "·": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "√": r"\sqrt ",
    "∞": r"\infty ", "°": r"^\circ ", "º": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
    "⩾": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ",  # noqa: E501
    "≈": r"\approx ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",  # noqa: E501
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ", "Δ": r"\Delta ", "∆": r"\Delta ", "ω": r"\omega ",  # noqa: E501
    "⟨": "(", "⟩": ")", "〈": "(", "〉": ")", "‖": r"\|", "…": r"\ldots ", "“": '"', "”": '"', "’": "'",  # noqa: E501
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}",
    "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}",
    "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
}  # fmt: skip
_SYMBOLS |= {sup: f"^{{{digit}}}" for sup, digit in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)}
_SYMBOLS |= {sub: f"_{{{digit}}}" for sub, digit in zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True)}
_SYMBOLS |= {"⁻": "^-", "ⁿ": "^n"}
_SYMBOL = re.compile("|".join(map(re.escape, _SYMBOLS)))

# What was inside \text{} stays marked, by two characters of the private use area.
_OPEN, _CLOSE = "\ue000", "\ue001"
_ROW = "\ue002"  # the end of a matrix row, a double backslash
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|mbox|hbox|textnormal|mathrm|mathit|mathbf|boldsymbol|bm|"
    r"mathsf|operatorname\*?|rm|bf|emph|textsc)\s*\{([^{}]*)\}"
)
_KNOWN = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp max min gcd det".split()  # noqa: SIM905
)
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\(?:left|right)\s*\.", ""),
        (
            r"\\(?:left|right|middle|[bB]igg?[lrm]?|limits|displaystyle|textstyle|scriptstyle)"
            r"(?![A-Za-z])",
            "",
        ),
        (r"\\(?:lbrace|lcurly)(?![A-Za-z])", r"\\{"),
        (r"\\(?:rbrace|rcurly)(?![A-Za-z])", r"\\}"),
        (r"\\(?:langle|lparen)(?![A-Za-z])", "("),
        (r"\\(?:rangle|rparen)(?![A-Za-z])", ")"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
        (r"(\d)\\[,;: ]\s*(?=\d{3}(?!\d))", r"\1"),
        (r"(\d)\s*(?:\{,\}|,\s*\\!)\s*(?=\d)", r"\1,"),
        (r"\\!", ""),
        (r"\\(?:[,;:> ]|(?:q?quad|thinspace|enspace)(?![A-Za-z]))|~", " "),
        (r"\\(?:hspace|vspace|phantom)\*?\s*\{[^{}]*\}", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:leqslant|leqq|leq|le)(?![A-Za-z])|<=|=<", r"\\le "),
        (r"\\(?:geqslant|geqq|geq|ge)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:neq|ne)(?![A-Za-z])|!=(?!=)", r"\\ne "),
        (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"),
        (r"\\(?:varnothing|empty)(?![A-Za-z])", r"\\emptyset "),
        (r"\\(?:degrees?|textdegree)(?![A-Za-z])", r"^\\circ "),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])", r"^\\circ "),
        (r"\\(?:approx|simeq|doteq)(?![A-Za-z])", r"\\approx "),
        (r"\\lg(?![A-Za-z])", r"\\log "),
        (r"\{:\}|\\colon(?![A-Za-z])", ":"),
        (r"(?<![A-Za-z_^])\{ ?\}", " "),
        (r"\\(?:ldots|dots|cdots|dotsc|dotsb)(?![A-Za-z])|\.\.\.", r"\\ldots "),
        (r"\*\*", "^"),
        (r"\s+", " "),
    ]
]


_ABOUT = re.compile(
    rf"^(?:{_OPEN}?(?:approximately|approx\.?|about|roughly|exactly|equals|"
    rf"(?i:(?:the )?(?:final )?answer(?: is|:))) ?{_CLOSE}?|\\sim|=)\s*"
)
_ORDINAL = re.compile(rf"^(\d+) ?(?:\^ ?\{{? ?)?{_OPEN}?(?:st|nd|rd|th){_CLOSE}?\}}?$")
_REALS = re.compile(r"^(?:the )?(?:set of )?(?:all )?real(?: number)?s?$", re.IGNORECASE)


def _level(text: str) -> str:
    """One way of writing for what can be written in several; `\\text{}` becomes two marks."""
    text = _SYMBOL.sub(lambda match: _SYMBOLS[match.group()], text)
    text = "".join(
        char if unicodedata.category(char)[0] != "C" else "\ufffd" if char > "\ud7ff" else " "
        for char in unicodedata.normalize("NFKC", text)
    )
    text = re.sub(r"(?<!\\)\$", "", text)
    if r"\begin" not in text:
        text = re.sub(r"\\[()\[\]]", "", text)
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # escaped twice
    text = text.replace(r"\$", "$").replace(r"\%", "%").replace("\\\\", _ROW)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    for _ in range(4):
        text, changes = _TEXT.subn(_unwrapped, text)
        if not changes:
            break
    text = re.sub(r"\s+", " ", text).strip()
    if re.fullmatch(f"{_OPEN}[^{_OPEN}{_CLOSE}]*{_CLOSE}\\.?", text):
        text = text.replace(_OPEN, "").replace(_CLOSE, "")
    text = re.sub(r"^(\"|'|`)(.*)\1$", r"\2", text.strip(" *"))
    text = re.sub(r"(?<!\.)[.,;:\\]+$", "", text.strip()).strip()
    text = _ABOUT.sub("", text)
    text = re.sub(rf"^{_OPEN}?(?:negative|minus) ?{_CLOSE}? ?(?=[\d.])", "-", text)
    text = _ORDINAL.sub(r"\1", text)
    text = _REALS.sub(r"\\mathbb{R}", text)
    if len(text) > 1 and text[0] == "{" and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _unwrapped(match: re.Match) -> str:
    command, content = match.group()[1:4], match[1].strip()
    after_number = match.start() and re.search(r"[\d}]\s*$", match.string[: match.start()])
    if content == "i" and after_number:
        return "i"  # the imaginary unit
    if content in _KNOWN and not after_number:
        return f"\\{content} "
    if content.lower().strip(", ") in ("and", "or"):
        return f" {content} "
    if not re.search(r"[^\W\d_]", content) or re.search(r"[\d\\=+]|^\([A-Za-z]\)$", content):
        return f" {content} "
    upright = match.group().startswith((r"\mathrm", r"\rm"))
    is_font = upright or command in ("mat", "ope", "bf{", "bol", "bm{", "bf ")
    if is_font and len(content) == 1 and (content in "eid" or not (after_number and upright)):
        return content
    return f"{_OPEN}{content}{_CLOSE}"


# Taking an answer apart

_TOKEN = re.compile(r"\\begin|\\end|\\[A-Za-z]+|\\[\s\S]|[A-Za-z]+|[\s\S]")
_UP = {"(", "[", "{", r"\{", r"\begin"}
_DOWN = {")", "]", "}", r"\}", r"\end"}


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed, by any bracket; -1 if nowhere."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        depth += (match.group() in _UP) - (match.group() in _DOWN)
        if depth == 0:
            return match.start()
    return -1


def _split(text: str, *separators: str) -> list[str]:
    """The text cut at the separators that stand outside every bracket."""
    pieces, depth, begin = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in _UP) - (token in _DOWN)
        if depth == 0 and token in separators:
            pieces.append(text[begin : match.start()].strip())
            begin = match.end()
    return [*pieces, text[begin:].strip()]


@dataclass(frozen=True)
class _Answer:
    """An answer taken apart: its kind, its parts, and the name it was given, if any."""

    kind: str  # value, list, set, tuple, union, matrix, equation
    text: str
    parts: tuple = ()
    ends: str = ""  # the brackets of a tuple or an interval
    name: str = ""  # x in x = 5


_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:angle|overline|widehat|hat|vec|measuredangle)\s*\{?\s*[A-Za-z]+\s*\}?)"
    r"(?:_\{?\w+\}?)?'*(?:\s*\([A-Za-z](?:\s*,\s*[A-Za-z])*\)|\s*\([A-Z ]+\))?"
)
_PRODUCT = re.compile(r"[a-z]{2}|abc|xyz")


def _is_name(text: str) -> bool:
    """Whether a thing is called so: x, x_1, AB, f(x), area; but xy is a product."""
    return bool(_NAME.fullmatch(text)) and not _PRODUCT.fullmatch(text)


_COMPARISONS = ("<", ">", r"\le", r"\ge")
_MATRIX = re.compile(
    r"\\begin\{(?P<kind>[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr|]+\})?(?P<rows>.*)\\end\{(?P=kind)\}",
    re.DOTALL,
)


def _read(text: str, depth: int = 0) -> _Answer:
    """Take a levelled answer apart."""
    text = text.strip()
    value = _Answer("value", text)
    if depth > 8 or not text:
        return value
    if _number(text) is not None:
        return value
    named = _split(text, r"\in")
    if len(named) == 2 and _is_name(named[0]):
        return replace(_read(named[1], depth + 1), name=named[0])
    members = _split(text, "=")
    if len(members) > 1 and all(members) and r"\ne" not in text:
        rest = _read_list(text, depth)
        if rest is not None:
            return rest
        if any(token in text for token in ("<", ">", r"\le ", r"\ge ", r"\pmod")):
            return value
        if _is_name(members[-1]) and not _letters(members[0]):
            members.reverse()
        last = _read(members[-1], depth + 1)
        if _is_name(members[0]):
            if len(members[0]) == 1 and members[0] in re.findall(
                r"\\?[A-Za-z]+", "=".join(members[1:])
            ):
                return value  # x = 5x - 20 says nothing of x alone
            return replace(last, name=members[0]) if not last.name else last
        if not any(_letters(member) for member in members[:-1]) and not _letters(members[-1]):
            return last
        return _Answer("equation", text, (last,))
    interval = _inequality(text)
    if interval is not None:
        return interval
    union = _split(text, r"\cup")
    if len(union) > 1 and all(union):
        return _Answer("union", text, tuple(_read(piece, depth + 1) for piece in union))
    items = _read_list(text, depth)
    if items is not None:
        return items
    if text[0] in "([" or text.startswith(r"\{") or text[0] == "]":
        bracketed = _bracketed(text, depth)
        if bracketed is not None:
            return bracketed
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        rows = [
            row
            for row in re.split(_ROW + r"(?:\[\w+\])?|\\cr(?![a-z])", matrix["rows"])
            if row.strip()
        ]
        cells = tuple(tuple(_split(row, "&")) for row in rows)
        if len({len(row) for row in cells}) == 1:
            flat = tuple(_read(cell, depth + 1) for row in cells for cell in row)
            return _Answer("matrix", text, flat, ends=f"{len(cells)}x{len(cells[0])}")
    if re.search(r"\\(?:pm|mp)(?![A-Za-z])", text):
        plus = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
        minus = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
        both = (_Answer("value", plus.strip().removeprefix("+").strip()), _Answer("value", minus))
        return _Answer("list", text, both)
    return value


_OR = re.compile(r"(?<![\\A-Za-z])or(?![A-Za-z])")


def _read_list(text: str, depth: int) -> _Answer | None:
    r"""A list without brackets: 1, 2 and 3; x = 1 or x = 2; x = 1, 2."""
    text = re.sub(rf"^{_OPEN}?(?:either|both){_CLOSE}? ", "", text)
    pieces = [piece for piece in _split(text, ",", ";", "and", "or") if piece]
    if len(pieces) < 2:
        return None
    named = [_split(piece, "=") for piece in pieces]
    first = named[0]
    if len(first) == 2 and all(len(piece) == 1 for piece in named[1:]) and _is_name(first[0]):
        rest = _read(text[text.index("=") + 1 :], depth + 1)
        return replace(rest, name=first[0])
    parts = tuple(_read(piece, depth + 1) for piece in pieces)
    if _OR.search(text) and all(_same(parts[0], part, lambda *_: False) for part in parts[1:]):
        return parts[0]  # one value in two forms
    if all(part.kind == "tuple" and (part.name or part.ends != "()") for part in parts):
        if "and" in text:
            return _Answer("value", text)  # both at once: an intersection
        return _Answer("union", text, _unnamed(parts), name=parts[0].name)
    names = {part.name for part in parts}
    flat = tuple(inner for part in parts for inner in _flat(part))
    if len(names) == 1 and "" not in names:
        return _Answer(
            "list", text, tuple(replace(part, name="") for part in flat), name=names.pop()
        )
    return _Answer("list", text, flat)


def _flat(part: _Answer) -> tuple[_Answer, ...]:
    """The values of a part of a list or set: those of \\pm are two."""
    if part.kind == "list" and not part.name:
        return part.parts
    if part.kind == "list":
        return tuple(replace(inner, name=part.name) for inner in part.parts)
    return (part,)


def _bracketed(text: str, depth: int) -> _Answer | None:
    first = r"\{" if text.startswith(r"\{") else text[0]
    last = r"\}" if text.endswith(r"\}") else text[-1]
    inside = text[len(first) : -len(last)].strip()
    if first == "]" or last == "[":  # ]1, 2[ is written for (1, 2)
        ends = ("(" if first == "]" else first) + (")" if last == "[" else last)
        pieces = _split(inside, ",", ";")
        if len(pieces) == 2 and all(pieces) and set(ends) <= set("()[]"):
            return _Answer("tuple", text, tuple(_read(p, depth + 1) for p in pieces), ends=ends)
        return None
    if _closing(text, 0) != len(text) - len(last):
        return None
    pieces = [piece for piece in _split(inside, ",", ";") if piece]
    if first == r"\{" and last == r"\}":
        if r"\mid" in inside or "|" in inside or ":" in inside:
            return None
        parts = tuple(inner for piece in pieces for inner in _flat(_read(piece, depth + 1)))
        return _Answer("set", text, parts) if pieces else _Answer("value", r"\emptyset")
    if first + last in ("()", "(]", "[)", "[]"):
        if len(pieces) > 1:
            parts = tuple(_read(piece, depth + 1) for piece in pieces)
            return _Answer("tuple", text, parts, ends=first + last)
        if first + last == "()" and pieces and _number(inside) is None:
            inner = _read(inside, depth + 1)
            return inner if inner.kind != "value" else None
    return None


_ENDS = {"<": ("(", ")"), r"\le": ("[", "]")}


def _inequality(text: str) -> _Answer | None:
    r"""a < x \le b, x < b and a < x as intervals, for a single name x."""
    marks = [token for token in _TOKEN.findall(text) if token in _COMPARISONS]
    if not marks or len(marks) > 2 or r"\ne" in text:
        return None
    members = _split(text, *_COMPARISONS)
    if len(members) != len(marks) + 1 or not all(members):
        return None
    if set(marks) <= {">", r"\ge"}:
        members.reverse()
        marks = ["<" if mark == ">" else r"\le" for mark in reversed(marks)]
    if not set(marks) <= set(_ENDS):
        return None
    if len(members) == 3:
        low, name, high = members
        ends = _ENDS[marks[0]][0] + _ENDS[marks[1]][1]
    elif _is_name(members[0]):
        low, name, high = r"-\infty", *members
        ends = "(" + _ENDS[marks[0]][1]
    else:
        low, name, high = *members, r"\infty"
        ends = _ENDS[marks[0]][0] + ")"
    if not _is_name(name) or _letters(low + high):
        return None
    return _Answer("tuple", text, (_Answer("value", low), _Answer("value", high)), ends, name)


def _letters(text: str) -> bool:
    """Whether there are unknowns: letters that are no command, word or constant."""
    return bool(
        re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+|(?<![A-Za-z])[ei](?![A-Za-z])", "", text))
    )


# Comparing

_Ask = Callable[..., bool]  # gold, given and, as a third, how far apart two constants may be


# What makes a value a set, which an interval may equal
_OF_SETS = re.compile(r"[<>]|\\(?:mathbb|setminus|backslash|cap|cup|infty|ne|le|ge|emptyset|in)\b")


def _same(gold: _Answer, given: _Answer, ask: _Ask) -> bool:
    """Whether two answers taken apart are the same."""
    if gold.name and given.name and _squeezed(gold.name) != _squeezed(given.name):
        if "(" in gold.name + given.name and {gold.name, given.name} & {"y"}:
            pass  # y = ... and f(x) = ...
        elif gold.kind == given.kind == "value" and _letters(gold.text) and _letters(given.text):
            return ask(f"{gold.name}={gold.text}", f"{given.name}={given.text}")
        else:
            return False
    kinds = gold.kind, given.kind
    if kinds == ("value", "value"):
        return _same_value(gold.text, given.text, ask)
    if max(len(gold.parts), len(given.parts)) > _MOST_PARTS:
        return False
    if "equation" in kinds:
        if kinds == ("equation", "equation"):
            return ask(gold.text, given.text)
        if given.kind == "equation" and not gold.name:
            value = given.parts[0]
            to_solve = re.match(r"-?[\d.]+ ?\\?[A-Za-z] ?=", given.text)
            return value.text != "0" and not to_solve and _same(gold, value, ask)
        whole = [f"{side.name}={side.text}" if side.name else "" for side in (gold, given)]
        meant, said = whole[0] or gold.text, whole[1] or given.text
        return bool("=" in meant and "=" in said and ask(meant, said))
    if kinds == ("tuple", "tuple"):
        alike = gold.ends == given.ends or len(gold.parts) > 2
        return alike and _in_order(gold.parts, given.parts, ask)
    if set(kinds) == {"list", "tuple"}:
        ends = gold.ends + given.ends  # of two numbers, [2, 3] is an interval
        alike = ends == "()" or (ends == "[]" and gold.kind == "tuple" and len(gold.parts) > 2)
        listed = gold.text if gold.kind == "list" else given.text
        return (
            alike
            and not _OR.search(listed)
            and _in_order(_unnamed(gold.parts), _unnamed(given.parts), ask)
        )
    if set(kinds) <= {"list", "set", "value"}:
        ours = gold.parts if gold.parts else (gold,)
        theirs = given.parts if given.parts else (given,)
        return _in_any_order(ours, theirs, ask)
    if kinds == ("union", "union"):
        return _in_any_order(gold.parts, given.parts, ask)
    if kinds == ("matrix", "matrix"):
        return gold.ends == given.ends and _in_order(gold.parts, given.parts, ask)
    if set(kinds) == {"set", "tuple"}:
        return False
    if set(kinds) in ({"tuple", "value"}, {"union", "value"}):
        value = gold.text if gold.kind == "value" else given.text
        return bool(_OF_SETS.search(value)) and ask(gold.text, given.text)
    return ask(gold.text, given.text)


def _unnamed(parts: tuple[_Answer, ...]) -> tuple[_Answer, ...]:
    return tuple(replace(part, name="") for part in parts)


def _in_order(gold: tuple[_Answer, ...], given: tuple[_Answer, ...], ask: _Ask) -> bool:
    return len(gold) == len(given) and all(
        _same(one, other, ask) for one, other in zip(gold, given, strict=True)
    )


def _in_any_order(gold: tuple[_Answer, ...], given: tuple[_Answer, ...], ask: _Ask) -> bool:
    left = list(given)
    if len(gold) != len(left):
        return False
    for part in gold:
        match = next((other for other in left if other == part), None)
        match = match or next((other for other in left if _same(part, other, ask)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _squeezed(text: str) -> str:
    """A text without the spaces, marks and braces that change nothing."""
    text = re.sub(f"[{_OPEN}{_CLOSE}]", "", text)
    text = re.sub(r"([\^_]) ?\{ ?(\w) ?\}", r"\1\2", text)
    return re.sub(r"(?<!\d) | (?!\d)", "", text)


# Single values

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)"
_DECIMAL = re.compile(rf"({_DIGITS})?(?:\.(\d*))?")
_WHOLE = r"\d{1,3}(?:,\d{3})+|\d{1,40}"
_QUOTIENT = re.compile(
    rf"(?:\\frac ?(?:\{{ ?([+-]?) ?(?P<a>{_WHOLE}) ?\}}|(?P<b>\d)) ?"
    rf"(?:\{{ ?(?P<c>{_WHOLE}) ?\}}|(?P<d>\d))|(?P<e>{_WHOLE}) ?/ ?(?P<f>{_WHOLE}))"
)
_SCIENTIFIC = re.compile(
    r"(?:(?P<front>\d+(?:\.\d*)?|\.\d+) ?(?:\\times|\\cdot|\*|x|X) ?)?10 ?\^ ?"
    r"(?:\{ ?(?P<braced>-?\d{1,3}) ?\}|(?P<bare>-?\d{1,3}))"
    r"|(?P<mantissa>\d+(?:\.\d*)?|\.\d+)[eE](?P<short>[+-]?\d{1,3})"
)
_REPEATING = re.compile(r"(\d*)\.(\d{0,30})\\(?:overline|bar|dot) ?(?:\{ ?(\d{1,30}) ?\}|(\d))")


def _number(text: str) -> tuple[Fraction, int] | None:
    r"""The exact value of a plain number and how many decimal places it was written with.

    Integers with or without thousands separators, decimals, quotients, mixed numbers, powers of
    ten and repeating decimals; None for everything else. Places are 0 for all but decimals.
    """
    if len(text) > 120:
        return None
    sign = 1
    while text[:1] in ("+", "-") and text:
        sign *= -1 if text[0] == "-" else 1
        text = text[1:].lstrip()
    text = text.strip()
    if text[:1] == "(" and text[-1:] == ")" and _closing(text, 0) == len(text) - 1:
        inside = _number(text[1:-1])
        return inside and (sign * inside[0], inside[1])
    decimal = _DECIMAL.fullmatch(text)
    if decimal and (decimal[1] or decimal[2]):
        whole = re.sub("[, ]", "", decimal[1] or "0")
        places = decimal[2] or ""
        return sign * Fraction(int(whole + places), 10 ** len(places)), len(places)
    quotient = _quotient(text)
    if quotient is not None:
        return sign * quotient, 0
    mixed = re.match(r"(\d{1,20}) ?(?=\\frac)|(\d{1,20}) (?=\d+ ?/ ?\d+$)", text)
    if mixed:
        part = _quotient(text[mixed.end() :])
        if part is not None and 0 <= part < 1:
            return sign * (int(mixed[1] or mixed[2]) + part), 0
    power = _SCIENTIFIC.fullmatch(text)
    if power:
        exponent = int(power["braced"] or power["bare"] or power["short"])
        front = Fraction(power["front"] or power["mantissa"] or 1)
        return sign * front * Fraction(10) ** exponent, 0
    again = _REPEATING.fullmatch(text)
    if again:
        period = again[3] or again[4]
        start = Fraction(int((again[1] or "0") + again[2]), 10 ** len(again[2]))
        rest = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(again[2]))
        return sign * (start + rest), 0
    return None


def _quotient(text: str) -> Fraction | None:
    found = _QUOTIENT.fullmatch(text)
    if not found:
        return None
    above = int((found["a"] or found["b"] or found["e"]).replace(",", "") or 0)
    below = int((found["c"] or found["d"] or found["f"]).replace(",", "") or 0)
    return None if below == 0 else Fraction(-above if found[1] == "-" else above, below)


def _numbers_agree(one: tuple[Fraction, int], other: tuple[Fraction, int]) -> bool:
    """By the rounding policy; each a value and its decimal places."""
    if one[0] == other[0]:
        return True
    # Of two decimals the longer may round to the shorter; a fraction has no end.
    places = min((side[1] for side in (one, other) if side[1]), default=0)
    small = min(abs(one[0]), abs(other[0]))
    if one[1] == other[1] or places < 6 or small * 10**places < 10**5:
        return False
    return abs(one[0] - other[0]) * 10**places < 1


def _rounds(one: tuple[Fraction, int], other: tuple[Fraction, int]) -> bool:
    """Whether one of two numbers is the other rounded, as both sides of = or \\approx must be."""
    if one[0] == other[0]:
        return True
    places = [side[1] for side in (one, other) if side[1] or side[0].denominator == 1]
    off = abs(one[0] - other[0]) * 10 ** min(places, default=0)
    return bool(places) and off < (1 if min(places) else Fraction(1, 2))


_UNITS = {
    "mm": "millimeter millimetre mm",
    "cm": "centimeter centimetre cm cms",
    "m": "meter metre m",
    "km": "kilometer kilometre km kms",
    "in": "inch inches in",
    "ft": "foot feet ft",
    "yd": "yard yd yds",
    "mi": "mile mi",
    "mg": "milligram mg",
    "g": "gram gramme g gm gms",
    "kg": "kilogram kg kgs kilo",
    "lb": "pound lb lbs",
    "oz": "ounce oz",
    "ton": "ton tonne",
    "s": "second sec secs s",
    "min": "minute min mins",
    "h": "hour hr hrs h",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year yr yrs",
    "ml": "milliliter millilitre ml mL",
    "l": "liter litre l L",
    "gal": "gallon gal",
    "dollar": "dollar usd USD $",
    "cent": "cent ¢ cents",
    "euro": "euro eur EUR €",
    "pound sterling": "£ gbp GBP",
    "rupee": "rupee Rs rs ₹ INR",
    "yen": "yen ¥",
    "degree": "degree deg ° degs",
    "radian": "radian rad rads",
    "mph": "mph",
    "km/h": "kmh kmph kph",
    "N": "newton N",
    "J": "joule J",
    "W": "watt W",
    "V": "volt V",
    "k": "kelvin",
    "Hz": "hertz Hz",
}
# What is counted: left out like a unit, and no two of them differ.
_COUNTED = (
    "unit pt pts squares people person student boy girl man men woman women child children friend "
    "player member team worker customer passenger voter teacher adult way path route point line "
    "segment edge side vertex vertices vertexes face angle triangle rectangle circle polygon "
    "diagonal intersection solution roots zeros zeroes term factor divisor multiples integer "
    "number digit prime value pairs triples tuple subset set element function sequence "
    "combination permutation arrangement outcome possibility possibilities choice case seating "
    "handshake game match matches round times step move turn trip lap page book word letter card "
    "coin penny pennies nickel dime ball marble block cubes tile box boxes bag jar cup bottle "
    "glass glasses can apple orange banana egg cookie candy candies cake pizza slice piece meal "
    "outfit shirt sock shoe ticket stamp pencil pen chair table seat room house car bus buses "
    "bicycle wheel tree flower row column animal dog cat cow horse sheep chicken bird fish leg "
    "question problem test item object gift toy sticker"
)
_OF_UNITS = frozenset(  # words that may stand beside a unit
    "square sq cubic cu per of different distinct possible total positive ordered more old".split()  # noqa: SIM905
)
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_UNIT_OF |= dict.fromkeys(_COUNTED.split(), "")
_UNIT_OF |= {word + "s": unit for word, unit in list(_UNIT_OF.items()) if len(word) > 2}
_UNIT_OF |= dict.fromkeys(_OF_UNITS, "")
_MARKED = re.compile(
    rf"(?P<head>.*\S) ?{_OPEN}(?P<unit>[^{_OPEN}{_CLOSE}]*){_CLOSE}"
    r"(?: ?\^ ?\{?(?P<power>[23])\}?)?"
)
_BARE_UNIT = re.compile(
    r"(?P<head>.*[\d}%)]|.*\\pi) ?(?P<unit>[A-Za-z°¢$€£¥₹][A-Za-z .,/°]*?)"
    r"(?: ?\^ ?\{?(?P<power>[23])\}?)?\.?"
)
_CURRENCY = re.compile(r"([+-]?) ?(Rs\.?|USD|[$€£¥₹])\s*(?=[\d.\\(-])(.*)")
_NOT_A_UNIT = re.compile(
    r"\b(?:if|for|not|is|are|or|and|mod|where|when|base|even|odd|no|with|than)\b"
)


def _without_unit(text: str, reference: bool = False) -> tuple[str, str]:
    """A value without its unit, and the unit: "" when there is none.

    A unit is a known unit; behind a number of the reference answer it is any word.
    """
    money = _CURRENCY.fullmatch(text)
    if money:
        rest, unit = _without_unit(money[1] + money[3], reference)
        return (rest, unit) if unit else (rest, _UNIT_OF.get(money[2].rstrip("."), ""))
    degrees = re.fullmatch(rf"(.*\S) ?\^\\circ ?{_OPEN}?([CFK]?){_CLOSE}?", text)
    if (
        degrees
        and r"\circ" not in degrees[1]
        and not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text)
    ):
        return degrees[1], "degree" + degrees[2]
    found = _MARKED.fullmatch(text) or _BARE_UNIT.fullmatch(text)
    if not found:
        return text, ""
    head, words = found["head"].strip(), found["unit"].strip(" .,")
    marked = _OPEN in text
    if _OPEN in head:
        head, inner = _without_unit(head, reference)
        words = f"{inner} {words}" if inner else words
    words = _SQUARED.sub("", words)
    known = [
        _UNIT_OF.get(word, _UNIT_OF.get(word.lower()) if len(word) > 1 else None)
        for word in re.split(r"[\s./]+", words)
        if word
    ]
    if _NOT_A_UNIT.search(words) or (not marked and _letters(head)):
        return text, ""
    if not marked and len(words) == 1 and words.isalpha() and not re.search(r"\d \w\b", text):
        return text, ""  # 5m may be five times m
    alone = set(words.lower().split()) <= _OF_UNITS
    if all(unit is not None for unit in known) and not alone:
        power = found["power"] or ("2" if re.search(r"\b(?:sq|square)", found["unit"]) else "")
        power = power or ("3" if re.search(r"\b(?:cu|cubic|cubed)\b", found["unit"]) else "")
        names = [unit for unit in known if unit]
        if not names:
            return head, ""
        return head, " ".join(names) + power
    long = marked or all(len(word) > 2 for word in words.split())
    if reference and long and _number(head) is not None and not _NO_VALUE.search(words):
        return head, ""
    return text, ""


_PERCENT = re.compile(
    rf"(.*[^\s%]) ?(?:%|{_OPEN}?\b(?:percent|per cent|percentage|pct)\b{_CLOSE}?)", re.DOTALL
)
_BASE = re.compile(
    r"\(?(?P<digits>[0-9][0-9A-Fa-f ,.]*)\)? ?"
    rf"(?:_ ?\{{? ?\(?{_OPEN}?(?:base )?(?P<sub>\w+){_CLOSE}?\)? ?\}}?"
    rf"|[ {_OPEN}(]+base ?(?P<named>\d+|[a-z]+)[ {_CLOSE})]*)"
)
_BASE_NAMES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10)  # noqa: C408
_CHOICE = re.compile(
    rf"[{_OPEN}(\[]*(?:(?i:option|choice|answer) )?\(? ?(?P<letter>[A-J]) ?[)\]{_CLOSE}]*[.:)]?"
)
_LABELLED = re.compile(
    rf"[{_OPEN} ]*\(?(?P<letter>[A-J])(?:\)|\. )[{_CLOSE} ]*"
    rf"(?!.*(?:\b[A-J]|\bor|\band)\b|[{_OPEN} ]*(?:is |\\|[,;/|&+^!*=_(]))(?P<rest>\S.*)"
)
_CLOCK = re.compile(rf"(\d+(?: ?: ?\d+)+)[ {_OPEN}]*([ap]\.? ?m\.?)?[ {_CLOSE}]*", re.IGNORECASE)


def _same_value(gold: str, given: str, ask: _Ask) -> bool:
    """Whether two levelled single values are the same, by the policies and then by `ask`."""
    numbers = _number(gold), _number(given)
    if gold == given:
        return True
    if _squeezed(gold) == _squeezed(given) != "":
        # 12, 345 is no number, though 12,345 is one
        return "," not in gold or (numbers[0] is None) == (numbers[1] is None)
    bases = _BASE.fullmatch(gold), _BASE.fullmatch(given)
    if any(bases):
        return _same_in_base(gold, given, *bases)
    letters = _letter_of(gold), _letter_of(given)
    if letters[0] and letters[1]:
        return letters[0] == letters[1]
    clocks = _CLOCK.fullmatch(gold), _CLOCK.fullmatch(given)
    if any(clocks):
        return _same_time_or_ratio(gold, given, *clocks)
    percents = _PERCENT.fullmatch(gold), _PERCENT.fullmatch(given)
    if any(percents):
        meant = percents[0][1] if percents[0] else gold
        said = percents[1][1] if percents[1] else given
        if _same_value(meant, said, ask):
            return True
        if all(percents):
            return False
        if percents[0]:
            return _same_value(_hundredth(meant), said, ask)
        return _same_value(meant, _hundredth(said), ask)
    (meant, unit), (said, other_unit) = _without_unit(gold, True), _without_unit(given)
    if unit and other_unit and unit != other_unit:
        return False
    if (meant, said) != (gold, given):
        return _same_value(meant, said, ask)
    if all(numbers):
        return _numbers_agree(*numbers)
    words = _words(gold), _words(given)
    if all(words) and words[0] == words[1]:
        return True
    if all(words) and any(len(word) > 3 for word in words):
        return False
    if any(numbers) and any(len(word) > 3 for word in words):
        return False
    approximate = next((number for number in numbers if number and number[1] >= 6), None)
    if approximate and abs(approximate[0]) * 10 ** approximate[1] >= 10**5:
        return ask(gold, given, f"1e-{approximate[1]}")
    return ask(gold, given)


def _same_in_base(gold: str, given: str, *found: re.Match | None) -> bool:
    digits, bases = [], []
    for text, match in zip((gold, given), found, strict=True):
        digits.append(re.sub(r"[ ,()]", "", match["digits"] if match else text).lstrip("0").upper())
        base = (match["sub"] or match["named"]).lower() if match else ""
        bases.append(_BASE_NAMES.get(base) or (int(base) if base.isdecimal() else base))
    if digits[0] != digits[1] or (all(bases) and bases[0] != bases[1]):
        return False
    return all(base == "" or _written_in(digits[0], base) for base in bases)


def _written_in(digits: str, base: int | str) -> bool:
    """Whether these are digits of that base."""
    return isinstance(base, int) and all(int(digit, 17) < base for digit in digits if digit != ".")


def _letter_of(text: str) -> str:
    """The letter of a choice: C for C, (C), C. and (C) 17."""
    found = _CHOICE.fullmatch(text) or _LABELLED.fullmatch(text)
    return found["letter"] if found and is_answer(text) else ""


def _same_time_or_ratio(gold: str, given: str, *found: re.Match | None) -> bool:
    if all(found):
        halves = {re.sub(r"\W", "", match[2] or "").lower() for match in found} - {""}
        parts = [[int(part) for part in match[1].split(":") if len(part) < 19] for match in found]
        if parts[0] == parts[1]:
            return len(halves) < 2
        clock = any(re.search(r":\s*\d\d(?!\d)", match[1]) for match in found)
        if (
            clock
            or halves
            or len(parts[0]) != len(parts[1])
            or not all(parts[0])
            or not all(parts[1])
        ):
            return False
        return len({Fraction(a, b) for a, b in zip(*parts, strict=True)}) == 1
    parts = [int(part) for part in (found[0] or found[1])[1].split(":") if len(part) < 19]
    fraction = _quotient(given if found[0] else gold)  # 3:2 is 3/2, and 4:1 is not 4
    return bool(fraction and len(parts) == 2 and parts[1] and Fraction(*parts) == fraction)


def _hundredth(text: str) -> str:
    number = _number(text)
    if number is None:
        return rf"\frac{{{text}}}{{100}}"
    return f"{number[0] / 100}"


def _words(text: str) -> str:
    """A text answer without case, spacing and articles; "" for what is no text."""
    plain = re.sub(rf"[{_OPEN}{_CLOSE}\"'`]", "", text)
    if not re.fullmatch(r"[^\W\d_]{2,}(?:[ ,.\-]+[^\W\d_]+)*[.!]?", plain):
        return ""
    words = re.findall(r"[^\W\d_]+", plain.lower())
    return " ".join(word for word in words if word not in ("the", "a", "an")) or plain.lower()


# What is not worth asking

_LARGEST_EXPONENT = 20_000
_LARGEST_FACTORIAL = 5_000
_BINOMIAL = re.compile(r"\\binom ?\{ ?(\d+) ?\}")
_FACTORIAL = re.compile(r"(\d+) ?[)}]* ?!|([)}!]) ?!")
_POWER = re.compile(r"\^ ?(?:\{|(\d|\\[A-Za-z]+|.))")


def _hopeless(text: str) -> bool:
    """Whether a value is larger than can be computed: power towers, huge factorials.

    Not a proof of anything: what this lets through, the worker's limits stop, only later.
    """
    if re.search(r"\d{400}", text) or text.count("^") > 120:
        return True
    for match in _FACTORIAL.finditer(text):
        if match[2] == "!" or (match[1] and int(match[1]) > _LARGEST_FACTORIAL):
            return True
        if match[2] and "!" in text[: match.start()]:
            return True
    if any(int(above) > _LARGEST_FACTORIAL for above in _BINOMIAL.findall(text)):
        return True
    return any(
        _size(text[match.end() :] if not match[1] else match[1]) for match in _POWER.finditer(text)
    )


def _braced(text: str) -> str:
    """What stands before the brace that closes a group, from inside the group."""
    depth = 1
    for match in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return text[: match.start()]
    return text


def _size(exponent: str) -> bool:
    """Whether what follows `^{` is a number too large for an exponent."""
    inside = _braced(exponent).strip().lstrip("+-")
    if inside.isdecimal():
        return int(inside) > _LARGEST_EXPONENT
    tower = re.fullmatch(r"(\d+) ?\^ ?\{? ?(\d+) ?\}?", inside)
    if tower:
        base, power = int(tower[1]), int(tower[2])
        return power > 1000 or (base > 1 and base**power > _LARGEST_EXPONENT)
    # A tower above a numeric exponent, or a factorial in it
    higher = any("^" in _braced(inside[match.end() :]) for match in re.finditer(r"\^ ?\{", inside))
    chained = re.search(r"\^ ?\w ?\^", inside)
    return bool(re.search(r"\d", inside)) and bool(higher or chained or "!" in inside)


# The check

_remembered: dict[tuple[str, str], bool] = {}


class _OutOfTime(Exception):
    pass


def equivalent(prediction: str, gold: str) -> bool:
    r"""Whether two answers are the same answer, by `POLICIES`.

    Args:
        prediction, gold: each a bare answer, a formula between dollars, or a whole completion.

    Returns:
        False for anything that is not a string, for no answer, and for what cannot be decided
        within `TIMEOUT` seconds of processor time. The order of the arguments matters: a
        reference is taken at its word, and a prediction's words are looked at.

    Raises:
        CasebookError: math-verify is needed and not installed. No text makes it raise.

    >>> equivalent(r"It is \boxed{x = 0.5}.", r"\frac{1}{2}")
    True
    >>> equivalent("(2, 1)", "(1, 2)")
    False
    """
    if not isinstance(prediction, str) or not isinstance(gold, str):
        return False
    given = "" if _OPENS_WITH_NOT.match(prediction) else _stated(prediction)
    return is_answer(given) and same_answer(given, gold)


def same_answer(answer: str, gold: str) -> bool:
    """`equivalent` for an answer that `answer_of` has found."""
    meant = _stated(gold)
    if not meant.strip() or not answer.strip():
        return False
    if answer == meant:
        return True
    if max(len(answer), len(meant)) > LONGEST:
        return False
    key = meant, answer
    verdict = _remembered.get(key)
    if verdict is None:
        try:
            verdict = _decide(meant, answer)
        except _OutOfTime:
            return False  # not remembered: another time the machine may be less busy
        except (RecursionError, ArithmeticError, ValueError):
            verdict = False  # thousands of signs or brackets
        except worker.Unavailable as error:
            raise CasebookError(f"answers cannot be compared: {error}") from error
        if len(_remembered) >= _REMEMBERED:
            _remembered.clear()
        _remembered[key] = verdict
    return verdict


def prepare(seconds: float = 60.0) -> bool:
    """Start a worker now and wait until it answers, `seconds` at most; whether it does.

    The first check that needs a worker waits for its start, a second on an idle machine. Where
    the machine is busy and a verdict must not depend on that, as before a training, call this.
    """
    try:
        return worker.ask("1", "1", time.monotonic() + seconds) is not None
    except worker.Unavailable as error:
        raise CasebookError(f"answers cannot be compared: {error}") from error


def _decide(gold: str, given: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    budget = worker.Budget(TIMEOUT)
    worker.start()  # it may be needed, if not now then soon

    def ask(one: str, other: str, within: str = "") -> bool:
        if _hopeless(one) or _hopeless(other) or _foreign_words(one, other):
            return False
        one, other = _cased(_for_math_verify(one), _for_math_verify(other))
        answer = worker.ask(one, other, deadline, within, budget)
        if answer is None:
            raise _OutOfTime
        return answer == worker.EQUAL

    meant, said = _level(gold), _level(given)
    if not meant or not said:
        return False
    if _same_value(meant, said, lambda *_: False):
        return True
    forms = _halves(said)
    if len(forms) > 1 and not _approximates(*forms, ask):
        forms = forms[1:]  # as of a chain
    return any(_same(_read(one), _read(other), ask) for one in _halves(meant) for other in forms)


def _halves(text: str) -> list[str]:
    r"""2\sqrt{3} \approx 3.46 says two things, each of which may be the answer."""
    halves = [half for half in _split(text, r"\approx") if half and not _is_name(half)]
    return halves[:2] if r"\approx" in text and halves else [text]


def _approximates(one: str, other: str, ask: _Ask) -> bool:
    r"""Whether both sides of \approx are seen to be about the same."""
    sides = [_without_unit(half.split("=")[-1].strip())[0] for half in (one, other)]
    numbers = [_number(side) for side in sides]
    if all(numbers):
        return _rounds(*numbers)
    rounded = numbers[0] or numbers[1]
    return bool(rounded) and ask(*sides, f"1e-{rounded[1]}" if rounded[1] else "0.5")


_RUN_OF_LETTERS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{\w+\}(?:\{[lcr|]+\})?")


def _foreign_words(gold: str, given: str) -> bool:
    """Whether an answer has words that the reference has not; math-verify would overlook them."""
    known = _ENVIRONMENT.sub("", gold).lower()
    letters = set(re.sub(r"\\[A-Za-z]+", "", known))
    marked = re.findall(rf"{_OPEN}([^{_CLOSE}]*)", given)
    if any(word.strip().lower() not in known for word in marked):
        return True
    signs = (r"\ldots", r"\ne ", r"\equiv", "mod", "'")
    if any(sign in given and sign not in gold for sign in signs):
        return True
    runs = _RUN_OF_LETTERS.findall(_FUNCTION.sub("", _ENVIRONMENT.sub("", given)))
    return any(run.lower() not in known and set(run.lower()) - letters for run in runs)


_FUNCTION = re.compile(
    r"(?<![\\A-Za-z])"
    r"(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|pi|sqrt|infty)(?![A-Za-z])"
)


def _for_math_verify(text: str) -> str:
    """LaTeX in the form that math-verify's grammar reads best."""
    text = text.replace(_OPEN, r"\text{").replace(_CLOSE, "}").replace(_ROW, r"\\")
    text = _FUNCTION.sub(r"\\\1 ", text)
    text = re.sub(r"\\sqrt ?\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\sqrt ?(\d+|[A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\^ ?\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"(?<=[\dA-Za-z)}]) ?\* ?(?=[\dA-Za-z(\\])", r"\\cdot ", text)
    return re.sub(r"(\d+(?:\.\d+)?) ?\^\\circ", r"(\1\\cdot\\frac{\\pi}{180})", text)


def _cased(one: str, other: str) -> tuple[str, str]:
    """Both texts with another name for R where an r occurs too: the grammar knows no capitals."""
    tokens = re.findall(r"\\[A-Za-z]+|[A-Za-z]", f"{one} {other}")
    letters = {token for token in tokens if len(token) == 1}
    both = {letter for letter in letters if letter.isupper() and letter.lower() in letters}
    if not both:
        return one, other

    def renamed(match: re.Match) -> str:
        token = match.group()
        return f"{{{token.lower()}_{{99}}}}" if token in both else token

    return tuple(re.sub(r"\\text\{[^{}]*\}|\\[A-Za-z]+|[A-Z]", renamed, s) for s in (one, other))
