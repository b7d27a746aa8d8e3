"""Decoding on a CUDA device: GPT-2 124M with each mixer in PyTorch, and with attention by `seqlab-run`.

python benchmarks/gpu_decoding.py

Greedy tokens/s of all rows, in bf16 in PyTorch. Bundles, of a vocabulary of 20,000, are exported and proven once, which
takes minutes. `seqlab-run` is the one that $SEQLAB_RUN names, else that of `make cpp`. A run goes on where the last one
was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpu_training import MIXERS, TINY, Size, model_of
from peers.contest import RUNTIME, bench, bundle
from peers.results import Found, Key, Results, arguments

from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.nn import MixerFactory
from seqlab_export.capture.precision import Precision

LOADS: dict[str, dict[str, int]] = {"1 row": {"batch": 1}, "32 rows": {"batch": 32}, "4 beams": {"beams": 4}}


def in_pytorch(mixer: MixerFactory, size: Size, device: str, rows: int) -> Found:
    """Times the second of two equal texts: a prompt of a quarter of the length, and half as many tokens after it."""
    decoder, new = TorchDecoder(model_of(mixer, size).to(device, torch.bfloat16)), size.length // 8
    prompts = torch.randint(size.vocab_size, (rows, 2 * new)).tolist()
    for _ in range(2):
        began = time.perf_counter()
        generate(decoder, prompts, max_new_tokens=new)
        seconds = time.perf_counter() - began
    return {"tokens/s": rows * new / seconds}


def by_program(size: Size, device: str, precision: Precision, load: dict[str, int]) -> Found:
    """Times the same with `seqlab-run bench`."""
    model, new = model_of(MIXERS["Attention"], size), size.length // 8
    folder = bundle(model, size.vocab_size, "gpt2", precision, size.length, "cuda-graph")
    options: dict[str, Any] = {"provider": device, "prompt_tokens": 2 * new, "new_tokens": new, **load}
    return {"tokens/s": float(bench(RUNTIME, folder, 0, **options)["tokens_per_second"])}


def tasks(size: Size, device: str) -> dict[Key, Callable[[], Found]]:
    made: dict[Key, Callable[[], Found]] = {}
    for name, mixer in MIXERS.items():
        for load in ("1 row", "32 rows"):
            made[name, load] = partial(in_pytorch, mixer, size, device, LOADS[load]["batch"])
    size = size._replace(vocab_size=min(size.vocab_size, 20_000))
    for precision in ("fp16", "fp32"):
        for load, options in LOADS.items():
            made[f"Attention, seqlab-run, {precision}", load] = partial(by_program, size, device, precision, options)
    return made


def main() -> None:
    results = Results.of("decoding", arguments(__doc__).parse_args())
    results.run(tasks(Size() if results.device == "cuda" else TINY, results.device))


if __name__ == "__main__":
    main()
