r"""Which one answer does a completion give, if it gives one?

`reading.extract_number` finds a number in any text, the one that the text most likely means. A
grade must ask for more: a policy that is paid for it finds out that "42 or 43" pays, and "not 42".
The rules and their examples are in `answers.yaml`; this file follows them. It finds what the
completion states as its answer, leaves out what only explains it, and takes the number that is
left, if there is one and nothing changes its value.

No text is evaluated, nothing raises, and the time is linear in the text's length: only the search
for marks looks at all of it, and a statement is short.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

from casebook.cases.gsm8k.reading import (
    ANSWER_TAG,
    LONGEST,
    NUMBER,
    RUN_ON,
    in_plain_signs,
    is_stuck,
    value_of,
)
from casebook.rewards import completion_text

LONGEST_STATEMENT = 1000  # characters; what is longer is a text and no answer
MOST_MARKS = 32  # in one completion; where there are more, it has no answer
NEAR = 200  # characters behind "the answer is" in which a number is looked for

# Where an answer stands.
_DIGIT = re.compile(r"[\d½⅓⅔¼¾⅕⅛]")
_THOUGHT_TAG = re.compile(r"<(/?)(?:reasoning|think)>", re.IGNORECASE)
_BOX = re.compile(r"\\f?box(?:ed)?\s{0,9}\{")
_HASHES = re.compile(r"####\s{0,9}([^\n]{0,1000})")
# A number that comes soon, unless the line is a heading like "#### 3. Then".
_RESULT = re.compile(
    r"(?!\W*(?:[Ss]tep\b"
    r"|\d{1,2}[.)] +(?!This|That|It|Because|Since|No\b|Wait|Actually|Or\b)[A-Z*]))"
    r"\W*(?:[A-Za-z]+\W+){0,4}\d"
)
_PHRASE = re.compile(r"(?<![/\w])answer\b[^\n.!?\d]{0,40}?(?:\b(?:is|be)\b|:|=)", re.IGNORECASE)
_LINE = re.compile(r"[ \n:*]{0,9}([^\n]{0,1000})")
# The words around a mark that belong to what it says: "not", "or", "million".
_AHEAD = re.compile(r"(\d ?)?([^\d.,;:?!\n<>]{0,40})\Z")
_BEHIND = re.compile(r"[^\d.,;:?!\n<>]{0,40}[?!]?")
# What makes a second answer behind a mark: "or", a correction, or a number and nothing else on its
# line.
_SECOND = re.compile(
    r"\W{0,20}(?:or|unless|otherwise|alternatively|maybe|perhaps|and [$€£]?\d[\d,.]*)\b"
    r"|\W{0,9}(?:no(?:pe)?|wait|actually|sorry|correction|wrong)\b(?=[.,:!]|\s*(?:\d|\Z))"
    r"|[\s.,;*$€£+-]{0,20}\d[\d,.]{0,40}[\s.*$]{0,9}(?:\n|\Z)",
    re.IGNORECASE,
)

# What a statement may wear without saying anything else, and other ways to write a sign.
_NOTE = re.compile(r"<<[^<>\n]{0,200}>>(?=[$\d.])|<<(?:[^<>=\n]{0,200}=){0,9}([^<>=\n]{0,50})>>")
_DRESS = re.compile(
    r"</?[a-z]{1,9} ?/?>|\\(?:text\w*|math\w+|f?box(?:ed)?|left|right|displaystyle|quad)(?![a-z])"
    r"|\\[()\[\] ]|\^ ?\{? ?\\circ|\\degree|[{}_`\"“”#→\0]|=>|->|\bUSD?(?= ?[$\d])"
    r"|(?<!\d)\*{2,3}|\*{2,3}(?!\d)|(?<![\w)%$€£] )(?<![\w)%$€£])\*|\*(?! ?[\w($.-])"
    r"|^\W*step \d{1,2}[:.)]",
    re.IGNORECASE | re.MULTILINE,
)
_SPELLED = {
    r"\times": "×",
    r"\cdot": "×",
    r"\div": "÷",
    r"\approx": "≈",
    "multiplied by": "×",
    "divided by": "÷",
    "times": "×",
    "plus": "+",
    "minus": "-",
    "negative": "-",
    "equals": "=",
    " is": "=",
    " are": "=",
    " makes": "=",
    " gives": "=",
    "% of": "% ×",
    "percent of": "% ×",
    "per cent of": "% ×",
    " of": " ×",
    "i.e.": "that is",
    "e.g.": "that is",
}
_SPELLING = re.compile(
    r"\\(?:times|cdot|div|approx)(?![a-z])|(?:%|\bper ?cent) of(?= [$€£]?\d)|\b[ie]\.[eg]\."
    r"|(?<=\d) (?:is|are|makes|gives)(?= [$€£]?-?\d)|(?:(?<=\d/\d)|(?<=/\d\d)) of(?= [$€£]?\d)"
    r"|\b(?:multiplied by|divided by|plus|minus|negative|equals|times)(?= *[$€£(-]?\d)",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"\b(\d{1,2}):00(?= ?(?:[ap]\.?m\b|o'clock))", re.IGNORECASE)
_ACCOUNTING = re.compile(r"\( ?[$€£¥₹] ?(\d[\d,]*(?:\.\d+)?) ?\)\.?")

# Number words, and words that change a number's value.
_LARGE = (
    r"(?:thir|four|fif|six|seven|eigh|nine)teen|twenty|thirty|forty|fifty|sixty|seventy|eighty"
    r"|ninety|hundreds?|thousands?|[mbtr]+illions?|dozens?|gross|lakhs?|crores?|bn|mn|mil|grand"
)
_SMALL = r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_PART = r"half|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth"
_CHANGED_BEHIND = re.compile(
    r"!|\W{0,3}\?+\W*$|[ %]*\^|[- ]?(?:[kKMBTixyzneπ]|pi)\b(?!['’.]\w)"
    rf"|(?:[- ]?[a-zA-Z$]+){{0,2}}?[- ]?(?i:(?<![a-z])(?:{_LARGE}|(?:{_PART}|{_SMALL}|halve)s|half"
    r"|twice|thrice|halved|doubled?|tripled?|quadrupled?|squared|cubed|factorial|modulo?|fold|ish"
    r"|inverse|hex\w*))\b"
    r"| (?i:plus|minus|raised|to the|below zero|over \d+(?=\W*$))\b|[ -](?i:something|odd)\W*$"
    r"|(?i:[^\d]{0,40}?(?:\b(?:and|by|plus|minus|times|to|less)|[-+,/×÷=&]) ?(?:an? )?"
    rf"(?:{_SMALL}|{_LARGE}|{_PART}|quarter))\b"
)
_CHANGED_AHEAD = re.compile(
    rf"\b(?:(?:{_LARGE})(?:-\w+)?\W{{0,4}}|(?:{_SMALL}), |(?:(?:{_PART}|quarter|square|cube"
    r"|root|power|factorial|logarithm|reciprocal|inverse|opposite|double|triple)"
    r" of(?: (?:the|a|an))?|half|twice|thrice|double|triple|sqrt|log|ln|mod)[- ]*)"
    r"[$€£]?-?$|[/÷×] ?$",
    re.IGNORECASE,
)
# What one or two letters behind a number may be; others change its value, or may.
_SHORT_UNIT = re.compile(
    r"am|pm|st|nd|rd|th|[cmk]?m|ft|yd|mi|in|[mk]?g|lb|oz|m?l|h|hr|s|c|f|[mgt]b", re.IGNORECASE
)

# What leaves a statement without one answer.
_NO_ONE_NUMBER = re.compile(
    r"\bor\b(?=[\s\S]{0,40}?(?:\d|\b(?:" + _SMALL + "|" + _LARGE + r")\b)|\W*$"
    r"| (?:so|not|more|less|fewer|something|an?other|none|under|over|above|below|up)\b)"
    r"|\b(?:unless|maybe|perhaps|possibly|might|otherwise|alternatively|instead(?! of [$€£]?\d)"
    r"|up to and including|if not(?= [$€£]?\d)|(?:may|could) be(?= [$€£]?\d))\b|\d(?: \w+)? nor\b"
    r"|\bbetween (?:\w+ )?[$€£]?\d|\d and (?:up|more|above|over|counting)\b|\d\+(?! ?[\d.$(])"
    r"|\d (?:to|through|till|until) [$€£]?-?\d|\d(?: \w+)? (?:less|more|fewer) than [$€£]?\d"
    r"|\bbase \d|[$€£¥₹]-?\d[\d,.]* ?[mb]\b|\b[a-z]\(-?\d|(?:--|\+\+) ?[$€£]?\d"
    r"|[<>≤≥≠±√∛∞|]|(?<!\b[a-z])(?<!\b[a-z]{2})[²³]|!=|\d:\d|\d ?: ?\d[\d,.]*\W*$"
    r"|\\(?:[lg]eq?|neq?|pm|sqrt|infty|log|ln|pi|[dtc]?frac)(?![a-z])",
    re.IGNORECASE,
)
_COMPARED_AHEAD = re.compile(
    r"\b(?:at least|at most|(?<!add )(?<!adds )(?<!sum )(?<!sums )up to|m(?:in|ax)(?:imum)?(?: of)?"
    r"|almost|nearly|close to|near|short of|off by|(?:up|down|far|different) from|nowhere near|over"
    r"|under|above|below|beyond|within|exceed\w*|than(?: or equal to)?|instead of)"
    r"(?: (?:a|about|exactly))? [$€£]?-?$",
    re.IGNORECASE,
)
_COMPARED_BEHIND = re.compile(
    r"\W*(?:\w+ ){0,2}(?:at (?:least|most)|minimum|max(?:imum)?|onwards?|upwards?)\b", re.IGNORECASE
)
_SPAN_AHEAD = re.compile(r"\b(?:over|within)(?: the \w+)? $", re.IGNORECASE)
_SPAN_BEHIND = re.compile(r"[ -](?:second|minute|hour|night|day|week|month|year)s?\b")
_DENIAL = r"\b(?:not|never|cannot|neither|nor|nobody|hardly|doubt(?:s|ed|ful)?|\w{1,9}n't)\b"
_DENIED_AHEAD = re.compile(
    rf"{_DENIAL}|\b(?:except|excluding|(?:any|every)thing but|false that)\b"
    r"|\b(?:no(?: way)?|all but|(?:wrong|incorrect|false):?|rul(?:e[sd]?|ing) out|reject(?:s|ed)?"
    r"|ignor(?:e|es|ing)|forget) [$€£]?$",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    rf"{_DENIAL}(?: be)?(?: (?:the|an|my|it|right|correct|true|possible|valid)\b|\W*$)"
    r"|\b(?:wrong|incorrect|false|impossible)(?: (?:answer|number|result))?\W*$|\bno(?:pe)?\W*$"
    r"|\b(?:is|are) (?:too (?:low|high|small|large|few|many|much)|ruled out|rejected|off by)\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(r"\W*(?:no(?:pe)?|not|wrong|incorrect|false)\W*", re.IGNORECASE)
# What is left out ahead of an answer: "not 43 but", "2x = 84, so".
_INSTEAD = re.compile(
    r"not [$€£]?\d[\d,.]*,? but (?!not\b)"
    r"|[^=,;]*\d ?([a-z])\b[^=,;]*=[^=,;a-z]*,? (?:so |then |and )?(?=\1 = )",
    re.IGNORECASE,
)
_OTHER_DENIED = re.compile(
    rf"[ ,(]*{_DENIAL}(?: [a-z]+)? ?[$€£]?-?\d[\d,]*(?:\.\d+)?%?", re.IGNORECASE
)

# What explains an answer and is none.
_REASON = re.compile(
    r"\b(?:since|because|as(?! (?:many|much|well|old|a)\b)|given|due to|namely|including"
    r"|consisting|made up|which(?! round)|that is|of (?:whom|them)|considering)\b|:|—",
    re.IGNORECASE,
)
# In prose the result of the calculation that ends the sentence is the answer, whatever numbers the
# story around it has, unless one of these stands in the sentence.
_CALCULATION = re.compile(
    r"\d[^\d=]{0,60}(?:[+*×÷(]|[-/] ?[$€£(.]*\d|(?<![a-z])x(?![a-z]))", re.IGNORECASE
)
_NOT_WORKED = re.compile(
    r"\b(?:unless|maybe|perhaps|possibly|might|otherwise|alternatively|instead(?! of))\b"
    r"|\b(?:at (?:least|most)|exceed\w*|(?<!sum )(?<!sums )up to|m(?:in|ax)imum)\b|[<>≤≥≠±]|!="
    r"|\b(?:than|over|under|above|below|beyond|within|almost|nearly)"
    r" [$€£(]*\d[\d.,$€£% ()+*/×÷-]*=",
    re.IGNORECASE,
)
# "He sold half, or 84/2 = 42" says it once more; a number right before "or" is another answer.
_OR = re.compile(r"(.*)\bor\b", re.IGNORECASE)
_OTHER = re.compile(rf"^\W*$|\d.{{0,12}}$|\b(?:{_SMALL}|{_LARGE})\W*$", re.IGNORECASE)
# A count of what is not so denies nothing: "the number of pens that are not red is".
_COUNT = re.compile(
    r"\b(?:number|amount) of [^=,;:\d]*(?:is|are|was|were|=) (?=[$\d(]|$)", re.IGNORECASE
)
_GIVES_REASON = re.compile(r"\d.*\b(?:because|since|as)\b", re.IGNORECASE)
_WHY = re.compile(r"\b(?:because|since) [$€£]?\d[\d,.]* [<>] [$€£]?\d[\d,.]*(?=\W*$)")
# Characters ahead of a number or a reason. Longer words belong to a story, not to the answer.
_SHORT = 40
_BECAUSE = r"\W*(?:this|that|it|which) (?:is|comes|follows) (?:because|since|due|from|as)\b"
_EXPLAINS = re.compile(
    rf"{_BECAUSE}|\W*(?:because|since|as|for|each|every|explanation|reason)\b", re.IGNORECASE
)
_ASIDE = re.compile(r"(?<![-+*/×÷^=(])(?<![-+*/×÷^=] )\(([^()]*)\)(?! ?[-+*/×÷^])")
_BARE = re.compile(r"[\s$€£.-]*\d[\d,.]*[\s.%]*")
_MEASURES = re.compile(
    r"\b(?:(?:for|per|in|every|each|after|within|on|by|during|with|from|to)(?: [a-z]+){0,2} -?"
    r"|(?:of|at)(?: [a-z]+){0,2} [$€£]?-?|(?:the|all|these|those|his|her|their|its|my|our) )$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[\n;]")
_SAID = re.compile(r"(?<=[.!?])\s+|;(?![^;\n]*=)")  # where what "the answer is" says may end
_NEW_START = re.compile(r",? (?=(?:so|meaning|making|leaving|therefore|thus|hence)\b)")
_SEGMENT = re.compile(r"([=≈])|, |\b(?:and|but|then)\b", re.IGNORECASE)
_OPERATOR = re.compile(r"[+*×÷^]|(?<![A-Za-z])[-/]|[-/](?![A-Za-z])|(?<![A-Za-z])x(?![A-Za-z])")
_SIGN = re.compile(r"(?:^|[\s(])- ?[$€£¥₹]? ?$|[$€£¥₹]-$")
_ROUNDED = re.compile(r"\bround\w*\b[^\d=]{0,30}\bto [$€£]?$", re.IGNORECASE)


def read_answer(completion: Any) -> Decimal | None:
    """The one number that a completion gives as its answer, or `None`, by the rules of the case.

    Args:
        completion: a string or a list of messages; anything else gives `None`.

    >>> read_answer("<answer>42 students: 21 boys and 21 girls</answer>")
    Decimal('42')
    >>> read_answer("<answer>43 or 42</answer>") is None
    True
    """
    text = _until_run_on(completion_text(completion))
    blocks, rest = _blocks(text)
    marks = [mark for mark in blocks if _DIGIT.search(mark)]
    if blocks and not marks:
        return None
    marks += [mark for mark in islice(_marked(rest), MOST_MARKS) if _DIGIT.search(mark)]
    if not marks:
        return _last_sentence(rest)
    numbers = {stated(mark) for mark in marks}
    return numbers.pop() if len(numbers) == 1 and len(marks) < MOST_MARKS else None


# Where the answer stands


def _until_run_on(text: str) -> str:
    """What comes before an end token or another question, if an answer or a number does."""
    start = text.find("</answer>") + 1
    end = RUN_ON.search(text, start)
    return text[: end.start()] if end and (start or _DIGIT.search(text[: end.start()])) else text


def _blocks(text: str) -> tuple[list[str], str]:
    """What the answer blocks say, and the text without them and without thoughts."""
    blocks, rest, done, opened = [], [], 0, None
    for tag in ANSWER_TAG.finditer(text):
        if not tag[1]:
            # one that is never closed says something too, if it is not only spoken of
            before = text[opened[1] : tag.start()] if opened else ""
            if len(blocks) < MOST_MARKS and len(before) < NEAR and _DIGIT.search(before):
                blocks.append(before)
            opened = tag.span()
        elif opened is not None:
            if len(blocks) < MOST_MARKS:
                blocks.append(_in_context(text, *opened, *tag.span()))
            rest.append(text[done : opened[0]])
            done, opened = tag.end(), None
    if opened is not None:
        blocks.append(_in_context(text, *opened, len(text), len(text)))
    rest.append(text[done : opened[0] if opened else len(text)])
    return blocks, _without_thoughts("\n".join(rest))


def _without_thoughts(text: str) -> str:
    """What stands outside of thoughts; one that is never closed takes the rest."""
    kept, start, opened = [], 0, False
    for tag in _THOUGHT_TAG.finditer(text):
        if not tag[1] and not opened:
            kept.append(text[start : tag.start()])
        start, opened = tag.end(), not tag[1]
    return "\n".join(kept if opened else [*kept, text[start:]])


def _in_context(text: str, begin: int, start: int, end: int, finish: int) -> str:
    """What stands in a mark from `start` to `end`, with the words beside it that belong to it.

    The mark itself, with its tags or braces, goes from `begin` to `finish`.
    """
    said = text[start:end] if end - start <= LONGEST_STATEMENT else text[start : end + 1]
    said = _without_thoughts(said)
    ahead = _AHEAD.search(text[max(0, begin - 60) : begin])
    words = ahead[2] if ahead else ""
    if ahead and ahead[1] and _OPERATOR.search(words) and "=" not in words:
        words = f"{ahead[1]}{words}"  # 1 + \boxed{42}
    elif text[begin - 1 : begin].isdigit():
        words = f"{text[begin - 1]}×"
    behind = _BEHIND.match(text, finish)[0] if finish else ""
    behind += " or" if _SECOND.match(text, finish) else ""
    return f"{words} {said} {behind}".strip()


def _marked(text: str) -> Iterator[str]:
    """What stands in boxes, behind hashes, and behind "the answer is"."""
    for box in _BOX.finditer(text):
        end = _closing(text, box.end())
        yield _in_context(text, box.start(), box.end(), end, end + 1)
    for found in _HASHES.finditer(text):
        if _RESULT.match(in_plain_signs(found[1])):
            yield _in_context(text, found.start(), found.start(1), found.end(1), found.end(1))
    tried = 0
    for phrase in _PHRASE.finditer(text):
        if not _DIGIT.search(text, phrase.end(), phrase.end() + NEAR):
            continue
        tried += 1
        line = _LINE.match(text, phrase.end())
        start, end = line.start(1), line.end(1)
        later = text[end : end + LONGEST_STATEMENT]
        said = _SAID.split(line[1], maxsplit=1)[0]
        # "answer:" may also open a whole solution, though not time and again
        opens = tried < MOST_MARKS and phrase[0][-1] in ":=" and _DIGIT.search(later)
        if _DIGIT.search(said) and not (opens and len(NUMBER.findall(line[1])) > 1):
            end = start + len(said)
            yield _in_context(text, phrase.start(), phrase.start(), end, end).replace("\n", " ")


def _closing(text: str, start: int) -> int:
    """Where the box ends whose content starts here; if nowhere near, at the end of the line."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[start : start + LONGEST_STATEMENT]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    return start + len(text[start : start + LONGEST_STATEMENT].partition("\n")[0])


