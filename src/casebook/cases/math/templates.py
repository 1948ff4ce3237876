"""A generator of boxed-answer problems, small enough that arithmetic can be learned on a laptop.

MATH asks for one final answer in `\\boxed{}`, and compares it with a reference: an integer, a
fraction, a power, an expression. Two answers that mean the same may look different, so string
equality is not enough. The problems here have the same shape at a thousandth of the size: each
comes with its working, with the answer in LaTeX as MATH would write it, with the *other* forms a
solver might write just as well, and with the slip that pupils make on such a problem.

Every number is one token of the embedded model's tokenizer, so the numbers are kept small.
"""

# ruff: noqa: C408 (in a table, `dict(a=1)` reads better than a literal)

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import gcd
from typing import NamedTuple

SHARES = {"test": 0.29, "validation": 0.08, "train": 0.63}  # of every family's problems
LARGEST = 60  # of sums; some products of the times tables are larger
LARGEST_SHARE = 0.2  # of a split's rows from one family, so that none outweighs the others


class Problem(NamedTuple):
    """One generated problem with its solution and its ways to go wrong."""

    family: str  # the name of its generator
    key: str  # the problem without its wording; two with one key are the same problem
    text: str  # what is asked, LaTeX between dollars
    gold: str  # the answer in the one form MATH would print
    subject: str
    level: int  # 1 to 5, by how much has to be worked out
    work: tuple[str, ...]  # the lines of the careful working
    other: tuple[str, ...]  # further forms of the answer, each equivalent to `gold`
    calculation: str  # one that ends in the answer, as some write it into the box
    slip_work: tuple[str, ...]  # the lines of a working that goes wrong
    slip: str  # the wrong answer it comes to


@dataclass(frozen=True)
class _Family:
    """A kind of problem: templates, and the numbers that are put into them."""

    about: tuple[str, int]  # subject and level
    ranges: Mapping[str, Iterable]  # name -> values; every combination that is `kept` is a problem
    numbers: Callable[..., dict]  # what follows from a combination, by name
    text: str
    work: tuple[str, ...]
    slip_work: tuple[str, ...]
    slip: str = "{slip}"
    kept: Callable[..., bool] = lambda **_: True
    key: str = ""  # the names that stand in a problem's key, if not those of `ranges` in order
    gold: str = ""  # left out where the answer is the number called `answer`
    other: str = ""
    unknown: bool = False  # that number is the x of an equation
    calculation: str = ""  # left out where it is the last line of `work`
    reduced: Mapping = field(default_factory=dict)  # what differs where the fraction is reduced


@lru_cache(maxsize=1)
def problems() -> tuple[Problem, ...]:
    """All problems there are, family by family, in a fixed order."""
    return tuple(problem for name in _FAMILIES for problem in _of_family(name))


def _of_family(name: str) -> Iterator[Problem]:
    plain = _FAMILIES[name]
    reduced = replace(plain, **plain.reduced)
    for values in product(*plain.ranges.values()):
        chosen = dict(zip(plain.ranges, values, strict=True))
        if plain.kept(**chosen):
            numbers = chosen | plain.numbers(**chosen)
            yield _problem(name, reduced if numbers.get("reduced") else plain, numbers)


def _problem(name: str, family: _Family, numbers: dict) -> Problem:
    def lines(*templates: str) -> tuple[str, ...]:
        return tuple(template.format(**numbers) for template in templates)

    gold, *others = lines(family.gold, family.other)
    if not gold:
        gold, others = _answer(Fraction(numbers["answer"]), family.unknown)
    work = lines(*family.work)
    names = family.key.split() or family.ranges
    return Problem(
        family=name,
        key=" ".join([name, *(str(numbers[n]) for n in names)]),
        text=family.text.format(**numbers),
        gold=gold,
        subject=family.about[0],
        level=family.about[1],
        work=work,
        other=tuple(others),
        calculation=family.calculation.format(**numbers) or work[-1],
        slip_work=lines(*family.slip_work),
        slip=family.slip.format(**numbers),
    )


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


def _answer(value: Fraction, unknown: bool) -> tuple[str, tuple[str, ...]]:
    """A number as MATH would write it, and in other forms: decimal point, slash, display size."""
    gold = fraction(value)
    if value.denominator == 1:
        return gold, (f"x={gold}" if unknown else f"{gold}.0",)
    if unknown:
        return gold, (f"x={gold}", str(value))
    other = [str(value), rf"\dfrac{{{value.numerator}}}{{{value.denominator}}}"]
    if value.denominator in (2, 4, 5, 10):
        other.append(f"{float(value):g}")
    return gold, tuple(other)


