r"""Whether two levelled answers are the same, part by part.

`taken_apart` takes an answer apart into lists, sets, tuples and intervals, unions, matrices and
what an equation says of a name, down to single values; `same_parts` compares them. What no rule
decides is asked: `ask` is a question to a computer algebra system, or a refusal.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from casebook.cases.math.hedges import NO_VALUE, SQUARED, is_answer
from casebook.cases.math.notation import (
    CLOSE,
    OPEN,
    ROW,
    TOKEN,
    closing_of,
    has_letters,
    is_name,
    level,
    number_of,
    numbers_agree,
    quotient_of,
    split_at,
    squeezed,
    words_of,
)

_MOST_PARTS = 64  # of a list or a matrix; the answers of MATH have ten at most


@dataclass(frozen=True)
class _Answer:
    """An answer taken apart: its kind, its parts, and the name it was given, if any."""

    kind: str  # value, list, set, tuple, union, matrix, equation
    text: str
    parts: tuple = ()
    ends: str = ""  # the brackets of a tuple or an interval
    name: str = ""  # x in x = 5


_COMPARISONS = ("<", ">", r"\le", r"\ge")
_MATRIX = re.compile(
    r"\\begin\{(?P<kind>[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr|]+\})?(?P<rows>.*)\\end\{(?P=kind)\}",
    re.DOTALL,
)


def taken_apart(text: str, depth: int = 0) -> _Answer:
    """Take a levelled answer apart."""
    text = text.strip()
    value = _Answer("value", text)
    if depth > 8 or not text:
        return value
    if number_of(text) is not None:
        return value
    named = split_at(text, r"\in")
    if len(named) == 2 and is_name(named[0]):
        return replace(taken_apart(named[1], depth + 1), name=named[0])
    members = split_at(text, "=")
    if len(members) > 1 and all(members) and r"\ne" not in text:
        rest = _read_list(text, depth)
        if rest is not None:
            return rest
        if any(token in text for token in ("<", ">", r"\le ", r"\ge ", r"\pmod")):
            return value
        if is_name(members[-1]) and not has_letters(members[0]):
            members.reverse()
        last = taken_apart(members[-1], depth + 1)
        if is_name(members[0]):
            if len(members[0]) == 1 and members[0] in re.findall(
                r"\\?[A-Za-z]+", "=".join(members[1:])
            ):
                return value  # x = 5x - 20 says nothing of x alone
            return replace(last, name=members[0]) if not last.name else last
        if not any(has_letters(member) for member in members[:-1]) and not has_letters(members[-1]):
            return last
        return _Answer("equation", text, (last,))
    interval = _inequality(text)
    if interval is not None:
        return interval
    union = split_at(text, r"\cup")
    if len(union) > 1 and all(union):
        return _Answer("union", text, tuple(taken_apart(piece, depth + 1) for piece in union))
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
            for row in re.split(ROW + r"(?:\[\w+\])?|\\cr(?![a-z])", matrix["rows"])
            if row.strip()
        ]
        cells = tuple(tuple(split_at(row, "&")) for row in rows)
        if len({len(row) for row in cells}) == 1:
            flat = tuple(taken_apart(cell, depth + 1) for row in cells for cell in row)
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
    text = re.sub(rf"^{OPEN}?(?:either|both){CLOSE}? ", "", text)
    pieces = [piece for piece in split_at(text, ",", ";", "and", "or") if piece]
    if len(pieces) < 2:
        return None
    named = [split_at(piece, "=") for piece in pieces]
    first = named[0]
    if len(first) == 2 and all(len(piece) == 1 for piece in named[1:]) and is_name(first[0]):
        rest = taken_apart(text[text.index("=") + 1 :], depth + 1)
        return replace(rest, name=first[0])
    parts = tuple(taken_apart(piece, depth + 1) for piece in pieces)
    if _OR.search(text) and all(same_parts(parts[0], part, lambda *_: False) for part in parts[1:]):
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
        pieces = split_at(inside, ",", ";")
        if len(pieces) == 2 and all(pieces) and set(ends) <= set("()[]"):
            return _Answer(
                "tuple", text, tuple(taken_apart(p, depth + 1) for p in pieces), ends=ends
            )
        return None
    if closing_of(text, 0) != len(text) - len(last):
        return None
    pieces = [piece for piece in split_at(inside, ",", ";") if piece]
    if first == r"\{" and last == r"\}":
        if r"\mid" in inside or "|" in inside or ":" in inside:
            return None
        parts = tuple(inner for piece in pieces for inner in _flat(taken_apart(piece, depth + 1)))
        return _Answer("set", text, parts) if pieces else _Answer("value", r"\emptyset")
    if first + last in ("()", "(]", "[)", "[]"):
        if len(pieces) > 1:
            parts = tuple(taken_apart(piece, depth + 1) for piece in pieces)
            return _Answer("tuple", text, parts, ends=first + last)
        if first + last == "()" and pieces and number_of(inside) is None:
            inner = taken_apart(inside, depth + 1)
            return inner if inner.kind != "value" else None
    return None


_ENDS = {"<": ("(", ")"), r"\le": ("[", "]")}


def _inequality(text: str) -> _Answer | None:
    r"""a < x \le b, x < b and a < x as intervals, for a single name x."""
    marks = [token for token in TOKEN.findall(text) if token in _COMPARISONS]
    if not marks or len(marks) > 2 or r"\ne" in text:
        return None
    members = split_at(text, *_COMPARISONS)
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
    elif is_name(members[0]):
        low, name, high = r"-\infty", *members
        ends = "(" + _ENDS[marks[0]][1]
    else:
        low, name, high = *members, r"\infty"
        ends = _ENDS[marks[0]][0] + ")"
    if not is_name(name) or has_letters(low + high):
        return None
    return _Answer("tuple", text, (_Answer("value", low), _Answer("value", high)), ends, name)


Ask = Callable[..., bool]  # gold, given and, as a third, how far apart two constants may be
# What makes a value a set, which an interval may equal
_OF_SETS = re.compile(r"[<>]|\\(?:mathbb|setminus|backslash|cap|cup|infty|ne|le|ge|emptyset|in)\b")


def same_parts(gold: _Answer, given: _Answer, ask: Ask) -> bool:
    """Whether two answers taken apart are the same."""
    if gold.name and given.name and squeezed(gold.name) != squeezed(given.name):
        if "(" in gold.name + given.name and {gold.name, given.name} & {"y"}:
            pass  # y = ... and f(x) = ...
        elif (
            gold.kind == given.kind == "value"
            and has_letters(gold.text)
            and has_letters(given.text)
        ):
            return ask(f"{gold.name}={gold.text}", f"{given.name}={given.text}")
        else:
            return False
    kinds = gold.kind, given.kind
    if kinds == ("value", "value"):
        return same_value(gold.text, given.text, ask)
    if max(len(gold.parts), len(given.parts)) > _MOST_PARTS:
        return False
    if "equation" in kinds:
        if kinds == ("equation", "equation"):
            return ask(gold.text, given.text)
        if given.kind == "equation" and not gold.name:
            value = given.parts[0]
            to_solve = re.match(r"-?[\d.]+ ?\\?[A-Za-z] ?=", given.text)
            return value.text != "0" and not to_solve and same_parts(gold, value, ask)
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


def _in_order(gold: tuple[_Answer, ...], given: tuple[_Answer, ...], ask: Ask) -> bool:
    return len(gold) == len(given) and all(
        same_parts(one, other, ask) for one, other in zip(gold, given, strict=True)
    )


def _in_any_order(gold: tuple[_Answer, ...], given: tuple[_Answer, ...], ask: Ask) -> bool:
    left = list(given)
    if len(gold) != len(left):
        return False
    for part in gold:
        match = next((other for other in left if other == part), None)
        match = match or next((other for other in left if same_parts(part, other, ask)), None)
        if match is None:
            return False
        left.remove(match)
    return True


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
    rf"(?P<head>.*\S) ?{OPEN}(?P<unit>[^{OPEN}{CLOSE}]*){CLOSE}"
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


def without_unit(text: str, reference: bool = False) -> tuple[str, str]:
    """A value without its unit, and the unit: "" when there is none.

    A unit is a known unit; behind a number of the reference answer it is any word.
    """
    money = _CURRENCY.fullmatch(text)
    if money:
        rest, unit = without_unit(money[1] + money[3], reference)
        return (rest, unit) if unit else (rest, _UNIT_OF.get(money[2].rstrip("."), ""))
    degrees = re.fullmatch(rf"(.*\S) ?\^\\circ ?{OPEN}?([CFK]?){CLOSE}?", text)
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
    marked = OPEN in text
    if OPEN in head:
        head, inner = without_unit(head, reference)
        words = f"{inner} {words}" if inner else words
    words = SQUARED.sub("", words)
    known = [
        _UNIT_OF.get(word, _UNIT_OF.get(word.lower()) if len(word) > 1 else None)
        for word in re.split(r"[\s./]+", words)
        if word
    ]
    if _NOT_A_UNIT.search(words) or (not marked and has_letters(head)):
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
    if reference and long and number_of(head) is not None and not NO_VALUE.search(words):
        return head, ""
    return text, ""


_PERCENT = re.compile(
    rf"(.*[^\s%]) ?(?:%|{OPEN}?\b(?:percent|per cent|percentage|pct)\b{CLOSE}?)", re.DOTALL
)
_BASE = re.compile(
    r"\(?(?P<digits>[0-9][0-9A-Fa-f ,.]*)\)? ?"
    rf"(?:_ ?\{{? ?\(?{OPEN}?(?:base )?(?P<sub>\w+){CLOSE}?\)? ?\}}?"
    rf"|[ {OPEN}(]+base ?(?P<named>\d+|[a-z]+)[ {CLOSE})]*)"
)
_BASE_NAMES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10)  # noqa: C408
_CHOICE = re.compile(
    rf"[{OPEN}(\[]*(?:(?i:option|choice|answer) )?\(? ?(?P<letter>[A-J]) ?[)\]{CLOSE}]*[.:)]?"
)
_LABELLED = re.compile(
    rf"[{OPEN} ]*\(?(?P<letter>[A-J])(?:\)|\. )[{CLOSE} ]*"
    rf"(?!.*(?:\b[A-J]|\bor|\band)\b|[{OPEN} ]*(?:is |\\|[,;/|&+^!*=_(]))(?P<rest>\S.*)"
)
_CLOCK = re.compile(rf"(\d+(?: ?: ?\d+)+)[ {OPEN}]*([ap]\.? ?m\.?)?[ {CLOSE}]*", re.IGNORECASE)


def same_value(gold: str, given: str, ask: Ask) -> bool:
    """Whether two levelled single values are the same, by the policies and then by `ask`."""
    numbers = number_of(gold), number_of(given)
    if gold == given:
        return True
    if squeezed(gold) == squeezed(given) != "":
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
        if same_value(meant, said, ask):
            return True
        if all(percents):
            return False
        if percents[0]:
            return same_value(_hundredth(meant), said, ask)
        return same_value(meant, _hundredth(said), ask)
    (meant, unit), (said, other_unit) = without_unit(gold, True), without_unit(given)
    if unit and other_unit and unit != other_unit:
        return False
    if (meant, said) != (gold, given):
        return same_value(meant, said, ask)
    if all(numbers):
        return numbers_agree(*numbers)
    words = words_of(gold), words_of(given)
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
    fraction = quotient_of(given if found[0] else gold)  # 3:2 is 3/2, and 4:1 is not 4
    return bool(fraction and len(parts) == 2 and parts[1] and Fraction(*parts) == fraction)


def _hundredth(text: str) -> str:
    number = number_of(text)
    if number is None:
        return rf"\frac{{{text}}}{{100}}"
    return f"{number[0] / 100}"


def alike(one: str, other: str) -> bool:
    """Whether two answers are the same as far as can be told without a worker."""
    if one.strip() == other.strip():
        return True
    if max(len(one), len(other)) > 200:
        return False
    try:
        return same_parts(taken_apart(level(one)), taken_apart(level(other)), lambda *_: False)
    except (RecursionError, ArithmeticError, ValueError):
        return False
