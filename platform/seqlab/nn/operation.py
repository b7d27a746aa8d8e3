"""Operations that another runtime may implement differently.

To a block an operation is an ordinary function: a fused kernel or a parallel form, with gradients. Code that captures a
model for another runtime does so inside `lowered`, which substitutes that runtime's function for each operation that it
cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import unwrap
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
Lowerings = Mapping[Callable[..., Any], Callable[..., Any]]

_lowerings: ContextVar[Lowerings | None] = ContextVar("_lowerings", default=None)


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that makes a function or method an operation: it runs as is unless a lowering of it is active."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # `torch.compile` does its own lowering, and the context variable would cause a graph break.
        lowerings = None if torch.compiler.is_dynamo_compiling() else _lowerings.get()
        chosen: Callable[..., R] = function if lowerings is None else lowerings.get(call, function)
        return chosen(*args, **kwargs)

    return call


def plain(operation: Callable[P, R]) -> Callable[P, R]:
    """Original function of an operation, used when no lowering is active."""
    function: Callable[P, R] = unwrap(operation)
    return function


@contextmanager
def lowered(lowerings: Lowerings) -> Iterator[None]:
    """Context in which each operation runs its function in `lowerings`, which has the same signature."""
    token = _lowerings.set(lowerings)
    try:
        yield
    finally:
        _lowerings.reset(token)
