"""A killable worker: how to ask a library a question it may never answer.

Whether two formulas are equal is a question for a computer algebra system, and such a system can
be kept busy for a lifetime, or fed until the machine is full, by twelve characters: `10^{10^{10}}`.
A verifier meets such texts every day, since a policy writes them. An alarm signal, the usual
way out, works in the main thread only and not while a single long multiplication runs. So the
question goes to another process:

- a process that has imported math-verify is started when first needed. It answers nothing itself:
  it forks. Its forks, the workers, are kept and asked again and again: one, and another whenever
  all of them are busy as a thread asks, `WORKERS` at most;
- the kernel ends a worker whose question has used its processor time, whatever it is doing, and
  the next fork is there in milliseconds, without another import. Processor time, so that neither
  a busy machine nor a queue changes a verdict: waiting is not thinking;
- threads that find every worker busy are served in the order in which they came. Whoever asks
  waits until a deadline and no longer, which is there for a machine that stands still;
- a worker's memory is limited, it may not start programs, open connections or write files, and it
  is handed two texts, which it reads as LaTeX. Nothing in it evaluates text as code.

`multiprocessing` and the pools built on it are not used: their fork server runs the caller's own
script again in every worker unless it has a guard, does not serve a forked child, and a pool of
them hands a question to any worker, not to the one that has read its texts before.

The pool is one for each process. It is safe to use from several threads, and a forked child gets
a new one of its own. This file is also the program of the process that forks: it runs as a
script, alone, so that workers know math-verify and nothing of this package. It needs a POSIX
system.
"""

import contextlib
import importlib.util
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import util

CPU_SECONDS = 1.0  # of processor time for one question; ordinary ones take a hundredth
WALL_SECONDS = 120.0  # after which a worker that does not even compute is ended too
MEMORY = 2 << 30  # bytes of address space of a worker
WORKERS = 4  # at most

EQUAL, DIFFERENT, UNREADABLE = "equal", "different", "unreadable"
_SENT_AS = {EQUAL: b"=", DIFFERENT: b"!", UNREADABLE: b"?"}
_MEANING = {byte: answer for answer, byte in _SENT_AS.items()}
_READY = b"R"
_REPLY = 5  # bytes: the answer, and the processor time it took in milliseconds


class Unavailable(RuntimeError):
    """math-verify is not installed, or does not start."""


@dataclass
class Budget:
    """Processor time that some questions may use together, in seconds."""

    left: float


# The side that asks


