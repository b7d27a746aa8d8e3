"""Compile time of the first step under `--compile true`, by model and by strategy over two processes.

python benchmarks/compile_time.py
torchrun --nproc_per_node 2 benchmarks/compile_time.py

Seconds of processor time of the first process and its C++ compiler: a fit of one step, minus that of an uncompiled one.
The compiler's cache is empty, and each process compiles in one thread.
"""

from __future__ import annotations

import os
import resource
from functools import partial
from typing import Any

import lightning as L
import torch
from torch._inductor.utils import fresh_cache
from torch.utils.data import DataLoader

from seqlab.attention import Attention
from seqlab.batch import TokenBatch
from seqlab.config.quiet import quiet
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, SLSTM, Mamba
from seqlab.tasks import LanguageModeling

LAYERS, WIDTH, LENGTH, VOCABULARY = 4, 128, 64, 512
MODELS: dict[str, dict[str, Any]] = {
    "attention": {"mixer": partial(Attention, num_heads=4), "positions": RoPE},
    "GRU": {"mixer": GRU, "positions": NoPositions},
    "SLSTM": {"mixer": SLSTM, "positions": NoPositions},
    "Mamba": {"mixer": Mamba, "positions": NoPositions},
}
STRATEGIES = {1: ("auto",), 2: ("ddp", "fsdp2", "tp")}
"""Strategies by number of processes."""


def processor_time() -> float:
    """Processor seconds of this process and of the child processes it has waited for."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in of)


def fit(model: dict[str, Any], strategy: str, ranks: int, *, compiled: bool) -> float:
    """Seconds of processor time of a fit of one step."""
    L.seed_everything(0, verbose=False)
    torch.compiler.reset()
    decoder = partial(DecoderLM, d_model=WIDTH, num_layers=LAYERS, **model)
    task = LanguageModeling(VOCABULARY, LENGTH, model=decoder)
    if compiled:
        task.model.compile()
    tokens = torch.randint(VOCABULARY, (4, LENGTH))
    batches: Any = [TokenBatch(tokens, tokens.roll(-1, 1), torch.full((4,), LENGTH))]
    trainer = L.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy=strategy,
        max_steps=1,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with fresh_cache():
        began = processor_time()
        trainer.fit(task, DataLoader(batches, batch_size=None))
        return processor_time() - began


def main() -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    for strategy in STRATEGIES[ranks]:
        for name, model in MODELS.items():
            fit(model, strategy, ranks, compiled=False)  # a first fit imports
            plain = fit(model, strategy, ranks, compiled=False)
            seconds = fit(model, strategy, ranks, compiled=True) - plain
            if os.environ.get("RANK", "0") == "0":
                print(f"{strategy} over {ranks}, {name}: {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    torch._inductor.config.compile_threads = 1
    quiet()
    torch.set_num_threads(1)
    main()
