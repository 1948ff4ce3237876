r"""One way of writing for what mathematicians write in several.

`level` gives LaTeX one notation, `split_at` cuts it outside of brackets, and `number_of` and
`words_of` say whether a piece is a plain number or words.
"""

import re
import unicodedata
from fractions import Fraction

LONGEST = 1_000  # characters; a longer answer is compared as a string
BRACE = re.compile(r"\\[\s\S]|[{}]")
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
OPEN, CLOSE = "\ue000", "\ue001"
ROW = "\ue002"  # the end of a matrix row, a double backslash
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
    rf"^(?:{OPEN}?(?:approximately|approx\.?|about|roughly|exactly|equals|"
    rf"(?i:(?:the )?(?:final )?answer(?: is|:))) ?{CLOSE}?|\\sim|=)\s*"
)
_ORDINAL = re.compile(rf"^(\d+) ?(?:\^ ?\{{? ?)?{OPEN}?(?:st|nd|rd|th){CLOSE}?\}}?$")
_REALS = re.compile(r"^(?:the )?(?:set of )?(?:all )?real(?: number)?s?$", re.IGNORECASE)


def level(text: str) -> str:
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
    text = text.replace(r"\$", "$").replace(r"\%", "%").replace("\\\\", ROW)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    for _ in range(4):
        text, changes = _TEXT.subn(_unwrapped, text)
        if not changes:
            break
    text = re.sub(r"\s+", " ", text).strip()
    if re.fullmatch(f"{OPEN}[^{OPEN}{CLOSE}]*{CLOSE}\\.?", text):
        text = text.replace(OPEN, "").replace(CLOSE, "")
    text = re.sub(r"^(\"|'|`)(.*)\1$", r"\2", text.strip(" *"))
    text = re.sub(r"(?<!\.)[.,;:\\]+$", "", text.strip()).strip()
    text = _ABOUT.sub("", text)
    text = re.sub(rf"^{OPEN}?(?:negative|minus) ?{CLOSE}? ?(?=[\d.])", "-", text)
    text = _ORDINAL.sub(r"\1", text)
    text = _REALS.sub(r"\\mathbb{R}", text)
    if len(text) > 1 and text[0] == "{" and closing_of(text, 0) == len(text) - 1:
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
    return f"{OPEN}{content}{CLOSE}"


TOKEN = re.compile(r"\\begin|\\end|\\[A-Za-z]+|\\[\s\S]|[A-Za-z]+|[\s\S]")
_UP = {"(", "[", "{", r"\{", r"\begin"}
_DOWN = {")", "]", "}", r"\}", r"\end"}


def closing_of(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed, by any bracket; -1 if nowhere."""
    depth = 0
    for match in TOKEN.finditer(text, start):
        depth += (match.group() in _UP) - (match.group() in _DOWN)
        if depth == 0:
            return match.start()
    return -1


def split_at(text: str, *separators: str) -> list[str]:
    """The text cut at the separators that stand outside every bracket."""
    pieces, depth, begin = [], 0, 0
    for match in TOKEN.finditer(text):
        token = match.group()
        depth += (token in _UP) - (token in _DOWN)
        if depth == 0 and token in separators:
            pieces.append(text[begin : match.start()].strip())
            begin = match.end()
    return [*pieces, text[begin:].strip()]


_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:angle|overline|widehat|hat|vec|measuredangle)\s*\{?\s*[A-Za-z]+\s*\}?)"
    r"(?:_\{?\w+\}?)?'*(?:\s*\([A-Za-z](?:\s*,\s*[A-Za-z])*\)|\s*\([A-Z ]+\))?"
)
_PRODUCT = re.compile(r"[a-z]{2}|abc|xyz")


def is_name(text: str) -> bool:
    """Whether a thing is called so: x, x_1, AB, f(x), area; but xy is a product."""
    return bool(_NAME.fullmatch(text)) and not _PRODUCT.fullmatch(text)


def has_letters(text: str) -> bool:
    """Whether there are unknowns: letters that are no command, word or constant."""
    return bool(
        re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+|(?<![A-Za-z])[ei](?![A-Za-z])", "", text))
    )


def squeezed(text: str) -> str:
    """A text without the spaces, marks and braces that change nothing."""
    text = re.sub(f"[{OPEN}{CLOSE}]", "", text)
    text = re.sub(r"([\^_]) ?\{ ?(\w) ?\}", r"\1\2", text)
    return re.sub(r"(?<!\d) | (?!\d)", "", text)


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


def number_of(text: str) -> tuple[Fraction, int] | None:
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
    if text[:1] == "(" and text[-1:] == ")" and closing_of(text, 0) == len(text) - 1:
        inside = number_of(text[1:-1])
        return inside and (sign * inside[0], inside[1])
    decimal = _DECIMAL.fullmatch(text)
    if decimal and (decimal[1] or decimal[2]):
        whole = re.sub("[, ]", "", decimal[1] or "0")
        places = decimal[2] or ""
        return sign * Fraction(int(whole + places), 10 ** len(places)), len(places)
    quotient = quotient_of(text)
    if quotient is not None:
        return sign * quotient, 0
    mixed = re.match(r"(\d{1,20}) ?(?=\\frac)|(\d{1,20}) (?=\d+ ?/ ?\d+$)", text)
    if mixed:
        part = quotient_of(text[mixed.end() :])
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


def quotient_of(text: str) -> Fraction | None:
    found = _QUOTIENT.fullmatch(text)
    if not found:
        return None
    above = int((found["a"] or found["b"] or found["e"]).replace(",", "") or 0)
    below = int((found["c"] or found["d"] or found["f"]).replace(",", "") or 0)
    return None if below == 0 else Fraction(-above if found[1] == "-" else above, below)


def numbers_agree(one: tuple[Fraction, int], other: tuple[Fraction, int]) -> bool:
    """By the rounding policy; each a value and its decimal places."""
    if one[0] == other[0]:
        return True
    # Of two decimals the longer may round to the shorter; a fraction has no end.
    places = min((side[1] for side in (one, other) if side[1]), default=0)
    small = min(abs(one[0]), abs(other[0]))
    if one[1] == other[1] or places < 6 or small * 10**places < 10**5:
        return False
    return abs(one[0] - other[0]) * 10**places < 1


def rounds_to(one: tuple[Fraction, int], other: tuple[Fraction, int]) -> bool:
    """Whether one of two numbers is the other rounded, as both sides of = or \\approx must be."""
    if one[0] == other[0]:
        return True
    places = [side[1] for side in (one, other) if side[1] or side[0].denominator == 1]
    off = abs(one[0] - other[0]) * 10 ** min(places, default=0)
    return bool(places) and off < (1 if min(places) else Fraction(1, 2))


def words_of(text: str) -> str:
    """A text answer without case, spacing and articles; "" for what is no text."""
    plain = re.sub(rf"[{OPEN}{CLOSE}\"'`]", "", text)
    if not re.fullmatch(r"[^\W\d_]{2,}(?:[ ,.\-]+[^\W\d_]+)*[.!]?", plain):
        return ""
    words = re.findall(r"[^\W\d_]+", plain.lower())
    return " ".join(word for word in words if word not in ("the", "a", "an")) or plain.lower()
