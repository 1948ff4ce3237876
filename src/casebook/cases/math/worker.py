"""A killable worker: how to ask a library a question it may never answer.

Whether two formulas are equal is a question for a computer algebra system, and such a system can
be kept busy for a lifetime, or fed until the machine is full, by ten characters: `10^{10^{10}}`.
A verifier meets such texts every day, since a policy writes them. An alarm signal, the usual
way out, works in the main thread only and not while a single long multiplication runs. So the
question goes to another process:

- it is started when first needed, kept, and asked again; only a process that had to be killed is
  replaced, so a check costs a message and not the second that an import takes;
- the kernel itself ends it when a question has used `CPU_SECONDS` of processor time, whatever it
  is doing. Processor time, so that a busy machine does not change a verdict;
- whoever asks waits until a deadline and no longer;
- its memory is limited, it may not start programs, open connections or write files, and it is
  handed two texts, which it reads as LaTeX. Nothing in it evaluates text as code.

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

CPU_SECONDS = 2.0  # of processor time for one question
MEMORY = 2 << 30  # bytes of address space of a worker
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

    def ran_out_of_time(self) -> bool:
        """Whether the kernel ended it because its processor time was used up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout=0.5) == -signal.SIGPROF
        return False

    def _read(self, deadline: float) -> bytes | None:
        """One byte, b"" at the end, None at the deadline."""
        poll = select.poll()
        poll.register(self._child.stdout, select.POLLIN)
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            return None
        return self._child.stdout.read(1)

    def end(self) -> None:
        """Kill it and clear up."""
        self._child.kill()
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

    def ask(self, gold: str, prediction: str, deadline: float) -> str | None:
        """Whether math-verify finds the two LaTeX texts equal.

        Args:
            gold, prediction: the texts, some thousand characters at most.
            deadline: on the clock of `time.monotonic`; waiting for a free worker counts.

        Returns:
            `EQUAL`, `DIFFERENT` (also when the processor time was used up), `UNREADABLE` when one
            of the two is not LaTeX that math-verify reads, or None when the deadline came first.

        Raises:
            Unavailable: math-verify cannot be imported.
        """
        message = json.dumps([gold, prediction]).encode("ascii")
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
                out_of_time = worker.ran_out_of_time() if time.monotonic() < deadline else False
                self._drop(worker)
            else:
                self._give_back(worker)
        return DIFFERENT if answer is None and out_of_time else answer

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


def ask(gold: str, prediction: str, deadline: float) -> str | None:
    """`Pool.ask` of this process's pool."""
    return _pool.ask(gold, prediction, deadline)


def _start_anew() -> None:
    global _pool
    _pool.forget()
    _pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


# The worker's side: what follows runs in the other process only


def _serve() -> None:
    """Answer questions from standard input until it ends."""
    replies = os.dup(1)
    questions = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    compare = _math_verify()
    compare("1", "x+1")  # what is imported and built at first use
    _restrict()
    os.write(replies, _READY)
    while len(head := questions.read(4)) == 4:
        gold, prediction = json.loads(questions.read(int.from_bytes(head, "big")))
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        try:
            answer = compare(gold, prediction)
        except MemoryError:
            os._exit(1)
        except Exception:
            answer = UNREADABLE
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(replies, _SENT_AS[answer])


def _math_verify():
    """`compare(gold, prediction)` by math-verify, both as boxed LaTeX."""
    import logging

    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable()
    # Only the grammar of LaTeX: the other way in, for plain expressions, goes through `eval`.
    grammar = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(text: str) -> list:
        return parse(
            "\\boxed{" + text + "}", grammar, fallback_mode="no_fallback", parsing_timeout=None
        )

    def compare(gold: str, prediction: str) -> str:
        meant, given = read(gold), read(prediction)
        if not meant or not given:
            return UNREADABLE
        same = verify(meant, given, allow_set_relation_comp=True, timeout_seconds=None)
        return EQUAL if same else DIFFERENT

    return compare


def _restrict() -> None:
    """Take from this process what comparing formulas does not need."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    refused = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess", "socket", "ctypes")

    def refuse(event: str, arguments: tuple) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and arguments[1] != "rb"
        if event.startswith(refused) or (writes and set(arguments[1]) & set("wax+")):
            raise PermissionError(f"a worker may not do this: {event}")

    sys.addaudithook(refuse)


if __name__ == "__main__":
    _serve()
