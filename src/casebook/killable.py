"""A process that can be killed: how to ask code a question it may never answer.

A computer algebra system can be kept busy for a lifetime by twelve characters, `10^{10^{10}}`, and
a regular expression by forty. An alarm, the usual way out, rings in the main thread only, and not
during one long multiplication. So the question goes to another process:

    asker  ->  keeper, which imports once  ->  worker, which answers question after question

The keeper forks the worker. The kernel ends a worker whose question has used its processor time,
so a busy machine changes no verdict; the keeper then says how it ended, and forks the next one
within milliseconds. A question and its answer are a line of JSON each. It needs a POSIX system.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

_ENDED = 3  # the exit code of a worker whom nobody asks any more
_NO_MEMORY = 4


class Ended(Exception):
    """The process ended instead of answering; `why` says how, in a few words."""

    def __init__(self, why: str):
        super().__init__(why)
        self.why = why


class Keeper:
    """The asker's side: a program that calls `keep`, started when it is first asked.

    Args:
        program: the path of the script; it is run alone, and finds what this process finds.
        arguments: of its command line.
    """

    def __init__(self, program: str, *arguments: str):
        self._command = ["-P", os.path.abspath(program), *arguments]
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forget)

    @property
    def pid(self) -> int | None:
        """The keeper's process, and process group; `None` where it does not run."""
        return self._process.pid if self._process else None

    def ask(self, *question: Any, seconds: float | None = None) -> Any:
        """The answer to a question; `seconds` bounds the wait by the clock on the wall.

        Raises:
            Ended: the question ended the process that was to answer it.
            OSError: the program does not start, or somebody killed it twice.
        """
        with self._lock:
            for _ in range(2):
                keeper = self._process or self._start()
                try:
                    keeper.stdin.write(json.dumps(question).encode("ascii") + b"\n")
                    if not select.select([keeper.stdout], [], [], seconds)[0]:
                        self.end()
                        raise Ended("no answer in time")
                    if reply := keeper.stdout.readline():
                        found = json.loads(reply)
                        if isinstance(found, list):
                            return found[0]
                        raise Ended(found)
                except OSError:
                    pass
                except Ended:
                    raise
                except BaseException:  # an interrupt: the answer would be taken for the next one's
                    self.end()
                    raise
                self.end()  # somebody killed it, or it never began
        raise OSError("the process does not start")

    def end(self) -> None:
        """End the keeper, its worker, and what they started in their group."""
        if self._process:
            with self._process, contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None

    def _start(self) -> subprocess.Popen:
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, *self._command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the keyboard is not meant for it
            # Sets and SymPy's terms are ordered by hash: with a fixed seed all workers agree.
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        )
        return self._process

    def _forget(self) -> None:
        """In a forked child: the keeper is the parent's, and so may be the lock."""
        if self._process:
            self._process.stdin.close()
            self._process.returncode = 0
        self._process, self._lock = None, threading.Lock()


def keep(answer: Callable[..., Any], cpu_seconds: float, memory: int) -> None:
    """The keeper's side: answer questions by `answer`, in a worker, and in another when it dies.

    Args:
        answer: takes a question's parts and returns what JSON can write.
        cpu_seconds: of processor time for one question.
        memory: bytes of address space of a worker beyond what the keeper has.
    """
    replies = os.dup(1)
    os.dup2(2, 1)  # what the code prints is no reply
    while True:
        worker = os.fork()
        if worker == 0:
            _work(answer, cpu_seconds, memory, replies)
            os._exit(_ENDED)
        status = os.waitpid(worker, 0)[1]
        code, by = os.waitstatus_to_exitcode(status), os.WTERMSIG(status)
        if code == _ENDED:
            return
        why = f"ended by signal {by}" if by else f"left Python with exit code {code}"
        why = {-signal.SIGPROF: "no answer in time", _NO_MEMORY: "out of memory"}.get(code, why)
        os.write(replies, json.dumps(why).encode("ascii") + b"\n")


def _work(answer: Callable[..., Any], cpu_seconds: float, memory: int, replies: int) -> None:
    """Answer questions until there is nobody to ask one."""
    import resource

    with contextlib.suppress(OSError, ValueError):  # Linux; elsewhere memory has no bound
        with open("/proc/self/statm") as file:
            limit = int(file.read().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    questions = os.fdopen(os.dup(0), "rb")  # Python's `exit` closes `sys.stdin`
    while line := questions.readline():
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # its signal ends the process
        try:
            found = answer(*question)
        except MemoryError:
            os._exit(_NO_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply = json.dumps([found]).encode("ascii") + b"\n"
        while reply:  # a pipe takes a long one in parts
            reply = reply[os.write(replies, reply) :]
