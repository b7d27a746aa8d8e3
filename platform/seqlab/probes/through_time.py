"""Gradients through time, from the end of a sequence back to its beginning.

B batch, T length, D, E channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.nn.stack import Stack


def gradients_back(x: Tensor, y: Tensor, pad_mask: Tensor | None = None) -> Tensor:
    """Ratios (T,) float64: at k, the gradient norm of the rows' last outputs by the input k steps earlier, relative to
    the norm by their last input. Pooled over all rows that are long enough; NaN if there is no such row.

    The gradient is taken of a sum of each output's D channels with random weights, which are the same in each call.

    Args:
        x: (B, T, E), inputs that y was computed from.
        y: (B, T, D), outputs.
        pad_mask: (B, T) bool, True = a real token; padding is leading or trailing. None = all are real.
    """
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if pad_mask is None else pad_mask
    weights = torch.randn(y.shape[0], y.shape[2], generator=torch.Generator().manual_seed(0)).to(y)
    steps = torch.arange(x.shape[1], device=x.device)
    last = (steps * real).argmax(dim=1)  # (B,)
    rows = torch.arange(len(x), device=x.device)
    (found,) = torch.autograd.grad((y[rows, last] * weights).sum(), x)
    squares = found.to("cpu", torch.float64).square().sum(dim=2)  # (B, T)
    back = (last[:, None] - steps).clamp(min=0).cpu()
    so_long = (steps < real.sum(dim=1)[:, None]).cpu()
    by_steps = squares.gather(1, back) * so_long
    own = by_steps[:, :1] * so_long
    return (by_steps.sum(dim=0) / own.sum(dim=0)).sqrt()


def gradients_of(model: nn.Module, read: Callable[[], None]) -> Tensor:
    """`gradients_back` (T,) of the outputs of a model's last stack by its inputs, embeddings with positions.

    Args:
        read: runs the model's forward pass.

    Raises:
        ValueError: the model has no stack.
    """
    seen: dict[str, Any] = {}

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        seen["x"], seen["pad_mask"] = args[0].detach().requires_grad_(), kwargs.get("pad_mask")
        return (seen["x"], *args[1:]), kwargs

    def leave(_: nn.Module, args: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        seen["y"] = out[0]

    stack = last_stack(model)
    handles = [stack.register_forward_pre_hook(enter, with_kwargs=True), stack.register_forward_hook(leave)]
    try:
        # cuDNN recurrences have no backward pass in eval mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            read()
            return gradients_back(**seen)
    finally:
        for handle in handles:
            handle.remove()


def last_stack(model: nn.Module) -> Stack:
    """Last stack of a model; for an encoder-decoder, the decoder's.

    Raises:
        ValueError: the model has no stack.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        raise ValueError(f"{type(model).__name__} has no Stack of blocks whose inputs and outputs could be compared")
    return stacks[-1]
