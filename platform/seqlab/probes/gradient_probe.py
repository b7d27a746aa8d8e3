"""Reach of the gradient back in time, while a model is trained."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch import nn

from seqlab.models.reading import read
from seqlab.probes.probe import Probe
from seqlab.probes.through_time import gradients_of, last_stack


class GradientProbe(Probe):
    """Logs in each validation `gradient_back/K` for K = 1, 2, 4, ... up to the length of what is read: the norm of the
    gradient of the last output of the model's stack by the embedded input K steps before it, over that by its own input
    (Bengio et al. 1994, "Learning long-term dependencies with gradient descent is difficult"; Pascanu et al. 2013, "On
    the difficulty of training recurrent neural networks", section 2). For an encoder-decoder it is that of the decoder.

    Args:
        rows: number of rows of the first batch, pooled in each value.
    """

    def check(self, model: nn.Module) -> None:
        last_stack(model)

    def find(self, model: nn.Module, batch: Any) -> dict[str, float]:
        by_steps = gradients_of(model, partial(read, model, batch)).tolist()
        steps = [2**k for k in range(len(by_steps).bit_length()) if 2**k < len(by_steps)]
        return {f"gradient_back/{k}": by_steps[k] for k in steps if not math.isnan(by_steps[k])}