def _last_sentence(text: str) -> Decimal | None:
    """What the last sentence with a number states, if none like it states another."""
    text = text.strip()[-2 * LONGEST_STATEMENT :]
    text = in_plain_signs(_NOTE.sub(r"\1", text))
    said = _SENTENCE.split(text)
    sentences = [part for part in said if _DIGIT.search(part)]
    while len(sentences) > 1 and re.match(_BECAUSE, sentences[-1], re.IGNORECASE):
        sentences.pop()
    if not sentences or _TAKEN_BACK.fullmatch(said[-1]):
        return None
    last = [part for part in _NEW_START.split(sentences[-1]) if _DIGIT.search(part)][-1]
    last = last if last == text else re.sub(r"^\s*- ", "", last)
    numbers = [stated(last), _worked(last)]
    if not _GIVES_REASON.search(last):
        numbers.reverse()
    number = next((number for number in numbers if number is not None), None)
    alike = {_shape(sentences[-1]), "#"}
    others = {stated(sentence) for sentence in sentences[:-1] if _shape(sentence) in alike}
    steps = _numbers(last.rpartition("=")[0])
    return number if others - steps <= {number} else None


def _worked(sentence: str) -> Decimal | None:
    """The result of the calculation with which a sentence ends, if it works one out."""
    text = _undressed(sentence)
    calculated, _, result = text.rpartition("=")
    if not _CALCULATION.search(calculated.rpartition("=")[2]) or _NOT_WORKED.search(text):
        return None
    if said := _OR.match(text):
        before, behind = said[1], calculated[said.end() :]
        once_more = _CALCULATION.search(behind) and _numbers(before) <= _numbers(behind)
        if _OTHER.search(before) or not once_more:
            return None
    return None if _DENIED_AHEAD.search(_COUNT.sub("", calculated)) else stated(result)


