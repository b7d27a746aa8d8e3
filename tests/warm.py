"""A `seqlab` for shells, in a process forked from one that has imported it: not 5 s of imports for each command typed.

`python tests/warm.py serve SOCKET` waits for `python -IS tests/warm.py ask SOCKET ARGUMENTS`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import NoReturn


def ask(path: str, arguments: list[str]) -> int:
    """The exit code of seqlab, which has this process's folder, environment and files."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        asked = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(server, [asked], [0, 1, 2])
        return server.recv(1)[0]


def serve(path: str) -> NoReturn:
    import seqlab.cli.preloaded  # noqa: F401

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(f"{path}.new")
        server.listen()
        os.rename(f"{path}.new", path)  # who finds it is heard
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            with server.accept()[0] as client:
                if os.fork() == 0:
                    answer(client)


def answer(client: socket.socket) -> None:
    asked, files, _, _ = socket.recv_fds(client, 2**20, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os._exit(ran(files, *json.loads(asked)))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.send(bytes([code % 256]))
    os._exit(0)


def ran(files: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> int:
    import atexit
    from runpy import run_module

    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    try:
        run_module("seqlab", run_name="__main__", alter_sys=True)
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    verb, path, *arguments = sys.argv[1:]
    sys.exit(serve(path) if verb == "serve" else ask(path, arguments))
