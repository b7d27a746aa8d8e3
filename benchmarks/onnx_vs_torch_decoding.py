"""Greedy decoding, batch 1: onnxruntime through step.onnx against PyTorch's step loop of the same model.

python benchmarks/onnx_vs_torch_decoding.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from seqlab.attention import Attention
from seqlab.decoding import Decoder, generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.runner.graph_runner import BundleRunner

LAYERS, WIDTH, TOKENS, ROUNDS = 4, 128, 200, 9
TOKENIZER = CharTokenizer("".join(map(chr, range(32, 127))))


def tokens_per_second(decoder: Decoder) -> float:
    start = time.perf_counter()
    generate(decoder, [[10, 20, 30]], max_new_tokens=TOKENS)
    return TOKENS / (time.perf_counter() - start)


def compare(mixer: Any, positions: Any) -> None:
    torch.manual_seed(0)
    model = DecoderLM(TOKENIZER.vocab_size, 256, d_model=WIDTH, num_layers=LAYERS, mixer=mixer, positions=positions)
    with tempfile.TemporaryDirectory() as folder:
        export_bundle(model, TOKENIZER, Path(folder) / "bundle", run_id="benchmark", commit="benchmark", seq_len=512)
        decoders: list[Decoder] = [BundleRunner(Path(folder) / "bundle", threads=1), TorchDecoder(model)]
    # In turns, so that another program's load slows both.
    rates = [[tokens_per_second(decoder) for decoder in decoders] for _ in range(ROUNDS)]
    runtime, pytorch = (statistics.median(column) for column in zip(*rates, strict=True))
    ratio = statistics.median(ours / theirs for ours, theirs in rates)
    print(f"{mixer.__name__}: onnxruntime {runtime:,.0f} tokens/s, PyTorch {pytorch:,.0f} tokens/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    compare(Attention, RoPE)
    compare(GRU, NoPositions)
