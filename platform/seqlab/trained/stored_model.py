"""Check that a checkpoint's weights fit its config, by first building the model without allocating memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqlab.config.configs import build_task

LARGEST_CONSTANT = 1 << 26
"""Maximum number of elements of a tensor that is not a weight, such as a position table."""


def check_fits(config: dict[str, Any], told: dict[str, int], weights: Mapping[str, Tensor]) -> None:
    """Checks that weights belong to the model of a stored config, before memory or time is spent on it.

    Args:
        config, told: arguments of `build_task`.
        weights: state dict of the task.

    Raises:
        ValueError: a weight is missing, unexpected, or of another shape or kind; or the config has no valid model.
    """
    with made_without_memory(weights):
        task = build_task(config, told)
    check_same(task.state_dict(), weights)


def check_same(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Checks that weights have the names, shapes and kinds of `own`.

    Raises:
        ValueError: as `check_fits`.
    """
    for name in {**own, **weights}:
        expected, found = own.get(name), weights.get(name)
        if found is None or expected is None:
            which = "lacks the weight" if found is None else "has the unknown weight"
            raise ValueError(f"the checkpoint {which} {name}")
        if found.layout != torch.strided or found.device.type != "cpu":
            raise ValueError(f"the checkpoint's {name} is not a dense tensor on the CPU")
        if found.shape != expected.shape:
            shapes = f"{tuple(found.shape)}, but the model's has shape {tuple(expected.shape)}"
            raise ValueError(f"the checkpoint's {name} has shape {shapes}")
        if found.is_floating_point() != expected.is_floating_point() or found.is_complex() != expected.is_complex():
            raise ValueError(f"the checkpoint's {name} is {found.dtype}, but the model's is {expected.dtype}")


def weights_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights of the task by name.

    Raises:
        ValueError: the checkpoint has no weights, or some are not tensors.
    """
    weights = checkpoint.get("state_dict")
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise ValueError("the checkpoint has no weights, or some are not tensors")
    return weights


@contextmanager
def made_without_memory(weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which modules are created on the meta device, limited in number and size by the given weights.

    Raises:
        ValueError: a config exceeds the limits.
    """
    largest = max((weight.numel() for weight in weights.values()), default=0)
    left = {"parameters": 2 * len(weights) + 100, "modules": 50 * len(weights) + 1000}

    def count(kind: str) -> None:
        left[kind] -= 1
        if left[kind] < 0:
            raise ValueError(f"the stored config asks for a model of more {kind} than its checkpoint has weights for")

    def on_parameter(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        count("parameters")
        if parameter is not None and parameter.numel() > largest:
            shape = tuple(parameter.shape)
            raise ValueError(
                f"the stored config asks for {name} of shape {shape}, larger than the checkpoint's weights"
            )

    def on_module(module: nn.Module, name: str, child: nn.Module | None) -> None:
        count("modules")

    with ExitStack() as stack:
        stack.enter_context(_NoneLarger(max(largest, LARGEST_CONSTANT)))
        stack.enter_context(torch.device("meta"))
        for handle in (
            hooks.register_module_parameter_registration_hook(on_parameter),
            hooks.register_module_module_registration_hook(on_module),
        ):
            stack.callback(handle.remove)
        yield


class _NoneLarger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses tensors with more than `most` elements. randperm is checked before it runs, as it always uses memory."""

    def __init__(self, most: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.randperm:
            self._check((args[0],))
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._check(tuple(tensor.shape))
        return made

    def _check(self, shape: tuple[int, ...]) -> None:
        if math.prod(shape) > self.most:
            raise ValueError(f"the stored config asks for a tensor of shape {shape}, which is too large")
