r"""What a completion gives as its answer.

`answer_of` finds it in a box, behind "the answer is", or in the last formula, with the words and
signs around it: they may take it back, change it, or name another one.
"""

import re
from itertools import pairwise
from typing import NamedTuple

from casebook.cases.math.comparing import alike
from casebook.cases.math.hedges import CHANGING, COMPARED, DENIAL, NO_VALUE, is_answer
from casebook.cases.math.notation import BRACE, LONGEST, is_name, level, words_of

_MOST_BOXES = 1_000
_LONGEST_BOX = 100_000
_TAIL = 20_000  # characters at the end of a text without a box in which its answer is looked for
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
        for match in BRACE.finditer(text, min(opened.values()), min(furthest, len(text))):
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
    if not isinstance(text, str) or OPENS_WITH_NOT.match(text):
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
OPENS_WITH_NOT = re.compile(r"\s*not\s(?=[\s\S]*[\d$\\])(?![\s\S]{0,999}\bbut\b)")


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
        if not alike(other, content) and not _replaced(text[before:after]):
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
                and not alike(other, _sentence(text, last))
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
    if not all(not name or is_name(name) for name in names) or re.search(
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
        if all(alike(one, contents[-1]) for one in contents[:-1]):
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


def stated_answer(text: str) -> str:
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
    hedged = NO_VALUE.search(before) or NO_VALUE.search(after)
    return "" if part or hedged or _denied(text, start, end, content) else content


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


_DENIED = re.compile(DENIAL, re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[.;:!?](?=\s)|\n|,\s+(?=[A-Za-z])|"
    r"(?<![\\A-Za-z])(?:so|thus|hence|therefore|(?<!thing )(?<!all )but(?! also))\b"
)
_DENIED_BEFORE = re.compile(
    rf"(?:{DENIAL}|\\neq?|"
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
    return any(not alike(_bare(other), answer) for other in others)


# What stands right before or behind a box and makes another value of what is in it.
_CHANGED_BEFORE = re.compile(
    r"(?:\d|(?<!\w)-|(?:[\d)}\]]|(?<![A-Za-z])[a-z])\s*(?:[-+/^_]|(?<!\*)\*)\s*|"
    r"\\(?:times|cdot|div|pm|mp|log|ln|sqrt(?:\[\w+\])?|[cdt]?frac(?:\s*\{[^{}]*\})?)\s*)"
    r"\$?\{?\$?\Z"
)
_CHANGED_BEHIND = re.compile(
    r"\s*\{|[\dxynike](?![A-Za-z])|[\s$}]*(?:\^(?!\s*\{?\s*\\circ)|[-+*/]\s*[\d\\(]|"
    rf"\\(?:times|cdot|div|pi|sqrt|[cdt]?frac|pm)(?![a-z])|(?:\\text\s*\{{)?\s*(?:{CHANGING})\b)"
)
_COMPARED_BEFORE = re.compile(rf"(?<![\\A-Za-z]){COMPARED}[\s$\\(\[]*$", re.IGNORECASE)


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
        if not (word and not words_of(level(answer[:LONGEST]))) and not alike(other, answer):
            return True
    return False
