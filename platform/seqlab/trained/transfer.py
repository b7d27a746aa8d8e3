"""Initialisation from another run: all of its weights, or the weights of its encoder."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor

from seqlab.tracking.runs import find_run
from seqlab.trained.load import merged_weights
from seqlab.trained.stored_model import check_same

EMBEDDING = "embedding.weight"


def begin_with(task: L.LightningModule, run: str) -> None:
    """Initialises a task with the weights of a run.

    Raises:
        ValueError: the run does not exist, or its model differs.
    """
    _load("--init_from", run, task, _weights("--init_from", run))


def begin_encoder_with(task: Any, run: str, *, freeze: bool) -> None:
    """Initialises the encoder of a task's model with the encoder of a run. Extra embeddings at the end of the run's
    vocabulary, such as the mask token, are dropped.

    Args:
        freeze: whether to freeze the encoder.

    Raises:
        ValueError: the run does not exist, a model has no encoder, or the encoders differ.
    """
    if not hasattr(task.model, "encoder"):
        raise ValueError(f"--encoder_from {run}: this model, {type(task.model).__name__}, has no encoder")
    prefix = "model.encoder."
    weights = {
        name.removeprefix(prefix): weight
        for name, weight in _weights("--encoder_from", run).items()
        if name.startswith(prefix)
    }
    if not weights:
        raise ValueError(f"--encoder_from {run}: the run's model has no encoder")
    own = task.model.encoder.state_dict()
    if EMBEDDING in own and EMBEDDING in weights and weights[EMBEDDING].shape[:1] > own[EMBEDDING].shape[:1]:
        weights[EMBEDDING] = weights[EMBEDDING][: len(own[EMBEDDING])]
    _load("--encoder_from", run, task.model.encoder, weights)
    task.model.encoder.requires_grad_(not freeze)


def _weights(option: str, run: str) -> dict[str, Tensor]:
    checkpoint = find_run(run).checkpoint
    if checkpoint is None:
        raise ValueError(f"{option} {run}: the run has no checkpoint")
    return merged_weights(checkpoint)


def _load(option: str, run: str, module: torch.nn.Module, weights: dict[str, Tensor]) -> None:
    try:
        check_same(module.state_dict(), weights)
    except ValueError as error:
        raise ValueError(f"{option} {run}: its model differs from this one: {error}") from error
    module.load_state_dict(weights)
