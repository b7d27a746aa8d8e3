"""Arithmetic estimate of the time and memory of training; nothing is allocated."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch

from seqlab.budgets.activations import Activations, activations
from seqlab.budgets.devices import DEVICES
from seqlab.budgets.flops import training_flops
from seqlab.config.configs import build_task, read_config

BYTES = 16
"""Bytes per parameter, in float32 as mixed precision keeps it: weight, gradient and AdamW's two moments."""
SECONDS_A_DAY = 86400


class Estimate(NamedTuple):
    """Attributes:
    num_flops: training FLOPs per token.
    memory: bytes of weights, gradients and optimiser moments of the whole model.
    activations: activation memory; None = unknown.
    """

    num_params: int
    num_flops: float
    memory: float
    days: float
    seq_len: int
    activations: Activations | None


def estimate(config: str, *, device: str, devices: int, mfu: float, tokens: float, vocab_size: int) -> Estimate:
    """Estimates the training of a packaged config or of a config file.

    Args:
        device: one of `DEVICES`; training runs in bfloat16.
        mfu: model FLOPs utilisation: the fraction of the dense peak that is reached, in (0, 1].
        vocab_size: vocabulary size that the data would set.

    Raises:
        ValueError: a number is out of range, the device is unknown, or the config has no seq_len or no token model.
    """
    if device not in DEVICES:
        raise ValueError(f"--device {device} is not known; accepted: {', '.join(DEVICES)}")
    if not (devices >= 1 and 0 < mfu <= 1 and tokens > 0 and vocab_size >= 1):
        raise ValueError("--devices and --vocab-size must be at least 1, --tokens above 0 and --mfu in 0 to 1")
    stored = read_config(config)
    data, model = stored.get("data"), stored.get("model")
    seq_len = data.get("init_args", {}).get("seq_len") if isinstance(data, dict) else None
    if not (isinstance(model, dict) and isinstance(seq_len, int)):
        raise ValueError(f"--config {config} has no model and data.seq_len; give the config of a language model")
    told = {"vocab_size": vocab_size, "seq_len": seq_len}
    with torch.device("meta"):
        task = build_task(stored, told)
    flops = training_flops(task.model, seq_len)
    num_params = sum(parameter.numel() for parameter in task.parameters())
    days = flops * tokens / (DEVICES[device].half * devices * mfu) / SECONDS_A_DAY
    kept = None
    with suppress(ValueError):  # unknown
        kept = activations(lambda: build_task(stored, told).model, seq_len)
    return Estimate(num_params, flops, num_params * BYTES, days, seq_len, kept)
