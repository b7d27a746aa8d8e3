"""Operations that another runtime may compute in its own way.

To a block an operation is a function like any other: a fused kernel or a parallel form, with gradients. Code that
captures a model for another runtime opens `lowered` meanwhile, with that runtime's function for each operation that it
could not express.
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
    """Makes an operation of a function or a method: `function` itself, unless a lowering of it is open."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # `torch.compile` lowers by itself, and would break its graph here.
        lowerings = None if torch.compiler.is_dynamo_compiling() else _lowerings.get()
        chosen: Callable[..., R] = function if lowerings is None else lowerings.get(call, function)
        return chosen(*args, **kwargs)

    return call


def plain(operation: Callable[P, R]) -> Callable[P, R]:
    """The function that computes an operation where no lowering of it is open."""
    function: Callable[P, R] = unwrap(operation)
    return function


@contextmanager
def lowered(lowerings: Lowerings) -> Iterator[None]:
    """While open, each operation is computed by its function in `lowerings`, which takes and returns the same."""
    token = _lowerings.set(lowerings)
    try:
        yield
    finally:
        _lowerings.reset(token)