def _numbers(text: str) -> set[Decimal | None]:
    """The numbers in a text, without their signs."""
    return {value_of(number, negative=False) for number in NUMBER.finditer(text)}


def _shape(sentence: str) -> str:
    """A sentence with # for its numbers, without blanks, currencies and stops."""
    return re.sub(r"[\s.,!$€£*]+", "", NUMBER.sub("#", sentence)).lower()


# What a statement says


@dataclass
class _Part:
    """A stretch of a sentence between commas, "and" and signs of equality.

    Attributes:
        numbers: what it may give as the answer.
        measures: numbers that only measure or name something, as in "6 miles in 2 hours".
        operands: the numbers of a calculation that it leaves undone; then it has no others.
        compared: it says what the answer is more or less than.
        rounds: it says what the number before is rounded to.
        frame: its words.
        quotient: it gives a fraction, which may also be a calculation.
    """

    numbers: list[Decimal] = field(default_factory=list)
    measures: list[Decimal] = field(default_factory=list)
    operands: list[Decimal] = field(default_factory=list)
    compared: bool = False
    rounds: bool = False
    frame: str = ""
    quotient: bool = False


_Chain = list[_Part]  # parts that signs of equality join


def stated(text: str) -> Decimal | None:
    """The one number that a short text states, or `None`.

    >>> stated("42 = 6*7"), stated("at least 42"), stated("42 dozen")
    (Decimal('42'), None, None)
    """
    if len(text) > LONGEST_STATEMENT:
        return None
    text = _undressed(text)
    if found := _ACCOUNTING.fullmatch(text):
        return -Decimal(found[1].replace(",", ""))
    if _NO_ONE_NUMBER.search(_WHY.sub("", text)):
        return None
    if found := _INSTEAD.match(text):
        text = text[found.end() :]
    chains: list[_Chain] = []
    for sentence in _SENTENCE.split(text):
        if _TAKEN_BACK.fullmatch(sentence):
            return None
        if _DIGIT.search(sentence) and not (chains and _EXPLAINS.match(sentence)):
            found = _chains(sentence)
            if found is None:
                return None
            chains += found
    return _one(chains)


