"""A generator of boxed-answer problems, small enough that arithmetic can be learned on a laptop.

MATH asks for one final answer in `\\boxed{}`, and compares it with a reference: an integer, a
fraction, a power, an expression. Two answers that mean the same may look different, so string
equality is not enough. The problems here have the same shape at a thousandth of the size: each
comes with its working, with the answer in LaTeX as MATH would write it, with the *other* forms a
solver might write just as well, and with the slip that pupils make on such a problem.

Every number is one token of the embedded model's tokenizer, so the numbers are kept small.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

LEVELS = (1, 2, 3, 4, 5)
SUBJECTS = (
    "Prealgebra",
    "Algebra",
    "Intermediate Algebra",
    "Number Theory",
    "Counting & Probability",
    "Geometry",
)
SHARES = {"test": 0.29, "validation": 0.08, "train": 0.63}  # of every family's problems
LARGEST = 60  # of sums; some products of the times tables are larger
LARGEST_SHARE = 0.2  # of a split's rows from one family, so that none outweighs the others


@dataclass(frozen=True)
class Problem:
    """One generated problem with its solution and its ways to go wrong.

    Attributes:
        family: the name of its generator.
        key: the problem without its wording; two with one key are the same problem.
        text: what is asked, LaTeX between dollars.
        gold: the answer in the one form MATH would print.
        subject: one of `SUBJECTS`.
        level: one of `LEVELS`, by how much has to be worked out.
        work: the lines of the careful working.
        other: further forms of the answer, each equivalent to `gold` and not equal to it.
        calculation: a calculation that ends in the answer, as some write it into the box.
        slip_work: the lines of a working that goes wrong.
        slip: the wrong answer it comes to.
    """

    family: str
    key: str
    text: str
    gold: str
    subject: str
    level: int
    work: tuple[str, ...]
    other: tuple[str, ...]
    calculation: str
    slip_work: tuple[str, ...]
    slip: str


_FAMILIES: dict[str, tuple[str, Callable[[], Iterator[tuple]]]] = {}


def _family(subject: str):
    """Register a generator of (numbers, level, text, gold, work, other, calculation, slip ...)."""

    def register(function: Callable[[], Iterator[dict]]):
        _FAMILIES[function.__name__.strip("_")] = (subject, function)
        return function

    return register


@lru_cache(maxsize=1)
def problems() -> tuple[Problem, ...]:
    """All problems there are, family by family, in a fixed order."""
    found = []
    for family, (subject, generate) in _FAMILIES.items():
        made: dict[str, Problem] = {}
        for numbers, fields in generate():
            key = f"{family} {' '.join(map(str, numbers))}"
            if key not in made:
                made[key] = Problem(family=family, key=key, subject=subject, **fields)
        found += list(made.values())
    return tuple(found)


@lru_cache(maxsize=1)
def pools() -> dict[str, tuple[Problem, ...]]:
    """Split -> its problems. A problem's key alone decides, so no two splits share one."""
    made: dict[str, list[Problem]] = {split: [] for split in SHARES}
    for problem in problems():
        made[split_of(problem.key)].append(problem)
    return {split: tuple(found) for split, found in made.items()}


def split_of(key: str) -> str:
    """The split that a problem's key falls into.

    >>> split_of("sum 3 9") == split_of("sum 3 9")
    True
    """
    place = digest(key) / 2**64
    for split, share in SHARES.items():
        if place < share:
            return split
        place -= share
    return "train"


