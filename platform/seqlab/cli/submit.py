"""Verb for batch queues and clusters: submit."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from seqlab.cli.terminal import for_programs
from seqlab.cli.train_job import train_job
from seqlab.cli.verb import argument, verb, whole_number

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
    "print the script of a SLURM job that fits and requeues itself until done, or a TrainJob for Kubernetes",
    argument("--config", action="append", required=True, metavar="NAME|PATH", help="as in fit"),
    argument("--nodes", type=whole_number, default=1, metavar="N", help="number of nodes; default: 1"),
    argument("--gpus", type=whole_number, default=1, metavar="N", help="GPUs per node, one process each; default: 1"),
    argument("--time", metavar="D-HH:MM:SS", help="time limit after which the job is requeued; default: the queue's"),
    argument("--format", choices=["slurm", "trainjob"], default="slurm", help="kind of job; default: slurm"),
    argument("--image", help="of a TrainJob: container image with seqlab"),
    argument("--claim", metavar="NAME", help="of a TrainJob: volume claim with the data and the tracking store"),
    argument("--go", action="store_true", help="submit it with sbatch or kubectl"),
)
def submit(options: argparse.Namespace) -> int:
    slurm, at = options.format == "slurm", (options.nodes, options.gpus)
    for name in ("image", "claim") if slurm else ("time",):
        if getattr(options, name) is not None:
            raise ValueError(f"--format {options.format} takes no --{name}")
    if slurm:
        command, job = ["sbatch"], sbatch_script(options.config, options.overrides, *at, options.time)
    else:
        command = ["kubectl", "create", "--filename", "-"]
        job = train_job(*checked(options.config, options.overrides, *at), *at, options.image, options.claim)
    if not options.go:
        print(job, end="", file=for_programs())
        return 0
    try:
        return subprocess.run(command, input=job, text=True).returncode
    except FileNotFoundError:
        raise ValueError(f"there is no {command[0]} on this machine; without --go the job is printed") from None


def checked(configs: list[str], overrides: list[str], nodes: int, gpus: int) -> tuple[str | None, list[str]]:
    """Name of the run, if there is one, and the options of a fit by `nodes` times `gpus` processes.

    Args:
        configs: config names or paths, as for `--config`.
        overrides: further options of `fit`.
        nodes, gpus: number of nodes, and of GPUs and processes per node.

    Raises:
        ValueError: an argument is invalid, or `fit` refuses its options.
    """
    for name, count in {"--nodes": nodes, "--gpus": gpus}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    for given in overrides:
        if given.partition("=")[0] in OURS:
            raise ValueError(f"submit sets {given.partition('=')[0]} itself, by {OURS[given.partition('=')[0]]}")
    fit = [f"--config={config}" for config in configs] + overrides
    fit += [f"--trainer.num_nodes={nodes}", f"--trainer.devices={gpus}"]

    from seqlab.cli.parsed_fit import check_fit
    from seqlab.config.quiet import quiet

    quiet()
    return check_fit(fit), [*fit, "--resume=auto"]


def sbatch_script(configs: list[str], overrides: list[str], nodes: int, gpus: int, time: str | None) -> str:
    """Script of a job with `nodes` times `gpus` processes, which runs in this folder and with this Python.

    Args:
        configs, overrides, nodes, gpus: as for `checked`.
        time: time limit in SLURM's format; None = the queue's limit.

    Raises:
        ValueError: an argument is invalid, or `fit` refuses its options.
    """
    if time is not None and _seconds(time) <= WARNING:
        raise ValueError(f"--time must exceed the {WARNING} s before its end when a fit stops, got {time}")
    run_name, fit = checked(configs, overrides, nodes, gpus)
    name, folder = f"seqlab-{run_name or Path(configs[-1]).stem}", os.getcwd()
    for what, text in {"name": name, "folder": folder}.items():
        if not text.isprintable():
            raise ValueError(f"the job's {what} is {text!r}; accepted: one line without control characters")
    return SCRIPT.format(
        name=shlex.quote(name),
        nodes=nodes,
        gpus=gpus,
        time="" if time is None else f"#SBATCH --time={time}\n",
        warning=WARNING,
        folder=shlex.quote(folder),
        fit=shlex.join([sys.executable, "-m", "seqlab", "fit", *fit]),
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
