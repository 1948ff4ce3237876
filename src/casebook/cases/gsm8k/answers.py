r"""Which number does a completion give as its answer?

One span is graded, chosen by its place, and the whole span must be a number:

1. the content of the last closed `<answer>` tag; without one
2. the content of the last `\boxed{}`; without one
3. what follows the last `####` on its line, or on the next if that is empty; a line without a
   number is a heading and no span.

"18 or 20" in a span is no answer, because it is not one number. Where a completion has no span, its
last number is the answer, as in common harnesses (the filter
`flexible-extract` of the task `gsm8k` in lm-evaluation-harness). `answers.yaml` shows by examples
the effect of these rules.
"""

import re
from collections import deque
from decimal import Decimal
from typing import Any

from casebook.rewards import completion_text, last_block

LONGEST = 300  # characters of a span or a number; no answer to a word problem is near it

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\N{MINUS SIGN}\N{EN DASH}\N{NON-BREAKING HYPHEN}", "-"),
        **dict.fromkeys("\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}", " "),
        **{"\N{FRACTION SLASH}": "/", "\N{ZERO WIDTH SPACE}": "", "\N{BYTE ORDER MARK}": ""},
    }
)
_FRACTION_SIGNS = str.maketrans({"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4"})
_BOX = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}(?!\d)")
# What a number may wear without being another one: calculator notes, LaTeX, Markdown, quotes.
_DRESS = re.compile(
    r"<<[^<>]*>>|\\(?:text(?:bf)?|math(?:rm|bf)|bold(?:symbol)?|boxed|left|right)(?![a-z])"
    r"|\\[()\[\],!; ]|(?<!\d)[\\{}*`\"'“”‘’]|[\\{}*`\"'“”‘’](?!\d)|~"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_CALCULATION = re.compile(r"(?:[-+*/×÷·⋅().\d\s$%=]|\b(?:[a-z]|times|cdot|div)\b)*", re.IGNORECASE)
# Words that are no unit, since they change the number or take it back.
_NO_UNIT = (
    r"(?:hundred|thousand|[mbtr]+illion|dozen|lakh|crore)s?|gross|k|bn|hal(?:f|ves)|pi|squared|cubed"
    r"|thirds?|(?:fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?|negative|double|never|no"
    r"|factorial|plus|minus|times|over|and|or|to|not|is|wrong|incorrect|false|nearly|maybe|perhaps"
    r"|probably|\w+n't"
)
_WORD = rf"(?!(?:{_NO_UNIT})\b)(?:[^\W\d_]{{2,}}|[mgshlcf])(?:\s*\^\s*[23]|[23²³])?"
_ONE_NUMBER = re.compile(
    rf"""(?P<sign>[$€£¥₹]\s?-|[-+]?\s*[$€£¥₹]?)\s*
    (?:(?P<number>\d{{1,3}}(?:[ ]\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)
      |(?:(?P<whole>\d+)\s+)?(?P<above>\d+)/(?P<below>\d+))
    \s*[$€£¥₹%°¢]?
    \s*(?:(?:square|cubic|more|fewer)\s)?(?:{_WORD})?(?:(?:\s?per\s|\s?an?\s|/){_WORD})?
    (?:\s(?:old|each|left|total|in\s(?:all|total)))?[\s$]*\.?""",
    re.VERBOSE | re.IGNORECASE,
)
# A minus is a sign where no number, word or bracket ends right before it.
_NUMBER = re.compile(
    r"((?<![\w)])(?<![\d)] )-[$€£]?|[$€£]-)?"
    r"((?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\d.])\.\d+)"
)
# Where a harness stops a model that goes on with another question.
_END = re.compile(r"<\|(?:im_end|eot_id|endoftext|end_of_text)\|>|</s>|\n\s{0,9}(?:Q|Question):")


def extract_number(completion: Any) -> Decimal | None:
    r"""The final number of a completion, or `None`, by the rules at the top of this file.

    Takes any input and never raises; time is linear in the length.

    Args:
        completion: a string or a list of messages; anything else has no number.

    >>> extract_number("<reasoning>12 pens</reasoning><answer>$1,024.50.</answer>")
    Decimal('1024.50')
    >>> extract_number("<answer>18 or 20</answer>") is None
    True
    >>> extract_number("#### 18 pens"), extract_number("Of 60 pens 18 are left.")
    (Decimal('18'), Decimal('18'))
    """
    text = completion_text(completion)
    span = _span(text)
    return _last_number(text) if span is None else one_number(span)


def one_number(span: str) -> Decimal | None:
    r"""The value of a span that is one number with allowed extras, else `None`.

    Allowed are a sign, a currency, `%`, commas or blanks between thousands, one unit, a full stop,
    Markdown, LaTeX, and the calculation that the number is the result of.

    >>> one_number("**12 + 5 = 17 pens**"), one_number(r"\$3\frac{1}{2}"), one_number("17 dozen")
    (Decimal('17'), Decimal('3.5'), None)
    """
    if len(span) > LONGEST:
        return None
    span = _FRACTION.sub(r" \1/\2", span.translate(_SIGNS | _FRACTION_SIGNS).replace("{,}", ","))
    span = _THOUSANDS.sub("", _DRESS.sub(" ", span)).strip().strip("$")
    calculation, _, result = span.rpartition("=")
    found = _ONE_NUMBER.fullmatch(result.strip())
    if found is None or not _CALCULATION.fullmatch(calculation):
        return None
    if found["number"]:
        value = Decimal(found["number"].replace(" ", ""))
    elif int(found["below"]):
        value = Decimal(found["whole"] or 0) + Decimal(found["above"]) / Decimal(found["below"])
    else:
        return None
    return value.copy_negate() if "-" in found["sign"] else value


def _span(text: str) -> str | None:
    """The span that is graded, if the text has one."""
    block = last_block(text, "answer")
    if block is not None:
        return block
    for start in [mark.start() for mark in re.finditer(r"\\boxed", text)][:-4:-1]:
        if box := _BOX.match(text, start):  # the last may be cut off
            return box[1]
    line = text.rpartition("####")[2].lstrip().partition("\n")[0]
    return line if "####" in text and re.search(r"[\d½⅓⅔¼¾]", line) else None


def _last_number(text: str) -> Decimal | None:
    text = _END.split(text, maxsplit=1)[0].translate(_SIGNS).replace("{,}", ",")
    last = deque(_NUMBER.finditer(text), maxlen=1)
    if not last or len(last[0][2]) > LONGEST:
        return None
    sign, digits = last[0].groups()
    value = Decimal(digits.replace(",", ""))
    return value.copy_negate() if sign else value
