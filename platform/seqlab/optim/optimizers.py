"""Optimisers, and which parameters they decay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import nn

Groups: TypeAlias = list[dict[str, Any]]
"""As `torch.optim` takes them: "params", and the options of these, such as "weight_decay"."""


class Optimizer(ABC):
    """What is made of groups and a learning rate: those below by their names, and any of `torch.optim` by its path."""

    @abstractmethod
    def step(self) -> Any:
        """Changes the parameters by their gradients."""


Optimizer.register(torch.optim.Optimizer)


class AdamW(torch.optim.AdamW, Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    Args:
        betas: decay rates of the two moments.
        eps: added to the root of the second; where weights are float16, in which 1e-8 is 0, at least 1e-4.
    """

    def __init__(
        self, groups: Groups, lr: float, *, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8
    ) -> None:
        in_half = any(weight.dtype == torch.float16 for group in groups for weight in group["params"])
        super().__init__(groups, lr=lr, betas=betas, eps=max(eps, 1e-4) if in_half else eps, weight_decay=0.0)


class SGD(torch.optim.SGD, Optimizer):
    """Stochastic gradient descent with momentum (Polyak 1964); the weight decay is added to the gradient.

    Args:
        momentum: decay rate of the sum of gradients; 0 = none is kept.
        nesterov: look ahead along the momentum (Sutskever et al. 2013).
    """

    def __init__(self, groups: Groups, lr: float, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov)


class ParameterGroups(ABC):
    """Which parameters are trained alike. It is made of the weight decay."""

    @abstractmethod
    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        """Every parameter in one group, by its name in the model. Checkpoints rely on their order."""


class DecayMatrices(ParameterGroups):
    """Decays the weights of matrices and embeddings: what has two dimensions and `weight` in the last part of its name.
    Biases, gains, decay rates and the like are left alone."""

    def __init__(self, weight_decay: float) -> None:
        self.weight_decay = weight_decay

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        decayed: Groups = [{"params": [], "weight_decay": self.weight_decay}, {"params": [], "weight_decay": 0.0}]
        for name, parameter in parameters:
            is_matrix = parameter.dim() >= 2 and "weight" in name.rpartition(".")[2]
            decayed[0 if is_matrix else 1]["params"].append(parameter)
        return decayed
