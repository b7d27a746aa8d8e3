"""Configs: lookup by name, the short YAML form, and construction of objects.

The class path is the registry: a config names a block by its class, with its options next to `class_path`.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import _paths, _typehints, get_loader, set_dumper, set_loader
from jsonargparse.typing import register_type, timedelta_deserializer

from seqlab.config.lora import Lora
from seqlab.config.parser import Parser
from seqlab.files.plain_values import read_yaml
from seqlab.files.regular_file import check_regular

PACKAGED = Path(__file__).parent.parent / "configs"
BLOCK_MODULES = (
    "seqlab.attention",
    "seqlab.config.lora",
    "seqlab.models",
    "seqlab.nn",
    "seqlab.optim",
    "seqlab.positions",
    "seqlab.recurrence",
    "seqlab.tasks",
    "seqlab.probes.attention_maps",
    "seqlab.probes.gradient_probe",
    "seqlab.probes.state_probe",
    "seqlab_data.adding",
    "seqlab_data.images",
    "seqlab_data.labelled",
    "seqlab_data.parallel",
    "seqlab_data.synthetic",
    "seqlab_data.tables",
    "seqlab_data.tagged",
    "seqlab_data.text",
    "seqlab_data.tokenizers",
)
EMBEDDED_WITH = {"DecoderLM": "torch.nn.Embedding", "EncoderDecoder": "seqlab.nn.ScaledEmbedding"}
"""Embedding classes of stored models that predate the argument `embed`."""
MOVED = {
    "seqlab.callbacks.attention_maps.AttentionMaps": "seqlab.probes.attention_maps.AttentionMaps",
    "seqlab.callbacks.gradient_probe.GradientProbe": "seqlab.probes.gradient_probe.GradientProbe",
    "seqlab.callbacks.state_probe.StateProbe": "seqlab.probes.state_probe.StateProbe",
    "seqlab.training.attention_maps.AttentionMaps": "seqlab.probes.attention_maps.AttentionMaps",
}
"""Current class path for each former class path in older runs and configs."""
LOGGER_OPTIONS = ("--trainer.logger", "--trainer.logger+")
LOGGERS: dict[str, Any] = {
    "comet": {"class_path": "CometLogger"},
    "csv": {"class_path": "CSVLogger", "init_args": {"save_dir": "."}},
    "mlflow": True,
    "tensorboard": {"class_path": "TensorBoardLogger", "init_args": {"save_dir": "."}},
    "wandb": {"class_path": "WandbLogger"},
}
"""Package names that `trainer.logger` accepts in addition to class paths."""
LINKS = ("vocab_size", "target_vocab_size", "num_features", "num_classes", "num_labels", "seq_len")
"""Values that the data module passes to the task, so that a config never repeats a number."""


def config_names() -> list[str]:
    """Names of the packaged configs, as accepted by `--config`."""
    return sorted(path.relative_to(PACKAGED).with_suffix("").as_posix() for path in PACKAGED.rglob("*.yaml"))


def config_path(name: str) -> Path:
    """Path of a config, given by file path or packaged name.

    Raises:
        ValueError: it is neither a file nor a packaged config.
    """
    if Path(name).is_file():
        return Path(name)
    packaged = PACKAGED / f"{name}.yaml"
    if name in config_names():
        return packaged
    check_regular(name, "config")
    raise ValueError(f"--config {name}: neither a file nor a packaged config; {instead(name, config_names())}")


def instead(given: str, accepted: Sequence[str]) -> str:
    """Hint for an unknown name: the closest accepted name, ignoring case; or all accepted names."""
    by_lower = {name.lower(): name for name in accepted}
    for text in (given.lower(), given.lower().partition(".")[0]):
        if close := difflib.get_close_matches(text, by_lower, n=1):
            return f"did you mean {by_lower[close[0]]}?"
    return f"accepted: {', '.join(accepted) or 'none'}"


def resolve_names(args: list[str]) -> list[str]:
    """Replaces config names by file paths, and logger package names by classes, in a command line."""
    resolved: list[str] = []
    for arg in args:
        option, equals, value = arg.partition("=")
        if option in LOGGER_OPTIONS and equals:
            arg = f"{option}={_logger_option(value)}"
        elif resolved and resolved[-1] in LOGGER_OPTIONS:
            arg = _logger_option(arg)
        if resolved and resolved[-1] in ("--config", "-c"):
            resolved.append(str(config_path(arg)))
        elif option == "--config" and equals and not value.startswith("{"):
            resolved.append(f"--config={config_path(value)}")
        else:
            resolved.append(arg)
    return resolved


def _logger_option(text: str) -> str:
    """Value of `--trainer.logger`, with package names replaced by classes."""
    if text in LOGGERS or text.startswith("["):
        with suppress(yaml.YAMLError, ValueError):
            return json.dumps(_with_loggers(read_yaml(text)))
    return text


def _with_loggers(value: Any) -> Any:
    """Replaces package names by classes, alone or in a list."""
    if isinstance(value, list):
        return [_with_loggers(one) for one in value]
    return LOGGERS.get(value, value) if isinstance(value, str) else value


def config_summary(name: str) -> str:
    """Second comment line of a packaged config, its description."""
    lines = config_path(name).read_text(encoding="utf-8").splitlines()
    return lines[1].removeprefix("#").strip()


def load_short_yaml(text: str) -> Any:
    """Loads YAML in short form: options next to `class_path` are moved into `init_args`, and `trainer.logger` may be a
    package name."""
    try:
        found = _canonical(read_yaml(text, get_loader("yaml")))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    trainer = found.get("trainer") if isinstance(found, dict) else None
    if isinstance(trainer, dict) and (logger := trainer.get("logger")):
        found["trainer"] = trainer | {"logger": _with_loggers(logger)}
    return found


def as_list(value: Any) -> list[Any]:
    """Values of an option that accepts none, one or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def read_config(given: str) -> dict[str, Any]:
    """Reads a config in any form that `--config` accepts: a packaged name, a path, or inline YAML in braces.

    Raises:
        ValueError: the file does not exist or is not a config.
    """
    text = given if given.startswith("{") else config_path(given).read_text(encoding="utf-8")
    try:
        found = load_short_yaml(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"--config {given} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError(f"--config {given} is no config: its YAML has no keys; `seqlab configs lm/gru` prints one")
    return found


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    value = {key: _canonical(entry) for key, entry in value.items()}
    if not is_class_path(value.get("class_path")):
        return value
    kept = {key: value.pop(key) for key in ("class_path", "init_args", "dict_kwargs") if key in value}
    kept["class_path"] = MOVED.get(kept["class_path"], kept["class_path"])
    return kept | ({"init_args": value | kept.get("init_args", {})} if value or "init_args" in kept else {})


def is_class_path(value: Any) -> bool:
    """Returns True if a value has the form of a class path. Otherwise "class_path" is an ordinary key."""
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


class _Dumper(yaml.SafeDumper):
    """Dumps an enumeration member, as in Lightning's defaults, as its value."""


_Dumper.add_multi_representer(Enum, lambda dumper, member: dumper.represent_data(member.value))


def dump_yaml(value: Any) -> str:
    """Plain values and enumeration members as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


_import_path: Any = _typehints.serialize_as_import_path


def _text_or_import_path(value: Any) -> Any:
    """jsonargparse's serialisation as import path, except that a string is left unchanged where both are accepted."""
    return value if isinstance(value, str) else _import_path(value)


_read_text: Any = _paths.Path.read_text


def _read_regular(path: Any) -> str:
    """Text of a config named by an option. Refuses pipes, on which jsonargparse would block."""
    check_regular(path.absolute, "config")
    text: str = _read_text(path)
    return text


set_loader("seqlab", load_short_yaml, exceptions=(yaml.YAMLError,))
set_dumper("seqlab", dump_yaml)
_typehints.serialize_as_import_path = _text_or_import_path
_paths.Path.read_text = _read_regular  # type: ignore[assignment, method-assign]  # jsonargparse asks nobody else


def import_blocks() -> None:
    """Imports every block module, so that short class names resolve, and registers devices and durations as text."""
    for name in BLOCK_MODULES:
        importlib.import_module(name)
    import torch

    errors = (ValueError, TypeError, AttributeError, RuntimeError)
    for kind, read in ((torch.device, torch.device), (timedelta, timedelta_deserializer)):
        register_type(kind, partial(_as_text, kind), read, errors, fail_already_registered=False)


def _as_text(kind: type, value: Any) -> str:
    if not isinstance(value, kind):  # jsonargparse tries each type of a union
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return str(value)


def as_trained(config: Any) -> Any:
    """Upgrades a stored config: adds the `embed` that models used before they had this argument, and updates former
    class paths."""
    if isinstance(config, list):
        return [as_trained(entry) for entry in config]
    if not isinstance(config, dict):
        return config
    config = {name: as_trained(entry) for name, entry in config.items()}
    path = str(config.get("class_path"))
    if path in MOVED:
        return config | {"class_path": MOVED[path]}
    package, _, name = path.rpartition(".")
    had = EMBEDDED_WITH.get(name) if package.startswith("seqlab.") else None
    return config | {"init_args": {"embed": had} | config.get("init_args", {})} if had else config


def build(config: dict[str, Any], told: dict[str, int]) -> tuple[Any, Any]:
    """Task and data module of a stored config; see `build_task` and `build_data`."""
    return build_task(config, told), build_data(config)


def build_task(config: dict[str, Any], told: dict[str, int]) -> Any:
    """Builds the task of a stored config.

    Args:
        config: config of a stored run.
        told: numbers that the data module set, by the names in `LINKS`; recomputing them would require the data.

    Raises:
        ValueError: the config has an unknown class or option, or a value that a class does not accept.
    """
    import lightning as L

    from seqlab.nn.lora import adapt

    model = as_trained(config["model"])
    task = _instantiate(L.LightningModule, "model", {**model, "init_args": model.get("init_args", {}) | told})
    if config.get("lora") is not None:
        adapt(task, Lora(**config["lora"]))
    return task


def told_by(data: Any) -> dict[str, int]:
    """Numbers that a data module sets, by the names in `LINKS`."""
    return {name: getattr(data, name) for name in LINKS if hasattr(data, name)}


def build_data(config: dict[str, Any]) -> Any:
    """Builds the data module of a stored config, without reading data; None if the config has no data module."""
    import lightning as L

    return _instantiate(L.LightningDataModule, "data", config["data"]) if "data" in config else None


def _instantiate(base: type, name: str, config: dict[str, Any]) -> Any:
    import_blocks()
    parser = Parser(parser_mode="seqlab")
    parser.add_subclass_arguments(base, name, required=True)
    return parser.instantiate(parser.parse_object({name: config}, defaults=False))[name]
