"""Optimisers of groups of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import lion_pytorch
import torch

from seqlab.optim.groups import Groups


class Optimizer(ABC):
    """Base of optimisers made from groups and a learning rate: seqlab's by name, any of `torch.optim` by its path."""

    @abstractmethod
    def step(self) -> Any:
        """Changes the parameters by their gradients."""


Optimizer.register(torch.optim.Optimizer)


class AdamW(torch.optim.AdamW, Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    Args:
        betas: decay rates of the two moments.
        eps: added to the root of the second; where weights are float16, in which 1e-8 is 0, at least 1e-4.
        fused: all of it in one kernel; None = on a GPU. A CPU's is faster too, and differs in the last bits.
    """

    def __init__(
        self,
        groups: Groups,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        fused: bool | None = None,
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, eps=eps, weight_decay=0.0)
        weights = [weight for group in self.param_groups for weight in group["params"]]
        if fused is None and all(weight.is_cuda for weight in weights):
            fused = True
        for group in self.param_groups:
            # Not by the constructor: in 16-mixed, gradients are to be divided by their scale before they are clipped.
            group["fused"] = fused or None  # None = several weights in a call where there is a GPU
            if any(weight.dtype == torch.float16 for weight in weights):
                group["eps"] = max(eps, 1e-4)


class SGD(torch.optim.SGD, Optimizer):
    """Stochastic gradient descent with momentum (Polyak 1964); the weight decay is added to the gradient.

    Args:
        momentum: decay rate of the sum of gradients; 0 = none is kept.
        nesterov: look ahead along the momentum (Sutskever et al. 2013).
    """

    def __init__(self, groups: Groups, lr: float, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov)


class Adafactor(torch.optim.Adafactor, Optimizer):
    """Adam whose second moment of a matrix is kept as one number a row and one a column (Shazeer & Stern 2018), with no
    first; `lr` is relative to the size of a weight.

    Args:
        beta2_decay: the decay rate of the second moment at step t is 1 - t^beta2_decay.
        clip: the largest root mean square of an update.
    """

    def __init__(self, groups: Groups, lr: float, *, beta2_decay: float = -0.8, clip: float = 1.0) -> None:
        super().__init__(groups, lr=lr, beta2_decay=beta2_decay, d=clip, weight_decay=0.0)


class Lion(lion_pytorch.Lion, Optimizer):  # type: ignore[misc]
    """The sign of a momentum (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"). Its authors advise
    a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.

    Args:
        betas: how much of the momentum is in an update, and its decay rate.
    """

    def __init__(self, groups: Groups, lr: float, *, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(groups, lr=lr, betas=betas)