def digest(text: str) -> int:
    """A hash of a text, from 0 to 2**64 - 1, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


# How numbers and answers are written


def fraction(value: Fraction) -> str:
    """LaTeX of a number: an integer, or a reduced `\\frac`.

    >>> fraction(Fraction(6, 8)), fraction(Fraction(6, 3))
    ('\\\\frac{3}{4}', '2')
    """
    if value.denominator == 1:
        return str(value.numerator)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _slash(value: Fraction) -> str:
    return str(value)


def _forms(value: Fraction) -> tuple[str, ...]:
    """Other ways to write a number: with a decimal point, a slash, or in display size."""
    if value.denominator == 1:
        return (f"{value.numerator}.0",)
    forms = [_slash(value), rf"\dfrac{{{value.numerator}}}{{{value.denominator}}}"]
    if value.denominator in (2, 4, 5, 10):
        forms.append(f"{float(value):g}")
    return tuple(forms)


def _number(value: int | Fraction) -> dict:
    value = Fraction(value)
    return {"gold": fraction(value), "other": _forms(value)}


def _unknown(value: int | Fraction) -> dict:
    """The answer to an equation: also with the unknown in front."""
    value = Fraction(value)
    form = f"x={fraction(value)}"
    return {"gold": fraction(value), "other": (form, *_forms(value)[:1] * (value.denominator > 1))}


# Prealgebra


@_family("Prealgebra")
def _sum():
    for a in range(2, 20):
        for b in range(a, 20):
            if a % 10 + b % 10 >= 10:  # a carry, which is what gets forgotten
                yield (
                    (a, b),
                    {
                        "text": f"Compute ${a}+{b}$.",
                        "level": 1,
                        **_number(a + b),
                        "work": (f"{a}+{b}={a + b}",),
                        "calculation": f"{a}+{b}={a + b}",
                        "slip_work": (f"{a}+{b}={a + b - 10}",),
                        "slip": str(a + b - 10),
                    },
                )


@_family("Prealgebra")
def _order_of_operations():
    for a in range(1, 10):
        for b in range(2, 9):
            for c in range(2, 7):
                if (a + b) * c > LARGEST:
                    continue
                yield (
                    (a, b, c),
                    {
                        "text": rf"Compute ${a}+{b} \cdot {c}$.",
                        "level": 2,
                        **_number(a + b * c),
                        "work": (f"{b}*{c}={b * c}", f"{a}+{b * c}={a + b * c}"),
                        "calculation": f"{a}+{b * c}={a + b * c}",
                        "slip_work": (f"{a}+{b}={a + b}",),
                        "slip": str((a + b) * c),
                    },
                )


@_family("Prealgebra")
def _like_fractions():
    for n in range(3, 13):
        for a in range(1, n):
            for b in range(a, n):
                total = Fraction(a + b, n)
                reduced = total.denominator != n
                yield (
                    (n, a, b),
                    {
                        "text": rf"Compute $\frac{{{a}}}{{{n}}}+\frac{{{b}}}{{{n}}}$.",
                        "level": 4 if reduced else 2,
                        **_number(total),
                        "work": (
                            f"{a}+{b}={a + b}",
                            *([f"{a + b}/{n}={_slash(total)}"] * reduced),
                        ),
                        "calculation": f"{a + b}/{n}={_slash(total)}"
                        if reduced
                        else f"{a}/{n}+{b}/{n}={a + b}/{n}",
                        "slip_work": (f"{a}+{b}={a + b}", f"{n}+{n}={2 * n}"),
                        "slip": rf"\frac{{{a + b}}}{{{2 * n}}}",
                    },
                )


# Algebra


@_family("Algebra")
def _shift():
    for x in range(2, 16):
        for b in range(2, 14):
            for sign, c in (("+", x + b), ("-", x - b)):
                back = "-" if sign == "+" else "+"
                wrong = c + b if sign == "+" else c - b
                if c > 0 and wrong > 0:
                    yield (
                        (x, sign, b),
                        {
                            "text": f"Solve $x{sign}{b}={c}$.",
                            "level": 1,
                            **_unknown(x),
                            "work": (f"{c}{back}{b}={x}",),
                            "calculation": f"{c}{back}{b}={x}",
                            "slip_work": (f"{c}{sign}{b}={wrong}",),
                            "slip": str(wrong),
                        },
                    )


@_family("Algebra")
def _scale():
    for a in range(2, 11):
        for b in range(1, 13):
            x = Fraction(b, a)
            if x.denominator > 1:
                yield (
                    (a, b),
                    {
                        "text": f"Solve ${a}x={b}$.",
                        "level": 2,
                        **_unknown(x),
                        "work": (f"x={b}/{a}", *([f"x={_slash(x)}"] * (x.denominator < a))),
                        "calculation": f"{b}/{a}={_slash(x)}"
                        if x.denominator < a
                        else f"x={b}/{a}={_slash(x)}",
                        "slip_work": (f"{b}-{a}={b - a}",),
                        "slip": str(b - a),
                    },
                )


@_family("Algebra")
def _line():
    for a in range(2, 7):
        for right in range(2, 25):
            x = Fraction(right, a)
            if x.denominator not in (1, a):
                continue
            for b in range(1, 9):
                c = right + b
                yield (
                    (a, right, b),
                    {
                        "text": f"Solve ${a}x+{b}={c}$.",
                        "level": 3 if x.denominator == 1 else 5,
                        **_unknown(x),
                        "work": (f"{a}x={right}", f"x={_slash(x)}"),
                        "calculation": f"({c}-{b})/{a}={_slash(x)}",
                        "slip_work": (f"{c}-{b}={right}",),
                        "slip": str(right),
                    },
                )


@_family("Algebra")
def _expand():
    for a in range(2, 10):
        for b in range(1, 11):
            for sign in "+-":
                yield (
                    (a, sign, b),
                    {
                        "text": f"Expand ${a}(x{sign}{b})$.",
                        "level": 2,
                        "gold": f"{a}x{sign}{a * b}",
                        "other": (f"{'-' * (sign == '-')}{a * b}+{a}x",),
                        "work": (f"{a}*{b}={a * b}",),
                        "calculation": f"{a}(x{sign}{b})={a}x{sign}{a}*{b}={a}x{sign}{a * b}",
                        "slip_work": (f"{a}*x={a}x",),
                        "slip": f"{a}x{sign}{b}",
                    },
                )


@_family("Algebra")
def _collect():
    for a in range(2, 7):
        for c in range(2, 7):
            for b in range(1, 7):
                for d in range(1, 7):
                    yield (
                        (a, b, c, d),
                        {
                            "text": f"Simplify ${a}x+{b}+{c}x+{d}$.",
                            "level": 3,
                            "gold": f"{a + c}x+{b + d}",
                            "other": (f"{b + d}+{a + c}x",),
                            "work": (f"{a}+{c}={a + c}", f"{b}+{d}={b + d}"),
                            "calculation": f"{a}x+{c}x+{b}+{d}={a + c}x+{b}+{d}={a + c}x+{b + d}",
                            "slip_work": (f"{a}+{c}={a + c}",),
                            "slip": f"{a + c}x+{b}",
                        },
                    )


# Intermediate algebra


@_family("Intermediate Algebra")
def _powers():
    for a in range(2, 9):
        for b in range(a, 9):
            for m in range(2, 6):
                for n in range(m, 6):
                    if (m, n) != (2, 2):
                        p = a * b
                        yield (
                            (a, b, m, n),
                            {
                                "text": rf"Simplify ${a}x^{m} \cdot {b}x^{n}$.",
                                "level": 4,
                                "gold": f"{p}x^{m + n}",
                                "other": (f"{p}x^{{{m + n}}}",),
                                "work": (f"{a}*{b}={p}", f"{m}+{n}={m + n}"),
                                "calculation": f"{a}x^{m}*{b}x^{n}={a}*{b}x^{m + n}={p}x^{m + n}",
                                "slip_work": (f"{a}*{b}={p}", f"{m}*{n}={m * n}"),
                                "slip": f"{p}x^{{{m * n}}}",
                            },
                        )


@_family("Intermediate Algebra")
def _root_and_add():
    for a in range(2, 10):
        for b in range(2, 13):
            yield (
                (a, b),
                {
                    "text": rf"Compute $\sqrt{{{a * a}}}+{b}$.",
                    "level": 2,
                    **_number(a + b),
                    "work": (f"{a}*{a}={a * a}", f"{a}+{b}={a + b}"),
                    "calculation": f"{a}+{b}={a + b}",
                    "slip_work": (f"{a * a}+{b}={a * a + b}",),
                    "slip": str(a * a + b),
                },
            )


# Number theory


@_family("Number Theory")
def _remainder():
    for m in range(3, 10):
        for n in range(m + 1, 41):
            q, r = divmod(n, m)
            if r and q != r:
                yield (
                    (n, m),
                    {
                        "text": f"Find the remainder when ${n}$ is divided by ${m}$.",
                        "level": 3,
                        **_number(r),
                        "work": (f"{q}*{m}={q * m}", f"{n}-{q * m}={r}"),
                        "calculation": f"{n}-{q * m}={r}",
                        "slip_work": (f"{n}/{m}={q}",),
                        "slip": str(q),
                    },
                )


# Counting & probability


@_family("Counting & Probability")
def _chance():
    for a in range(1, 10):
        for b in range(1, 10):
            n, chance = a + b, Fraction(a, a + b)
            reduced = chance.denominator < n
            yield (
                (a, b),
                {
                    "text": f"A bag holds ${a}$ red and ${b}$ blue balls. Find the chance of red.",
                    "level": 4 if reduced else 3,
                    **_number(chance),
                    "work": (f"{a}+{b}={n}", *([f"{a}/{n}={_slash(chance)}"] * reduced)),
                    "calculation": f"{a}/{n}={_slash(chance)}"
                    if reduced
                    else f"{a}/({a}+{b})={a}/{n}",
                    "slip_work": (f"{a}/{b}",),
                    "slip": fraction(Fraction(a, b)),
                },
            )


@_family("Counting & Probability")
def _outfits():
    for a in range(2, 10):
        for b in range(2, 11):
            if a * b != a + b:
                yield (
                    (a, b),
                    {
                        "text": f"Choose one of ${a}$ hats and one of ${b}$ coats. How many ways?",
                        "level": 1,
                        **_number(a * b),
                        "work": (f"{a}*{b}={a * b}",),
                        "calculation": f"{a}*{b}={a * b}",
                        "slip_work": (f"{a}+{b}={a + b}",),
                        "slip": str(a + b),
                    },
                )


# Geometry


@_family("Geometry")
def _perimeter():
    for a in range(2, 13):
        for b in range(2, 13):
            s = a + b
            yield (
                (a, b),
                {
                    "text": f"Find the perimeter of a rectangle with sides ${a}$ and ${b}$.",
                    "level": 2,
                    **_number(2 * s),
                    "work": (f"{a}+{b}={s}", f"2*{s}={2 * s}"),
                    "calculation": f"2*{s}={2 * s}",
                    "slip_work": (f"{a}+{b}={s}",),
                    "slip": str(s),
                },
            )


@_family("Geometry")
def _triangle():
    for a in range(2, 10):
        for b in range(2, 11):
            p = a * b
            area = Fraction(p, 2)
            yield (
                (a, b),
                {
                    "text": f"Find the area of a right triangle with legs ${a}$ and ${b}$.",
                    "level": 3,
                    **_number(area),
                    "work": (f"{a}*{b}={p}", f"{p}/2={_slash(area)}"),
                    "calculation": f"{p}/2={_slash(area)}"
                    if area.denominator == 1
                    else f"{a}*{b}/2={_slash(area)}",
                    "slip_work": (f"{a}*{b}={p}",),
                    "slip": str(p),
                },
            )