def _undressed(text: str) -> str:
    text = in_plain_signs(_NOTE.sub(r"\1", text)).replace("’", "'").replace("·", "×")
    text = re.sub(r"[ \t\r]+", " ", _DRESS.sub(" ", text))
    text = _SPELLING.sub(lambda found: f" {_SPELLED[found[0].lower()]} ", text)
    text = _CLOCK.sub(r"\1", text)
    text = re.sub(r"\$(?! ?-?\.?\d)", " ", text)  # of mathematics
    return re.sub(r"[ \t\r]+", " ", text).strip()


def _chains(sentence: str) -> list[_Chain] | None:
    """What a sentence says up to its reason; `None` where it denies that, or says no number."""
    first = NUMBER.search(sentence)
    if first is None or _DENIED_AHEAD.search(_COUNT.sub("", _clause(sentence[: first.start()]))):
        return None
    start = first.end()
    asides = []
    sentence = re.sub(r"(?<=[\d)])\(", "×(", sentence)
    reason = _REASON.search(sentence, start)
    if reason and (reason.start() <= _SHORT or "=" not in sentence[reason.end() :]):
        asides.append(sentence[reason.end() :])
        sentence = sentence[: reason.start()].rstrip(" ,-")
    while found := _ASIDE.search(sentence, start):
        asides.append(found[1])
        sentence = sentence[: found.start()] + sentence[found.end() :]
    behind = _OTHER_DENIED.sub("", sentence[start:])
    if _DENIED_BEHIND.search(behind):
        return None
    sentence = (sentence[:start] + behind).translate({ord("("): " ", ord(")"): " "})
    chains: list[_Chain] = []
    begin, sign = 0, ""
    for found in [*_SEGMENT.finditer(sentence), None]:
        part = _part(sentence, begin, found.start() if found else len(sentence))
        if part is None:
            return None
        if sign:
            part.rounds |= sign == "≈"
            chains[-1].append(part)
        else:
            chains.append([part])
        if found:
            begin, sign = found.end(), found[1] or ""
    for chain in chains:  # of 50/3 = 16.67 the quotient is a calculation
        if any(part.numbers and not part.quotient for part in chain):
            for part in chain:
                if part.quotient:
                    part.operands, part.numbers = part.numbers, []
    # a bare number in brackets or behind a colon is no reason
    bare = [_part(aside, 0, len(aside)) for aside in asides if _BARE.fullmatch(aside)]
    return chains + [[part] for part in bare if part]


