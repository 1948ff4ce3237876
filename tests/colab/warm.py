"""A Python that has Unsloth and the casebook imported: 20 s, once for all that forks from it.

`python warm.py SOCKET` imports both, then listens; `python warm.py SOCKET -m MODULE …`, or `-c
CODE …`, does as python itself does, in a fork of the first.
"""

import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback


def serve(listening: socket.socket) -> None:
    from casebook.backend import choose_backend

    choose_backend("t4")

    from casebook import doctor, plots, preflight, training  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    listening.listen()
    print("warm", flush=True)  # and serves until the process that began this one closes its input
    while select.select([listening, sys.stdin], [], [])[0] == [listening]:
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            status = run(client)
            sys.stdout.flush()
            client.send(bytes([status]))
            os._exit(0)
        client.close()


def run(client: socket.socket) -> int:
    """What was asked for, on the client's own input and output; the exit status."""
    said, files, *_ = socket.recv_fds(client, 2**16, 3)
    for place, file in enumerate(files):
        os.dup2(file, place)
    folder, (kind, what, *arguments) = json.loads(said)
    os.chdir(folder)
    os.environ["JPY_PARENT_PID"] = str(os.getppid())  # a kernel ends with the process it came from
    sys.argv = [kind, *arguments]
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as end:
        if sys.argv[2:]:
            end.connect(sys.argv[1])
            asked = json.dumps([os.getcwd(), sys.argv[2:]]).encode()
            socket.send_fds(end, [asked], [0, 1, 2])
            sys.exit(end.recv(1)[0])
        end.bind(sys.argv[1])
        serve(end)
