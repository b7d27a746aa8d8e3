"""Resolved configurations as flat MLflow parameters, as YAML and as a hash."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

MAX_VALUE_LENGTH = 6000
MAX_KEY_LENGTH = 250
CLASS = ".class_path"
READ = re.compile(
    r"data\.(?!.*(tokenizer|path|num_workers|batch_size|max_tokens)|(init_args\.)?(train|val|test|seed)$)"
    r"|trainer\.limit_(val|test)_batches$"
)
"""Data options that affect an evaluation, except tokenizers and files, which are recorded separately, seeds and batch
sizes."""
RUN_SPECIFIC = (
    "checkpoint_async",
    "ckpt_path",
    "config",
    "experiment",
    "print_config",
    "resume",
    "run_name",
    "timeout",
    "trust",
)


def flatten(config: dict[str, Any]) -> dict[str, str]:
    """Leaves by dotted path, as YAML scalars: `{"a": {"b": [None, 1]}}` becomes `{"a.b.0": "null", "a.b.1": "1"}`.

    A value too long for MLflow is truncated, with a note. Keys that `accepted` maps to one name, or that
    differ only beyond `MAX_KEY_LENGTH` characters, are numbered.
    """
    found: dict[str, str] = {}
    for key, value in _leaves(config, ""):
        name, number = accepted(key), 1
        while name in found:
            number += 1
            name = f"{accepted(key)[: MAX_KEY_LENGTH - len(str(number)) - 1]}-{number}"
        found[name] = _cut(value)
    return found


def accepted(name: str) -> str:
    """Name of a metric or parameter in a form that MLflow accepts: letters, digits and `_ .:/-`, at most
    `MAX_KEY_LENGTH` characters. Slashes are kept only in a normalised relative path."""
    name = re.sub(r"[^\w .:/-]", "_", name)[:MAX_KEY_LENGTH]
    if posixpath.normpath(name) == name and not name.startswith(("/", "..")) and name != ".":
        return name
    return re.sub(r"^\.", "_", name.replace("/", "_")) or "_"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Shortest unique suffix of each name from `flatten`, ignoring init_args. A class path is named by its option."""
    parts = {name: name.removesuffix(CLASS).replace(".init_args", "").split(".") for name in names}
    ends = Counter(".".join(end[start:]) for end in parts.values() for start in range(len(end)))
    return {
        name: next(
            (text for start in reversed(range(len(end))) if ends[text := ".".join(end[start:])] == 1), ".".join(end)
        )
        for name, end in parts.items()
    }


def block_tags(params: Mapping[str, str]) -> dict[str, str]:
    """Short tags for finding runs: comma-separated class names of task, model, mixers and positions, from parameters
    returned by `flatten`."""
    found = {"task": re.compile(r"model"), "model": re.compile(r"model\.init_args\.model")}
    found |= {name: re.compile(rf"model\..*\.{name}(\.\d+)?") for name in ("mixer", "positions")}
    classes = {
        key.removesuffix(CLASS): value.rpartition(".")[2] for key, value in params.items() if key.endswith(CLASS)
    }
    named = {tag: {value for key, value in classes.items() if of.fullmatch(key)} for tag, of in found.items()}
    return {tag: ", ".join(sorted(values)) for tag, values in named.items() if values}


def read_by(params: dict[str, str]) -> dict[str, str]:
    """Parameters from `flatten` that affect an evaluation but not the digest of the data, by name without init_args."""
    read = sorted(item for item in params.items() if READ.match(item[0]))
    return {name.replace(".init_args", ""): value for name, value in read}


def to_yaml(config: dict[str, Any]) -> str:
    """Configuration as YAML, in its original order."""
    text: str = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    return text


def config_hash(config: dict[str, Any]) -> str:
    """sha256 of the configuration, without `RUN_SPECIFIC` keys and without `run_id` at any depth."""
    kept = {key: value for key, value in config.items() if key not in RUN_SPECIFIC}
    canonical = json.dumps(_without_run_id(kept), sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _leaves(value: Any, path: str) -> list[tuple[str, str]]:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list | tuple):
        children = list(enumerate(value))
    if not children:
        return [(path, _scalar(value))]
    return [leaf for key, child in children for leaf in _leaves(child, f"{path}.{key}" if path else str(key))]


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _cut(value: str) -> str:
    if len(value) <= MAX_VALUE_LENGTH:
        return value
    marker = f" ... [cut from {len(value)} characters, see config.yaml]"
    return value[: MAX_VALUE_LENGTH - len(marker)] + marker


def _without_run_id(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_run_id(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _without_run_id(entry) for key, entry in value.items() if key != "run_id"}
    return value
