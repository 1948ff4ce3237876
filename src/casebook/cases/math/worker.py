"""A killable worker: how to ask a library a question it may never answer.

A computer algebra system can be kept busy for a lifetime by twelve characters: `10^{10^{10}}`. An
alarm, the usual way out, rings in the main thread only, and not during one long multiplication. So
the question goes to another process: a keeper imports math-verify once and forks a worker, which
answers question after question, a line of JSON each. The kernel ends a worker whose question has
used `CPU_SECONDS` of processor time, so a busy machine changes no verdict. The keeper then answers
"no" for it and forks the next one within milliseconds. Texts are read as LaTeX and never run. This
file is also the keeper's program, and runs as a script, alone. It needs a POSIX system.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from functools import lru_cache

CPU_SECONDS = 1.0  # of processor time for one question; ordinary ones take a hundredth
MEMORY = 2 << 30  # bytes of address space of a worker


# The side that asks

_lock = threading.Lock()
_keeper: subprocess.Popen | None = None


def equal(gold: str, predictions: list[str]) -> bool:
    """Whether each of the LaTeX texts equals the gold one; no for what takes too long."""
    return bool(_ask("equal", gold, predictions))


@lru_cache(maxsize=10_000)  # a reward, its log and an evaluation ask about one text each
def extracted(text: str) -> str | None:
    """What math-verify takes for the answer of a text without a box."""
    return _ask("extracted", text)


def _ask(*question: object) -> bool | str | None:
    with _lock:
        for _ in range(2):
            keeper = _keeper or _start()
            try:
                keeper.stdin.write(json.dumps(question).encode("ascii") + b"\n")
                if reply := keeper.stdout.readline():
                    return json.loads(reply)
            except OSError:
                pass
            except BaseException:  # an interrupt: the answer would be taken for the next one's
                _end()
                raise
            _end()  # somebody killed it, or it never began
    from casebook.case import CasebookError  # not at the top: the keeper knows nothing of it

    raise CasebookError(
        "answers cannot be compared: math-verify is not installed or does not start"
    )


def _start() -> subprocess.Popen:
    global _keeper
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    _keeper = subprocess.Popen(
        [sys.executable, "-P", os.path.abspath(__file__)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt from the keyboard is not meant for it
        # SymPy orders terms by hash: with a fixed seed every worker gives one verdict.
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
    )
    return _keeper


def _end() -> None:
    global _keeper
    if _keeper:
        with _keeper, contextlib.suppress(OSError):
            os.killpg(_keeper.pid, signal.SIGKILL)
    _keeper = None


def _forget() -> None:
    """In a forked child: the keeper is the parent's, and so may be the lock."""
    global _keeper, _lock
    if _keeper:
        _keeper.stdin.close()
        _keeper.returncode = 0
    _keeper, _lock = None, threading.Lock()


# The other side: what follows runs in the other processes only


def _keep() -> None:
    """Fork a worker, and another one whenever it dies of a question; that answer is "no"."""
    import logging

    import math_verify.parser

    logging.disable()
    # A plain expression is kept as it was found: the library would read it by Python's `eval`.
    math_verify.parser.parse_expr_cached = str
    _equal("x^2+2x+1", ["(x+1)^2"])  # what is imported and built at first use
    while True:
        worker = os.fork()
        if worker == 0:
            _answer()
            os._exit(0)
        if os.waitpid(worker, 0)[1] == 0:
            return
        os.write(1, b"null\n")


def _answer() -> None:
    """Answer questions until there is nobody to ask one."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while line := sys.stdin.buffer.readline():
        name, *arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        try:
            answer = (_equal if name == "equal" else _extracted)(*arguments)
        except MemoryError:
            os._exit(1)
        except Exception:  # whatever a computer algebra system may stumble over
            answer = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(1, json.dumps(answer).encode("ascii") + b"\n")


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

    # Units are taken off before, by rules that know a metre from a variable m.
    rules = math_verify.LatexNormalizationConfig(malformed_operators=True, nits=True)
    grammar = math_verify.LatexExtractionConfig(boxed_match_priority=0, normalization_config=rules)
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
else:
    atexit.register(_end)
    os.register_at_fork(after_in_child=_forget)
