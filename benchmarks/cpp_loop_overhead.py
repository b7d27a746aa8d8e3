"""Overhead of the C++ decoding loop, as a share of the runs of step.onnx that it needs.

python benchmarks/cpp_loop_overhead.py

`Session::Generate`, greedy, batch 1, is compared with the same onnxruntime session, run on the same tokens by its bare
C++ call, for which only the time inside onnxruntime counts. They take turns token by token (tests/loop_overhead.cc), so
that a slower machine slows both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from cpp_decoder_vs_peers import LENGTH, VOCAB, checkpoint, ours
from peers.contest import UnavailableError, bundle, program, run, show

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab_export.capture.precision import Precision

TOKENS, ROUNDS, WANTED = 200, 20, 3.0


def measure(tool: Path, folder: Path, threads: int) -> list[str]:
    done = subprocess.run(
        [str(tool), str(folder), str(threads), str(TOKENS), str(ROUNDS)],
        capture_output=True,
        text=True,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix},
    )
    if done.returncode != 0:
        raise UnavailableError(f"not run: {done.stderr.strip()}")
    pairs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    loop, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    added = statistics.median(100 * (whole / inside - 1) for whole, inside in pairs)
    return [f"{loop:.1f}", f"{bare:.1f}", f"{added:+.2f}%", f"at most {WANTED}%"]


def main() -> None:
    tool = program("loop_overhead")
    torch.manual_seed(0)
    small = DecoderLM(100, 256, d_model=128, num_layers=4, mixer=partial(Attention, num_heads=4))
    large = ours(checkpoint())
    precisions: tuple[Precision, ...] = ("fp32", "int8", "int4")
    folders = {"4 layers, d 128, fp32": bundle(small, 100, "small", "fp32", 256)}
    folders |= {f"6 layers, d 512, {kind}": bundle(large, VOCAB, "gpt2", kind, LENGTH) for kind in precisions}
    rows = [
        [f"{name}, {threads} thread(s)", *measure(tool, folder, threads)]
        for name, folder in folders.items()
        for threads in (1, 2)
    ]
    columns = ["model", "µs a token", "µs inside onnxruntime", "added (median)", "wanted"]
    show(f"the loop, {ROUNDS} texts of {TOKENS} tokens", columns, rows)


if __name__ == "__main__":
    run(main)
