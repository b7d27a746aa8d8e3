"""A CUDA device beside the CPU: training steps, and generation from bundles by `seqlab-run`.

python benchmarks/gpu_throughput.py

Prints tokens/s, and the ratio to the CPU in fp32, which is the first line of each model. `seqlab-run` is the one that
$SEQLAB_RUN names, else that of `make cpp`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peers.contest import BUILD, bench, bundle, show

from seqlab.attention import Attention, GatedDeltaNet
from seqlab.models import DecoderLM
from seqlab.nn import MixerFactory
from seqlab.positions import NoPositions, PositionalEncoding, RoPE
from seqlab.recurrence import GRU
from seqlab_export.capture.precision import Precision

LAYERS, WIDTH, HEADS, LENGTH, VOCAB = 4, 256, 4, 256, 1024
BATCH = {"cpu": 2, "cuda": 64}
STEPS = {"cpu": 2, "cuda": 20}
MODELS: dict[str, tuple[MixerFactory, type[PositionalEncoding]]] = {
    "attention": (partial(Attention, num_heads=HEADS), RoPE),
    "gru": (GRU, NoPositions),
    "gated-delta-net": (partial(GatedDeltaNet, num_heads=HEADS), NoPositions),
}
RUNTIME = Path(os.environ.get("SEQLAB_RUN", BUILD / "cpp" / "seqlab-run"))
WRITERS = ("attention", "gru")
LOADS: dict[str, dict[str, Any]] = {"batch 1": {}, "batch 32": {"batch": 32}, "4 beams": {"beams": 4}}


def decoder(name: str) -> DecoderLM:
    torch.manual_seed(0)
    mixer, positions = MODELS[name]
    return DecoderLM(VOCAB, LENGTH, d_model=WIDTH, num_layers=LAYERS, mixer=mixer, positions=positions)


def training(name: str, device: str, precision: str) -> float:
    """Tokens/s of the median step, after an equal number of warm-up steps."""
    model = decoder(name).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCAB, (BATCH[device], LENGTH + 1), device=device)
    seconds = []
    for _ in range(2 * STEPS[device]):
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16-mixed"):
            logits, _ = model(tokens[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return BATCH[device] * LENGTH / statistics.median(seconds[STEPS[device] :])


def writing(name: str, device: str, precision: Precision, **load: int) -> float:
    """Tokens/s of `seqlab-run bench`."""
    folder = bundle(decoder(name), VOCAB, name, precision, LENGTH)
    found = bench(RUNTIME, folder, 0, provider=device, new_tokens=64, runs=3, **load)
    return float(found["tokens_per_second"])


def rows(name: str, measures: dict[str, Callable[[], float]]) -> Iterator[list[str]]:
    """One line for each measurement; the first is the baseline of the others."""
    first: float | None = None
    for label, measure in measures.items():
        rate = measure()
        first = first or rate
        yield [name, label, f"{rate:,.0f}", f"{rate / first:.1f}"]


def main() -> None:
    if not torch.cuda.is_available():
        print("gpu_throughput: not run: no CUDA device")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {LAYERS} layers, d_model {WIDTH}")
    columns = ["model", "kind", "tokens/s", "ratio"]
    kinds: list[tuple[str, Any]] = [("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "bf16-mixed")]
    table: list[list[str]] = []
    for name in MODELS:
        table += rows(name, {" ".join(kind): partial(training, name, *kind) for kind in kinds})
    show(f"training steps, {BATCH['cpu']} (cpu) and {BATCH['cuda']} (cuda) texts of {LENGTH} tokens", columns, table)
    if not RUNTIME.is_file():
        print(f"seqlab-run bench: not run: there is no {RUNTIME}; `make cpp` builds it")
        return
    kinds[2] = ("cuda", "fp16")
    for load, options in LOADS.items():
        table = []
        for name in WRITERS:
            table += rows(name, {" ".join(kind): partial(writing, name, *kind, **options) for kind in kinds})
        show(f"seqlab-run bench, {load}", columns, table)


if __name__ == "__main__":
    main()
