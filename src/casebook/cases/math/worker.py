"""A killable worker: how to ask a library a question it may never answer.

Whether two formulas are equal is a question for a computer algebra system, and such a system can
be kept busy for a lifetime, or fed until the machine is full, by ten characters: `10^{10^{10}}`.
A verifier meets such texts every day, since a policy writes them. An alarm signal, the usual
way out, works in the main thread only and not while a single long multiplication runs. So the
question goes to another process:

- it is started when first needed, kept, and asked again. A worker is two processes: one that has
  imported math-verify and waits, and its fork, which answers. When an answer takes too long only
  the fork dies, and the next one is there in milliseconds, not after another import;
- the kernel itself ends a fork whose question has used `CPU_SECONDS` of processor time, whatever
  it is doing. Processor time, so that a busy machine does not change a verdict;
- whoever asks waits until a deadline and no longer;
- a fork's memory is limited, it may not start programs, open connections or write files, and it
  is handed two texts, which it reads as LaTeX. Nothing in it evaluates text as code.

The pool is one for each process. It is safe to use from several threads, and a forked child gets
a new one of its own. This file is also the worker's program: it runs as a script, alone, so that
a worker imports math-verify and nothing of this package.
"""

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import util

CPU_SECONDS = 1.5  # of processor time for one question; ordinary ones take a hundredth
MEMORY = 2 << 30  # bytes of address space of a fork
WORKERS = max(2, min(8, os.cpu_count() or 2))

EQUAL, DIFFERENT, UNREADABLE = "equal", "different", "unreadable"
_SENT_AS = {EQUAL: b"=", DIFFERENT: b"!", UNREADABLE: b"?"}
_MEANING = {byte: answer for answer, byte in _SENT_AS.items()}
_READY = b"R"


class Unavailable(RuntimeError):
    """The worker's library is not installed, or does not start."""


# The side that asks


