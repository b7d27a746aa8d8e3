"""`--lora`: checks of a fit that trains updates of a run's weights."""

from __future__ import annotations

from typing import Any

from seqlab.parallel import SpreadStrategy


def check_lora(options: Any, strategy: Any) -> None:
    """Checks the options beside `--lora`, and the strategy of the trainer.

    Raises:
        ValueError: there is no run whose weights are updated, or something else needs the weights themselves.
    """
    if options.init_from is None:
        raise ValueError("--lora updates the weights of a trained model; give --init_from RUN, or omit --lora")
    if options.mup:
        raise ValueError("--mup scales the initial weights of a new model, and --lora keeps those of a run; omit one")
    if isinstance(strategy, SpreadStrategy) and strategy.sizes()[1] > 1:
        raise ValueError(
            f"--trainer.strategy {strategy.word} cuts the linear layers that --lora updates; use fsdp2 or ddp"
        )