def _clause(ahead: str) -> str:
    """Of the words ahead of a number those that may deny it."""
    return ahead if len(ahead) <= _SHORT else re.split("[,:]", ahead)[-1]


def _part(text: str, begin: int, end: int) -> _Part | None:
    """What a stretch of a sentence says; `None` where what looks like a number is none."""
    part, done = _Part(frame=" ".join(re.findall(r"[^\W\d_]+", text[begin:end].lower()))), begin
    found = [one for one in NUMBER.finditer(text, begin, end) if not is_stuck(text, one.start())]
    seen: list[Decimal] = []
    calculates = False
    for i, number in enumerate(found):
        ahead, gap = (
            text[max(begin, number.start() - 2 * _SHORT) : number.start()],
            text[done : number.start()],
        )
        done = number.end()
        last = i + 1 == len(found)
        behind = text[done : end if last else found[i + 1].start()]
        joined = bool(seen and _OPERATOR.search(gap))
        value = value_of(number, not joined and _SIGN.search(gap) is not None)
        if value is None or len(f"{value:f}") > LONGEST:
            return None
        letters = re.match(r"[^\W\d_]*", behind)[0]
        calculates |= (
            joined
            or _undone(number, value)
            or _CHANGED_BEHIND.match(text, done) is not None
            or _CHANGED_AHEAD.search(text[max(0, number.start() - _SHORT) : number.start()])
            is not None
            or (0 < len(letters) < 3 and not _SHORT_UNIT.fullmatch(letters))
            or (last and re.search(r"[-+*/×÷^] ?$", behind) is not None)
        )
        seen.append(value)
        part.quotient |= number["below"] is not None
        if _ROUNDED.search(ahead):
            part.rounds = True
            part.numbers.append(value)
        elif _SPAN_AHEAD.search(ahead) and _SPAN_BEHIND.match(behind):
            pass  # no answer, and none is compared
        elif _COMPARED_AHEAD.search(ahead) or _COMPARED_BEHIND.match(behind):
            part.compared = True
        elif _MEASURES.search(ahead):
            part.measures.append(value)
        else:
            part.numbers.append(value)
    if calculates:
        return _Part(operands=seen, compared=part.compared, frame=part.frame)
    return part


