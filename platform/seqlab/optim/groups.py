"""Parameter groups: their weight decay and their ratio to the task's learning rate."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from torch import nn

Groups: TypeAlias = list[dict[str, Any]]
"""Parameter groups as `torch.optim` takes them: "params" and options such as "weight_decay", and also "lr_ratio", a
factor on the task's learning rate. Groups passed to an optimiser also have "param_names"."""


class ParameterGroups(ABC):
    """Assignment of parameters to groups; constructed with the weight decay."""

    @abstractmethod
    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        """Assigns every parameter to one group by its name in the model. Checkpoints rely on the groups' order."""


class DecayMatrices(ParameterGroups):
    """Applies weight decay to matrices and embeddings: parameters with at least two dimensions and `weight` in the last
    part of their names. Biases, gains, decay rates and the like are not decayed."""

    def __init__(self, weight_decay: float) -> None:
        self.weight_decay = weight_decay

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        decayed: Groups = [{"params": [], "weight_decay": self.weight_decay}, {"params": [], "weight_decay": 0.0}]
        for name, parameter in parameters:
            decayed[0 if is_matrix(name, parameter) else 1]["params"].append(parameter)
        return decayed


class ByName(ParameterGroups):
    """Sets options by regular expressions on parameter names; other parameters are treated as in `DecayMatrices`.

    Args:
        rules: regular expressions mapped to the "lr_ratio" or "weight_decay", at least 0, of the parameters whose names
            they match anywhere. The first match applies.

    Raises:
        ValueError: a rule has another key or a negative value, or applies to no parameter.
    """

    def __init__(self, weight_decay: float, *, rules: dict[str, dict[str, float]]) -> None:
        for pattern, rule in rules.items():
            if not rule.keys() <= {"lr_ratio", "weight_decay"} or any(value < 0 for value in rule.values()):
                raise ValueError(
                    f"the rule {pattern!r} must give an lr_ratio or weight_decay of at least 0, got {rule}"
                )
        self.weight_decay, self.rules = weight_decay, rules

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        unused = dict.fromkeys(self.rules)

        def of(name: str) -> Mapping[str, float]:
            for pattern, rule in self.rules.items():
                if re.search(pattern, name):
                    unused.pop(pattern, None)
                    return rule
            return {}

        groups = _grouped(parameters, self.weight_decay, of)
        if unused:
            raise ValueError(f"the rule {next(iter(unused))!r} matches no parameter left by the rules before it")
        return groups


class LayerwiseDecay(ParameterGroups):
    """Layer-wise learning-rate decay (Clark et al. 2020, "ELECTRA"; Bao et al. 2022, "BEiT"): the last block's learning
    rate is `ratio` times the rate of the layers after it, and so on down to the embedding.

    Raises:
        ValueError: `ratio` is not in (0, 1], or the model has no blocks.
    """

    def __init__(self, weight_decay: float, *, ratio: float = 0.75) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must be above 0 and at most 1, got {ratio}")
        self.weight_decay, self.ratio = weight_decay, ratio

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        named = list(parameters)
        blocks = [found for name, _ in named if (found := BLOCK.match(name))]
        depth = {found["stack"]: int(found["number"]) + 1 for found in blocks}  # the last block of a stack comes last
        if not depth:
            raise ValueError("LayerwiseDecay needs a model with a stack of blocks, but this one has none")

        def of(name: str) -> Mapping[str, float]:
            if block := BLOCK.match(name):
                return {"lr_ratio": self.ratio ** (depth[block["stack"]] - int(block["number"]))}
            below = [stack for stack in depth if name.startswith((*(stack + part for part in BELOW), "class_token"))]
            return {"lr_ratio": self.ratio ** (depth[below[0]] + 1)} if below else {}

        return _grouped(named, self.weight_decay, of)


class ScaledGroups(ParameterGroups):
    """Groups of another rule with a factor on each parameter's learning rate. The weight decay is divided by it, which
    keeps the product of both, by which a step shrinks the weights (Wang & Aitchison 2024, "How to set AdamW's weight
    decay as you scale model and dataset size").

    Args:
        groups: the other rule.
        factors: positive factors by parameter name.
    """

    def __init__(self, groups: ParameterGroups, factors: Mapping[str, float]) -> None:
        self.groups, self.factors = groups, factors

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        named = list(parameters)
        factors = {weight: self.factors[name] for name, weight in named}
        scaled: Groups = []
        for group in self.groups(named):
            for factor in dict.fromkeys(factors[weight] for weight in group["params"]):
                params = [weight for weight in group["params"] if factors[weight] == factor]
                lr_ratio, weight_decay = group.get("lr_ratio", 1.0) * factor, group["weight_decay"] / factor
                scaled.append({**group, "params": params, "lr_ratio": lr_ratio, "weight_decay": weight_decay})
        return scaled


BELOW = ("embedding.", "embed_norm.", "positions.")
"""Prefixes of the parameters that come before a stack's blocks."""
BLOCK = re.compile(r"(?P<stack>.*?)stack\.blocks\.(?P<number>\d+)\.")


def trained_alike(groups: Groups, names: Mapping[nn.Parameter, str], lr: float) -> Groups:
    """Converts groups for an optimiser: "lr_ratio" becomes a learning rate, and "param_names" are added."""
    return [
        {key: value for key, value in group.items() if key != "lr_ratio"}
        | {"param_names": [names[weight] for weight in group["params"]]}
        | ({"lr": lr * group["lr_ratio"]} if "lr_ratio" in group else {})
        for group in groups
    ]


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """True for a parameter of two or more dimensions named as a weight, which excludes tables of biases or decays."""
    return parameter.dim() >= 2 and "weight" in name.rpartition(".")[2]


def _grouped(
    parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float, of: Callable[[str], Mapping[str, float]]
) -> Groups:
    """One group per distinct set of options, in order of first occurrence."""
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in parameters:
        options = {"lr_ratio": 1.0, "weight_decay": weight_decay if is_matrix(name, parameter) else 0.0} | dict(
            of(name)
        )
        key = options["lr_ratio"], options["weight_decay"]
        groups.setdefault(key, {"params": [], **options})["params"].append(parameter)
    return list(groups.values())
