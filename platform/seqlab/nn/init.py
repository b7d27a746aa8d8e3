"""Initialisation of weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqlab.nn.embedding import ScaledEmbedding
from seqlab.nn.mixture_of_experts import StackedLinear


def init_gpt2(model: nn.Module, num_layers: int) -> None:
    """Initialises linear and embedding weights from N(0, 0.02) and biases to zero. Layers that write to the residual
    stream (`out_proj`, `down_proj`) are scaled by 1/sqrt(2 num_layers) (Radford et al. 2019, section 2.3). A
    `ScaledEmbedding` is initialised as in `init_transformer`. Recurrent cells keep PyTorch's initialisation.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding | StackedLinear):
            writes_residual = name.endswith(("out_proj", "down_proj"))
            std = 0.02 / math.sqrt(2 * num_layers) if writes_residual else 0.02
            if isinstance(module, ScaledEmbedding):
                std = module.embedding_dim**-0.5
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def init_transformer(model: nn.Module) -> None:
    """Initialises linear weights uniformly (Glorot & Bengio 2010), biases to zero, and embeddings from N(0, 1/d_model),
    to be scaled by sqrt(d_model) (Vaswani et al. 2017, section 3.4, and their code). Unscaled token embeddings and
    their position embeddings have a standard deviation of 0.02 (Devlin et al. 2019, "BERT", and their code). Recurrent
    cells keep PyTorch's initialisation."""
    unscaled = _unscaled(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, StackedLinear):
            for weight in module.weight:
                nn.init.xavier_uniform_(weight)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02 if module in unscaled else module.embedding_dim**-0.5)


def _unscaled(model: nn.Module) -> set[nn.Module]:
    """Token and position embedding modules in the parts of a model whose token embeddings are not scaled."""
    found: set[nn.Module] = set()
    for part in model.modules():
        embedding = getattr(part, "embedding", None)
        if isinstance(embedding, nn.Embedding) and not isinstance(embedding, ScaledEmbedding):
            found.update(embedding.modules(), part.positions.modules())  # type: ignore[union-attr]
    return found


def uniform_rates(size: int) -> Tensor:
    """Decay rates (size,) of a state space model, uniform in 1 .. 16 (Gu & Dao 2023, section 3.6, and their code)."""
    return torch.empty(size).uniform_(1.0, 16.0)


def log_uniform_steps(size: int) -> Tensor:
    """Biases (size,) whose softplus, the step size, is log-uniform in 0.001 .. 0.1 (same source)."""
    step = torch.empty(size).uniform_(math.log(0.001), math.log(0.1)).exp()
    return step + torch.log(-torch.expm1(-step))
