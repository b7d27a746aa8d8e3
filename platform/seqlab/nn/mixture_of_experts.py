"""Mixture of experts: a feed-forward of which each token computes a few parts, chosen by a router.

D d_model, E experts, F width of an expert, k experts of a token, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.nn.feed_forward import FeedForward, SwiGLU
from seqlab.nn.numerics import at_least_float32, without_autocast
from seqlab.nn.operation import operation


class StackedLinear(nn.Module):
    """The weights (E, outputs, inputs) of E linear layers without biases, initialised as those of `nn.Linear`."""

    def __init__(self, num_layers: int, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = in_features**-0.5
        self.weight = nn.Parameter(torch.empty(num_layers, out_features, in_features).uniform_(-bound, bound))


class MixtureOfExperts(FeedForward):
    """sum_e g_e expert_e(x) over the top_k experts that a router chooses for each token (Shazeer et al. 2017), each a
    `SwiGLU`, plus the experts that all tokens share (Dai et al. 2024, "DeepSeekMoE").

    An expert's affinity to a token is the softmax or the sigmoid of a linear layer, in at least float32. The gates g
    are the affinities of the chosen experts divided by their sum, with "softmax" the softmax over these (Jiang et al.
    2024, "Mixtral"), with "sigmoid" as in DeepSeek-V3 (section 2.1.2). The gate of a single expert is its affinity
    (Fedus et al. 2021, "Switch Transformer"): divided by itself, it would have no gradient. No token is dropped.

    Experts are chosen by the affinity plus a bias, which `balance` moves after each optimiser step by balance_rate
    towards equal loads (Wang et al. 2024, "Auxiliary-loss-free load balancing strategy for mixture-of-experts"). A
    load is the number of tokens that an expert computes in training, padding included. An exported step reads the
    chosen experts only; the graph of whole sequences computes all and multiplies those not chosen by 0.

    Args:
        d_ff: width of an expert; None = 8/3 d_model / (top_k + num_shared) rounded up to a multiple of 8, with which a
            token costs what it costs in `SwiGLU`.
        num_experts: number of experts to choose from.
        top_k: number of experts chosen for a token.
        num_shared: number of experts that all tokens share.
        router: affinity of an expert to a token.
        balance_rate: change of a bias in an optimiser step; 0 = no balancing.

    Attributes:
        raises: (E,) int64, number of steps that raised a bias less the number that lowered it. Half precision would
            lose such small changes of a bias itself.
        load: (E,), tokens of each expert since the last call of `balance`. Under activation checkpointing all may count
            twice, which `balance` does not see.

    Raises:
        ValueError: top_k is not in 1 .. num_experts, d_ff is below 1, or num_shared or balance_rate is below 0.
    """

    raises: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        d_ff: int | None = None,
        num_experts: int = 8,
        top_k: int = 2,
        num_shared: int = 0,
        router: Literal["softmax", "sigmoid"] = "softmax",
        balance_rate: float = 1e-3,
    ) -> None:
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"top_k must be in 1 to num_experts, got top_k {top_k} and num_experts {num_experts}")
        if num_shared < 0 or not balance_rate >= 0:
            raise ValueError(f"num_shared and balance_rate must be at least 0, got {num_shared} and {balance_rate}")
        d_ff = -(-8 * d_model // (24 * (top_k + num_shared))) * 8 if d_ff is None else d_ff
        if d_ff < 1:
            raise ValueError(f"the width of an expert must be at least 1, got {d_ff}")
        self.top_k, self.sigmoid, self.balance_rate = top_k, router == "sigmoid", balance_rate
        self.router = nn.Linear(d_model, num_experts, bias=False)
        self.gate_proj = StackedLinear(num_experts, d_model, d_ff)
        self.up_proj = StackedLinear(num_experts, d_model, d_ff)
        self.down_proj = StackedLinear(num_experts, d_ff, d_model)
        self.shared = SwiGLU(d_model, d_ff=num_shared * d_ff) if num_shared else None
        self.register_buffer("raises", torch.zeros(num_experts, dtype=torch.int64))
        self.load: Tensor | int = 0

    @property
    def expert_size(self) -> int:
        """Number of weights of an expert, 3 F D."""
        return 3 * self.down_proj.weight[0].numel()

    def forward(self, x: Tensor) -> Tensor:
        chosen, gates = self.route(x)
        load = torch.zeros_like(self.raises).scatter_add(0, chosen.flatten(), torch.ones_like(chosen.flatten()))
        if self.training and torch.is_grad_enabled():
            self.load = self.load + load
        y = mixed(x, chosen, gates, load, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)
        return y if self.shared is None else y + self.shared(x)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts of each token of x (..., D), and their gates: (..., k) both."""
        with without_autocast(x):
            logits = F.linear(at_least_float32(x), at_least_float32(self.router.weight))  # (..., E)
            affinities = logits.sigmoid() if self.sigmoid else logits.softmax(dim=-1)
            chosen = torch.add(affinities, self.raises, alpha=self.balance_rate).topk(self.top_k, dim=-1).indices
            gates = affinities.gather(-1, chosen)
            if self.top_k > 1:
                gates = gates / gates.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(gates.dtype).tiny)
        return chosen, gates