def _quotient(above: int, below: int) -> dict[str, Fraction | bool]:
    """The numbers `answer` and `reduced` of a division."""
    answer = Fraction(above, below)
    return {"answer": answer, "reduced": answer.denominator < below}


_FAMILIES: Mapping[str, _Family] = {
    "sum": _Family(
        about=("Prealgebra", 1),
        ranges=dict(a=range(2, 20), b=range(2, 20)),
        kept=lambda a, b: a <= b and a % 10 + b % 10 >= 10,  # a carry, which gets forgotten
        numbers=lambda a, b: dict(answer=a + b, slip=a + b - 10),
        text="Compute ${a}+{b}$.",
        work=("{a}+{b}={answer}",),
        slip_work=("{a}+{b}={slip}",),
    ),
    "order_of_operations": _Family(
        about=("Prealgebra", 2),
        ranges=dict(a=range(1, 10), b=range(2, 9), c=range(2, 7)),
        kept=lambda a, b, c: (a + b) * c <= LARGEST,
        numbers=lambda a, b, c: dict(p=b * c, answer=a + b * c, s=a + b, slip=(a + b) * c),
        text=r"Compute ${a}+{b} \cdot {c}$.",
        work=("{b}*{c}={p}", "{a}+{p}={answer}"),
        slip_work=("{a}+{b}={s}",),
    ),
    "like_fractions": _Family(
        about=("Prealgebra", 2),
        ranges=dict(n=range(3, 13), a=range(1, 12), b=range(1, 12)),
        kept=lambda n, a, b: a <= b < n,
        numbers=lambda n, a, b: dict(s=a + b, twice=2 * n, **_quotient(a + b, n)),
        text=r"Compute $\frac{{{a}}}{{{n}}}+\frac{{{b}}}{{{n}}}$.",
        work=("{a}+{b}={s}",),
        calculation="{a}/{n}+{b}/{n}={s}/{n}",
        slip_work=("{a}+{b}={s}", "{n}+{n}={twice}"),
        slip=r"\frac{{{s}}}{{{twice}}}",
        reduced=dict(
            about=("Prealgebra", 4), work=("{a}+{b}={s}", "{s}/{n}={answer}"), calculation=""
        ),
    ),
    "shift": _Family(
        about=("Algebra", 1),
        ranges=dict(answer=range(2, 16), b=range(2, 14), sign="+-"),
        kept=lambda answer, b, sign: sign == "+" or answer > 2 * b,
        key="answer sign b",
        numbers=lambda answer, b, sign: (
            dict(c=answer + b, back="-", slip=answer + 2 * b)
            if sign == "+"
            else dict(c=answer - b, back="+", slip=answer - 2 * b)
        ),
        text="Solve $x{sign}{b}={c}$.",
        unknown=True,
        work=("{c}{back}{b}={answer}",),
        slip_work=("{c}{sign}{b}={slip}",),
    ),
    "scale": _Family(
        about=("Algebra", 2),
        ranges=dict(a=range(2, 11), b=range(1, 13)),
        kept=lambda a, b: b % a > 0,
        numbers=lambda a, b: dict(slip=b - a, **_quotient(b, a)),
        text="Solve ${a}x={b}$.",
        unknown=True,
        work=("x={b}/{a}",),
        calculation="x={b}/{a}={answer}",
        slip_work=("{b}-{a}={slip}",),
        reduced=dict(work=("x={b}/{a}", "x={answer}"), calculation="{b}/{a}={answer}"),
    ),
    "line": _Family(
        about=("Algebra", 5),
        ranges=dict(a=range(2, 7), right=range(2, 25), b=range(1, 9)),
        kept=lambda a, right, b: gcd(right, a) in (1, a),
        numbers=lambda a, right, b: dict(c=right + b, **_quotient(right, a)),
        text="Solve ${a}x+{b}={c}$.",
        unknown=True,
        work=("{a}x={right}", "x={answer}"),
        calculation="({c}-{b})/{a}={answer}",
        slip_work=("{c}-{b}={right}",),
        slip="{right}",
        reduced=dict(about=("Algebra", 3)),
    ),
    "expand": _Family(
        about=("Algebra", 2),
        ranges=dict(a=range(2, 10), b=range(1, 11), sign="+-"),
        key="a sign b",
        numbers=lambda a, b, sign: dict(p=a * b, minus=sign.strip("+")),
        text="Expand ${a}(x{sign}{b})$.",
        gold="{a}x{sign}{p}",
        other="{minus}{p}+{a}x",
        work=("{a}*{b}={p}",),
        calculation="{a}(x{sign}{b})={a}x{sign}{a}*{b}={a}x{sign}{p}",
        slip_work=("{a}*x={a}x",),
        slip="{a}x{sign}{b}",
    ),
    "collect": _Family(
        about=("Algebra", 3),
        ranges=dict(a=range(2, 7), c=range(2, 7), b=range(1, 7), d=range(1, 7)),
        key="a b c d",
        numbers=lambda a, b, c, d: dict(m=a + c, n=b + d),
        text="Simplify ${a}x+{b}+{c}x+{d}$.",
        gold="{m}x+{n}",
        other="{n}+{m}x",
        work=("{a}+{c}={m}", "{b}+{d}={n}"),
        calculation="{a}x+{c}x+{b}+{d}={m}x+{b}+{d}={m}x+{n}",
        slip_work=("{a}+{c}={m}",),
        slip="{m}x+{b}",
    ),
    "powers": _Family(
        about=("Intermediate Algebra", 4),
        ranges=dict(a=range(2, 9), b=range(2, 9), m=range(2, 6), n=range(2, 6)),
        kept=lambda a, b, m, n: a <= b and m <= n and m + n != m * n,
        numbers=lambda a, b, m, n: dict(p=a * b, s=m + n, wrong=m * n),
        text=r"Simplify ${a}x^{m} \cdot {b}x^{n}$.",
        gold="{p}x^{s}",
        other="{p}x^{{{s}}}",
        work=("{a}*{b}={p}", "{m}+{n}={s}"),
        calculation="{a}x^{m}*{b}x^{n}={a}*{b}x^{s}={p}x^{s}",
        slip_work=("{a}*{b}={p}", "{m}*{n}={wrong}"),
        slip="{p}x^{{{wrong}}}",
    ),
    "root_and_add": _Family(
        about=("Intermediate Algebra", 2),
        ranges=dict(a=range(2, 10), b=range(2, 13)),
        numbers=lambda a, b: dict(square=a * a, answer=a + b, slip=a * a + b),
        text=r"Compute $\sqrt{{{square}}}+{b}$.",
        work=("{a}*{a}={square}", "{a}+{b}={answer}"),
        slip_work=("{square}+{b}={slip}",),
    ),
    "remainder": _Family(
        about=("Number Theory", 3),
        ranges=dict(m=range(3, 10), n=range(4, 41)),
        kept=lambda m, n: m < n and n % m not in (0, n // m),
        key="n m",
        numbers=lambda m, n: dict(p=n // m * m, answer=n % m, slip=n // m),
        text="Find the remainder when ${n}$ is divided by ${m}$.",
        work=("{slip}*{m}={p}", "{n}-{p}={answer}"),
        slip_work=("{n}/{m}={slip}",),
    ),
    "chance": _Family(
        about=("Counting & Probability", 3),
        ranges=dict(a=range(1, 10), b=range(1, 10)),
        numbers=lambda a, b: dict(n=a + b, slip=fraction(Fraction(a, b)), **_quotient(a, a + b)),
        text="A bag holds ${a}$ red and ${b}$ blue balls. Find the chance of red.",
        work=("{a}+{b}={n}",),
        calculation="{a}/({a}+{b})={a}/{n}",
        slip_work=("{a}/{b}",),
        reduced=dict(
            about=("Counting & Probability", 4),
            work=("{a}+{b}={n}", "{a}/{n}={answer}"),
            calculation="",
        ),
    ),
    "outfits": _Family(
        about=("Counting & Probability", 1),
        ranges=dict(a=range(2, 10), b=range(2, 11)),
        kept=lambda a, b: a * b != a + b,
        numbers=lambda a, b: dict(answer=a * b, slip=a + b),
        text="Choose one of ${a}$ hats and one of ${b}$ coats. How many ways?",
        work=("{a}*{b}={answer}",),
        slip_work=("{a}+{b}={slip}",),
    ),
    "perimeter": _Family(
        about=("Geometry", 2),
        ranges=dict(a=range(2, 13), b=range(2, 13)),
        numbers=lambda a, b: dict(answer=2 * (a + b), slip=a + b),
        text="Find the perimeter of a rectangle with sides ${a}$ and ${b}$.",
        work=("{a}+{b}={slip}", "2*{slip}={answer}"),
        slip_work=("{a}+{b}={slip}",),
    ),
    "triangle": _Family(
        about=("Geometry", 3),
        ranges=dict(a=range(2, 10), b=range(2, 11)),
        numbers=lambda a, b: dict(slip=a * b, **_quotient(a * b, 2)),
        text="Find the area of a right triangle with legs ${a}$ and ${b}$.",
        work=("{a}*{b}={slip}", "{slip}/2={answer}"),
        calculation="{a}*{b}/2={answer}",
        slip_work=("{a}*{b}={slip}",),
        reduced=dict(calculation=""),
    ),
}
