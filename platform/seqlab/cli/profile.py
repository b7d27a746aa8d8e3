"""Verb for measuring time: profile."""

from __future__ import annotations

import argparse
import os

from seqlab.cli.fit import ran
from seqlab.cli.verb import argument, verb, whole_number

TRACE = "trace.json.gz"


@verb(
    "measure the time of each part of a training step; takes the options of fit",
    argument("--out", default="profile", metavar="FOLDER", help="folder for the trace; default: profile"),
    argument("--steps", type=whole_number, default=5, metavar="N", help="number of steps to profile; default: 5"),
)
def profile(options: argparse.Namespace) -> int:
    from seqlab.files.place_to_write import files_to_write

    if options.steps < 1:
        raise ValueError(f"--steps must be at least 1, got {options.steps}")
    trace = files_to_write(options.out, {TRACE: '"schemaVersion"'}) / TRACE

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences start and stop messages of torch's profiler

    def profiled() -> None:
        from seqlab.cli.profiled import profiled

        profiled(options.overrides, options.steps, trace)

    return ran("profile", profiled)


VERBS = (profile,)
