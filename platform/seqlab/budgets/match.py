"""A size solved for a budget: the width, or another number of a config, that gives a model so many parameters, training
FLOPs or bytes of state. Models are made without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from seqlab.budgets.flops import training_flops
from seqlab.config.configs import LINKS, build_data, build_task
from seqlab.mixer import size_of

WITHIN = 0.02
LARGEST = 1 << 24
Budget = Literal["params", "flops", "state"]
UNITS = {"params": "parameters", "flops": "FLOPs a token", "state": "bytes of state"}


class Matched(NamedTuple):
    """Attributes:
    path: the keys of the number in a config.
    before, number: what it was, and what it is.
    costs: of the model, by budget; one that is not known is left out.
    """

    path: list[str]
    before: int | None
    number: int
    costs: dict[str, float]


def match(config: dict[str, Any], budget: Budget, to: float, by: str) -> Matched:
    """Puts the number into a config with which its model costs what it is to cost, within 2%.

    Args:
        config: resolved, nested, of plain values. Its data module is made, to tell the model its sizes.
        budget: parameters, training FLOPs a token or bytes of decoding state, both at the training length.
        by: the name of the number, or the end of its dotted name; the outermost one of the model is meant.

    Raises:
        ValueError: no number has this name, the budget does not depend on it, or no value of it comes as near.
    """
    if not to > 0:
        raise ValueError(f"--to must be above 0, got {to:g}")
    told = _told(build_data(config))
    path = _find(config, by)
    before = _at(config, path[:-1])[path[-1]]
    if not (before is None or type(before) is int):
        raise ValueError(f"--match_by {by} is {before!r}; a whole number of the model can be solved for")

    @cache
    def costs(number: int | None) -> dict[str, float]:
        changed = deepcopy(config)
        _at(changed, path[:-1])[path[-1]] = number
        with torch.device("meta"):
            task = build_task(changed, told)
        return dict(_costs(task, told.get("seq_len")))

    if budget not in costs(before):
        raise ValueError(f"--match {budget}: the {UNITS[budget]} of this model are not known")
    number = _nearest(lambda number: costs(number)[budget], before, to, f"--match {budget}: {by}")
    _at(config, path[:-1])[path[-1]] = number
    return Matched(path, before, number, costs(number))


def said(matched: Matched, budget: Budget, to: float) -> str:
    """What was matched and what is not, in one line."""
    costs = {name: f"{cost:,.0f} {UNITS[name]}" for name, cost in matched.costs.items()}
    off = matched.costs[budget] / to - 1
    others = ", ".join(text for name, text in costs.items() if name != budget)
    changed = f"{matched.path[-1]} {matched.number} (was {matched.before})"
    return f"matched {costs[budget]} ({off:+.1%} of {to:,.0f}) by {changed}; not matched: {others}"


def _told(data: Any) -> dict[str, int]:
    return {name: getattr(data, name) for name in LINKS if hasattr(data, name)}


def _costs(task: nn.Module, seq_len: int | None) -> Iterator[tuple[str, float]]:
    yield "params", sum(parameter.numel() for parameter in task.parameters())
    model: Any = task.model
    if seq_len is None:
        return
    with suppress(ValueError):  # unknown
        yield "flops", training_flops(model, seq_len)
    if hasattr(model, "state_spec"):
        spec = model.state_spec()
        yield "state", sum(size_of((entry,), seq_len) * (entry.dtype or torch.float32).itemsize for entry in spec)


def _find(config: dict[str, Any], name: str) -> list[str]:
    """The keys of the outermost number of the model whose dotted name, without init_args, ends so."""
    end, level = name.split("."), [["model"]]
    while level:
        found = [path for path in level if [key for key in path if key != "init_args"][-len(end) :] == end]
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(".".join(key for key in path if key != "init_args") for path in found)
            raise ValueError(f"--match_by {name} is the end of {names}; give one of these")
        values = [(path, _at(config, path)) for path in level]
        level = [[*path, key] for path, value in values if isinstance(value, dict) for key in value]
    raise ValueError(f"--match_by {name}: the model has no such number; d_model and num_layers are common ones")


def _at(config: dict[str, Any], path: list[str]) -> Any:
    for key in path:
        config = config[key]
    return config


def _nearest(cost: Callable[[int], float], before: int | None, to: float, what: str) -> int:
    """The number within 2% of the budget, among the multiples of the least one that the model takes.

    A width that heads divide is a multiple of what they need, and so is the one that there was.
    """
    start = before or 1
    if cost(2 * start) <= cost(start):
        raise ValueError(f"{what} does not change it")
    least = next(number for number in range(1, start + 1) if start % number == 0 and _taken(cost, number))
    low, high = 0, 1
    while cost(high * least) < to:
        low, high = high, 2 * high
        if high * least > LARGEST:
            raise ValueError(f"{what} {low * least} gives {cost(low * least):,.0f} only, not {to:,.0f}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle * least) < to else (low, middle)
    around = [number * least for number in (low, high) if number]
    nearest = min(around, key=lambda number: abs(cost(number) - to))
    if abs(cost(nearest) - to) > WITHIN * to:
        values = " and ".join(f"{number} gives {cost(number):,.0f}" for number in around)
        raise ValueError(
            f"{what} {values}: neither is within {WITHIN:.0%} of {to:,.0f}; give --to one of these, or --match_by "
            "another number of the model"
        )
    return nearest


def _taken(cost: Callable[[int], float], number: int) -> bool:
    try:
        cost(number)
    except ValueError:
        return False
    return True
