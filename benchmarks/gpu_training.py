"""Training GPT-2's smallest model on one CUDA device: tokens/s, the share of the device's peak, memory, and the loss.

python benchmarks/gpu_training.py

Each mixer takes attention's place in GPT-2 124M (Radford et al. 2019) at 1024 tokens in bf16-mixed: eager, compiled,
and with `--checkpoint_activations`; attention also with linear layers in float8 (torchao), and linear attentions with
the kernels of flash-linear-attention. The share (MFU) is of the peak in dense bfloat16, by the formulae of
`seqlab.budgets`; a device whose peak is not known has none. The last loss is of the same batch and the same number of
steps in each. A run goes on where the last one was cut off.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from peers.results import Found, Key, Results, arguments
from torch import Tensor, nn

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
from seqlab.nn import MixerFactory, fla
from seqlab.nn.stack import forget_activations
from seqlab.positions import Learned
from seqlab.recurrence import GRU, LRU, LSTM, MLSTM, RGLRU, RWKV7, S4D, Mamba, MinGRU, MinLSTM
from seqlab.tasks.large_vocabulary import Logits

HEADS = 12
_OF_HEADS = (
    Attention,
    LatentAttention,
    LinearAttention,
    Retention,
    GatedLinearAttention,
    DeltaNet,
    GatedDeltaNet,
    MLSTM,
)
_OTHERS = (Mamba2, Mamba, RWKV7, LRU, RGLRU, S4D, MinGRU, MinLSTM, GRU, LSTM)
MIXERS: dict[str, MixerFactory] = {
    **{cls.__name__: partial(cls, num_heads=HEADS) for cls in _OF_HEADS},
    "DifferentialAttention": partial(DifferentialAttention, num_heads=HEADS // 2),
    **{cls.__name__: cls for cls in _OTHERS},
}
KERNELS = (LinearAttention, Retention, GatedLinearAttention, DeltaNet, GatedDeltaNet, Mamba2)
"""Mixers that flash-linear-attention has kernels for."""
KINDS: dict[str, dict[str, bool]] = {
    "eager": {},
    "flash-linear-attention": {"kernels": True},
    "checkpointed": {"checkpoint": True},
    "compiled": {"compiled": True},
    "float8, compiled": {"float8": True, "compiled": True},
}
"""Options of `measure`."""


class Size(NamedTuple):
    vocab_size: int = 50_304
    length: int = 1024
    d_model: int = 768
    layers: int = 12
    batch: int = 16
    steps: int = 10


TINY = Size(64, 16, 192, 1, 2, 1)
"""Size for a test on a CPU."""


def model_of(mixer: MixerFactory, size: Size) -> DecoderLM:
    torch.manual_seed(0)
    width, length = size.d_model, size.length
    return DecoderLM(size.vocab_size, length, d_model=width, num_layers=size.layers, mixer=mixer, positions=Learned)


def measure(
    mixer: MixerFactory,
    size: Size,
    device: str,
    *,
    checkpoint: bool = False,
    compiled: bool = False,
    float8: bool = False,
    kernels: bool = False,
) -> Found:
    """Times a fit's steps without the fit, after an equal number of warm-up steps.

    Raises:
        ValueError: the loss is not a number, or there is no kernel for this mixer here.
    """
    gc.collect()  # the model before, whose memory would count
    model = model_of(mixer, size).to(device)
    on_gpu = device == "cuda"
    if checkpoint:
        forget_activations(model)
    if float8:
        in_float8(model)
    if compiled:
        torch.compiler.reset()  # of other mixers; beyond eight, the model would run eagerly
        model.compile(backend="inductor" if on_gpu else "eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=on_gpu)
    tokens = torch.randint(size.vocab_size, (size.batch, size.length + 1), device=device)
    read, targets = tokens[:, :-1], tokens[:, 1:]

    def said(**what: Any) -> Tensor:
        return model(read, **what)[0]

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            nats, count = Logits(model, said).summed_nats(targets)
        loss = nats / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    usable = patch.object(fla, "usable", fla.usable if kernels else lambda _: False)
    with usable, patch.object(fla, "run", wraps=fla.run) as kernel:
        for _ in range(2 * size.steps):
            began = time.perf_counter()
            loss = step()
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
    if not loss.isfinite():
        raise ValueError(f"the loss is {loss.item()}")
    if kernels and on_gpu and not kernel.called:
        raise ValueError("flash-linear-attention is not installed, or has no right kernel here")
    rate = targets.numel() / statistics.median(seconds[size.steps :])
    found = {"tokens/s": rate, "nats": loss.item()}
    if on_gpu:
        peak = peak_of(torch.cuda.get_device_name(), "bf16-mixed")
        found |= {"MFU": rate * training_flops(model, size.length) / peak} if peak else {}
        found["GB"] = torch.cuda.max_memory_allocated() / 1e9
    return found


def in_float8(model: nn.Module) -> None:
    """Converts linear layers whose widths the device's products take."""
    from torchao.float8 import convert_to_float8_training  # type: ignore[import-not-found]

    convert_to_float8_training(
        model, module_filter_fn=lambda layer, _: layer.in_features % 16 == layer.out_features % 16 == 0
    )


def tasks(size: Size, device: str) -> dict[Key, Callable[[], Found]]:
    """Every measurement, the most valuable first. A rehearsal compiles attention alone."""
    keys = [("Attention", kind) for kind in ("eager", "compiled", "checkpointed", "float8, compiled")]
    kernels = [cls.__name__ for cls in KERNELS]
    compiled = MIXERS if device == "cuda" else ()
    rest = {"eager": MIXERS, "flash-linear-attention": kernels, "checkpointed": MIXERS, "compiled": compiled}
    keys += [(name, kind) for kind, names in rest.items() for name in names]
    return {(name, kind): partial(measure, MIXERS[name], size, device, **KINDS[kind]) for name, kind in keys}


def main() -> None:
    results = Results.of("training", arguments(__doc__).parse_args())
    results.run(tasks(Size() if results.device == "cuda" else TINY, results.device))


if __name__ == "__main__":
    main()
