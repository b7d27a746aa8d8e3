"""Imports that a stored config may cause. Checkpoints are untrusted data and must never run arbitrary code.

Allowed are classes defined by seqlab, seqlab_data, `torch.nn`, `torch.optim` and Lightning's callbacks, plugins,
strategies and accelerators, a few functions, and modules that the user names by `--trust`. The module that defines an
object decides, not the path by which it is reached. This is enforced twice: the config itself is checked, and
jsonargparse resolves nothing else while it reads one.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import timedelta
from enum import Enum
from os import PathLike
from pathlib import PureWindowsPath
from typing import Any

import torch
import yaml
from jsonargparse import set_parsing_settings
from jsonargparse._common import parsing_settings  # no public API restores a setting

from seqlab.config.configs import BLOCK_MODULES, LINKS, import_blocks, is_class_path, load_short_yaml
from seqlab.config.errors import sentence
from seqlab.config.options import OPTIONS
from seqlab.config.parser import Parser
from seqlab.files.plain_values import check_count

LIGHTNING = (
    "lightning.fabric.plugins.environments",
    *(f"lightning.pytorch.{part}" for part in ("accelerators", "callbacks", "plugins", "strategies")),
)
DEFINED_IN = (*BLOCK_MODULES, "torch.nn.modules", "torch.optim", *LIGHTNING)
NOT_ALLOWED = ("lightning.pytorch.strategies.deepspeed", "lightning.pytorch.strategies.model_parallel")
"""Strategies whose options name files, and whose checkpoints are not in seqlab's format."""
NAMED_IN = ("seqlab", "seqlab_data", "torch.nn", "torch.optim", "lightning")
ACTIVATIONS = ("elu", "gelu", "leaky_relu", "mish", "relu", "selu", "sigmoid", "silu", "softplus", "tanh")
PARTS = ("trainer", "model", "data")
KEYS = {*PARTS, "seed_everything", "ckpt_path", "weights_only", *(option.name for option in OPTIONS)}
FILES = ("dirpath", "filename")
DEEPEST = 100


def check_trust(config: Any, trust: Sequence[str]) -> None:
    """Refuses a stored config that would import untrusted code, or that `fit` would not have stored. Nothing is
    imported before it has been found to be allowed.

    Raises:
        ValueError: the config is refused, and the message names the key; or an entry of `trust` is not a module name.
    """
    for module in trust:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"--trust {module}: not a module's name, such as my_module or my_package.mixers")
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ValueError("the stored config names no model; it is not one of seqlab's, or damaged")
    if unknown := [key for key in config if key not in KEYS]:
        raise ValueError(f"the stored config has {unknown[0]!r}, which no fit stores")
    check_count("the stored config", config)
    for key, value in _values(config):
        _check_value(key, value, trust)
    given = {key: value for key, value in config.items() if key in PARTS and value is not None}
    with only_trusted(trust):
        try:
            read = _reader().parse_object(deepcopy(given), defaults=False, _skip_required=True)
        except Exception as error:
            text = re.sub(r"Importing '([^']*)' is not allowed, denied.*", r"\1 may not be imported", sentence(error))
            raise ValueError(f"the stored config cannot be read: {text}") from error
    for key, text in _texts_that_became_more(given, read.as_dict()):
        if not _is_trusted(text, trust):
            raise ValueError(f"the stored config has the text {text!r} as {key}, where a class or a list belongs")


def to_trust(config: Any) -> list[str]:
    """Modules that `--trust` must name when this config is loaded again: the user's own modules that its fit has
    imported."""
    texts = [(key, value) for key, value in _values(config) if isinstance(value, str) and "." in value]
    named = [(key.rpartition(".")[2] == "class_path" and is_class_path(value), key, value) for key, value in texts]
    paths = [value for is_class, key, value in named if is_class or _is_function(key, value)]
    modules = {path.rpartition(".")[0] for path in paths if path not in allowed()}
    return sorted(module for module in modules if not _is_under(module, NAMED_IN))


def _is_function(key: str, text: str) -> bool:
    """True if a string under trainer, model or data names an imported callable."""
    module, _, name = text.rpartition(".")
    return key.split(".")[0] in PARTS and callable(getattr(sys.modules.get(module), name, None))


@contextmanager
def only_trusted(trust: Sequence[str]) -> Iterator[None]:
    """Restricts jsonargparse to allowed imports, whatever a config contains."""
    settings = dict(parsing_settings)
    set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=[*allowed(), *trust])
    try:
        yield
    finally:
        parsing_settings.update(settings)


