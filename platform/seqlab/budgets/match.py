"""A size solved for a budget: the width, or another number of a config, that gives a model so many parameters, training
FLOPs, bytes of state, or measured seconds. Except to measure, models are made without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import torch
from psutil import virtual_memory
from torch import nn

from seqlab.budgets.estimate import BYTES
from seqlab.budgets.flops import training_flops
from seqlab.config.configs import LINKS, build_data, build_task
from seqlab.config.options import Budget

WITHIN = 0.02
LARGEST = 1 << 24
UNITS = {"params": "parameters", "flops": "FLOPs a token", "state": "bytes of state", "seconds": "seconds a step"}


class Cost(NamedTuple):
    """Attributes:
    value: in its unit; the median where it is measured.
    spread: its uncertainty, as a share of it.
    """

    value: float
    spread: float = 0.0


class Matched(NamedTuple):
    """Attributes:
    path: the keys of the number in a config.
    before, number: what it was, and what it is.
    costs: of the model, by budget; unknown ones are left out.
    spread: of the one that was matched, where it was measured.
    """

    path: list[str]
    before: int | None
    number: int
    costs: dict[str, float]
    spread: float


def match(
    config: dict[str, Any], budget: Budget, to: float, by: str, measure: Callable[[Any, Any], Cost] | None = None
) -> Matched:
    """Solves for the number with which a config's model meets the budget, and puts it into the config. It is met within
    2%, or within the spread of a measurement where that is more.

    Args:
        config: resolved, nested, of plain values. Its data module is made, to tell the model its sizes.
        budget: parameters; training FLOPs a token or bytes of decoding state, both at the training length; or seconds.
        by: the name of the number, or the end of its dotted name; the outermost one of the model is meant.
        measure: gives the seconds of a step, from a task and its data module.

    Raises:
        ValueError: no number has this name, the budget does not depend on it, no value of it comes as near, or one
            that is to be measured does not fit into the memory.
    """
    if not to > 0:
        raise ValueError(f"--to must be above 0, got {to:g}")
    data = build_data(config)
    told = _told(data)
    path = _find(config, by)
    before = _at(config, path[:-1])[path[-1]]
    if not (before is None or type(before) is int):
        raise ValueError(f"--match_by {by} is {before!r}; a whole number of the model can be solved for")
    what, sized = f"--match {budget}: {by}", "params" if budget == "seconds" else budget

    def made(number: int | None) -> Any:
        changed = deepcopy(config)
        _at(changed, path[:-1])[path[-1]] = number
        return build_task(changed, told)

    @cache
    def costs(number: int | None) -> dict[str, float]:
        with torch.device("meta"):
            return dict(_costs(made(number), told.get("seq_len")))

    @cache
    def cost(number: int) -> Cost:
        if budget != "seconds":
            return Cost(costs(number)[budget])
        assert measure is not None
        needed, free = costs(number)["params"] * BYTES, virtual_memory().available
        if needed > free:
            raise ValueError(f"{what} {number} needs {needed / 1e9:.3g} GB to be measured, {free / 1e9:.3g} are free")
        return measure(made(number), data)

    if sized not in costs(before):
        raise ValueError(f"--match {budget}: the {UNITS[sized]} of this model are not known")
    start = before or 1
    least = _least(lambda number: costs(number)[sized], start, what)
    number = _nearest(cost, start, least, to, what)
    _at(config, path[:-1])[path[-1]] = number
    value, spread = cost(number)
    return Matched(path, before, number, costs(number) | {budget: value}, spread)


def said(matched: Matched, budget: Budget, to: float) -> str:
    """One line on what was matched and what is not."""
    costs = {name: f"{_written(cost)} {UNITS[name]}" for name, cost in matched.costs.items()}
    off = f"{matched.costs[budget] / to - 1:+.1%} of {_written(to)}"
    noise = f", measured to ±{matched.spread:.1%}" if matched.spread else ""
    others = ", ".join(text for name, text in costs.items() if name != budget)
    changed = f"{matched.path[-1]} {matched.number} (was {matched.before})"
    return f"matched {costs[budget]} ({off}{noise}) by {changed}; not matched: {others}"


def _written(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.4g}"


def _told(data: Any) -> dict[str, int]:
    return {name: getattr(data, name) for name in LINKS if hasattr(data, name)}


def _costs(task: nn.Module, seq_len: int | None) -> Iterator[tuple[str, float]]:
    yield "params", sum(parameter.numel() for parameter in task.parameters())
    model: Any = task.model
    if seq_len is None:
        return
    with suppress(ValueError):  # unknown
        yield "flops", training_flops(model, seq_len)
    if hasattr(model, "state_size"):
        yield "state", 4 * model.state_size(seq_len)  # in float32


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


def _least(size: Callable[[int], float], start: int, what: str) -> int:
    """The least number that the model accepts; all that are tried are multiples of it.

    A width that heads divide is a multiple of what they need, and so is the original one.
    """
    if size(2 * start) <= size(start):
        raise ValueError(f"{what} does not change it")
    return next(number for number in range(1, start + 1) if start % number == 0 and _taken(size, number))


def _nearest(cost: Callable[[int], Cost], start: int, least: int, to: float, what: str) -> int:
    """The multiple of the least number that comes near enough to the budget."""
    low, high = 0, start // least
    while cost(high * least).value < to:
        low, high = high, 2 * high
        if high * least > LARGEST:
            raise ValueError(f"{what} {low * least} gives {_written(cost(low * least).value)} only, not {_written(to)}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle * least).value < to else (low, middle)
    around = [number * least for number in (low, high) if number]
    nearest = min(around, key=lambda number: abs(cost(number).value - to))
    if abs(cost(nearest).value - to) > max(WITHIN, cost(nearest).spread) * to:
        values = " and ".join(f"{number} gives {_written(cost(number).value)}" for number in around)
        raise ValueError(
            f"{what} {values}: neither is within {WITHIN:.0%} of {_written(to)}; give --to one of these, or --match_by "
            "another number of the model"
        )
    return nearest


def _taken(cost: Callable[[int], float], number: int) -> bool:
    try:
        cost(number)
    except ValueError:
        return False
    return True
