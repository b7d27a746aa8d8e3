"""Milliseconds a token against its position, through `seqlab-run bench`: recurrent and linear models, and attention.

python benchmarks/recurrent_latency.py

Two layers, d_model 128, batch 1, one thread, positions 2 to 8192. The slope of a run is that of a line through the
medians of its 64 parts; the standard error is over runs. Memory is that of the whole process after 8192 tokens, and
after 128.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import numpy as np
import torch
from peers.contest import bench, bundle, program, run, show

from seqlab.attention import Attention, GatedDeltaNet, LinearAttention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM, MLSTM, RWKV7, Mamba

LAYERS, WIDTH, VOCAB = 2, 128, 100
LAST, PARTS, RUNS = 8192, 64, 5
LINEAR = [GRU, LSTM, Mamba, MLSTM, RWKV7, LinearAttention, GatedDeltaNet]


def slope(milliseconds: list[float]) -> float:
    """Slope of a run, in microseconds per token for each thousand positions."""
    parts = [float(np.median(part)) for part in np.array_split(np.array(milliseconds), PARTS)]
    middles = (np.arange(PARTS) + 0.5) * LAST / PARTS
    return float(np.polyfit(middles, parts, 1)[0]) * 1e6


def measure(mixer: Any, runtime: Any) -> list[str]:
    torch.manual_seed(0)
    model = DecoderLM(VOCAB, 256, d_model=WIDTH, num_layers=LAYERS, mixer=mixer, positions=NoPositions)
    folder = bundle(model, VOCAB, mixer.__name__.lower(), "fp32", 256)
    count = RUNS if mixer in LINEAR else 2
    options = partial(bench, runtime, folder, 1, prompt_tokens=1)
    found, short = options(new_tokens=LAST, runs=count), options(new_tokens=128, runs=1)
    runs = np.split(np.array(found["later_token_ms"]), count)
    slopes = [slope(run.tolist()) for run in runs]
    error = statistics.stdev(slopes) / count**0.5
    first, last = (np.median([np.median(run[part]) for run in runs]) for part in (slice(0, 128), slice(-128, None)))
    memory = f"{short['peak_memory_mb']:.1f} / {found['peak_memory_mb']:.1f}"
    middle = statistics.mean(slopes)
    flat = "yes" if abs(middle) <= 3 * error or abs(middle) * LAST / 1e6 <= 0.02 * first else "no"
    return [mixer.__name__, f"{first:.4f}", f"{last:.4f}", f"{middle:+.3f} ± {error:.3f}", flat, memory]


def main() -> None:
    runtime = program("seqlab-run")
    columns = ["mixer", "ms, first 128", f"ms, to {LAST}", "slope, µs per 1000", "flat", "MB, at 128 / at 8192"]
    show("time and memory by position", columns, [measure(mixer, runtime) for mixer in (*LINEAR, Attention)])
    print("flat: the slope is within three standard errors, or adds at most 2% to a token from the first to the last")


if __name__ == "__main__":
    run(main)
