"""FLOPs of a model: the FLOPs that its mixers declare, and two per multiply-add in its layers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqlab.mixer import Mixer
from seqlab.models.kind import kind_of
from seqlab.nn.lora import merge
from seqlab.nn.mixture_of_experts import MixtureOfExperts


def forward_flops(model: nn.Module, seq_len: int) -> int:
    """FLOPs of the forward pass over one sequence of `seq_len` tokens, or over a source and a target of that length.

    A mixer that declares no FLOPs is measured by `FlopCounterMode` on the meta device. For other third-party modules,
    linear, convolutional and recurrent layers are counted. LoRA's products B A, once a pass and not a token, are not.

    Raises:
        ValueError: the model is not seqlab's, or such a mixer cannot run on the meta device.
    """
    if not _is_ours(model):
        raise ValueError(f"the FLOPs of {type(model).__name__} are unknown: seqlab has no such model")
    return _total(model, seq_len, seq_len)


def training_flops(model: nn.Module, seq_len: int) -> float:
    """Training FLOPs per token on sequences of `seq_len`: the FLOPs of the forward pass, plus twice as many for the
    backward pass (Kaplan et al. 2020, section 2.1). Recomputation under activation checkpointing is not counted. As in
    a fit, source and target tokens both count.

    Raises:
        ValueError: as in `forward_flops`.
    """
    kind = kind_of(model)
    num_tokens = 2 * seq_len if kind is not None and kind.reads == "sources" else seq_len
    return 3 * forward_flops(model, seq_len) / num_tokens


def decoding_flops(model: nn.Module, seq_len: int) -> int:
    """FLOPs of one decode step, for token number `seq_len`. They include updates and reads of the state of a linear
    recurrence or a convolution, which a step computes elementwise and `FlopCounterMode` does not see.

    Raises:
        ValueError: as in `forward_flops`.
    """
    return _total(model, 1, seq_len)


def _total(part: nn.Module, new: int, seen: int) -> int:
    kind = kind_of(part)
    if getattr(part, "class_token", None) is not None:
        new, seen = new + 1, seen + 1
    if (own := _own(part, new, seen)) is None:
        return _measured(part, new, seen)
    once = () if kind is None else kind.once
    inner = (_total(child, 1 if name in once else new, seen) for name, child in part.named_children())
    return own + sum(inner)


def _own(part: Any, new: int, seen: int) -> int | None:
    """FLOPs of a module, excluding its submodules; None for a mixer that does not declare them."""
    match part:
        case Mixer():  # a third-party subclass may differ from its base class
            return part.flops(new, seen) if _is_ours(part) or "flops" in vars(type(part)) else None
        case MixtureOfExperts():  # those that a token chooses
            return 2 * new * part.top_k * part.expert_size
        case nn.Linear() | nn.Conv1d():
            return 2 * new * part.weight.numel()
        case nn.RNNBase() | nn.RNNCellBase():
            return 2 * new * sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)
    kind = kind_of(part)
    if kind is None or kind.labels is not None or getattr(part, "head", None) is not None:
        return 0
    # The output layer shares the weights of the embedding of what it writes.
    embedding = part.embedding if kind.decodes else part.get_submodule(kind.embedded_by)
    tied: int = 2 * new * embedding.weight.numel()
    return tied


def _is_ours(part: nn.Module) -> bool:
    return type(part).__module__.startswith("seqlab.")


def _measured(mixer: Any, new: int, seen: int) -> int:
    """Measured FLOPs of a mixer that declares none."""
    counter = FlopCounterMode(display=False)
    try:
        merge(mixer := deepcopy(mixer).to("meta").eval())
        dtype = next((weight.dtype for weight in mixer.parameters()), torch.float32)
        x = torch.empty(1, seen, mixer.d_model, dtype=dtype, device="meta")
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            state = mixer.init_state(1, x) if mixer.needs_memory else None
            if new < seen:
                _, state = mixer(x[:, new:], state)
                x = x[:, :new]
            with counter:
                mixer(x, state)
    except (NotImplementedError, RuntimeError) as error:
        name = type(mixer).__name__
        raise ValueError(
            f"the FLOPs of {name} are unknown: it cannot run on tensors without memory ({error})"
        ) from error
    return counter.get_total_flops()
