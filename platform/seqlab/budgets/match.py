"""Solver for a model size that meets a budget: the width, or another number of a config, at which a model has a given
parameter count, training FLOPs, state bytes or step time. Models are built on the meta device, except to measure."""

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
from seqlab.config.configs import build_data, build_task, told_by
from seqlab.config.options import Budget
from seqlab.nn.mixture_of_experts import num_active_params

WITHIN = 0.02
LARGEST = 1 << 24
UNITS = {
    "params": "parameters",
    "active_params": "active parameters",
    "flops": "FLOPs a token",
    "state": "bytes of state",
    "seconds": "seconds a step",
}


class CostEstimate(NamedTuple):
    """Attributes:
    value: cost in its unit; the median of measurements if it is measured.
    spread: uncertainty of the value, as a fraction of it.
    """

    value: float
    spread: float = 0.0


class Matched(NamedTuple):
    """Attributes:
    path: keys of the number in the config.
    before, number: its original value and its solution.
    costs: costs of the model, by budget; unknown costs are left out.
    spread: relative uncertainty of the matched cost if it was measured, otherwise 0.
    """

    path: list[str]
    before: int | None
    number: int
    costs: dict[str, float]
    spread: float


def match(
    config: dict[str, Any],
    budget: Budget,
    to: float,
    by: str,
    measure: Callable[[Any, Any], CostEstimate] | None = None,
) -> Matched:
    """Solves for the number with which a config's model meets the budget, and writes it into the config. The tolerance
    is 2%, or the spread of a measurement if that is larger.

    Args:
        config: resolved nested config of plain values. Its data module is built, since it determines the model's sizes.
        budget: parameters, all of them or those that a token uses; training FLOPs per token or bytes of decoding
            state, both at the training length; or seconds per step.
        to: target value of the budget in its unit, above 0.
        by: name of the number, or the end of its dotted name; the outermost match in the model is used.
        measure: returns the seconds per step of a task and its data module.

    Raises:
        ValueError: no number has this name, the budget does not depend on it, no value is within the tolerance, or a
            model to be measured does not fit into memory.
    """
    if not to > 0:
        raise ValueError(f"--to must be above 0, got {to:g}")
    data = build_data(config)
    told = told_by(data)
    path = find_number(config, by, f"--match_by {by}")
    before = _at(config, path[:-1])[path[-1]]
    if not (before is None or type(before) is int):
        raise ValueError(f"--match_by {by} is {before!r}; name a whole number of the model")
    what, sized = f"--match {budget}: {by}", "params" if budget == "seconds" else budget

    def made(number: int | None) -> Any:
        return build_task(replaced(config, path, number), told)

    @cache
    def costs(number: int | None) -> dict[str, float]:
        with torch.device("meta"):
            return dict(_costs(made(number), told.get("seq_len")))

    @cache
    def cost(number: int) -> CostEstimate:
        if budget != "seconds":
            return CostEstimate(costs(number)[budget])
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
    """One-line summary of the matched budget and of the unmatched ones."""
    costs = {name: f"{_written(cost)} {UNITS[name]}" for name, cost in matched.costs.items()}
    off = f"{matched.costs[budget] / to - 1:+.1%} of {_written(to)}"
    noise = f", measured to ±{matched.spread:.1%}" if matched.spread else ""
    dense = matched.costs["active_params"] == matched.costs["params"]
    unmatched = costs.keys() - {budget, "active_params" if dense else budget}
    others = ", ".join(text for name, text in costs.items() if name in unmatched)
    changed = f"{matched.path[-1]} {matched.number} (was {matched.before})"
    return f"matched {costs[budget]} ({off}{noise}) by {changed}; not matched: {others}"


def _written(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.4g}"


def _costs(task: nn.Module, seq_len: int | None) -> Iterator[tuple[str, float]]:
    yield "params", sum(parameter.numel() for parameter in task.parameters())
    yield "active_params", num_active_params(task)
    model: Any = task.model
    if seq_len is None:
        return
    with suppress(ValueError):  # unknown
        yield "flops", training_flops(model, seq_len)
    if hasattr(model, "state_size"):
        yield "state", 4 * model.state_size(seq_len)  # in float32


def find_number(config: dict[str, Any], name: str, option: str) -> list[str]:
    """Keys of the outermost value of the model whose dotted name, without init_args, ends in `name`.

    Args:
        option: option that needs the number, for the error.

    Raises:
        ValueError: there is no such value, or there are several.
    """
    end, level = name.split("."), [["model"]]
    while level:
        found = [path for path in level if [key for key in path if key != "init_args"][-len(end) :] == end]
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(".".join(key for key in path if key != "init_args") for path in found)
            raise ValueError(f"{option} matches {names}; give one of these")
        values = [(path, _at(config, path)) for path in level]
        level = [[*path, key] for path, value in values if isinstance(value, dict) for key in value]
    raise ValueError(f"{option}: the model has no such number; d_model and num_layers are common ones")


def replaced(config: dict[str, Any], path: list[str], number: int | None) -> dict[str, Any]:
    """Copy of a config with another number at the keys `path`."""
    changed = deepcopy(config)
    _at(changed, path[:-1])[path[-1]] = number
    return changed


def _at(config: dict[str, Any], path: list[str]) -> Any:
    for key in path:
        config = config[key]
    return config


def _least(size: Callable[[int], float], start: int, what: str) -> int:
    """Smallest divisor of `start` that the model accepts; only its multiples are tried.

    Constraints such as divisibility of a width by the number of heads then hold for all candidates.
    """
    if size(2 * start) <= size(start):
        raise ValueError(f"{what} does not change it")
    return next(number for number in range(1, start + 1) if start % number == 0 and _taken(size, number))


def _nearest(cost: Callable[[int], CostEstimate], start: int, least: int, to: float, what: str) -> int:
    """Multiple of `least` that meets the budget within the tolerance."""
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
