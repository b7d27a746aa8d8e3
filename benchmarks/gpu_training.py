"""Training GPT-2's smallest model on one CUDA device: tokens/s, the share of the device's peak, and memory.

python benchmarks/gpu_training.py

Each mixer takes attention's place in GPT-2 124M (Radford et al. 2019) at 1024 tokens in bf16-mixed, with and without
`--checkpoint_activations`, eager and compiled. The share (MFU) is of the peak in dense bfloat16, by the formulae of
`seqlab.budgets`; a device whose peak is not known has none.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from seqlab.attention import (
    Attention,
    DeltaNet,
    DifferentialAttention,
    GatedDeltaNet,
    GatedLinearAttention,
    LatentAttention,
    LinearAttention,
    Mamba2,
    Retention,
)
from seqlab.budgets import training_flops
from seqlab.budgets.devices import peak_of
from seqlab.models import DecoderLM
from seqlab.nn import MixerFactory
from seqlab.nn.stack import forget_activations
from seqlab.positions import Learned
from seqlab.recurrence import GRU, LRU, LSTM, MLSTM, RGLRU, RWKV7, S4D, Mamba, MinGRU, MinLSTM
from seqlab.tasks.large_vocabulary import Logits

HEADS = 12
MIXERS: dict[str, MixerFactory] = {
    "attention": partial(Attention, num_heads=HEADS),
    "latent": partial(LatentAttention, num_heads=HEADS),
    "differential": partial(DifferentialAttention, num_heads=HEADS // 2),
    "linear": partial(LinearAttention, num_heads=HEADS),
    "retention": partial(Retention, num_heads=HEADS),
    "gated linear": partial(GatedLinearAttention, num_heads=HEADS),
    "delta net": partial(DeltaNet, num_heads=HEADS),
    "gated delta net": partial(GatedDeltaNet, num_heads=HEADS),
    "mamba2": Mamba2,
    "mamba": Mamba,
    "mlstm": partial(MLSTM, num_heads=HEADS),
    "rwkv7": RWKV7,
    "lru": LRU,
    "rg-lru": RGLRU,
    "s4d": S4D,
    "min gru": MinGRU,
    "min lstm": MinLSTM,
    "gru": GRU,
    "lstm": LSTM,
}


class Size(NamedTuple):
    vocab_size: int = 50_304
    length: int = 1024
    d_model: int = 768
    layers: int = 12
    batch: int = 16
    steps: int = 10


TINY = Size(64, 16, 192, 1, 2, 1)
"""Size for a test on a CPU."""


class Measured(NamedTuple):
    """tokens_per_s of the median step; mfu, None = unknown; gigabytes, the peak of tensors, None = unknown."""

    tokens_per_s: float
    mfu: float | None
    gigabytes: float | None


def model_of(mixer: MixerFactory, size: Size) -> DecoderLM:
    torch.manual_seed(0)
    width, length = size.d_model, size.length
    return DecoderLM(size.vocab_size, length, d_model=width, num_layers=size.layers, mixer=mixer, positions=Learned)


def measure(
    mixer: MixerFactory, size: Size, device: str, *, checkpoint: bool = False, compiled: bool = False
) -> Measured:
    """Times a fit's steps without the fit, after an equal number of warm-up steps."""
    model = model_of(mixer, size).to(device)
    if checkpoint:
        forget_activations(model)
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=device == "cuda")
    tokens = torch.randint(size.vocab_size, (size.batch, size.length + 1), device=device)
    read, targets = tokens[:, :-1], tokens[:, 1:]

    def said(**what: Any) -> torch.Tensor:
        return model(read, **what)[0]

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(2 * size.steps):
        began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            nats, count = Logits(model, said).summed_nats(targets)
        (nats / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    rate = targets.numel() / statistics.median(seconds[size.steps :])
    on_gpu = device == "cuda"
    peak = peak_of(torch.cuda.get_device_name(), "bf16-mixed") if on_gpu else None
    mfu = None if peak is None else rate * training_flops(model, size.length) / peak
    return Measured(rate, mfu, torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None)


def rows(size: Size, device: str) -> Iterator[list[str]]:
    """One line for each mixer and kind, or its error if the device lacks the memory or a kernel."""
    kinds = {"eager": {}, "checkpointed": {"checkpoint": True}, "compiled": {"compiled": True}}
    for name, mixer in MIXERS.items():
        for kind, options in kinds.items():
            if kind == "compiled" and (name != "attention" or device != "cuda"):
                continue
            try:
                found = measure(mixer, size, device, **options)
            except (RuntimeError, ValueError) as error:
                yield [name, kind, "not run", "", str(error).splitlines()[0][:60]]
                continue
            share = "" if found.mfu is None else f"{found.mfu:.1%}"
            yield [name, kind, f"{found.tokens_per_s:,.0f}", share, f"{found.gigabytes or 0:.1f}"]


def main(size: Size, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        print("gpu_training: not run: no CUDA device")
        return
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    title = f"{name}, torch {torch.__version__}, {size.batch} rows of {size.length} tokens, bf16-mixed"
    table = Table("mixer", "kind", "tokens/s", "MFU", "GB", title=title)
    for row in rows(size, device):
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    tiny = sys.argv[1:] == ["tiny"]
    main(TINY if tiny else Size(), "cpu" if tiny else "cuda")
