"""A fit goes on from a checkpoint in another layout at an epoch's end, and in its own anywhere."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.callbacks import Callback

from callbacks.tiny_fit import EndBefore, KilledError, tiny_trainer
from scale.fits import Notes, whole_weight
from scale.forked import on_ranks
from scale.kinds import kinds, told
from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.checkpoints.io import read_checkpoint
from seqlab.optim import AdamW, Constant
from seqlab.parallel import set_tensor_parallel
from seqlab.parallel.ranks import of_all_ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
Layout = tuple[str, int | None]
"""The strategy's word, and --tp."""
ONE, DDP, FSDP2, TP, BOTH = ("auto", None), ("ddp", None), ("fsdp2", None), ("tp", None), ("fsdp2+tp", 2)


def go_on(files: Path, folder: Path, layout: Layout, epochs: int, kill_at: int = -1) -> dict[str, Any]:
    """Fits to the end of this epoch, from the folder's last checkpoint if it is there, or ends before a micro-batch.

    Returns:
        "losses" of the steps, averaged "weights" by name and "moments"; nothing of a fit that was killed.
    """
    L.seed_everything(0, verbose=False)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    word, tp = layout
    copies = ranks // (ranks if word == "tp" else tp or 1)
    data: Any
    data, make = kinds(files)["regression"]
    data.batch_size = 10 // copies
    task = make(**told(data), warmup_steps=2, lr=1e-2, optimizer=partial(AdamW, eps=1e-3), schedule=Constant)
    callbacks: list[Callback] = [notes := Notes(), AveragedWeights(0.9), EndBefore(kill_at)]
    options: dict[str, Any] = {"limit_val_batches": 0, "max_epochs": epochs, "strategy": word, "devices": ranks}
    trainer = tiny_trainer(folder, callbacks, **options)
    set_tensor_parallel(trainer, tp)
    last = folder / "checkpoints" / "last.ckpt"
    try:
        trainer.fit(task, data, ckpt_path=str(last) if last.exists() else None)
    except KilledError:
        return {}
    weights = trainer.strategy.lightning_module_state_dict()
    (optimizer,) = read_checkpoint(last)["optimizer_states"]
    return {
        "losses": of_all_ranks(notes.losses)[0],
        "weights": {name: whole_weight(weight).flatten().tolist() for name, weight in weights.items()},
        "moments": [x for kept in optimizer["state"].values() for key in kept for x in kept[key].flatten().tolist()],
    }


@pytest.mark.slow
def test_epochs_in_different_layouts_train_what_one_process_does(files: Path, tmp_path: Path) -> None:
    turns = ((FSDP2, 2), (ONE, 1), (BOTH, 4), (DDP, 2), (TP, 2))
    alone = go_on(files, tmp_path / "alone", ONE, len(turns))
    found = [
        on_ranks(ranks, partial(go_on, files, tmp_path / "turns", layout, epoch))
        for epoch, (layout, ranks) in enumerate(turns, start=1)
    ]
    losses, last = [loss for part in found for loss in part["losses"]], found[-1]
    assert len(losses) == len(alone["losses"]) == 3 * len(turns) and last["weights"].keys() == alone["weights"].keys()
    assert losses == pytest.approx(alone["losses"], rel=1e-5, abs=1e-5)
    assert last["moments"] == pytest.approx(alone["moments"], rel=1e-5, abs=1e-5)
    for name, weight in last["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=1e-5, abs=1e-5), name


def test_a_fit_killed_within_an_epoch_goes_on_exactly_in_its_own_layout_alone(files: Path, tmp_path: Path) -> None:
    said = "in the middle of an epoch by fsdp2 over 2 processes .*, not by ddp over 2 processes"

    def killed_and_resumed() -> Any:
        whole = go_on(files, tmp_path / "whole", FSDP2, 2)
        assert go_on(files, tmp_path / "killed", FSDP2, 2, kill_at=5) == {}
        with pytest.raises(ValueError, match=said):
            go_on(files, tmp_path / "killed", DDP, 2)
        return whole, go_on(files, tmp_path / "killed", FSDP2, 2)

    whole, resumed = on_ranks(2, killed_and_resumed)
    losses = resumed.pop("losses")
    assert losses == whole.pop("losses")[-len(losses) :] and resumed == whole
