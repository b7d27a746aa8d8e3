"""Configs: finding them by name, their short form, and building objects from one.

The class path is the registry: a block is named by its class, with options beside `class_path`. There is no other list.
"""

from __future__ import annotations

import difflib
import importlib
import json
from argparse import ArgumentError
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, _paths, _typehints, get_loader, set_dumper, set_loader
from jsonargparse.typing import register_type, timedelta_deserializer

from seqlab.files.plain_values import read_yaml
from seqlab.files.regular_file import check_regular

PACKAGED = Path(__file__).parent.parent / "configs"
BLOCK_MODULES = (
    "seqlab.attention",
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
"""Defaults for models that once had no argument `embed`."""
MOVED = {
    "seqlab.callbacks.attention_maps.AttentionMaps": "seqlab.probes.attention_maps.AttentionMaps",
    "seqlab.callbacks.gradient_probe.GradientProbe": "seqlab.probes.gradient_probe.GradientProbe",
    "seqlab.callbacks.state_probe.StateProbe": "seqlab.probes.state_probe.StateProbe",
    "seqlab.training.attention_maps.AttentionMaps": "seqlab.probes.attention_maps.AttentionMaps",
}
"""Class paths that older runs and configs have, by their former place."""
LOGGER_OPTIONS = ("--trainer.logger", "--trainer.logger+")
LOGGERS: dict[str, Any] = {
    "comet": {"class_path": "CometLogger"},
    "csv": {"class_path": "CSVLogger", "init_args": {"save_dir": "."}},
    "mlflow": True,
    "tensorboard": {"class_path": "TensorBoardLogger", "init_args": {"save_dir": "."}},
    "wandb": {"class_path": "WandbLogger"},
}
"""Package names that `trainer.logger` takes beside Lightning's classes."""
LINKS = ("vocab_size", "target_vocab_size", "num_features", "num_classes", "num_labels", "seq_len")
"""Values that the data module passes to the task, so that a config never repeats a number."""


def config_names() -> list[str]:
    """The packaged configs, as `--config` takes them."""
    return sorted(path.relative_to(PACKAGED).with_suffix("").as_posix() for path in PACKAGED.rglob("*.yaml"))


def config_path(name: str) -> Path:
    """The file of a packaged config's name or of a path.

    Raises:
        ValueError: it is neither.
    """
    if Path(name).is_file():
        return Path(name)
    packaged = PACKAGED / f"{name}.yaml"
    if name in config_names():
        return packaged
    check_regular(name, "config")
    raise ValueError(f"--config {name}: neither a file nor a packaged config; {instead(name, config_names())}")


def instead(given: str, accepted: Sequence[str]) -> str:
    """The hint for a name that is not accepted: the one close to it, or to its first part, in any case; or all."""
    by_lower = {name.lower(): name for name in accepted}
    for text in (given.lower(), given.lower().partition(".")[0]):
        if close := difflib.get_close_matches(text, by_lower, n=1):
            return f"did you mean {by_lower[close[0]]}?"
    return f"accepted: {', '.join(accepted) or 'none'}"


def resolve_names(args: list[str]) -> list[str]:
    """A command line whose `--config` values are files, and whose loggers are classes."""
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
    """The text of a `--trainer.logger`, with classes in the place of packages."""
    if text in LOGGERS or text.startswith("["):
        with suppress(yaml.YAMLError, ValueError):
            return json.dumps(_with_loggers(read_yaml(text)))
    return text


def _with_loggers(value: Any) -> Any:
    """Puts classes in the place of packages, alone or in a list."""
    if isinstance(value, list):
        return [_with_loggers(one) for one in value]
    return LOGGERS.get(value, value) if isinstance(value, str) else value


def config_summary(name: str) -> str:
    """The second comment line of a packaged config: what it is."""
    lines = config_path(name).read_text(encoding="utf-8").splitlines()
    return lines[1].removeprefix("#").strip()


def load_short_yaml(text: str) -> Any:
    """YAML in which options may stand beside `class_path`: they are moved into its `init_args`; and in which
    `trainer.logger` may name a package."""
    try:
        found = _canonical(read_yaml(text, get_loader("yaml")))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    trainer = found.get("trainer") if isinstance(found, dict) else None
    if isinstance(trainer, dict) and (logger := trainer.get("logger")):
        found["trainer"] = trainer | {"logger": _with_loggers(logger)}
    return found


def as_list(value: Any) -> list[Any]:
    """The values of an option that takes one or several, or none."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def read_config(given: str) -> dict[str, Any]:
    """Reads a config in any form that `--config` takes: a packaged one's name, a path, or the config itself in braces.

    Raises:
        ValueError: there is no such file, or it is no config.
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
    """Returns True if a value is written as a class path. Otherwise "class_path" is a key like any other."""
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


class _Dumper(yaml.SafeDumper):
    """Writes a member of an enumeration, as Lightning has them among its defaults, as its value."""


_Dumper.add_multi_representer(Enum, lambda dumper, member: dumper.represent_data(member.value))


def dump_yaml(value: Any) -> str:
    """Plain values, members of enumerations among them, as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


_import_path: Any = _typehints.serialize_as_import_path


def _text_or_import_path(value: Any) -> Any:
    """jsonargparse's import path of a function or an object; a text stays what it is where both are accepted."""
    return value if isinstance(value, str) else _import_path(value)


_read_text: Any = _paths.Path.read_text


def _read_regular(path: Any) -> str:
    """The text of a config that an option names; jsonargparse would wait for a pipe."""
    check_regular(path.absolute, "config")
    text: str = _read_text(path)
    return text


set_loader("seqlab", load_short_yaml, exceptions=(yaml.YAMLError,))
set_dumper("seqlab", dump_yaml)
_typehints.serialize_as_import_path = _text_or_import_path
_paths.Path.read_text = _read_regular  # type: ignore[assignment, method-assign]  # jsonargparse asks nobody else


def import_blocks() -> None:
    """Imports every block module, so that short class names resolve, and has devices and times stored as text."""
    for name in BLOCK_MODULES:
        importlib.import_module(name)
    import torch

    errors = (ValueError, TypeError, AttributeError, RuntimeError)
    for kind, read in ((torch.device, torch.device), (timedelta, timedelta_deserializer)):
        register_type(kind, partial(_as_text, kind), read, errors, fail_already_registered=False)


def _as_text(kind: type, value: Any) -> str:
    if not isinstance(value, kind):  # jsonargparse asks for each type that a union has
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return str(value)


def as_trained(config: Any) -> Any:
    """A stored config that says what its models embedded with: where `embed` is missing, they had no choice. What has
    moved since is named where it is."""
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
    """The task and the data module of a stored config, as `build_task` and `build_data` make them."""
    return build_task(config, told), build_data(config)


def build_task(config: dict[str, Any], told: dict[str, int]) -> Any:
    """The task of a stored config.

    Args:
        config: what a run stored.
        told: what its data module told the task, by the names of `LINKS`; it would have to read its data to tell again.

    Raises:
        ValueError: it names a class or an option that there is not, or a value that a class does not take.
    """
    import lightning as L

    task = as_trained(config["model"])
    return _instantiate(L.LightningModule, "model", {**task, "init_args": task.get("init_args", {}) | told})


def build_data(config: dict[str, Any]) -> Any:
    """The data module of a stored config, None where it names no data. Reads none."""
    import lightning as L

    return _instantiate(L.LightningDataModule, "data", config["data"]) if "data" in config else None


def _instantiate(base: type, name: str, config: dict[str, Any]) -> Any:
    import_blocks()
    parser = ArgumentParser(exit_on_error=False, parser_mode="seqlab")
    parser.add_subclass_arguments(base, name, required=True)
    try:
        read = parser.parse_object({name: config}, defaults=False)
    except ArgumentError as error:
        raise ValueError(str(error)) from error
    return parser.instantiate(read)[name]
