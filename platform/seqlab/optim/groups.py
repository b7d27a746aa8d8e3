"""Groups of parameters that are trained alike: their weight decay, and their share of the learning rate."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from torch import nn

Groups: TypeAlias = list[dict[str, Any]]
"""Parameter groups as `torch.optim` takes them: "params" and their options, such as "weight_decay"; also "lr_ratio",
their share of the task's learning rate. An optimiser is given "param_names" too."""


class ParameterGroups(ABC):
    """Groups of parameters that are trained alike. It is constructed with the weight decay."""

    @abstractmethod
    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        """Puts every parameter in one group, by its name in the model. Checkpoints rely on their order."""


class DecayMatrices(ParameterGroups):
    """Decays the weights of matrices and embeddings: what has two dimensions and `weight` in the last part of its name.
    Biases, gains, decay rates and the like are left alone."""

    def __init__(self, weight_decay: float) -> None:
        self.weight_decay = weight_decay

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        decayed: Groups = [{"params": [], "weight_decay": self.weight_decay}, {"params": [], "weight_decay": 0.0}]
        for name, parameter in parameters:
            decayed[0 if is_matrix(name, parameter) else 1]["params"].append(parameter)
        return decayed


class ByName(ParameterGroups):
    """Trains parameters in whose names a pattern is found as its rule says; the others as `DecayMatrices` does.

    Args:
        rules: for each pattern, a regular expression, the "lr_ratio" or the "weight_decay" of the parameters it is
            found in. The first that is found counts.

    Raises:
        ValueError: a rule says something else, or is found in no name.
    """

    def __init__(self, weight_decay: float, *, rules: dict[str, dict[str, float]]) -> None:
        for pattern, rule in rules.items():
            if not rule.keys() <= {"lr_ratio", "weight_decay"} or any(value < 0 for value in rule.values()):
                raise ValueError(f"the rule {pattern!r} must give an lr_ratio or a weight_decay from 0 on, got {rule}")
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
            raise ValueError(f"the rule {next(iter(unused))!r} matches no parameter that an earlier rule has not taken")
        return groups


class LayerwiseDecay(ParameterGroups):
    """The further a block is from the output, the smaller its learning rate (Clark et al. 2020, "ELECTRA"; Bao et al.
    2022, "BEiT"): the last block's is `ratio` times that of what follows, and so on down to the embedding.

    Raises:
        ValueError: `ratio` is not above 0 and at most 1, or the model has no blocks.
    """

    def __init__(self, weight_decay: float, *, ratio: float = 0.75) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must be above 0 and at most 1, got {ratio}")
        self.weight_decay, self.ratio = weight_decay, ratio

    def __call__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Groups:
        named = list(parameters)
        blocks = [found for name, _ in named if (found := BLOCK.match(name))]
        depth = {found["stack"]: int(found["number"]) + 1 for found in blocks}  # by the last, which comes last
        if not depth:
            raise ValueError("LayerwiseDecay goes by a model's blocks, and this one has none")

        def of(name: str) -> Mapping[str, float]:
            if block := BLOCK.match(name):
                return {"lr_ratio": self.ratio ** (depth[block["stack"]] - int(block["number"]))}
            below = [stack for stack in depth if name.startswith((*(stack + part for part in BELOW), "class_token"))]
            return {"lr_ratio": self.ratio ** (depth[below[0]] + 1)} if below else {}

        return _grouped(named, self.weight_decay, of)


BELOW = ("embedding.", "embed_norm.", "positions.")
"""Prefixes of the parameters that come before a stack's blocks."""
BLOCK = re.compile(r"(?P<stack>.*?)stack\.blocks\.(?P<number>\d+)\.")


def trained_alike(groups: Groups, names: Mapping[nn.Parameter, str], lr: float) -> Groups:
    """Groups as an optimiser is given them: with their own learning rates, and the parameters' names."""
    return [
        {key: value for key, value in group.items() if key != "lr_ratio"}
        | {"param_names": [names[weight] for weight in group["params"]]}
        | ({"lr": lr * group["lr_ratio"]} if "lr_ratio" in group else {})
        for group in groups
    ]


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """True for a weight, by its name too, of two dimensions or more: tables of biases or decay rates are none."""
    return parameter.dim() >= 2 and "weight" in name.rpartition(".")[2]


def _grouped(
    parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float, of: Callable[[str], Mapping[str, float]]
) -> Groups:
    """One group for all parameters that are trained alike, in the order of their first."""
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in parameters:
        options = {"lr_ratio": 1.0, "weight_decay": weight_decay if is_matrix(name, parameter) else 0.0} | dict(
            of(name)
        )
        key = options["lr_ratio"], options["weight_decay"]
        groups.setdefault(key, {"params": [], **options})["params"].append(parameter)
    return list(groups.values())
