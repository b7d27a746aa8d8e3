"""Muon: orthogonalised momentum for matrices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from seqlab.optim.groups import Groups, is_matrix
from seqlab.optim.optimizers import AdamW, Optimizer


class Muon(torch.optim.Optimizer, Optimizer):
    """Momentum of each matrix, orthogonalised by Newton-Schulz iterations (Jordan et al. 2024, "Muon"); AdamW trains
    all other parameters: vectors, and tables with a row per token or class. Updates are scaled to the size of AdamW's
    (Liu et al. 2025, "Muon is Scalable for LLM Training"), so both share one learning rate.

    Args:
        momentum: decay rate of Muon's momentum.
        betas: decay rates of AdamW's two moments.
        others: regular expression; matrices whose names it matches anywhere are trained by AdamW.

    Raises:
        ValueError: there is no matrix for Muon.
    """

    def __init__(
        self,
        groups: Groups,
        lr: float,
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
        others: str = r"embedding\.|positions\.|head\.|norm",
    ) -> None:
        matrices: Groups = []
        rest: Groups = []
        for group in groups:
            named = list(zip(group["params"], group["param_names"], strict=True))
            is_matrix = [_is_one(name, weight) and not re.search(others, name) for weight, name in named]
            for chosen, kind in ((matrices, True), (rest, False)):
                its = [one for one, found in zip(named, is_matrix, strict=True) if found == kind]
                params, names = [weight for weight, _ in its], [name for _, name in its]
                chosen += [{**group, "params": params, "param_names": names}] if its else []
        if not matrices:
            raise ValueError(
                f"Muon has no matrix to optimise: the name of every trained matrix matches others = {others!r}, which "
                "selects the parameters of AdamW"
            )
        muon = torch.optim.Muon(matrices, lr=lr, momentum=momentum, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
        self._inner: list[tuple[torch.optim.Optimizer, int]] = [(muon, len(matrices))]
        if rest:
            self._inner.append((AdamW(rest, lr, betas=betas), len(rest)))
        super().__init__([group for inner, _ in self._inner for group in inner.param_groups], {"lr": lr})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        first = 0
        for inner, count in self._inner:
            # Loading a checkpoint replaces the groups and the state.
            inner.param_groups, inner.state = self.param_groups[first : first + count], self.state
            inner.step()
            first += count
        return loss


def _is_one(name: str, weight: nn.Parameter) -> bool:
    """True for a proper matrix: not a table of gains, biases or decay rates, and not a single row or column."""
    return weight.dim() == 2 and min(weight.shape) > 1 and is_matrix(name, weight)
