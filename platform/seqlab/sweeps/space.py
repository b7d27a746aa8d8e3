"""Search space of a sweep, parsed from ranges and lists."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from seqlab.files.plain_values import read_yaml

Space = dict[str, BaseDistribution]
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
ACCEPTED = "accepted: LOW..HIGH, LOW..HIGH:log, or comma-separated values"


def read_space(vary: Mapping[str, Any]) -> Space:
    """Distribution of each option.

    Args:
        vary: for each option name, a range (`1e-4..1e-2:log`; integer bounds, as in `1..8`, draw integers),
            comma-separated values as in YAML lists (`GRU,LSTM,[Mamba, Attention]`), or a list of values.

    Raises:
        ValueError: an option has neither a range nor a list, or fewer than two distinct values.
    """
    if not vary:
        raise ValueError("a sweep needs something that varies: --vary model.lr=1e-4..1e-2:log")
    return {name: _distribution(name, given) for name, given in vary.items()}


def grid(space: Space) -> list[dict[str, Any]]:
    """Every setting of a space, the last option varying fastest.

    Raises:
        ValueError: an option has a continuous or logarithmic range.
    """
    values: list[list[Any]] = []
    for name, distribution in space.items():
        if isinstance(distribution, CategoricalDistribution):
            values.append(list(distribution.choices))
        elif isinstance(distribution, IntDistribution) and not distribution.log:
            values.append(list(range(distribution.low, distribution.high + 1)))
        else:
            raise ValueError(f"--sampler grid needs comma-separated values of {name}, not a range")
    return [dict(zip(space, setting, strict=True)) for setting in itertools.product(*values)]


def _distribution(name: str, given: Any) -> BaseDistribution:
    where = f"--vary {name}={given}"
    if isinstance(given, str) and (match := RANGE.fullmatch(given.strip())):
        whole = all(re.fullmatch(r"-?\d+", end) for end in match.groups()[:2])
        low, high = float(match[1]), float(match[2])
        if not low < high < math.inf or (match[3] and low <= 0):
            rule = ", above 0 if it is logarithmic" if match[3] else ""
            raise ValueError(f"{where}: a range must rise between finite numbers{rule}")
        log = match[3] is not None
        return (
            IntDistribution(int(match[1]), int(match[2]), log=log) if whole else FloatDistribution(low, high, log=log)
        )
    if isinstance(given, str):
        try:
            given = read_yaml(f"[{given}]")
        except (yaml.YAMLError, ValueError):
            raise ValueError(f"{where} is neither a range nor a list; {ACCEPTED}") from None
    entries = given if isinstance(given, list) else []
    choices = [entry if isinstance(entry, str) else json.dumps(entry, default=str) for entry in entries]
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"{where}: a list needs at least two different values; {ACCEPTED}")
    return CategoricalDistribution(choices)
