"""Export and verification of an attention decoder by its size: time, memory over the weights, and exponents of both.

python benchmarks/export_by_size.py [20 100 500]

Sizes are millions of parameters, laid out as Qwen2. Each export with its proof, and each verification by `seqlab-run`,
is a process; memory is its peak. The largest size needs 10 GB of memory and 5 GB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import RoPE
from seqlab_export.bundle import export_bundle

SIZES = {  # millions: vocabulary, d_model, d_ff, layers, heads, key-value heads
    "20": (16_384, 320, 1_280, 8, 5, 1),
    "100": (50_304, 640, 2_560, 12, 10, 2),
    "500": (151_936, 896, 4_864, 24, 14, 2),
}
SEQ_LEN = 1024
PROGRAM = Path(__file__).parents[1] / "build" / "cpp" / "seqlab-run"


def decoder(size: str) -> DecoderLM:
    vocab_size, d_model, d_ff, num_layers, num_heads, num_kv_heads = SIZES[size]
    torch.manual_seed(0)
    return DecoderLM(
        vocab_size,
        SEQ_LEN,
        d_model=d_model,
        num_layers=num_layers,
        mixer=partial(Attention, num_heads=num_heads, num_kv_heads=num_kv_heads),
        positions=RoPE,
        block=partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=d_ff)),
        tie_embeddings=True,
    ).eval()


def export(size: str, folder: str) -> None:
    """Exports a model and prints its number of weights."""
    model = decoder(size)
    export_bundle(model, None, folder, seq_len=SEQ_LEN, target="ort")
    print(sum(weight.numel() for weight in model.parameters()))


def measured(command: list[str | Path], environment: dict[str, str]) -> tuple[str, float, float]:
    """Output, seconds and peak bytes of a process."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return said, time.monotonic() - begin, usage.ru_maxrss * 1024


def main() -> None:
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    environment = {**os.environ, "SEQLAB_ORT_LIB": str(library)}
    rows = []
    for size in sys.argv[1:] or [*SIZES]:
        with tempfile.TemporaryDirectory() as folder:
            bundle = str(Path(folder) / "bundle")
            said, seconds, peak = measured([sys.executable, __file__, "--export", size, bundle], environment)
            _, proof, proof_peak = measured([PROGRAM, "verify", bundle], environment)
        weights = 4 * int(said.split()[-1])
        rows.append([weights, seconds, peak, proof, proof_peak])
        print(
            f"{weights / 4e6:.1f}M weights: export {seconds:.0f} s, {peak / 1e9:.2f} GB = {peak / weights:.1f} times "
            f"the weights; verify in C++ {proof:.0f} s, {proof_peak / 1e9:.2f} GB = {proof_peak / weights:.1f} times",
            flush=True,
        )
    if len(rows) > 1:
        logs = np.log(rows)
        slopes = [float(np.polyfit(logs[:, 0], logs[:, column], 1)[0]) for column in range(1, 5)]
        names = ("export time", "export memory", "verify time", "verify memory")
        print("exponents: " + ", ".join(f"{name} {slope:.2f}" for name, slope in zip(names, slopes, strict=True)))


if __name__ == "__main__":
    if "--export" in sys.argv:
        export(*sys.argv[-2:])
    else:
        main()
