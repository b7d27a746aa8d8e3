"""Keeps Lightning's advertisements, and warnings about what seqlab does on purpose, off the user's screen."""

from __future__ import annotations

import logging
import os
import warnings

IGNORED = (
    # Lightning's own call of a torch function that newer versions of torch deprecate.
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # Batches are slices of a memory map: loading them in the training process is as fast.
    r"The '\w+' does not have many workers",
    # Points are logged by optimiser steps, which are counted over all epochs.
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    # A run that is resumed has checkpoints.
    r"Checkpoint directory .* exists and is not empty",
    # Metrics are torchmetrics, which add over the ranks when they are computed.
    r"It is recommended to use `self.log\(.*sync_dist=True\)`",
    # seqlab's command line hands its arguments on.
    r"LightningCLI's args parameter is intended",
    # `check_precision` refuses it.
    r"You passed `Trainer\(accelerator='cpu', precision='16-mixed'\)`",
    # Tracking and writing checkpoints are a fit's; an evaluation needs neither.
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # Whoever is on a cluster and wants more than one process says so.
    r"The `srun` command is available on your system but is not used",
)
LOGGERS = ("lightning.pytorch", "lightning.fabric")


def quiet() -> None:
    """Silences `IGNORED`, and what Lightning says that is not a warning ("GPU available", tips).

    To be called after Lightning is imported, which sets its own levels.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Lightning calls jsonargparse by names that a later version drops.
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for message in IGNORED:
        warnings.filterwarnings("ignore", message=message)
