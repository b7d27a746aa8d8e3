"""A run's model, tokenizer and data module, rebuilt from the run alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L

from seqlab.tracking.runs import find_run
from seqlab.training.checkpoint_io import read_checkpoint
from seqlab.training.config import build, check_trust


@dataclass(frozen=True)
class LoadedRun:
    """What a run trained.

    Attributes:
        run_id: the MLflow run; None for a checkpoint of an untracked fit.
        commit: the git commit it was trained at, if known.
        config: its resolved configuration.
        task: the LightningModule around the model, in eval mode.
        model: the trained model.
        tokenizer: its tokenizer; of two, the target's. None where it has none.
        source_tokenizer: the source's, where it is another.
        labels: the names of the classes; none where there are none.
        datamodule: its data module, whose text is read only when it is used; None of an imported model of ids.
    """

    run_id: str | None
    commit: str | None
    config: dict[str, Any]
    task: Any
    model: Any
    tokenizer: Any
    source_tokenizer: Any
    labels: list[str]
    datamodule: L.LightningDataModule | None


def load_run(run: str, *, trust: Sequence[str] = ()) -> LoadedRun:
    """Rebuilds a run from its best checkpoint, or from the checkpoint whose path is given.

    Args:
        run: an id, a unique prefix of one, a run name or a checkpoint path.
        trust: modules outside seqlab, torch and lightning that the stored config may import.

    Raises:
        ValueError: no such run, a run without a checkpoint, or a class path that nobody vouched for.
    """
    from seqlab_data.tokenizers import tokenizer_from_dict

    path, commit = _checkpoint_of(run)
    checkpoint = read_checkpoint(path)
    stored = _stored(path, checkpoint)
    check_trust(stored["config"], trust)
    tokenizer, source_tokenizer = (
        tokenizer_from_dict(stored[name]) if stored.get(name) else None for name in ("tokenizer", "source_tokenizer")
    )
    task, datamodule = build(stored["config"], stored["told"])
    task.load_state_dict(checkpoint["state_dict"])
    task.eval()
    return LoadedRun(
        stored["run_id"],
        commit,
        stored["config"],
        task,
        task.model,
        tokenizer,
        source_tokenizer,
        stored.get("labels") or [],
        datamodule,
    )


def stored_config(run: str, *, trust: Sequence[str] = ()) -> tuple[dict[str, Any], Path]:
    """A run's configuration and its best checkpoint, or those of the checkpoint whose path is given.

    Raises:
        ValueError: as of `load_run`.
    """
    path, _ = _checkpoint_of(run)
    config: dict[str, Any] = _stored(path, read_checkpoint(path))["config"]
    check_trust(config, trust)
    return config, path


def _checkpoint_of(run: str) -> tuple[Path, str | None]:
    """A run's checkpoint, and the commit it was trained at, where that is known."""
    if Path(run).is_file():
        return Path(run), None
    tracked = find_run(run)
    if tracked.checkpoint is None:
        raise ValueError(f"run {tracked.name} ({tracked.id}) has no checkpoint")
    return tracked.checkpoint, tracked.tags.get("git.commit")


def _stored(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    if "seqlab" not in checkpoint:
        raise ValueError(f"{path} is a checkpoint, but not one of seqlab's: it embeds no config")
    stored: dict[str, Any] = checkpoint["seqlab"]
    return stored
