"""Lightning without what it would import for nothing, and without its advertisements and the warnings that are idle."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from typing import Any, cast
from unittest.mock import patch

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
    # A state is never changed in place.
    r"FSDP2-wrapped module \(\w+\) returned a view tensor",
)
LOGGERS = ("lightning.pytorch", "lightning.fabric")
UNHEEDED = "torch.distributed.tensor._redistribute"
"""Warns of the order in which weights that are both cut and sharded are gathered, which is FSDP2's own."""
UNUSED = ("matplotlib", "scipy", "transformers")
"""Optional for torchmetrics; together they take longer to import than PyTorch."""


def import_torchmetrics() -> None:
    """Imports torchmetrics as if those of `UNUSED` that are not imported yet were not installed.

    To be called before Lightning is imported. A task of one's own that plots a metric imports matplotlib and then
    reloads `torchmetrics.utilities.plot`.
    """
    import torch  # noqa: F401  # with all that is installed
    from lightning_utilities.core.imports import RequirementCache, package_available

    absent = [name for name in UNUSED if name not in sys.modules]
    is_met = RequirementCache.__bool__

    def is_met_and_used(requirement: RequirementCache) -> bool:
        return re.split(r"\W", requirement.requirement or "")[0] not in absent and is_met(requirement)

    sys.modules.update(dict.fromkeys(absent, cast(Any, None)))  # a module that is None is not found
    try:
        with patch.object(RequirementCache, "__bool__", is_met_and_used):
            import torchmetrics  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]
        package_available.cache_clear()


def quiet() -> None:
    """Silences `IGNORED`, and what Lightning says that is not a warning ("GPU available", tips).

    To be called after Lightning is imported, which sets its own levels.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(UNHEEDED).setLevel(logging.ERROR)
    # Lightning calls jsonargparse by names that a later version drops.
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for message in IGNORED:
        warnings.filterwarnings("ignore", message=message)
