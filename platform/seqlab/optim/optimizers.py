"""Optimisers over parameter groups."""

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
        """Updates the parameters from their gradients."""


Optimizer.register(torch.optim.Optimizer)


class AdamW(torch.optim.AdamW, Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    Args:
        betas: decay rates of the two moments.
        eps: added to the root of the second moment; raised to at least 1e-4 for float16 weights, where 1e-8 is 0.
        fused: whether to use the fused kernel; None = only on a GPU. It is faster on a CPU too, but differs in the last
            bits.
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
            # Not set in the constructor: with 16-mixed, gradients must be unscaled before they are clipped.
            group["fused"] = fused or None  # None = multi-tensor (foreach) on a GPU
            if any(weight.dtype == torch.float16 for weight in weights):
                group["eps"] = max(eps, 1e-4)


class SGD(torch.optim.SGD, Optimizer):
    """Stochastic gradient descent with momentum (Polyak 1964); the weight decay is added to the gradient.

    Args:
        momentum: decay rate of the momentum; 0 = no momentum.
        nesterov: whether to use Nesterov momentum (Sutskever et al. 2013).
    """

    def __init__(self, groups: Groups, lr: float, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov)


class Adafactor(torch.optim.Adafactor, Optimizer):
    """Adam without a first moment, whose second moment of a matrix is factored into one number per row and per column
    (Shazeer & Stern 2018); `lr` is relative to the size of a weight.

    Args:
        beta2_decay: exponent of the second moment's decay rate, 1 - t^beta2_decay at step t.
        clip: maximum root mean square of an update.
    """

    def __init__(self, groups: Groups, lr: float, *, beta2_decay: float = -0.8, clip: float = 1.0) -> None:
        super().__init__(groups, lr=lr, beta2_decay=beta2_decay, d=clip, weight_decay=0.0)


class Lion(lion_pytorch.Lion, Optimizer):  # type: ignore[misc]
    """Sign of the momentum (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"). Its authors recommend
    a learning rate 3 to 10 times smaller than AdamW's, and a weight decay larger by the same factor.

    Args:
        betas: weight of the momentum in an update, and decay rate of the momentum.
    """

    def __init__(self, groups: Groups, lr: float, *, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(groups, lr=lr, betas=betas)