def _undone(number: re.Match, value: Decimal) -> bool:
    """Whether a quotient or a power of ten is a calculation rather than a number."""
    if number["below"]:
        return value == value.to_integral_value() or "." in number[0]
    return bool(number["power"]) and not 1 <= value.scaleb(-int(number["power"])) < 10


def _calculated(chain: _Chain) -> bool:
    """Whether a chain carries a calculation out."""
    return any(part.operands for part in chain) and any(part.numbers for part in chain)


class _Said(NamedTuple):
    """A number that may be the answer: where it is the result of a calculation, and its words."""

    number: Decimal
    result: bool
    frame: str


def _one(chains: list[_Chain]) -> Decimal | None:
    """The one number that chains give as the answer.

    That is the result of the last calculation; then the others are the story's numbers, unless
    they stand alone or in the same words. Without a calculation it is the number that all chains
    agree on. A number with which a later chain calculates is a step on the way.
    """
    said: list[_Said] = []
    measures: set[Decimal] = set()
    undone = False
    for i, chain in enumerate(chains):
        steps = {number for later in chains[i + 1 :] for part in later for number in part.operands}
        calculates = any(part.operands for part in chain)
        plain = [part for part in chain if part.numbers or part.measures]
        if calculates and not plain:
            undone |= not (chain[0].frame and any(map(_calculated, chains[i + 1 :])))
        if calculates and any(part.compared for part in chain):
            continue
        for part in plain:
            numbers = part.numbers or (part.measures if calculates else [])
            if part.rounds and said and numbers and abs(said[-1].number - numbers[0]) < 1:
                said.pop()
            if calculates and part.frame:
                numbers = numbers[:1]
            said += [_Said(n, calculates, part.frame) for n in numbers if n not in steps]
            measures.update(n for n in part.measures if n not in steps)
    results = [one for one in said if one.result]
    if results:
        frames = ("", results[-1].frame)
        numbers = {
            one.number for one in said if one.result or one.frame in frames or "answer" in one.frame
        }
    else:
        numbers = {one.number for one in said} or measures
    return None if undone or len(numbers) != 1 else numbers.pop()
