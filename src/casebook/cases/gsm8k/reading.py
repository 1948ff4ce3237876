r"""Which number does a text give as its answer?

Every figure of this case hangs on that question, and it is harder than it looks. A model writes
"10 - 4 = 6", "$1,024.50.", "**17** pens", `\boxed{\frac{3}{2}}` or "6 miles in 2 hours", and
carries on about its day. The first number of a text is usually one of the question's, the last
one often a unit's. So the rules stand here in writing, in `extract_number`, and are tried on all
reference solutions of GSM8K, with their final line and without.

No text is evaluated, nothing raises, and the time is linear in the text's length: each pattern
either starts at a fixed sign or repeats within bounds.
"""

import re
import unicodedata
from decimal import Decimal
from typing import Any

from casebook.rewards import completion_text

LONGEST = 300  # characters of one number; no answer to a word problem is near it
MOST = 100  # numbers of one sentence that are looked at, from its end
FAR = MOST * LONGEST  # characters of one sentence that are looked at, from its end

# 1,234,567 or 1 234 567, the Indian 12,34,567, or digits without a mark between thousands.
_DIGITS = (
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:[ ]\d{3})+(?![\w/-])"
    r"|\d{1,2}(?:,\d{2}){1,4},\d{3}(?!\d)|\d+)"
)
NUMBER = re.compile(
    rf"""(?P<hours>(?<![\d:.,])\d{{1,2}}):(?P<minutes>[0-5]\d)(?![\d:])
    |(?P<value>{_DIGITS}(?:\.\d+)?|(?<![\w.])\.\d+)
     (?:[ ]?(?:x|×|\*|·|\\times|\\cdot)[ ]?10[ ]?\^[ ]?\{{?(?P<power>-?\d{{1,2}})(?!\d)\}}?
       |[eE](?P<exponent>[+-]?\d{{1,2}})(?!\w)
       |[ ](?P<over>\d+)/(?P<under>\d+)
       |[ ]?/[ ]?(?P<below>\d+(?:\.\d+)?))?""",
    re.VERBOSE | re.ASCII,
)
ANSWER_TAG = re.compile(r"<(/?)answer\b[^<>]*>", re.IGNORECASE)
_BRACE = re.compile(r"\\f?box(?:ed)?\s*\{|\\[{}]|[{}]")
_PHRASE = re.compile(r"\banswer\b[^\n.!?\d]{0,40}?(?:\b(?:is|be)\b|:|=)", re.IGNORECASE)
# What may stand between a mark and its number.
_DRESS = re.compile(
    r"(?:[\s*_`\"'(\[\\:=}]|\b(?:about|approximately|exactly|only|just)\b|\b[a-z] ?=){0,12}"
    r"[$€£]?-?[$€£]? ?"
)
_CALCULATION = re.compile(
    r"(?: [A-Za-z]{1,20}){0,3}(?:[ $]*[-+*/×÷·=^] *[\d$(]|[ ]?\\(?:times|cdot|div)\b)"
)
_DIGIT = re.compile(r"\d")
_HEADING = re.compile(r"\d{1,2}[.)] +[A-Z*]")  # "#### 3. Then"
# Where a completion ends, whatever the model went on to write.
RUN_ON = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end_of_text)\|>|</s>"
    r"|\n *(?:Q|Question|Problem|Human|User) ?\d{0,3}:"
)
_ROUNDED = re.compile(
    r"\bround\w*(?: (?:up|down|off|it))* to [$€£]?(?=\d)(?!\d+ (?:decimal|significant|place))"
)
# Numbers that only measure something: "6 kilometres in 2 hours", "$24 for the 6 shirts".
_MEASURES = re.compile(
    r"\b(?:for|per|in|every|each|after|within|over|than|out of)(?: [a-z]+){0,2} $"
)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+|,? (?=(?:so|meaning|making|leaving|therefore|thus|hence)\b)"
)
_FRACTION = re.compile(
    r"(\d?) ?\\[dt]?frac ?(?:\{ ?(-?\d{1,99}) ?\} ?\{ ?(\d{1,99}) ?\}|(\d) ?(\d))"
)
_SAME_SIGN = {
    "-": "\N{MINUS SIGN}\N{EN DASH}\N{NON-BREAKING HYPHEN}\N{FULLWIDTH HYPHEN-MINUS}",
    " ": "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}",
    "/": "\N{FRACTION SLASH}\N{DIVISION SLASH}",
    ",": "\N{FULLWIDTH COMMA}\N{ARABIC THOUSANDS SEPARATOR}",
    ".": "\N{FULLWIDTH FULL STOP}\N{ARABIC DECIMAL SEPARATOR}",
    " 1/2": "½",
    " 1/3": "⅓",
    " 2/3": "⅔",
    " 1/4": "¼",
    " 3/4": "¾",
    " 1/5": "⅕",
    " 1/8": "⅛",
}


