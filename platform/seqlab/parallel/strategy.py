"""Strategies by one word of `--trainer.strategy`: `fsdp2`, `tp` and `fsdp2+tp`, beside Lightning's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.strategies import ModelParallelStrategy, StrategyRegistry
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.optim import Optimizer

from seqlab.parallel.fully_sharded import shard_fully
from seqlab.parallel.optimizer_state import full_state, load_full_state

STRATEGIES = ("fsdp2", "tp", "fsdp2+tp")


class SpreadStrategy(ModelParallelStrategy):
    """A model that is spread over processes: its weights sharded (FSDP2; Zhao et al. 2023, "PyTorch FSDP"), its
    layers cut (tensor parallel; Shoeybi et al. 2019, "Megatron-LM"), or both.

    Checkpoints are those of one process: rank 0 gathers and writes them, every rank reads them.

    Args:
        word: one of `STRATEGIES`.

    Attributes:
        tp: over how many ranks each layer is cut, where `word` leaves it open.
    """

    def __init__(self, word: str) -> None:
        super().__init__(data_parallel_size=1, tensor_parallel_size=1, save_distributed_checkpoint=False)
        self.word = word
        self.tp: int | None = None

    def sizes(self) -> tuple[int, int]:
        """Of the data-parallel and of the tensor-parallel dimension; their product is the number of ranks.

        Raises:
            ValueError: `tp` does not fit the word or the number of ranks.
        """
        ranks, tp = self.world_size, self.tp
        if self.word == "fsdp2":
            if tp is not None:
                raise ValueError(f"--tp {tp} goes with --trainer.strategy tp or fsdp2+tp, not with fsdp2")
            return ranks, 1
        if self.word == "tp":
            if tp not in (None, ranks):
                raise ValueError(
                    f"--trainer.strategy tp cuts the model over all {ranks} ranks, got --tp {tp}; leave --tp out, or "
                    "give fsdp2+tp"
                )
            return 1, ranks
        if tp is None or tp < 1 or ranks % tp:
            raise ValueError(
                f"--trainer.strategy fsdp2+tp needs --tp N, a number that divides the {ranks} ranks, got {tp}"
            )
        return ranks // tp, tp

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.sizes()
        super().setup_environment()

    def spread(self, model: nn.Module) -> None:
        """Spreads a model, in place, over the ranks; one that is spread stays as it is."""
        if self.word != "tp":
            shard_fully(model, self.device_mesh["data_parallel"], self.precision_plugin.precision)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """As one process has it, on rank 0; empty on the others."""
        assert self.model is not None
        return full_state(self.model, optimizer)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """What CheckpointIO reads, on every rank."""
        return self.checkpoint_io.load_checkpoint(self.broadcast(checkpoint_path), weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.model, dict(checkpoint["state_dict"]), options=options)

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        assert self.model is not None
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            load_full_state(self.model, optimizer, state)


for word in STRATEGIES:
    StrategyRegistry.register(word, SpreadStrategy, description=f"seqlab's {word}", word=word)


def set_tensor_parallel(trainer: L.Trainer, tp: int | None) -> None:
    """Has a trainer's strategy cut the model over so many ranks.

    Raises:
        ValueError: it cannot.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SpreadStrategy):
        strategy.tp = tp
        strategy.sizes()
    elif tp is not None:
        raise ValueError(f"--tp {tp} goes with --trainer.strategy tp or fsdp2+tp")
