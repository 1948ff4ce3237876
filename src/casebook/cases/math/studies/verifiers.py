r"""Six verifiers side by side: what each pays, what each misses, and how long it takes.

A verifier is a function of a prediction and a gold answer that says whether they agree. The ways
published so far differ in where they look and in what they forgive:

- `string_match`: the last box, character by character. The MATH write-up's reward.
- `hendrycks`: the same after normalising the LaTeX text, as the authors of MATH did
  (Hendrycks et al. 2021, the code beside "Measuring Mathematical Problem Solving").
- `minerva`: several places to look, Minerva's closing phrase among them (Lewkowycz et al. 2022,
  appendix D), and a symbolic difference of zero; as the flexible verifier of open-instruct does.
- `math_verify_bare` and `math_verify_boxed`: the library on the texts as they are, and with each
  side in a box of its own.
- `verify.equivalent`: ours.

All but the library's two are written anew from these descriptions. What they said about all pairs
and about MATH-500 is the committed record, `results/math/data/verifiers.json`.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from casebook import paths
from casebook.cases.math import worker
from casebook.cases.math.verify import equivalent, last_boxed

PAIRS = paths.DATA / "math" / "pairs.csv"

Verifier = Callable[[str, str], bool]

# Texts that have stopped a verifier, or could. None of them is a right answer to anything.
HOSTILE: Mapping[str, str] = {
    "power tower": "10^{10^{10}}",
    "bare tower": "9^9^9^9",
    "huge factorial": "99999999!",
    "factorial of a factorial": "((9!)!)!",
    "huge binomial": r"\binom{1000000}{500000}",
    "long sum": r"\sum_{k=1}^{100000000} \frac{1}{k^3}",
    "double integral": r"\int_0^1 \int_0^1 e^{-x^2 y^2}\sin(xy) \, dx \, dy",
    "exponential tower": "e^{e^{e^{e^{e}}}}",
    "400 brackets": "(" * 400 + "1" + ")" * 400,
    "100,000 braces": "{" * 100_000 + "1" + "}" * 100_000,
    "nested boxes": r"\boxed{" * 5_000 + "1" + "}" * 5_000,
    "boxes never closed": r"\boxed{" * 100_000,
    "a million dollars": "$" * 1_000_000,
    "a million digits": "1" * 1_000_000,
    "a million backslashes": "\\" * 1_000_000,
    "null bytes": "\x00" * 100,
    "half a character": "\ud800",
    "code": "__import__('os').system('echo paid')",
    "code in a box": r"\boxed{\text{__import__('os').abort()}}",
    "a division by zero": r"\frac{1}{0}",
}


def string_match(prediction: str, gold: str) -> bool:
    r"""The last box, or the text where there is none, equal to the gold one's.

    >>> string_match(r"so \boxed{3}", "3"), string_match(r"so \boxed{3.0}", "3")
    (True, False)
    """
    return _in_box(prediction) == _in_box(gold)


def hendrycks(prediction: str, gold: str) -> bool:
    r"""String equality after the normalisation that came with MATH.

    >>> hendrycks(r"\boxed{\dfrac12}", r"\frac{1}{2}"), hendrycks("0.25", r"\frac{1}{4}")
    (True, False)
    """
    return normalised(_in_box(prediction)) == normalised(_in_box(gold))


def normalised(text: str) -> str:
    r"""LaTeX text as MATH's own grader compares it: units, sizes and spaces taken out.

    >>> normalised(r"x = \tfrac34 \text{ cm}")
    '\\frac{3}{4}'
    """
    for gone in ("\n", r"\!", r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$", r"\%", "%"):
        text = text.replace(gone, "")
    text = re.sub(r"\\[td]frac", r"\\frac", text.replace("\\\\", "\\"))
    text = text.split(r"\text{ ")[0]  # what follows is a unit
    text = re.sub(r"(^|[\s{])\.(?=\d)", r"\g<1>0.", text)
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name.strip()) <= 2:
        text = value
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"\s", "", text)
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac(\w)\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\{[^{}]*\})(\w)", r"\1{\2}", text)
    if text == "0.5":
        return r"\frac{1}{2}"
    return re.sub(r"(-?\d+)/(\d+)", r"\\frac{\1}{\2}", text) if text.count("/") == 1 else text


_PHRASE = re.compile(r"final answer is(.{1,500}?)\.?\s*I hope it is correct", re.DOTALL)


def minerva(prediction: str, gold: str) -> bool:
    r"""Any of several readings, equal after normalisation or by a symbolic difference of zero.

    The readings are the last box and what stands in Minerva's closing phrase; without either,
    what stands between the last two dollars; without that, the text.

    >>> minerva("The final answer is $3$. I hope it is correct.", r"\boxed{3}")
    True
    """
    meant = normalised(_in_box(gold))
    phrases = _PHRASE.findall(prediction)
    readings = [last_boxed(prediction), phrases[-1] if phrases else None]
    readings = [reading for reading in readings if reading is not None]
    if not readings:
        readings = prediction.split("$")[-2:-1] or [prediction]
    readings = [normalised(reading.strip().strip(":$ ")) for reading in readings]
    if meant in readings:
        return True
    short = [reading for reading in readings if len(reading) < 1000 and len(meant) < 1000]
    return any(worker.equal(meant, [reading]) for reading in short)


def math_verify_bare(prediction: str, gold: str) -> bool:
    """math-verify on both texts as they are. Not guarded: for texts that were looked at first."""
    return _math_verify(prediction, gold)


def math_verify_boxed(prediction: str, gold: str) -> bool:
    """math-verify with each side in a box, unless it has one. Not guarded either."""
    sides = (
        text if r"\boxed" in text else rf"\boxed{{{text.strip().strip('$')}}}"
        for text in (prediction, gold)
    )
    return _math_verify(*sides)


def _math_verify(prediction: str, gold: str) -> bool:
    from math_verify import parse, verify

    before = logging.root.manager.disable
    logging.disable()  # it warns once that it runs without its alarm
    try:
        read = [parse(text, parsing_timeout=None) for text in (gold, prediction)]
        return bool(verify(*read, timeout_seconds=None))
    finally:
        logging.disable(before)


VERIFIERS: Mapping[str, Verifier] = {
    "string match": string_match,
    "Hendrycks": hendrycks,
    "Minerva": minerva,
    "math-verify bare": math_verify_bare,
    "math-verify boxed": math_verify_boxed,
    "ours": equivalent,
}


def own_pairs() -> pd.DataFrame:
    """The casebook's labelled pairs: `prediction`, `gold`, `equivalent` (bool) and `kind`.

    Written and labelled by hand for this comparison; a unit may be left out, and two units differ.
    """
    pairs = pd.read_csv(PAIRS, dtype=str, keep_default_na=False)
    return pairs.assign(equivalent=pairs["equivalent"] == "1")


def math500_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Pairs from problems with a worked `solution` and an `answer`.

    Each solution must be paid for its own answer, and must not be for another problem's: the
    next one whose digits differ (5 and x = 5 are not two answers).
    """
    solutions, answers = frame["solution"].tolist(), frame["answer"].tolist()
    bare = [re.sub(r"\D", "", answer) or answer for answer in answers]
    rows = []
    for index, solution in enumerate(solutions):
        others = [*range(index + 1, len(bare)), *range(index)]
        other = next(place for place in others if bare[place] != bare[index])
        rows.append((solution, answers[index], True, "own answer"))
        rows.append((solution, answers[other], False, "another's answer"))
    return pd.DataFrame(rows, columns=["prediction", "gold", "equivalent", "kind"])