class _Process:
    """One worker and the two pipes to it."""

    def __init__(self) -> None:
        folders = [os.path.abspath(folder) for folder in sys.path]
        self._child = subprocess.Popen(
            [sys.executable, "-P", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # an interrupt from the keyboard is not meant for it
            # SymPy orders terms by hash: with a fixed seed every worker gives the same verdict.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONHASHSEED": "0"},
        )
        self._ready = False

    def wait_until_ready(self, deadline: float) -> bool:
        """Whether it has started by `deadline`.

        Raises:
            Unavailable: it ended instead.
        """
        if not self._ready:
            byte = self._read(deadline)
            if byte == b"":
                raise Unavailable("a worker ended while it started: does `import math_verify` work?")
            self._ready = byte == _READY
        return self._ready

    def send(self, message: bytes) -> None:
        """Ask. Raises OSError when the worker is gone."""
        self._child.stdin.write(len(message).to_bytes(4, "big") + message)

    def answer(self, deadline: float) -> str | None:
        """Its answer, or None when it ended or was still busy at the deadline."""
        return _MEANING.get(self._read(deadline))

    def _read(self, deadline: float) -> bytes | None:
        """One byte, b"" at the end, None at the deadline."""
        poll = select.poll()
        poll.register(self._child.stdout, select.POLLIN)
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            return None
        return self._child.stdout.read(1)

    def end(self) -> None:
        """Kill it and its fork, and clear up."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self.forget()

    def forget(self) -> None:
        """Close this side's ends of the pipes; in a forked child the worker is another's."""
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._child.returncode is None:
            self._child.returncode = 0  # not ours to wait for


class Pool:
    """At most `size` workers, each asked by one thread at a time."""

    def __init__(self, size: int = WORKERS) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._starting = 0
        util.Finalize(self, Pool._end_all, args=(self._all,), exitpriority=0)

    def ask(
        self, gold: str, prediction: str, deadline: float, within: str = ""
    ) -> str | None:
        """Whether the two LaTeX texts are equal.

        Args:
            gold, prediction: the texts, some thousand characters at most.
            within: a decimal; two constants that differ by less are equal. "" for exactly.
            deadline: on the clock of `time.monotonic`; waiting for a free worker counts.

        Returns:
            `EQUAL`, `DIFFERENT` (also when processor time or memory was used up), `UNREADABLE`
            when one of the two is not LaTeX that math-verify reads, or None when the deadline
            came first.

        Raises:
            Unavailable: math-verify cannot be imported.
        """
        message = json.dumps([gold, prediction, within]).encode("ascii")
        while (worker := self._take(deadline)) is not None:
            try:
                if not worker.wait_until_ready(deadline):
                    self._give_back(worker)
                    return None
                worker.send(message)
            except OSError:  # it ended while it had nothing to do
                self._drop(worker)
                continue
            except BaseException:
                self._drop(worker)
                raise
            return self._answer(worker, deadline)
        return None

    def _answer(self, worker: _Process, deadline: float) -> str | None:
        answer = None
        try:
            answer = worker.answer(deadline)
        finally:  # also when the waiting thread is interrupted
            if answer is None:
                self._drop(worker)
            else:
                self._give_back(worker)
        return answer

    def _take(self, deadline: float) -> _Process | None:
        with self._changed:
            while not self._idle and len(self._all) + self._starting >= self.size:
                if not self._changed.wait(deadline - time.monotonic()):
                    return None
            if self._idle:
                return self._idle.pop()
            self._starting += 1
        worker = None
        try:
            if importlib.util.find_spec("math_verify") is None:
                raise Unavailable("math-verify is not installed")
            worker = _Process()
        finally:
            with self._changed:
                self._starting -= 1
                if worker is not None:
                    self._all.add(worker)
                else:
                    self._changed.notify()
        return worker

    def _give_back(self, worker: _Process) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify()

    def _drop(self, worker: _Process) -> None:
        worker.end()
        with self._changed:
            self._all.discard(worker)
            self._changed.notify()

    @staticmethod
    def _end_all(workers: set[_Process]) -> None:
        for worker in list(workers):
            worker.end()

    def forget(self) -> None:
        """Let go of workers that belong to the parent of this forked process."""
        for worker in list(self._all):
            worker.forget()


_pool = Pool()


def ask(gold: str, prediction: str, deadline: float, within: str = "") -> str | None:
    """`Pool.ask` of this process's pool."""
    return _pool.ask(gold, prediction, deadline, within)


def _start_anew() -> None:
    global _pool
    _pool.forget()
    _pool = Pool()


if __name__ != "__main__" and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


# The worker's side: what follows runs in the other processes only


def _serve() -> None:
    """Keep a fork that answers the questions on standard input, until it ends."""
    replies = os.dup(1)
    questions = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    comparison = Comparison()
    comparison("1", "x+1")  # what is imported and built at first use
    os.write(replies, _READY)
    while True:
        fork = os.fork()
        if fork == 0:
            _answer_all(comparison, questions, replies)
            os._exit(0)
        _, status = os.waitpid(fork, 0)
        if status == 0:
            return  # the questions have ended
        os.write(replies, _SENT_AS[DIFFERENT])  # it died of its question


def _answer_all(comparison, questions: int, replies: int) -> None:
    _restrict()
    while len(head := os.read(questions, 4)) == 4:
        message, length = b"", int.from_bytes(head, "big")
        while len(message) < length:
            part = os.read(questions, length - len(message))
            if not part:
                return
            message += part
        gold, prediction, within = json.loads(message)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        try:
            answer = comparison(gold, prediction, within)
        except MemoryError:
            os._exit(1)
        except Exception:
            answer = UNREADABLE
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(replies, _SENT_AS[answer])


def _restrict() -> None:
    """Take from this process what comparing formulas does not need."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    refused = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove")
    refused += ("os.rename", "os.rmdir", "os.mkdir", "shutil", "subprocess", "socket", "ctypes")

    def refuse(event: str, arguments: tuple) -> None:
        writes = event == "open" and set(str(arguments[1] or "r")) & set("wax+")
        if event.startswith(refused) or writes:
            raise PermissionError(f"a worker may not do this: {event}")

    sys.addaudithook(refuse)


class Comparison:
    """Compares two LaTeX texts: math-verify reads them, and numbers or its rules decide.

    Two expressions without relations are compared by value: at a few fixed points, wherever both
    are real. One difference decides against them; agreement at three points, to 25 digits, for
    them. What has no value at a point (sets, matrices, undefined functions) goes to
    `math_verify.verify`. That comes second because its numeric test has an absolute tolerance, by
    which all very small numbers are equal (its issue 14), and its symbolic one misses identities
    that hold on the positive numbers (its issue 64).
    """

    POINTS = 8
    AGREEING = 3  # points that make two expressions equal
    DIGITS = 30
    TOLERANCE = 1e-25  # relative

    def __init__(self) -> None:
        import logging
        import random

        import math_verify
        import sympy
        from sympy.core.relational import Relational

        logging.disable()
        self._library, self._sympy = math_verify, sympy
        self._relational = Relational
        # Only the grammar of LaTeX: the other way in, for plain expressions, goes through `eval`.
        self._grammar = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
        # The first half of the points is positive.
        generator = random.Random(1)
        self._values = [
            [
                sympy.Rational(generator.randrange(300, 3000), 997)
                * (1 if point < self.POINTS // 2 else generator.choice((-1, 1)))
                for _ in range(40)
            ]
            for point in range(self.POINTS)
        ]

    def __call__(self, gold: str, prediction: str, within: str = "") -> str:
        meant, given = self._read(gold), self._read(prediction)
        if not meant or not given:
            return UNREADABLE
        one, other = meant[0], given[0]
        same = None
        if within:
            return EQUAL if self._near(one, other, within) else DIFFERENT
        if isinstance(one, self._relational) and isinstance(other, self._relational):
            same = self._same_relation(one, other)
        elif isinstance(one, self._sympy.Expr) and isinstance(other, self._sympy.Expr):
            same = self._same_value(one, other)
        if same is None:
            same = self._library.verify(
                meant, given, allow_set_relation_comp=True, timeout_seconds=None
            )
        return EQUAL if same else DIFFERENT

    def _read(self, text: str) -> list:
        read = self._library.parse(
            "\\boxed{" + text + "}",
            self._grammar,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        return [self._with_constants(found) for found in read]

    def _with_constants(self, found):
        """The imaginary unit, which the grammar takes for an unknown, and exact decimals."""
        if not isinstance(found, self._sympy.Basic):
            return found
        units = {s: self._sympy.I for s in found.free_symbols if s.name == "i"}
        decimals = {f: self._sympy.Rational(str(f)) for f in found.atoms(self._sympy.Float)}
        return found.xreplace(units | decimals) if units or decimals else found

    def _same_value(self, one, other) -> bool | None:
        """Whether two expressions agree wherever both are real; None when that cannot be told."""
        constant = not (one.free_symbols | other.free_symbols)
        if constant:
            exact = [side.doit() if side.is_number else side for side in (one, other)]
            if all(side.is_Rational for side in exact):
                return exact[0] == exact[1]
        agreeing = 0
        for values in self._values[:1] if constant else self._values:
            a, b = self._at(one, other, values)
            if a is None or b is None:
                continue
            gap, size = abs(a - b), max(abs(a), abs(b))
            if gap <= self.TOLERANCE * size or (size < 1e-40 and not constant):
                agreeing += 1
            elif (a.imag == 0 and b.imag == 0) or constant:
                return False
        return True if agreeing >= (1 if constant else self.AGREEING) else None

    def _at(self, one, other, values):
        """Both expressions as complex numbers at a point, None for one without a value there."""
        names = sorted({s.name for s in one.free_symbols | other.free_symbols})
        if len(names) > len(values):
            return None, None
        point = dict(zip(names, values, strict=False))
        found = []
        for side in (one, other):
            try:
                number = side.xreplace({s: point[s.name] for s in side.free_symbols})
                number = number.doit().evalf(self.DIGITS, chop=False)
                found.append(number._to_mpmath(100) if number.is_number else None)
            except MemoryError:
                raise
            except Exception:
                found.append(None)
        import mpmath

        with mpmath.workdps(self.DIGITS):
            found = [mpmath.mpmathify(x) if x is not None else None for x in found]
        return [x if x is not None and mpmath.isfinite(x) else None for x in found]

    def _near(self, one, other, within: str) -> bool:
        a, b = self._at(one, other, self._values[0])
        constant = not (one.free_symbols | other.free_symbols)
        return constant and a is not None and b is not None and abs(a - b) < float(within)

    def _same_relation(self, one, other) -> bool | None:
        """Whether one relation is a multiple of the other: 2x = 4y and x - 2y = 0."""
        sympy = self._sympy
        flipped = (sympy.StrictLessThan, sympy.LessThan)
        sides, kinds = [], []
        for relation in (one, other):
            difference = relation.lhs - relation.rhs
            upside = isinstance(relation, flipped)
            sides.append(-difference if upside else difference)
            kinds.append((relation.reversed if upside else relation).func)
        if kinds[0] is not kinds[1]:
            return False
        if {s.name for s in sides[0].free_symbols} != {s.name for s in sides[1].free_symbols}:
            return False
        ratios = []
        for values in self._values:
            a, b = self._at(*sides, values)
            if a is not None and b is not None and abs(a) > 1e-20 and abs(b) > 1e-20:
                ratios.append(a / b)
        if len(ratios) < self.AGREEING:
            return None
        constant = all(abs(r - ratios[0]) <= self.TOLERANCE * 1e3 * abs(ratios[0]) for r in ratios)
        if constant:
            is_equation = kinds[0] in (sympy.Eq, sympy.Ne)
            return is_equation or (ratios[0].imag == 0 and ratios[0].real > 0)
        return self._same_solutions(one, other) if kinds[0] is sympy.Eq else None

    def _same_solutions(self, one, other) -> bool:
        """Whether two equations, solved for one of their unknowns, give the same."""
        for symbol in sorted(one.free_symbols, key=str):
            try:
                solved = [set(self._sympy.solve(side, symbol)) for side in (one, other)]
            except MemoryError:
                raise
            except Exception:
                continue
            if all(solved):
                return solved[0] == solved[1]
        return False


if __name__ == "__main__":
    _serve()