class _Parent:
    """The process that has imported math-verify and forks a worker for every socket it is sent."""

    def __init__(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise Unavailable("math-verify is not installed")
        folders = [os.path.abspath(folder) for folder in sys.path]
        self._control, its_end = socket.socketpair()
        with its_end:
            self._child = subprocess.Popen(
                [sys.executable, "-P", os.path.abspath(__file__), str(its_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                start_new_session=True,  # an interrupt from the keyboard is not meant for it
                # SymPy orders terms by hash: with a fixed seed every worker gives one verdict.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONHASHSEED": "0"},
            )

    def hire(self) -> "_Worker":
        """A new worker; OSError when this process is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return _Worker(ours)

    def end(self) -> None:
        """Kill it and all its forks."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._control.close()

    def forget(self) -> None:
        """In a forked child: it is not ours."""
        self._control.close()
        self._child.returncode = 0


class _Worker:
    """This side's end of the socket to a worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._ready = False

    def ask(self, message: bytes, deadline: float) -> tuple[str, float]:
        """The answer and the processor time it took, in seconds.

        Raises:
            TimeoutError: the deadline came first; the worker cannot be asked again.
            EOFError: the worker is gone for good.
        """
        try:
            if not self._ready:
                self._receive(len(_READY), deadline)
                self._ready = True
            self._socket.settimeout(None)  # a message is far smaller than the socket's buffer
            self._socket.sendall(len(message).to_bytes(4, "big") + message)
            reply = self._receive(_REPLY, deadline)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError from error
        return _MEANING[reply[:1]], int.from_bytes(reply[1:], "big") / 1000

    def _receive(self, size: int, deadline: float) -> bytes:
        found = b""
        while len(found) < size:
            self._socket.settimeout(max(1e-4, deadline - time.monotonic()))
            part = self._socket.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def close(self) -> None:
        self._socket.close()


class Pool:
    """At most `size` workers, each asked by one thread at a time."""

    def __init__(self, size: int = WORKERS) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._line: deque[object] = deque()  # of threads that wait for a worker
        self._number = 0  # of workers in all
        self._parents: list[_Parent] = []  # one, or none yet
        util.Finalize(self, Pool._end_all, args=(self._parents,), exitpriority=0)

    def ask(
        self,
        gold: str,
        prediction: str,
        deadline: float,
        within: str = "",
        budget: Budget | None = None,
    ) -> str | None:
        """Whether the two LaTeX texts are equal.

        Args:
            gold, prediction: the texts, some thousand characters at most.
            within: a decimal; two constants that differ by less are equal. "" for exactly.
            deadline: on the clock of `time.monotonic`; waiting for a free worker counts.
            budget: what the question may use, if that is less than `CPU_SECONDS`; what it used
                is taken from it.

        Returns:
            `EQUAL`, `DIFFERENT` (also when processor time or memory was used up), `UNREADABLE`
            when one of the two is not LaTeX that math-verify reads, or None when the deadline
            came first.

        Raises:
            Unavailable: math-verify cannot be imported.
        """
        seconds = min(CPU_SECONDS, budget.left) if budget else CPU_SECONDS
        if seconds < 0.01:  # which a timer may take for none
            return DIFFERENT
        message = json.dumps([seconds, gold, prediction, within]).encode("ascii")
        for _ in range(3):
            worker = self._take(deadline)
            if worker is None:
                return None
            try:
                answer, used = worker.ask(message, deadline)
            except TimeoutError:
                self._dismiss(worker)
                return None
            except EOFError:
                self._dismiss(worker)
                continue
            except BaseException:  # an interrupt
                self._dismiss(worker)
                raise
            self._give_back(worker)
            if budget:
                budget.left -= used
            return answer
        raise Unavailable("workers end as they start: is math-verify whole?")

    def start(self) -> None:
        """Begin to import math-verify, without waiting for it."""
        with self._changed, contextlib.suppress(Unavailable):
            if not self._parents:
                self._parents.append(_Parent())

    def _take(self, deadline: float) -> _Worker | None:
        """A free or a new worker, for the thread that came first; None at the deadline."""
        place = object()
        with self._changed:
            self._line.append(place)
            try:
                while not (self._line[0] is place and (self._idle or self._number < self.size)):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return None
                    self._changed.wait(left)
                if self._idle:
                    return self._idle.pop()
                worker = self._hire()
                self._number += 1
                return worker
            finally:
                self._line.remove(place)
                self._changed.notify_all()

    def _hire(self) -> _Worker:
        for _ in range(2):
            if not self._parents:
                self._parents.append(_Parent())
            try:
                return self._parents[0].hire()
            except OSError:  # somebody killed it
                self._parents.pop().end()
        raise Unavailable("the process that starts workers ends at once: is math-verify whole?")

    def _give_back(self, worker: _Worker) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify_all()

    def _dismiss(self, worker: _Worker) -> None:
        worker.close()  # one that still computes finds it closed when it is done, or is ended
        with self._changed:
            self._number -= 1
            self._changed.notify_all()

    @staticmethod
    def _end_all(parents: list[_Parent]) -> None:
        while parents:
            parents.pop().end()

    def forget(self) -> None:
        """In a forked child: let go of workers that are another process's."""
        for worker in self._idle:
            worker.close()
        while self._parents:
            self._parents.pop().forget()


_pool = Pool()


def ask(
    gold: str, prediction: str, deadline: float, within: str = "", budget: Budget | None = None
) -> str | None:
    """`Pool.ask` of this process's pool."""
    return _pool.ask(gold, prediction, deadline, within, budget)


def start() -> None:
    """`Pool.start` of this process's pool."""
    _pool.start()


def _start_anew() -> None:
    global _pool
    _pool.forget()
    _pool = Pool()


if __name__ != "__main__" and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


# The other side: what follows runs in the other processes only


def _fork_workers(control: socket.socket) -> None:
    """Fork a keeper for every socket that comes, until there is nobody to send one."""
    comparison = Comparison()
    comparison("1", "x+1")  # what is imported and built at first use
    comparison("x^2+2x+1", "(x+1)^2")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep_a_worker(comparison, socket.socket(fileno=descriptors[0]))
            os._exit(0)
        os.close(descriptors[0])


def _keep_a_worker(comparison: "Comparison", connection: socket.socket) -> None:
    """Fork a worker, and another one when it dies of a question; that answer is given for it."""
    asked = mmap.mmap(-1, 5)  # shared with the worker: whether it is busy, and its milliseconds
    with contextlib.suppress(ConnectionError):  # nobody waits for the answer any more
        connection.sendall(_READY)
        while True:
            worker = os.fork()
            if worker == 0:
                _answer_all(comparison, connection, asked)
                os._exit(0)
            _, status = os.waitpid(worker, 0)
            if status == 0:
                return
            if asked[0]:
                connection.sendall(_SENT_AS[DIFFERENT] + asked[1:])
                asked[0] = 0


def _answer_all(comparison: "Comparison", connection: socket.socket, asked: mmap.mmap) -> None:
    """Answer questions until there is nobody to ask one."""
    _restrict()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            message = _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))
            seconds, *question = json.loads(message)
            asked[:] = b"\1" + _milliseconds(seconds)
            begin = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
            signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
            try:
                answer = comparison(*question)
            except MemoryError:
                os._exit(1)
            except Exception:
                answer = UNREADABLE
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            used = _milliseconds(time.process_time() - begin)
            connection.sendall(_SENT_AS[answer] + used)
            asked[0] = 0


def _milliseconds(seconds: float) -> bytes:
    return int(1000 * seconds).to_bytes(4, "big")


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _restrict() -> None:
    """Take from this process what comparing formulas does not need."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    refused = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove")
    refused += ("os.rename", "os.rmdir", "os.mkdir", "shutil", "subprocess", "socket.connect")
    refused += ("socket.bind", "ctypes")

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
        self._known: dict[str, list] = {}  # a gold answer is asked about again and again
        # The first half of the points is positive.
        generator = random.Random(1)
        self._values = [
            [
                sympy.Float(generator.randrange(300, 3000), 50)
                / 997
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
        if text not in self._known:
            if len(self._known) > 500:
                self._known.clear()
            read = self._library.parse(
                "\\boxed{" + text + "}",
                self._grammar,
                fallback_mode="no_fallback",
                parsing_timeout=None,
            )
            self._known[text] = [self._with_constants(found) for found in read]
        return self._known[text]

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
            nothing = size < 1e-40 and (not constant or min(abs(a), abs(b)) == 0)
            if gap <= self.TOLERANCE * size or nothing:
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
        if kinds[0] is not sympy.Eq:
            return None
        if all(side.is_polynomial(*side.free_symbols) for side in sides):
            degrees = [sympy.Poly(side, *side.free_symbols).total_degree() for side in sides]
            if degrees[0] == degrees[1]:
                return False  # curves of one degree, and not multiples of one another
        return self._same_solutions(one, other)

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
    _fork_workers(socket.socket(fileno=int(sys.argv[1])))