class _PlainSigns(dict[int, str]):
    """Code of a sign -> its one spelling; digits of all scripts become 0 to 9."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        self[code] = str(unicodedata.decimal(sign, sign))
        return self[code]


_PLAIN_SIGN = _PlainSigns(
    (ord(sign), plain) for plain, signs in _SAME_SIGN.items() for sign in signs
)
_LATEX = {"{,}": ",", r"\!": "", r"\,": " ", r"\;": " ", r"\$": "$", r"\%": "%", "<<": "; "}
_CURRENCY = "$€£¥₹"


def extract_number(text: Any) -> Decimal | None:
    r"""The number that a text gives as its answer, or `None`: what a careful reader would say.

    `text` is a string or a list of messages; anything else gives `None`.

    *Where* the answer stands, the first of these that there is:

    1. the last closed `<answer>` block, or what follows an `<answer>` that is never closed;
       where that holds no number, the text has no answer;
    2. the last balanced `\boxed{}`, if it holds a number;
    3. the number right behind the last `####`; a heading such as "#### 3. Then" is none;
    4. the number right behind the last "answer is"; behind "answer:", if the line has no other;
    5. the last sentence with a number; one begins anew at "so", "thus", "leaving" and the like.

    Without an answer block, the text ends where an end token or another "Question:" stands.

    *Which* of several numbers: in 3 and 4 the first. Else those of the last sentence with a
    number count, and of them the first behind the last `=` or `≈`, or what it is rounded to.
    Without such a sign the last one, but what stands in brackets or only measures something ("6
    miles in 2 hours") gives way to what does not.

    *What* a number is: digits of any script, with a sign, a currency, decimals, and thousands
    set apart by commas or blanks (`1,600`, `1 600`, `1{,}600`); a fraction, also mixed or in LaTeX
    (`1 1/2`, `1½`, `\frac{3}{2}`); `2e3` and `2 x 10^3`; a time in hours (`5:30` is 5.5). Of a
    calculator note `<<2*3=6>>` the result counts. Units are ignored: `96%` is 96, "3 million" is
    3, "50 cents" is 50. Number words are not read. A comma that sets no thousands apart
    separates two numbers. A minus is a sign unless it can be a subtraction, a range or a bullet.
    Digits that are stuck to a letter or in an exponent (`m2`, `cm^2`) count where there are no
    others. More than `LONGEST` characters, or a division by zero, are no number.

    >>> extract_number("<reasoning>12 pens at $2</reasoning><answer>It is $1,024.50.</answer>")
    Decimal('1024.50')
    >>> extract_number("She walks 10 - 4 = 6 miles in 2 hours.")
    Decimal('6')
    >>> extract_number("I do not know.") is None
    True
    """
    text = in_plain_signs(completion_text(text).strip())
    block = _answer_block(text)
    text = _until_the_end(text) if block is None else block.strip()
    for place in (_boxed, _behind_hashes, _behind_phrase, _last_sentence):
        number = place(text)
        if number is not None:
            return number
    return None


def in_plain_signs(text: str) -> str:
    """The text with one spelling of signs, digits, blanks, fractions and calculator notes."""
    if not text.isascii():
        text = text.translate(_PLAIN_SIGN)
    for sign, plain in _LATEX.items():
        text = text.replace(sign, plain)
    text = text.replace(">>", "; ")
    return _FRACTION.sub(_plain_fraction, text)


def _plain_fraction(found: re.Match) -> str:
    whole, above, below = found[1], found[2] or found[4], found[3] or found[5]
    return f"{whole} {above}/{below}" if whole else f"{above}/{below}"


def _answer_block(text: str) -> str | None:
    """The last closed answer block; where none is, what follows the last opening tag."""
    block = opened = None
    for tag in ANSWER_TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            block, opened = text[opened : tag.start()], None
    return text[opened:] if block is None and opened is not None else block


def _until_the_end(text: str) -> str:
    """What comes before an end token, or before another question, if a number does."""
    end = RUN_ON.search(text)
    return text[: end.start()] if end and re.search(r"\d", text[: end.start()]) else text


def _boxed(text: str) -> Decimal | None:
    """The number in the last balanced box, if it holds one."""
    opened: list[int | None] = []  # of each open brace: where the content of its box begins
    last = slice(0)
    for brace in _BRACE.finditer(text) if "\\" in text else ():
        if brace[0] == "}":
            start = opened.pop() if opened else None
            if start is not None:
                last = slice(start, brace.start())
        elif brace[0] == "{":
            opened.append(None)
        elif len(brace[0]) > 2:  # not an escaped brace
            opened.append(brace.end())
    return _last_sentence(text[last])


def _behind_hashes(text: str) -> Decimal | None:
    _, hashes, rest = text.rpartition("####")
    found = _right_behind(rest, 0) if hashes else None
    return None if found is None or _HEADING.match(rest.lstrip()) else found[0]


def _behind_phrase(text: str) -> Decimal | None:
    number = None
    for phrase in _PHRASE.finditer(text):
        found = _right_behind(text, phrase.end())
        # "answer:" may also open a whole solution
        if found and (phrase[0][-1] not in ":=" or not re.search(r"\d", _line(text, found[1]))):
            number = found[0]
    return number


def _line(text: str, start: int) -> str:
    """What follows on the line, as far as it matters."""
    return text[start : start + 200].partition("\n")[0]


def _right_behind(text: str, start: int) -> tuple[Decimal, int] | None:
    """The number that follows at once, unless it starts a calculation, and where it ends."""
    dress = _DRESS.match(text, start)
    found = NUMBER.match(text, dress.end())
    if found is None or _CALCULATION.match(text, found.end()):
        return None
    negative = "-" in text[max(start, dress.end() - 3) : dress.end()]
    value = value_of(found, negative)
    return None if value is None else (value, found.end())


def _last_sentence(text: str) -> Decimal | None:
    """The answer of the last sentence that holds a number."""
    for line in reversed(text.split("\n")):
        for sentence in reversed(_SENTENCE_END.split(line) if _DIGIT.search(line) else ()):
            number = _of_sentence(sentence, alone=sentence == text)
            if number is not None:
                return number
    return None


def _of_sentence(text: str, alone: bool) -> Decimal | None:
    """Rule *which*, and, of the numbers that may stand for it, the nearest that is one."""
    text = text[-FAR:]
    numbers = list(NUMBER.finditer(text))[-MOST:]
    numbers = [found for found in numbers if not is_stuck(text, found.start())] or numbers
    sign = max(text.rfind("="), text.rfind("≈"))
    behind = [found for found in numbers if found.start() > sign]
    if sign >= 0 and behind:
        rounded = _ROUNDED.search(text, sign)
        ranked = [found for found in behind if rounded and found.start() >= rounded.end()] + behind
    else:
        ranked = _by_weight(text, numbers)
    values = (value_of(found, _is_negative(text, found.start(), alone)) for found in ranked)
    return next((value for value in values if value is not None), None)


def _by_weight(text: str, numbers: list[re.Match]) -> list[re.Match]:
    """From the last number to the first; those in brackets and mere measures come at the end."""
    main, aside = [], []
    depth = done = 0
    for found in numbers:
        start = found.start()
        depth = max(0, depth + text.count("(", done, start) - text.count(")", done, start))
        done = start
        measures = main and _MEASURES.search(text[max(0, start - 40) : start])
        (aside if depth or measures else main).append(found)
    return main[::-1] + aside[::-1]


def is_stuck(text: str, start: int) -> bool:
    """Whether a number is part of a word, an exponent or an index: `m2`, `x^2`, `a_{2}`."""
    before = text[max(0, start - 2) : start]
    return before[-1:].isalpha() or before[-1:] in ("^", "_") or before in ("^{", "_{")


def _is_negative(text: str, start: int, alone: bool) -> bool:
    """Whether the number that starts here has a sign, and not a minus that subtracts."""
    before = text[max(0, start - 24) : start].rstrip(_CURRENCY)
    if before.lower().endswith("negative "):
        return True
    blank = before.endswith("- ")
    before = before.rstrip(" ") if blank else before
    if not before.endswith("-"):
        return False
    before = before[:-1]
    left = before.rstrip(" ")
    if blank:  # "= - 5" has a sign; "\n- 5" is a bullet, but not where nothing else is there
        return left[-1:] in ("=", ":", "(") or (not left and alone)
    if before == left and left:  # nothing between: "10-4", "GPT-4"
        return not (left[-1].isalnum() or left[-1] in ")]}%.,-_'\"")
    return not left or not (left[-1].isdigit() or left[-1] in ")]}%")


def value_of(found: re.Match, negative: bool) -> Decimal | None:
    """The number of a match of `NUMBER`; `None` where it is too long or divides by zero."""
    if len(found[0]) > LONGEST:
        return None
    if found["hours"]:
        value = Decimal(found["hours"]) + Decimal(found["minutes"]) / 60
    else:
        value = Decimal(found["value"].replace(",", "").replace(" ", ""))
        below = Decimal(found["under"] or found["below"] or 1)
        if not below:
            return None
        if found["over"]:
            value += Decimal(found["over"]) / below
        elif found["below"]:
            value /= below
        elif exponent := found["power"] or found["exponent"]:
            value = value.scaleb(int(exponent))
    return value.copy_negate() if negative else value
