"""The verb of where time goes: profile."""

from __future__ import annotations

import argparse
import os

from seqlab.cli.fit import ran
from seqlab.cli.verb import argument, verb, whole

TRACE = "trace.json.gz"


@verb(
    "say which parts of a model a training step spends its time on; takes the options of fit",
    argument("--out", default="profile", metavar="FOLDER", help="of the trace; default: profile"),
    argument("--steps", type=whole, default=5, metavar="N", help="to look at; default: 5"),
)
def profile(options: argparse.Namespace) -> int:
    from seqlab.files.place_to_write import files_to_write

    if options.steps < 1:
        raise ValueError(f"--steps must be at least 1, got {options.steps}")
    trace = files_to_write(options.out, {TRACE: '"schemaVersion"'}) / TRACE

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would say when it begins and ends

    def profiled() -> None:
        from seqlab.cli.profiled import profiled

        profiled(options.overrides, options.steps, trace)

    return ran("profile", profiled)


VERBS = (profile,)
