"""Values of `--trainer.strategy` in addition to Lightning's: `fsdp2`, `tp` and `fsdp2+tp`."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.optim import Optimizer

from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.optim import Muon
from seqlab.parallel.cut import check_cut, cut
from seqlab.parallel.fully_sharded import shard_fully
from seqlab.parallel.gradients import step_singly
from seqlab.parallel.optimizer_state import load_full_state

OF_WHOLE_MATRICES = (Muon, torch.optim.Muon, torch.optim.Adafactor)
STRATEGIES = ("fsdp2", "tp", "fsdp2+tp")


class SpreadStrategy(ModelParallelStrategy):
    """Strategy that distributes a model over processes by FSDP2 (Zhao et al. 2023, "PyTorch FSDP"), tensor parallelism
    (Shoeybi et al. 2019, "Megatron-LM"), or both.

    Each process writes its shard of a checkpoint, and reads the parts it needs of a checkpoint written in any layout.

    Args:
        word: one of `STRATEGIES`.

    Attributes:
        tp: tensor-parallel size, if `word` leaves it open; None = not given.
    """

    def __init__(self, word: str) -> None:
        super().__init__(data_parallel_size=1, tensor_parallel_size=1, save_distributed_checkpoint=False)
        self.word = word
        self.tp: int | None = None

    def sizes(self) -> tuple[int, int]:
        """Data-parallel and tensor-parallel sizes, whose product is the world size.

        Raises:
            ValueError: `tp` is incompatible with the strategy or the world size.
        """
        ranks, tp = self.world_size, self.tp
        if self.word == "fsdp2":
            if tp is not None:
                raise ValueError(f"--tp {tp} needs --trainer.strategy tp or fsdp2+tp, got fsdp2")
            return ranks, 1
        if self.word == "tp":
            if tp not in (None, ranks):
                raise ValueError(
                    f"--trainer.strategy tp shards the model over all {ranks} ranks, got --tp {tp}; omit --tp, or use "
                    "fsdp2+tp"
                )
            return 1, ranks
        if tp is None or tp < 1 or ranks % tp:
            raise ValueError(f"--trainer.strategy fsdp2+tp needs --tp N, where N divides the {ranks} ranks, got {tp}")
        return ranks // tp, tp

    def check(self, module: L.LightningModule, *, fits: bool = True) -> None:
        """Checks, before ranks are started, that a module can be distributed over them.

        Args:
            fits: whether the module is going to be trained.

        Raises:
            ValueError: it cannot be distributed.
        """
        if not is_overridden("configure_model", module):
            raise ValueError(
                f"--trainer.strategy {self.word} needs a seqlab Task or a LightningModule whose configure_model shards "
                f"its model, got {type(module).__name__}; use ddp"
            )
        check_cut(module, self.sizes()[1])
        new_optimizer: Any = getattr(module, "new_optimizer", None)
        optimizer = new_optimizer() if fits and new_optimizer else None
        if isinstance(optimizer, OF_WHOLE_MATRICES):
            raise ValueError(
                f"{type(optimizer).__name__} needs whole matrices, which --trainer.strategy {self.word} shards over "
                "ranks; use ddp, or AdamW, Lion or SGD"
            )

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.sizes()
        super().setup_environment()

    def spread(self, model: nn.Module) -> None:
        """Distributes a model over the ranks in place; an already distributed model is left unchanged."""
        cut(model, self.device_mesh["tensor_parallel"], sharded=None if self.word == "tp" else self.sizes()[0])
        if self.word != "tp":
            shard_fully(model, self.device_mesh["data_parallel"], self.precision_plugin.precision)

    def setup_optimizers(self, trainer: L.Trainer) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            step_singly(optimizer)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """State dict of this rank's shards of the weights."""
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """This rank's shard of the optimiser state."""
        return Strategy.optimizer_state(self, optimizer)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        self._files.save_shards(checkpoint, self.broadcast(filepath))

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Loads a checkpoint into the weights and, in a fit, the optimisers: the needed parts of a sharded checkpoint,
        or all of a single file."""
        task, path = self.lightning_module, self.broadcast(checkpoint_path)
        assert task is not None
        optimizers = self.optimizers if task.trainer.state.fn == TrainerFn.FITTING else []
        checkpoint = self._files.load_shards(path, task, optimizers)
        if checkpoint is not None:
            for optimizer, state in zip(optimizers, checkpoint["optimizer_states"], strict=True):
                optimizer.load_state_dict(state)
        else:
            checkpoint = self._files.load_checkpoint(path)
            set_model_state_dict(task, dict(checkpoint["state_dict"]), options=StateDictOptions(full_state_dict=True))
            for optimizer, state in zip(optimizers, checkpoint["optimizer_states"] if optimizers else [], strict=True):
                load_full_state(task, optimizer, state)
        for optimizer in optimizers:
            step_singly(optimizer)
        return checkpoint

    @property
    def _files(self) -> AtomicCheckpointIO:
        if not isinstance(self.checkpoint_io, AtomicCheckpointIO):
            raise ValueError(f"strategy {self.word} needs the Trainer's plugins=[AtomicCheckpointIO()]")
        return self.checkpoint_io


for word in STRATEGIES:
    StrategyRegistry.register(word, SpreadStrategy, description=f"seqlab's {word}", word=word)


def layout(trainer: L.Trainer) -> str:
    """Description of the number of training processes and of the distribution of the model over them."""
    if trainer.world_size == 1:
        return "one process"
    strategy, among = trainer.strategy, f"over {trainer.world_size} processes"
    if not isinstance(strategy, SpreadStrategy):
        return f"ddp {among}"
    return f"{strategy.word} {among}" + (f" with --tp {strategy.tp}" if strategy.word == "fsdp2+tp" else "")


def set_tensor_parallel(trainer: L.Trainer, tp: int | None) -> None:
    """Sets the tensor-parallel size of a trainer's strategy.

    Raises:
        ValueError: the strategy does not support this size.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SpreadStrategy):
        strategy.tp = tp
        strategy.sizes()
    elif tp is not None:
        raise ValueError(f"--tp {tp} needs --trainer.strategy tp or fsdp2+tp")
