"""Verb for bug reports: env."""

from __future__ import annotations

import argparse

from seqlab.cli.verb import verb


@verb("print versions, processor, BLAS, devices and the store, for a bug report")
def env(options: argparse.Namespace) -> int:
    from seqlab.tracking.provenance import environment

    found = environment()
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")
    return 0


VERBS = (env,)
