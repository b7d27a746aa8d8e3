"""Suppression of Lightning's unneeded imports, advertisements and irrelevant warnings."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from typing import Any, cast
from unittest.mock import patch

IGNORED = (
    # Lightning itself calls a function that newer versions of torch deprecate.
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # Batches are slices of a memory map, so workers would not be faster.
    r"The '\w+' does not have many workers",
    # Metrics are logged by optimiser step, counted over all epochs.
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    # A resumed run already has checkpoints.
    r"Checkpoint directory .* exists and is not empty",
    # Metrics are torchmetrics, which reduce over ranks when computed.
    r"It is recommended to use `self.log\(.*sync_dist=True\)`",
    # seqlab's command line passes its arguments to LightningCLI.
    r"LightningCLI's args parameter is intended",
    # `check_precision` refuses this combination.
    r"You passed `Trainer\(accelerator='cpu', precision='16-mixed'\)`",
    # An evaluation needs no callbacks for tracking and checkpoints.
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # Multiple processes on a cluster are requested explicitly.
    r"The `srun` command is available on your system but is not used",
    # In 16-mixed the scaler skips the first steps, until the gradients are finite.
    r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`",
    # A state is never modified in place.
    r"FSDP2-wrapped module \(\w+\) returned a view tensor",
)
LOGGERS = ("lightning.pytorch", "lightning.fabric")
UNHEEDED = "torch.distributed.tensor._redistribute"
"""Logger that warns about the gather order of weights that are both tensor-parallel and sharded, set by FSDP2."""
UNUSED = ("matplotlib", "scipy", "transformers")
"""Optional dependencies of torchmetrics; importing them takes longer than importing PyTorch."""


def import_torchmetrics() -> None:
    """Imports torchmetrics as if packages in `UNUSED` that are not yet imported were not installed.

    Call this before importing Lightning. A custom task that plots a metric must import matplotlib and then reload
    `torchmetrics.utilities.plot`.
    """
    import torch  # noqa: F401  # imported normally, with every installed package visible
    from lightning_utilities.core.imports import RequirementCache, package_available

    absent = [name for name in UNUSED if name not in sys.modules]
    is_met = RequirementCache.__bool__

    def is_met_and_used(requirement: RequirementCache) -> bool:
        return re.split(r"\W", requirement.requirement or "")[0] not in absent and is_met(requirement)

    sys.modules.update(dict.fromkeys(absent, cast(Any, None)))  # a None entry makes the import fail
    try:
        with patch.object(RequirementCache, "__bool__", is_met_and_used):
            import torchmetrics  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]
        package_available.cache_clear()


def quiet() -> None:
    """Silences `IGNORED` warnings and Lightning's info messages ("GPU available", tips).

    Call this after importing Lightning, which sets log levels itself.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(UNHEEDED).setLevel(logging.ERROR)
    # Lightning uses jsonargparse names that are deprecated.
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for message in IGNORED:
        warnings.filterwarnings("ignore", message=message)
