"""Small fits that are the same however many processes they have, and what is to be compared of them."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.distributed.tensor import DTensor

from scale.kinds import kinds, told
from seqlab.attention import Attention, Bidirectional
from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.callbacks.evaluation import PredictionFile
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.models import DecoderLM, Encoder, EncoderDecoder
from seqlab.optim import AdamW, Constant
from seqlab.parallel import set_tensor_parallel
from seqlab.parallel.ranks import of_all_ranks
from seqlab.tasks import LanguageModeling, Translation
from trainers import quiet_trainer

MAX_TOKENS = 32
"""Most tokens in a group of rows: their lengths differ, and the last batch of an epoch has one group."""


class Notes(Callback):
    """The loss of each step, and the rows that this rank was given in the first epoch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rows: list[int] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(trainer.callback_metrics["train/loss"].item())
        if trainer.current_epoch == 0 and batch.rows is not None:
            self.rows += [row for row in batch.rows.tolist() if row >= 0]


def fit(
    folder: Path,
    kind: str,
    strategy: str = "auto",
    *,
    batches: int = 1,
    tp: int | None = None,
    made: Any = None,
    options: dict[str, Any] | None = None,
    resumed: Path | None = None,
    saved: Path | None = None,
    compiled: bool = False,
    ema: float | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Fits a kind of task for two epochs or 12 steps, and scores it.

    Args:
        folder: of its files (`write_files`).
        batches: how many batches of one rank each rank reads at once: of one process, as many as it stands for.
        made: called with the folder; gives data and what makes its task, in the place of the kind's own.
        options: of the task.
        resumed, saved: the checkpoint to begin with, and the one to end with.
        compiled: captured as `--compile true` does, forwards and backwards, without the seconds of C++.
        ema: the decay of averaged weights, if they are.
        flags: of the trainer.

    Returns:
        "losses" of the steps on each rank, "weights" by name; "scores"; "said", the predictions; "rows" that each rank
        read in the first epoch; "num_tokens"; "norm", the last gradient's, where it is clipped, or 0; "held", what
        share of the weights each rank holds.
    """
    L.seed_everything(0, verbose=False)
    data, make = made(folder) if made else kinds(folder)[kind]
    _read_together(data, batches)
    if hasattr(data, "max_tokens"):
        data.max_tokens = min(data.max_tokens, MAX_TOKENS)
    # Where a gradient is 0 but for rounding, Adam's division by its size would make a step of it.
    own = {"warmup_steps": 2, "lr": 1e-2, "schedule": Constant, "optimizer": partial(AdamW, eps=1e-3)}
    task = make(**told(data), **{**own, **(options or {})})
    if compiled:
        task.model.compile(backend="aot_eager")
    notes, tracker = Notes(), RunTracker()
    limits: dict[str, Any] = {"max_epochs": 2, "max_steps": 12}
    limits |= {"limit_val_batches": 0, "limit_test_batches": 2, "limit_predict_batches": 2}
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    ranked: dict[str, Any] = {"strategy": strategy, "devices": ranks, "use_distributed_sampler": False}
    callbacks = [notes, tracker, ExactResume(0), *([AveragedWeights(ema)] if ema else [])]
    plugins = [AtomicCheckpointIO()]
    trainer: Any = quiet_trainer(folder, callbacks=callbacks, plugins=plugins, **{**limits, **ranked, **flags})
    set_tensor_parallel(trainer, tp)
    trainer.fit(task, data, ckpt_path=None if resumed is None else str(resumed))
    norm = trainer.callback_metrics.get("train/grad_norm")
    if saved is not None:
        trainer.save_checkpoint(saved)
    (scores,) = trainer.test(task, data, verbose=False)
    said = folder / f"said by {ranks}.jsonl"
    trainer.callbacks.append(PredictionFile(str(said)))
    trainer.predict(task, data)
    trainer.strategy.barrier()
    weights = trainer.strategy.lightning_module_state_dict()
    return {
        "losses": of_all_ranks(notes.losses),
        "weights": {name: whole_weight(weight).flatten().tolist() for name, weight in weights.items()},
        "scores": scores,
        "said": [json.loads(line) for line in said.read_text().splitlines()],
        "rows": of_all_ranks(notes.rows),
        "num_tokens": tracker.speed.metrics()["num_tokens"],
        "norm": 0.0 if norm is None else norm.item(),
        "held": of_all_ranks(_held(task) / sum(weight.numel() for weight in task.parameters())),
    }


def whole_weight(weight: Tensor) -> Tensor:
    """The weight gathered from all ranks; every rank must call this."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def _read_together(data: Any, batches: int) -> None:
    """From now on a batch, of groups too, is so many of what it was."""
    alone = data._batches

    def together(split: str, *, shuffle: bool = False) -> Any:
        made = alone(split, shuffle=shuffle)
        made.batch_size *= batches
        return made

    data._batches = together


def _held(task: L.LightningModule) -> int:
    """The number of weight elements that this rank holds."""
    return sum((w.to_local() if isinstance(w, DTensor) else w).numel() for w in task.parameters())


def language_model(folder: Path, **options: Any) -> tuple[L.LightningDataModule, Any]:
    """Data and task of a decoder: two layers, attention and rotary positions unless the options name others."""
    data, _ = kinds(folder)["language modelling"]
    return data, partial(LanguageModeling, model=partial(DecoderLM, **{"d_model": 8, "num_layers": 2, **options}))


def sequence_to_sequence(folder: Path, model: Any, **options: Any) -> tuple[L.LightningDataModule, Any]:
    """Data and task of `EncoderDecoder` or `RNNSeq2Seq`."""
    data, _ = kinds(folder)["translation"]
    if model is EncoderDecoder:
        both_ways = partial(Attention, num_heads=2, pattern=Bidirectional)
        options |= {"encoder": partial(Encoder, d_model=8, num_layers=1, mixer=both_ways), "num_layers": 1}
        options.setdefault("mixer", partial(Attention, num_heads=2))
    else:
        options |= {"d_model": 8, "feed_context": True}
    return data, partial(Translation, model=partial(model, **options))
