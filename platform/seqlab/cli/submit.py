"""Verb for batch queues: submit."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from seqlab.cli.terminal import for_programs
from seqlab.cli.verb import argument, verb, whole

WARNING = 120
"""Seconds before the time limit at which SLURM signals a fit to stop."""
OURS = {"--trainer.devices": "--gpus", "--trainer.num_nodes": "--nodes", "--resume": "auto"}
"""Options that the script sets itself, with the submit option or value that sets them."""

# 138 is a fit's exit code after USR1, with `last` written; the requeued job continues from it.
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={gpus}
#SBATCH --gpus-per-node={gpus}
{time}#SBATCH --signal=USR1@{warning}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir={folder}

srun --kill-on-bad-exit=1 {fit}
code=$?
if [ "$code" -eq 138 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


@verb(
    "print the script of a SLURM job that fits and requeues itself until done",
    argument("--config", action="append", required=True, metavar="NAME|PATH", help="as in fit"),
    argument("--nodes", type=whole, default=1, metavar="N", help="number of nodes; default: 1"),
    argument("--gpus", type=whole, default=1, metavar="N", help="GPUs per node, one process each; default: 1"),
    argument("--time", metavar="D-HH:MM:SS", help="time limit after which the job is requeued; default: the queue's"),
    argument("--go", action="store_true", help="submit the script with sbatch"),
)
def submit(options: argparse.Namespace) -> int:
    script = sbatch_script(options.config, options.overrides, options.nodes, options.gpus, options.time)
    if not options.go:
        print(script, end="", file=for_programs())
        return 0
    try:
        return subprocess.run(["sbatch"], input=script, text=True).returncode
    except FileNotFoundError:
        raise ValueError("there is no sbatch on this machine; without --go the script is printed") from None


def sbatch_script(configs: list[str], overrides: list[str], nodes: int, gpus: int, time: str | None) -> str:
    """Script of a job with `nodes` times `gpus` processes, which runs in this folder and with this Python.

    Args:
        configs: config names or paths, as for `--config`.
        overrides: further options of `fit`.
        nodes, gpus: number of nodes, and of GPUs and processes per node.
        time: time limit in SLURM's format; None = the queue's limit.

    Raises:
        ValueError: an argument is invalid, or `fit` refuses its options.
    """
    for name, count in {"--nodes": nodes, "--gpus": gpus}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if time is not None and _seconds(time) <= WARNING:
        raise ValueError(f"--time must exceed the {WARNING} s before its end when a fit stops, got {time}")
    for given in overrides:
        if given.partition("=")[0] in OURS:
            raise ValueError(f"submit sets {given.partition('=')[0]} itself, by {OURS[given.partition('=')[0]]}")
    fit = [f"--config={config}" for config in configs] + overrides

    from seqlab.cli.parsed_fit import check_fit
    from seqlab.config.quiet import quiet

    quiet()
    run_name = check_fit([*fit, f"--trainer.num_nodes={nodes}", f"--trainer.devices={gpus}"])
    name, folder = f"seqlab-{run_name or Path(configs[-1]).stem}", os.getcwd()
    for what, text in {"name": name, "folder": folder}.items():
        if not text.isprintable():
            raise ValueError(f"the job's {what} is {text!r}; accepted: one line without control characters")
    command = [sys.executable, "-m", "seqlab", "fit", *fit]
    command += [f"--trainer.num_nodes={nodes}", f"--trainer.devices={gpus}", "--resume=auto"]
    return SCRIPT.format(
        name=shlex.quote(name),
        nodes=nodes,
        gpus=gpus,
        time="" if time is None else f"#SBATCH --time={time}\n",
        warning=WARNING,
        folder=shlex.quote(folder),
        fit=shlex.join(command),
    )


def _seconds(time: str) -> int:
    """Seconds of a time limit in SLURM's formats: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d\d))?(?::(\d\d))?", time)
    if found is None:
        raise ValueError(f"--time is {time!r}; accepted: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS")
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    hours_given = days is not None or len(numbers) == 3
    if not hours_given:
        numbers = [0, *numbers]
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    if (days is not None and hours > 23) or (hours_given and minutes > 59) or seconds > 59:
        raise ValueError(f"--time is {time!r}; with days hours are at most 23; minutes and seconds are at most 59")
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


VERBS = (submit,)