def compare(pairs: pd.DataFrame) -> pd.DataFrame:
    """How often each verifier is right, and how long it takes, a row a verifier.

    The columns: `pairs`, `right`, `missed` (equivalent, not paid), `wrongly paid`, and `median`,
    `p95`, `max` in milliseconds.
    """
    same, rows = pairs["equivalent"].to_numpy(bool), {}
    for name, verifier in VERIFIERS.items():
        said, times = [], [time.perf_counter()]
        for prediction, gold in zip(pairs["prediction"], pairs["gold"], strict=True):
            said.append(verifier(prediction, gold))
            times.append(time.perf_counter())
        paid, taken = np.array(said, bool), 1000 * np.diff(times)
        rows[name] = {
            "pairs": len(pairs),
            "right": int((paid == same).sum()),
            "missed": int((~paid & same).sum()),
            "wrongly paid": int((paid & ~same).sum()),
            "median": np.median(taken),
            "p95": np.quantile(taken, 0.95),
            "max": taken.max(),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def hostile_times() -> pd.DataFrame:
    """Our verdict on each hostile text, as prediction against 7 and as gold, and the seconds."""
    rows = {}
    for name, text in HOSTILE.items():
        times = [time.perf_counter()]
        paid = []
        for sides in ((text, "7"), ("x + 1", text)):
            paid.append(equivalent(*sides))
            times.append(time.perf_counter())
        rows[name] = (any(paid), *np.diff(times))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["paid", "first", "second"])


def _in_box(text: str) -> str:
    box = last_boxed(text)
    return (text if box is None else box).strip().strip("$").strip()