@functools.cache
def allowed() -> Mapping[str, Any]:
    """Allowed objects, by every path under which one of the packages exposes them."""
    import seqlab_data

    import_blocks()
    found = {f"seqlab_data.{name}": getattr(seqlab_data, name) for name in seqlab_data.__all__}
    for package, functions in (("torch", ("relu", "sigmoid", "tanh")), ("torch.nn.functional", ACTIVATIONS)):
        for name in functions:
            function = getattr(sys.modules[package], name)
            defined = f"{function.__module__ or package}.{function.__qualname__}"
            found |= {f"{package}.{name}": function, defined: function}
    for name, module in [*sys.modules.items()]:
        if _is_under(name, NAMED_IN):
            objects = {f"{name}.{key}": value for key, value in vars(module).items() if isinstance(value, type)}
            found |= {path: value for path, value in objects.items() if _is_under(value.__module__, DEFINED_IN)}
    return {path: one for path, one in found.items() if not _is_under(str(one.__module__), NOT_ALLOWED)}


def _is_under(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _is_trusted(path: str, trust: Sequence[str]) -> bool:
    return path in allowed() or _is_under(path, trust)


def _values(value: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields each value of a config with its dotted key, down to `DEEPEST` levels."""
    if depth > DEEPEST:
        raise ValueError(f"the stored config is nested deeper than {DEEPEST} levels")
    yield key, value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from _values(entry, f"{key}.{name}" if key else str(name), depth + 1)


def _check_value(key: str, value: Any, trust: Sequence[str]) -> None:
    """Refuses values that are not plain, and strings that name or contain a class that is not allowed."""
    option = key.rpartition(".")[2]
    named = option == "class_path" and is_class_path(value)
    if not (value is None or isinstance(value, bool | int | float | str | list | dict)):
        raise ValueError(f"the stored config has a {type(value).__name__} as {key}, which is no plain value")
    if isinstance(value, dict) and not all(isinstance(name, str) and name[:2] != "__" for name in value):
        raise ValueError(f"the stored config has a name in {key} that no option has")
    if not isinstance(value, str):
        return
    # Lightning writes and removes files there. `seqlab.callbacks.beside` places relative paths in the run's folder.
    if key.startswith("trainer.") and option in FILES and not _is_inside(value):
        raise ValueError(
            f"the stored config has {value!r} as {key}; a run writes in its own folder only: give a path relative to it"
        )
    if named and "." in value and not _is_trusted(value, trust):
        module = value.rpartition(".")[0]
        own = module.split(".")[0] not in {
            *sys.stdlib_module_names,
            *(name.split(".")[0] for name in NAMED_IN),
            "numpy",
        }
        raise ValueError(
            f"the stored config names {value} as {key}, which neither seqlab, torch.nn, torch.optim nor Lightning's "
            "callbacks, plugins and strategies define" + (f"; --trust {module} lets it be imported" if own else "")
        )
    if "class_path" in value and _holds_a_class(value):
        shown = textwrap.shorten(value, 100, placeholder=" ...")
        raise ValueError(f"the stored config has the text {shown!r} as {key}; a text may hold no class")


def _holds_a_class(text: str) -> bool:
    """True if a string is YAML of a class, possibly in nested strings, so that reading it would create the class."""
    try:
        values = [*_values(load_short_yaml(text))]
    except yaml.YAMLError:
        return False
    return any(
        (key.rpartition(".")[2] == "class_path" and is_class_path(value))
        or (isinstance(value, str) and value != text and "class_path" in value and _holds_a_class(value))
        for key, value in values
    )


def _is_inside(path: str) -> bool:
    """True if a path leads nowhere but further into a folder, on any system."""
    parts = PureWindowsPath(path).parts
    return not (PureWindowsPath(path).anchor or "://" in path or ".." in parts or path.startswith("~"))


def _reader() -> Parser:
    """Reads a stored config without opening the files that it names."""
    import lightning as L

    parser = Parser(parser_mode="seqlab")
    parser.add_class_arguments(L.Trainer, "trainer", instantiate=False, fail_untyped=False)
    parser.add_subclass_arguments(L.LightningModule, "model")
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    for name in LINKS:
        parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")
    return parser


def _texts_that_became_more(stored: Any, read: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields strings that were read as a class, a function, a list or options, with their keys."""
    plain = (str, bool, int, float, Enum, PathLike, torch.device, timedelta, type(None))
    if isinstance(stored, str) and not isinstance(read, plain):
        yield key, stored
    elif isinstance(stored, dict) and isinstance(read, dict):
        for name, value in stored.items():
            yield from _texts_that_became_more(value, read.get(name), f"{key}.{name}" if key else name)
    elif isinstance(stored, list) and isinstance(read, list | tuple):
        for place, both in enumerate(zip(stored, read, strict=False)):
            yield from _texts_that_became_more(*both, f"{key}.{place}")
