"""`--mup`: scales a task before the fit, relative to the same config at the base width."""

from __future__ import annotations

from typing import Any

import torch

from seqlab.budgets.match import find_number, replaced
from seqlab.config.configs import build_task, told_by
from seqlab.config.errors import sentence
from seqlab.tasks.mup import begin_mup

BASE = 64
"""Base width of `--mup true`."""


def scale_by_width(task: Any, data: Any, config: dict[str, Any], mup: int) -> None:
    """Begins maximal-update parametrisation. The generator of random numbers is left as it was.

    Args:
        data: data module, which sets the model's other sizes.
        config: resolved nested config of plain values.
        mup: base width; True = `BASE`.

    Raises:
        ValueError: the model has no d_model or cannot have the base width, or as in `begin_mup`.
    """
    width = BASE if mup is True else mup
    path = find_number(config, "d_model", "--mup scales by d_model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            base = build_task(replaced(config, path, width), told_by(data))
        except ValueError as error:
            raise ValueError(f"--mup {width}: {sentence(error)}") from error
    begin_mup(task, base)
