"""math-verify in a process that can be killed (`casebook.killable` says how, and why).

The keeper imports math-verify once; a question that takes too long is answered "no". Texts are read
as LaTeX and never run. This file is also the keeper's program, and runs as a script, alone.
"""

import re
from functools import lru_cache

from casebook.killable import Ended, Keeper, keep

CPU_SECONDS = 1.0  # of processor time for one question; ordinary ones take a hundredth
MEMORY = 2 << 30  # bytes that an answer may take


# The side that asks

_keeper = Keeper(__file__)


def equal(gold: str, predictions: list[str]) -> bool:
    """Whether each of the LaTeX texts equals the gold one; no for what takes too long."""
    return bool(_ask("equal", gold, predictions))


@lru_cache(maxsize=10_000)  # a reward, its log and an evaluation ask about one text each
def extracted(text: str) -> str | None:
    """What math-verify takes for the answer of a text without a box."""
    return _ask("extracted", text)


def _ask(*question: object) -> bool | str | None:
    try:
        return _keeper.ask(*question)
    except Ended:
        return None
    except OSError:
        from casebook.case import CasebookError  # not at the top: the keeper has no use for it

        raise CasebookError(
            "answers cannot be compared: math-verify is not installed or does not start"
        ) from None


# The other side: what follows runs in the other processes only


def _keep() -> None:
    """Import and build what the first use builds, then answer."""
    import logging

    import math_verify.parser

    logging.disable()
    # A plain expression is kept as it was found: the library would read it by Python's `eval`.
    math_verify.parser.parse_expr_cached = str
    _equal("x^2+2x+1", ["(x+1)^2"])
    keep(_answer, CPU_SECONDS, MEMORY)


def _answer(name: str, *arguments) -> bool | str | None:
    try:
        return (_equal if name == "equal" else _extracted)(*arguments)
    except MemoryError:
        raise
    except Exception:  # whatever a computer algebra system may stumble over
        return None


def _equal(gold: str, predictions: list[str]) -> bool:
    import math_verify

    meant, options = _read(gold), {"allow_set_relation_comp": True, "timeout_seconds": None}
    for given in map(_read, predictions):
        if not meant or not given or _differ(meant[0], given[0]):
            return False
        if not math_verify.verify(meant, given, **options):
            return False
    return True


def _read(text: str) -> list:
    import math_verify
    import sympy

    # The grammar adds numbers that stand side by side, as in 3 1/2: here these are a product, or
    # nothing. Nor may it look for a number inside what it cannot read.
    if re.search(r"(?<![\\A-Za-z}_^])\d+ (?=\d)|(?<![_^}\w\\])\d+ ?\\?\{ ?\d", text):
        return []
    text = re.sub(r"((?<![\d._^])\d+|\)) ?(?=[(\[]|\\[dt]?binom|(?<=\)) ?\d)", r"\1\\cdot ", text)
    # Units are taken off before, by rules that know a metre from a variable m.
    rules = math_verify.LatexNormalizationConfig(malformed_operators=True, nits=True)
    grammar = math_verify.LatexExtractionConfig(
        try_extract_without_anchor=False, boxed_match_priority=0, normalization_config=rules
    )
    boxed = rf"\boxed{{{text}}}"
    read = math_verify.parse(boxed, [grammar], fallback_mode="no_fallback", parsing_timeout=None)
    # The grammar takes the imaginary unit for an unknown.
    units = {s: sympy.I for one in read for s in one.free_symbols if s.name == "i"}
    return [one.xreplace(units) for one in read] if units else read


def _differ(one, other) -> bool:
    """Whether two exact constants do: math-verify takes all very small numbers for equal."""
    import sympy

    sides = [side for side in (one, other) if isinstance(side, sympy.Expr) and side.is_number]
    if len(sides) < 2 or any(side.atoms(sympy.Float) for side in sides):
        return False
    a, b = (side.doit().evalf(30) for side in sides)
    return bool(a.is_real and b.is_real and abs(a - b) > abs(a + b) * sympy.Float("1e-25", 30))


def _extracted(text: str) -> str | None:
    import math_verify

    found = math_verify.parse(text, parsing_timeout=None)
    return next((one for one in reversed(found) if isinstance(one, str)), None)


if __name__ == "__main__":
    _keep()
