"""Processor time of `seqlab fit --config lm/gru` by part, up to its first step, and that of its help.

Each share is the minimum over three processes, in seconds of user and system time together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

ROUNDS = 3
AFTER = "after it: MLflow, its store, the run"
SCRIPT = """
import gc, json, sys, time
gc.disable()  # as the command line does while it imports
shares, before = {}, 0.0

def mark(name):
    global before
    shares[name], before = time.process_time() - before, time.process_time()

import seqlab.cli
mark("Python and the command line")
import torch
mark("PyTorch")
import torch._dynamo
mark("torch._dynamo, which optimisers need")
from seqlab.config.quiet import import_torchmetrics
import_torchmetrics()
import lightning
mark("Lightning")
import seqlab.cli.lightning_cli
from seqlab.config.configs import import_blocks
import_blocks()
gc.freeze()
gc.enable()
mark("seqlab's blocks")
from seqlab.tasks import LanguageModeling
from seqlab.tracking.logger import RunLogger
from seqlab.cli.lightning_cli import SeqlabCLI
fit, step, begin = SeqlabCLI.before_fit, LanguageModeling.training_step, RunLogger.begin

def parsed(*args):
    mark("config, model")
    fit(*args)

def first(*args):
    mark("data, sanity check, files of the run")
    return step(*args)

def stepped(*args):
    mark("the first step")
    begin(*args)
    mark(sys.argv[1])

SeqlabCLI.before_fit, LanguageModeling.training_step, RunLogger.begin = parsed, first, stepped
seqlab.cli.main(["fit", "--config=lm/gru", "--trainer.max_steps=1"])
print(json.dumps(shares))
"""


def fit(folder: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, AFTER], cwd=folder, capture_output=True, text=True, check=True)
    shares: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return shares


def help_seconds(folder: str, *args: str) -> float:
    before = os.times()
    command = [sys.executable, "-c", "from seqlab.cli import main; main()", "fit", *args]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fits = [fit(folder) for _ in range(ROUNDS)]
        least = {name: min(shares[name] for shares in fits) for name in fits[0]}
        until = sum(seconds for name, seconds in least.items() if name != AFTER)
        for name, seconds in [*least.items(), ("up to the first step", until)]:
            print(f"{name:40}{seconds:6.2f} s")
        for args in (["--help"], ["--config", "lm/gru", "--help"]):
            seconds = min(help_seconds(folder, *args) for _ in range(ROUNDS))
            print(f"{'seqlab fit ' + ' '.join(args):40}{seconds:6.2f} s")
    print(f"measured in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