@operation
def mixed(x: Tensor, chosen: Tensor, gates: Tensor, load: Tensor, *layers: Tensor) -> Tensor:
    """Sum of the outputs of each token's chosen experts, times their gates; tokens are grouped by expert.

    Args:
        x: (..., D), tokens.
        chosen, gates: (..., k), as in `MixtureOfExperts.route`.
        load: (E,), number of tokens of each expert.
        layers: weights of the experts, gate and up (E, F, D) and down (E, D, F).
    """
    order = chosen.flatten().argsort(stable=True)  # (N k,)
    rows = x.flatten(0, -2)[order // chosen.shape[-1]]  # (N k, D)
    columns = torch.split(rows.mT, numbers(load, len(order)), dim=1)
    own = zip(columns, *(layer.unbind() for layer in layers), strict=True)
    outputs = torch.cat([expert(*each) for each in own], dim=1).mT[order.argsort()]  # (N k, D)
    return combined(outputs.view(*chosen.shape, -1), gates).to(x.dtype)


@operation
def numbers(load: Tensor, total: int) -> list[int]:
    """Elements of load (E,), which add up to `total`."""
    return cast(list[int], load.tolist())


def expert(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Output of experts, (..., D, n), for columns x (..., D, n)."""
    return down @ (F.silu(gate @ x) * (up @ x))


def combined(outputs: Tensor, gates: Tensor) -> Tensor:
    """Sum (..., D) of the outputs (..., k, D) of experts times their gates (..., k)."""
    return (outputs * gates.unsqueeze(-1)).sum(dim=-2)


@torch.no_grad()
def balance(model: nn.Module, add_up: Callable[[Tensor], tuple[Tensor, ...]]) -> Tensor | None:
    """Raises the biases of experts whose load since the last call is below the mean, lowers those above it, and begins
    to count anew. Called once in each optimiser step.

    Args:
        add_up: sums a tensor over data-parallel ranks.

    Returns:
        Largest load divided by the mean load, over all layers, (); None = the model has no experts.
    """
    mixtures = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    if not mixtures:
        return None
    (loads,) = add_up(torch.cat([torch.zeros_like(part.raises) + part.load for part in mixtures]))
    ratios = []
    for part, load in zip(mixtures, torch.split(loads, [len(part.raises) for part in mixtures]), strict=True):
        total, times = load.sum(), load * len(load)  # load / mean = times / total
        part.raises += (total - times).sign()
        part.load = 0
        ratios.append(times.max() / total.clamp(min=1))
    return torch.stack(ratios).max()


def num_active_params(model: nn.Module) -> int:
    """Number of parameters of a model without those of the experts that a token does not choose."""
    mixtures = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    idle = sum((len(part.raises) - part.top_k) * part.expert_size for part in mixtures)
    return sum(parameter.numel() for parameter in model.parameters()) - idle
