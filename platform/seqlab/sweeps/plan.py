"""Plan of a sweep, from options or from a file."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from optuna.distributions import CategoricalDistribution

from seqlab.files.plain_values import read_yaml
from seqlab.files.regular_file import check_regular
from seqlab.sweeps.extend import ladder
from seqlab.sweeps.space import Space, grid, read_space
from seqlab.tracking.logger import check_experiment

SAMPLERS = ("tpe", "random", "grid")
OURS = ("seed_everything", "experiment", "run_name", "resume", "ckpt_path", "trainer.devices")
"""Options that a sweep sets for each fit."""
MOST = 10**6
"""Upper limit of a sweep's seeds, trials and jobs."""
TYPES: dict[str, tuple[type, ...]] = {
    "config": (str, list),
    "vary": (dict,),
    "fit": (dict, list),
    "seeds": (int,),
    "trials": (int,),
    "jobs": (int,),
    "sampler": (str,),
    "objective": (str,),
    "prune": (bool,),
    "extend": (str,),
    "name": (str,),
    "experiment": (str,),
    "storage": (str,),
    "devices_per_trial": (int,),
}
"""Keys of a sweep file with their types: the options, with options of the fits under `fit`."""


@dataclass(frozen=True)
class Plan:
    """The part of a sweep that does not change while it runs.

    Attributes:
        name: name of the sweep and its run; prefix of the fits' names.
        experiment: MLflow experiment of the sweep's run and of the fits.
        configs: config names or paths, as for `--config`.
        vary: varied options with their ranges or lists, as given.
        fit: further arguments of each fit.
        seeds: number of fits per trial, whose mean is the trial's value.
        trials: number of settings to try.
        sampler: one of `SAMPLERS`.
        objectives: metrics to optimise, read from each run by `score`.
        prune: whether bad trials are stopped early.
        extend: varied option whose grid continues while its best value lies at an end; "" = none.
        config_files: beginning of the sha256 of each config that is a file, to detect changes since the sweep began.

    Raises:
        ValueError: a value is invalid.
    """

    name: str
    experiment: str
    configs: list[str]
    vary: dict[str, Any]
    fit: list[str]
    seeds: int
    trials: int
    sampler: str
    objectives: list[str]
    prune: bool
    extend: str
    config_files: dict[str, str]

    @property
    def space(self) -> Space:
        """Distribution of each option, including the values to which a grid may be extended."""
        space = read_space(self.vary)
        if self.extend:
            space[self.extend] = CategoricalDistribution(ladder(self.extend, space[self.extend].choices))  # type: ignore[attr-defined]
        return space

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that a sweep of this name must share to be continued; the number of trials may grow."""
        kept = (
            "experiment",
            "configs",
            "vary",
            "fit",
            "seeds",
            "sampler",
            "objectives",
            "prune",
            "extend",
            "config_files",
        )
        return {name: getattr(self, name) for name in kept}

    def run_name(self, trial: int, seed: int) -> str:
        return f"{self.name}-{trial}-s{seed}"

    def flags(self, setting: Mapping[str, Any], seed: int) -> list[str]:
        """Command-line flags of a fit with this setting, without the experiment and run name."""
        varied = [f"--{name}={value}" for name, value in setting.items()]
        return [*(f"--config={config}" for config in self.configs), *self.fit, *varied, f"--seed_everything={seed}"]


def make_plan(given: Mapping[str, Any], overrides: list[str]) -> Plan:
    """Makes a plan from options, by the keys of `TYPES`, and `overrides`, the further arguments of each fit.

    Raises:
        ValueError: an option is missing or invalid.
    """
    if not (configs := _as_list(given.get("config", []))):
        raise ValueError("a sweep needs a config: --config NAME|PATH, or config: in its file")
    vary, fit = dict(given.get("vary", {})), [*_flags(given.get("fit", [])), *overrides]
    for name in (*vary, *(flag.removeprefix("--").partition("=")[0] for flag in fit)):
        if name in OURS:
            raise ValueError(f"a sweep sets {name} itself, by --seeds, --experiment, --name or --devices-per-trial")
    space, sampler = read_space(vary), given.get("sampler", "tpe")
    if sampler not in SAMPLERS:
        raise ValueError(f"--sampler {sampler}: accepted: {', '.join(SAMPLERS)}")
    if sampler == "grid" and "trials" in given:
        raise ValueError(f"--sampler grid tries all {len(grid(space))} settings; --trials is for the others")
    trials = len(grid(space)) if sampler == "grid" else given.get("trials")
    if trials is None:
        raise ValueError(f"--sampler {sampler} needs --trials N")
    seeds, named = given.get("seeds", 1), given.get("objective", "val/loss").split(",")
    objectives = [one.strip() for one in named]
    if not all(objectives) or len({*objectives}) < len(objectives):
        raise ValueError(f"--objective {','.join(named)}: accepted: comma-separated metrics, each once")
    for name, count in {"--seeds": seeds, "--trials": trials, "--jobs": given.get("jobs", 1)}.items():
        if not 1 <= count <= MOST:
            raise ValueError(f"{name} must be from 1 to {MOST}, got {count}")
    prune = given.get("prune", False)
    if prune and len(objectives) > 1:
        raise ValueError(f"--prune needs one objective, got {', '.join(objectives)}")
    extend = given.get("extend", "")
    if "extend" in given:
        if sampler != "grid" or extend not in space or len(objectives) > 1:
            raise ValueError(f"--extend {extend}: accepted with --sampler grid and one objective: {', '.join(space)}")
        ladder(extend, space[extend].choices)  # type: ignore[attr-defined]  # refuses values that cannot be extended
    digest = _sha256(
        json.dumps([configs, vary, fit, seeds, sampler, objectives, prune, *filter(None, [extend])]).encode()
    )
    name = given.get("name", f"{Path(configs[-1]).stem}-{digest[:6]}")
    if given.get("storage") == "":
        raise ValueError("--storage is empty; accepted: a URL as Optuna takes it, such as sqlite:///sweeps.db")
    if not re.fullmatch(r"[\w.-]{1,200}", name):
        raise ValueError(f"--name {name!r}: accepted: at most 200 letters, digits, '.', '_' and '-'")
    experiment = given.get("experiment", name)
    check_experiment(experiment)
    files = {config: _sha256(path.read_bytes()) for config in configs if (path := Path(config)).is_file()}
    return Plan(name, experiment, configs, vary, fit, seeds, trials, sampler, objectives, prune, extend, files)


def read_file(path: Path) -> dict[str, Any]:
    """Reads the options in a sweep file, by the keys of `TYPES`.

    Raises:
        ValueError: the file does not exist or is not a sweep file.
    """
    check_regular(path, "the sweep's file")
    if not path.is_file():
        raise ValueError(f"there is no sweep file {path}; options of the fits begin with --")
    try:
        # Dates become text, as in configs.
        found = json.loads(json.dumps(read_yaml(path.read_text(encoding="utf-8")), default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a sweep file; accepted keys: {', '.join(TYPES)}")
    found = {key.replace("-", "_"): value for key, value in found.items()}
    check_types(found, str(path))
    return found


def check_types(given: Mapping[str, Any], where: str) -> None:
    """Raises ValueError if a key is not one of `TYPES`, or has a value of another type."""
    for key, value in given.items():
        if key not in TYPES:
            raise ValueError(f"{where}: {key} is not a key of a sweep; accepted: {', '.join(TYPES)}")
        if not isinstance(value, TYPES[key]) or (isinstance(value, bool) and bool not in TYPES[key]):
            accepted = " or ".join(kind.__name__ for kind in TYPES[key])
            raise ValueError(f"{where}: {key} is {value!r}; accepted: {accepted}")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(entry) for entry in value]


def _flags(fit: dict[str, Any] | list[Any]) -> list[str]:
    if isinstance(fit, list):
        return [part for flag in fit for part in shlex.split(str(flag))]
    return [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in fit.items()]
