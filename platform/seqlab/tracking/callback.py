"""What a fit stores of itself in its run, beside the metrics that the task logs."""

from __future__ import annotations

import math
import resource
import sys
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from seqlab.batch import IGNORE
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.params import config_hash, to_yaml
from seqlab.tracking.provenance import package_versions, provenance
from seqlab.tracking.system import SystemMetrics


class DivergedError(ValueError):
    """The training loss is not a finite number."""


class RunTracker(Callback):
    """Stores in the run of a `RunLogger` where it comes from, how fast it trains and how it ends.

    docs/tracking.md lists what is stored. Without a `RunLogger` it only watches the loss. It works on rank 0, where
    it takes the other ranks' batches to be of its own size.

    Args:
        config: the resolved configuration, nested, of plain values.

    Raises:
        DivergedError: in the fit, when the training loss becomes NaN or infinite.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config = config or {}
        self.num_tokens = 0
        self.train_seconds = 0.0
        self._clock = Stopwatch()
        self._system: SystemMetrics | None = None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        logger = _run_logger(trainer)
        if logger is None:
            return
        if self.config:
            logger.log_text(to_yaml(self.config), "config.yaml")
            logger.log_hyperparams(self.config)
            logger.log_tags({"config_hash": config_hash(self.config)})
        logger.log_text("".join(f"{k}=={v}\n" for k, v in package_versions().items()), "packages.txt")
        logger.log_tags(provenance())
        describe = getattr(trainer.datamodule, "describe", None)  # type: ignore[attr-defined]
        if describe is not None:
            logger.log_dataset(describe())
        logger.log_metrics(_sizes(pl_module), step=0)
        logger.flush()
        self._system = SystemMetrics()
