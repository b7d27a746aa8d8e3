"""The verb serve: the C++ server on bundles, or on runs that are exported first."""

from __future__ import annotations

import argparse
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from seqlab.cli.verb import A_RUN, TRUST, argument, verb, whole_number

MOST = 4096


def size(text: str) -> str:
    """Checks a number of bytes as `seqlab-run` reads it."""
    if not re.fullmatch("[1-9][0-9]{0,11}[KMG]?", text):
        raise argparse.ArgumentTypeError(f"must be a number of bytes, or of K, M or G, got {text[:40]!r}")
    return text


def bounded(text: str) -> int:
    """Checks a number of threads or clients as `seqlab-run` does, before a run is exported."""
    if not 1 <= (number := whole_number(text)) <= MOST:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST}, got {number}")
    return number


@verb(
    "serve runs or bundles over HTTP, with OpenAI's API",
    argument("targets", nargs="+", metavar="RUN|BUNDLE", help=f"{A_RUN}, or a bundle folder; a run is exported first"),
    argument("--host", default="127.0.0.1", help="address to listen at; default: 127.0.0.1"),
    argument("--port", type=whole_number, default=8000, help="port to listen at; 0 is any that is free; default: 8000"),
    argument("--memory", type=size, default="1G", help="memory for the states of running requests; default: 1G"),
    argument("--prefix-memory", type=size, help="memory for states of prompts that begin alike; default: 64M"),
    argument("--connections", type=bounded, metavar="N", help="clients that are answered at once; default: 256"),
    argument("--threads", type=bounded, metavar="N", help="number of threads; default: one per core"),
    argument("--log", action="store_true", help="tell each answer on stderr"),
    TRUST,
)
def serve(options: argparse.Namespace) -> int:
    from seqlab_export.bundle import ParityError
    from seqlab_export.runner.program import find_onnxruntime, find_program

    _check_address(options.host, options.port)
    program = find_program()
    with tempfile.TemporaryDirectory(prefix="seqlab-serve-") as folder:
        try:
            bundles = [
                _bundle(target, Path(folder) / str(number), options.trust)
                for number, target in enumerate(options.targets)
            ]
        except ParityError as error:
            print(f"seqlab: {error}", file=sys.stderr)
            return 1
        settings = ["--host", options.host, "--port", str(options.port), "--memory", options.memory]
        for name in ("prefix_memory", "connections", "threads"):
            if (value := getattr(options, name)) is not None:
                settings += [f"--{name.replace('_', '-')}", str(value)]
        settings += ["--log"] if options.log else []
        command = [program, "serve", *bundles, *settings, "--ort-lib", find_onnxruntime()]
        with subprocess.Popen(command) as process:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda received, _: process.send_signal(received))
            return process.wait()


def _check_address(host: str, port: int) -> None:
    """Raises ValueError if no server can listen there: an export that comes first may take minutes."""
    try:
        if not host:
            raise OSError("no address was given")
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server((host, port), family=family).close()
    except (OSError, OverflowError, ValueError) as error:
        raise ValueError(f"cannot listen at {host[:100]!r}, port {port}: {error}") from error


def _bundle(target: str, folder: Path, trust: list[str]) -> str:
    """A bundle's folder, or the folder of a run's new bundle, which has the run's name."""
    if (Path(target) / "manifest.json").exists():
        return target
    from seqlab.cli.bundle import export_run
    from seqlab.cli.phases import phases_shown
    from seqlab.trained.load import load_run

    with phases_shown("reading the run"):
        loaded = load_run(target, trust=trust)
        folder.mkdir()
        out = folder / Path(target).name
        export_run(loaded, "fp32", out)
    return str(out)


VERBS = (serve,)
