"""Model, tokenizer and data module of a run, rebuilt from the run alone."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
from torch import Tensor

from seqlab.checkpoints.checksummed_file import load_checksummed
from seqlab.checkpoints.io import read_checkpoint
from seqlab.config.configs import LINKS, as_trained, build
from seqlab.config.errors import sentence
from seqlab.config.lora import Lora
from seqlab.config.trust import check_trust, only_trusted
from seqlab.files.plain_values import check_count
from seqlab.nn.lora import merged
from seqlab.tracking.runs import find_run
from seqlab.trained.same_vocabulary import give_path
from seqlab.trained.stored_model import check_fits, weights_of

OPTIONAL_DICT, OPTIONAL_TEXT, OPTIONAL_LIST = ((kind, type(None)) for kind in (dict, str, list))
MOST_SAID = 500
STORED: dict[str, Any] = {
    "config": dict,
    "told": dict,
    "run_id": OPTIONAL_TEXT,
    "labels": OPTIONAL_LIST,
    "stop_ids": OPTIONAL_LIST,
    "tokenizer": OPTIONAL_DICT,
    "source_tokenizer": OPTIONAL_DICT,
}
"""Entries stored by `Checkpoints`, with their types."""


@dataclass(frozen=True)
class LoadedRun:
    """A loaded, trained run.

    Attributes:
        run_id: id of the MLflow run; None = checkpoint of an untracked fit.
        commit: git commit at which the model was trained; None = unknown.
        config: resolved configuration.
        task: LightningModule around the model, in eval mode.
        model: trained model.
        tokenizer: tokenizer, of the target if there are two; None = the model has none.
        source_tokenizer: tokenizer of the source, if it differs from the target's; else None.
        labels: class names; empty = none.
        stop_ids: stop tokens of an imported model; None = the tokenizer's.
        datamodule: data module, which reads its data only when used; None = an imported model that reads ids.
    """

    run_id: str | None
    commit: str | None
    config: dict[str, Any]
    task: Any
    model: Any
    tokenizer: Any
    source_tokenizer: Any
    labels: list[str]
    stop_ids: list[int] | None
    datamodule: L.LightningDataModule | None


def load_run(run: str, *, trust: Sequence[str] = ()) -> LoadedRun:
    """Rebuilds a run from its best checkpoint, or from the checkpoint whose path is given.

    Args:
        run: run id, unique id prefix, run name or checkpoint path.
        trust: modules outside seqlab, torch and lightning that the stored config may import.

    Raises:
        ValueError: the run does not exist, has no checkpoint, or its config names a class that is not trusted.
    """
    from seqlab_data.tokenizers import tokenizer_from_dict

    path, commit = checkpoint_of(run)
    checkpoint = read_checkpoint(path)
    stored = check_stored(path, checkpoint, trust)
    with only_trusted(trust), _saying(path):
        tokenizer, source_tokenizer = (
            tokenizer_from_dict(stored[name]) if stored.get(name) else None
            for name in ("tokenizer", "source_tokenizer")
        )
        config = deepcopy(stored["config"])
        give_path(config.get("data", {}).get("init_args", {}).get("tokenizer"), path)
        task, datamodule = build(config, stored["told"])
        task.load_state_dict(checkpoint["state_dict"])
    task.eval()
    return LoadedRun(
        stored.get("run_id"),
        commit,
        stored["config"],
        task,
        task.model,
        tokenizer,
        source_tokenizer,
        stored.get("labels") or [],
        stored.get("stop_ids"),
        datamodule,
    )


def stored_run(run: str, *, trust: Sequence[str] = ()) -> tuple[dict[str, Any], Path]:
    """seqlab's entry in a run's best checkpoint, or in the checkpoint given by path, and the path of the checkpoint.

    Raises:
        ValueError: as `load_run`.
    """
    path, _ = checkpoint_of(run)
    return check_stored(path, read_checkpoint(path, weights=False), trust), path


def count_weights(run: str) -> int:
    """Number of weights of a run's model, counted without reading them; raises as `load_run`."""
    path, _ = checkpoint_of(run)
    checkpoint = load_checksummed(path, values=False)
    with _saying(path):
        weights = weights_of(checkpoint)
        return sum(weight.numel() for name, weight in weights.items() if name.startswith("model."))


def merged_weights(path: Path) -> dict[str, Tensor]:
    """Weights of the task of a checkpoint by name, of which LoRA's updates are a part.

    Raises:
        ValueError: the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(path)
    with _saying(path):
        weights = weights_of(checkpoint)
        match checkpoint:
            case {"seqlab": {"config": {"lora": dict(lora)}}}:
                return merged(weights, Lora(**lora))
        return weights


def check_stored(path: Path, checkpoint: dict[str, Any], trust: Sequence[str], config: Any = None) -> dict[str, Any]:
    """seqlab's entry in a checkpoint. It must be complete, import only trusted code, and fit the weights.

    Args:
        config: config to use instead of the stored one; None = the stored one.

    Raises:
        ValueError: a check failed; the message says which.
    """
    stored = checkpoint.get("seqlab")
    if not isinstance(stored, dict):
        raise ValueError(f"{path} is not a seqlab checkpoint: it has no embedded config")
    with _saying(path):
        for name, kinds in STORED.items():
            if not isinstance(stored.get(name), kinds):
                raise ValueError(f"its {name} is {_shown(stored.get(name))}")
        told, weights = stored["told"], weights_of(checkpoint)
        if wrong := [name for name in told if name not in LINKS or type(told[name]) is not int or told[name] < 0]:
            raise ValueError(f"its told[{wrong[0]!r}] is {_shown(told[wrong[0]])}")
        if wrong := [label for label in stored.get("labels") or [] if not isinstance(label, str)]:
            raise ValueError(f"its labels contain {_shown(wrong[0])}")
        ids, stops = range(told.get("vocab_size", 0)), stored.get("stop_ids") or []
        if wrong := [token for token in stops if type(token) is not int or token not in ids]:
            raise ValueError(f"its stop_ids contain {_shown(wrong[0])}")
        config = stored["config"] if config is None else config
        check_count("the stored config", config)
        try:
            config = as_trained(config)
        except RecursionError:
            raise ValueError("the stored config is nested too deeply") from None
        check_trust(config, trust)
        with only_trusted(trust):
            check_fits(config, told, weights)
    return stored | {"config": config}


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Converts any error in reading a checkpoint into a ValueError that names it."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = textwrap.shorten(kind + sentence(error), MOST_SAID, placeholder=" ...")
        raise ValueError(f"checkpoint {path}: {text}") from error


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{str(value)[:60]!r} of type {type(value).__name__}"


def checkpoint_of(run: str) -> tuple[Path, str | None]:
    """Checkpoint of a run, and the commit at which it was trained, or None if unknown."""
    if os.path.isfile(run):
        return Path(run), None
    tracked = find_run(run)
    if tracked.checkpoint is None:
        raise ValueError(f"run {tracked.name} ({tracked.id}) has no checkpoint")
    return tracked.checkpoint, tracked.tags.get("git.commit")
