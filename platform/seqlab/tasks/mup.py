"""Maximal-update parametrisation: initial weights and learning rates with which the best learning rate of a model does
not depend on its width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqlab.attention import CrossAttention, FullQueryKeyNorm, QueryKeyNorm
from seqlab.attention.memory import MemoryMixer
from seqlab.attention.scores import SelfAttention
from seqlab.models import MaskedLM
from seqlab.nn import ScaledEmbedding, Stack
from seqlab.nn.mixture_of_experts import StackedLinear
from seqlab.nn.norm import HeadNorm
from seqlab.optim import Lion, ScaledGroups
from seqlab.optim.groups import is_matrix
from seqlab.tasks.task import Task


def begin_mup(task: Any, base: Any) -> None:
    """Scales the initial weights and the learning rates of a task by the width of its model relative to a base (Yang et
    al. 2022, "Tensor Programs V", table 8).

    The table's multipliers become factors on weights and learning rates, with which Adam makes the same steps (the
    equivalence of their tables 3 and 8), so the model itself is unchanged. The factor on attention scores is applied to
    the queries; that on logits, if the output layer shares the weights of the embedding, to the norm before it.

    Args:
        task: task at the start of a fit; its weights and its parameter groups are changed.
        base: untrained task of the same config at the base width.

    Raises:
        ValueError: the model has no stack of blocks, or a mixer, output layer or optimiser needs another rule.
    """
    if not isinstance(task, Task) or not any(isinstance(module, Stack) for module in task.model.modules()):
        model = type(getattr(task, "model", task)).__name__
        raise ValueError(f"--mup needs a model with a Stack of blocks, which {model} does not have")
    optimizer = task.new_optimizer()
    if not isinstance(optimizer, torch.optim.AdamW | Lion):
        raise ValueError(
            f"--mup scales the learning rates of AdamW and Lion, but model.optimizer is {type(optimizer).__name__}"
        )
    task.groups = ScaledGroups(task.groups, scale_weights(task.model, base.model))


def scale_weights(model: nn.Module, base: nn.Module) -> dict[str, float]:
    """Scales initial weights in place, as described in `begin_mup`, and returns the factors on the learning rates."""
    multipliers = list(_multipliers(model, base))
    narrow, factors = dict(base.named_parameters()), dict[Tensor, float]()
    for name, weight in model.named_parameters():
        initial, factors[weight] = _factors(model.get_submodule(name.rpartition(".")[0]), name, weight, narrow[name])
        if is_matrix(name, weight) and weight.shape != narrow[name].shape and (size := _rms(weight)):
            weight.data.mul_(initial * _rms(narrow[name]) / size)
    for parameters, factor in multipliers:
        for weight in parameters:
            weight.data.mul_(factor)
            factors[weight] *= factor
    return {name: factors[weight] for name, weight in model.named_parameters()}


def _factors(module: nn.Module, name: str, weight: nn.Parameter, narrow: Tensor) -> tuple[float, float]:
    """Factors on the root mean square and on the learning rate that a parameter has at the base width. The second
    dimension of a matrix is its fan-in; experts are matrices of their own."""
    growth = [wide / small for wide, small in zip(weight.shape, narrow.shape, strict=True)]
    if isinstance(module, StackedLinear):
        growth = growth[1:]
    if len(growth) < 2 or growth[1] == 1 or isinstance(module, HeadNorm):
        return 1.0, 1.0
    fan_in = growth.pop(1)
    if isinstance(module, nn.Embedding):
        factor = fan_in**-0.5 if isinstance(module, ScaledEmbedding) else 1.0
        return factor, factor
    if any(other != 1 for other in growth):
        return fan_in**-0.5, 1 / fan_in  # a hidden weight
    return (1 / fan_in, 1 / fan_in) if is_matrix(name, weight) else (1.0, 1.0)  # an output weight or a table


def _multipliers(model: nn.Module, base: nn.Module) -> Iterator[tuple[Iterable[nn.Parameter], float]]:
    """Parameters that a multiplier of the table scales, and the multiplier."""
    for (embedding, norm), (narrow, _) in zip(_tied(model), _tied(base), strict=True):
        growth = embedding.embedding_dim / narrow.embedding_dim
        if not list(norm.parameters()):
            raise ValueError(
                "--mup scales the norm before an output layer that shares the embedding's weights, but there is none "
                'with norm_place "none"; set another norm_place'
            )
        yield norm.parameters(), growth ** (-0.5 if isinstance(embedding, ScaledEmbedding) else -1)
    bases = dict(base.named_modules())
    for name, module in model.named_modules():
        if isinstance(module, SelfAttention | CrossAttention):
            norms = [
                part.q_norm
                for part in getattr(module, "parts", ())
                if isinstance(part, QueryKeyNorm | FullQueryKeyNorm)
            ]
            growth = cast(Any, module).head_dim / cast(Any, bases[name]).head_dim
            queries: nn.Module = norms[0] if norms else cast(nn.Module, module.q_proj)
            yield queries.parameters(), _scale(bases[name]) / _scale(module) / growth
        elif isinstance(module, MemoryMixer):
            raise ValueError(f"--mup has no rule for the scores of {type(module).__name__}; accepted: CrossAttention")


def _scale(attention: Any) -> float:
    """Factor on the scores of an attention."""
    scale: float = attention.scoring.scale if isinstance(attention, SelfAttention) else attention.head_dim**-0.5
    return scale


def _tied(model: Any) -> list[tuple[Any, nn.Module]]:
    """Embedding whose weights the output layer shares, and the norm before that layer; empty = they are not shared."""
    if isinstance(model, MaskedLM):
        return [(model.encoder.embedding, model.norm)]
    if getattr(model, "head", model) is not None:
        return []
    last = model.stack.blocks[-1]
    own = last.ffn_norm if last.has_ffn else last.mixer_norm
    return [(model.embedding, own if last.norm_place == "post" else model.stack.norm)]


def _rms(weight: Tensor) -> float:
    return weight.detach().square().mean().sqrt().item()
