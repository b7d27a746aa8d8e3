"""seqlab's own options of fit and the other verbs of Lightning: data, so that the help need not import Lightning."""

from __future__ import annotations

from typing import Any, NamedTuple


class Option(NamedTuple):
    name: str
    type: Any
    default: Any
    help: str


OPTIONS = (
    Option("experiment", str, "seqlab", "MLflow experiment of the run."),
    Option("run_name", str | None, None, "Name of the run; None = a new one."),
    Option("init_from", str | None, None, "Run whose weights to begin with."),
    Option("encoder_from", str | None, None, "Run whose encoder to begin with."),
    Option("freeze_encoder", bool, False, "Do not train that encoder."),
    Option("word_vectors", str | None, None, "Word vectors to begin with, as text."),
    Option("compile", bool, False, "Compile the inner model."),
    Option("checkpoint_every", int, 500, "Optimiser steps between writes of last.ckpt."),
    Option("checkpoint_minutes", float, 5.0, "Minutes after which last.ckpt is written anyway."),
)
PREDICT = (Option("out", str, "predictions.jsonl", "File for the predictions."),)


def options(verb: str) -> tuple[Option, ...]:
    """Those of a verb."""
    return OPTIONS + PREDICT if verb == "predict" else OPTIONS


def wants_help(args: list[str]) -> bool:
    """Whether a command line asks for this help; `--help all` asks for jsonargparse's."""
    asked = [place for place, arg in enumerate(args) if arg in ("-h", "--help") or arg.split("=")[0].endswith(".help")]
    return bool(asked) and args[asked[0] + 1 : asked[0] + 2] != ["all"]
