"""A decoder of GPT-2's shape through `seqlab-run`, against transformers and CTranslate2 with the same weights.

python benchmarks/cpp_decoder_vs_peers.py

Batch 1, greedy, tokens/s of 16 prompt tokens and 128 new ones, at 1 and at 2 threads. Each program loads once and they
take turns (`seqlab-run bench` loads and warms up each time). The tokens are compared too.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peers.contest import (
    BUILD,
    Server,
    UnavailableError,
    agreement,
    asking,
    bundle,
    environment,
    program,
    run,
    show_contest,
    write_in_turns,
)
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.models.pretrained import read_pretrained
from seqlab.positions import Learned
from seqlab_export.capture.precision import Precision

LAYERS, WIDTH, HEADS, VOCAB, LENGTH = 6, 512, 8, 8000, 512
PROMPT, NEW, ROUNDS = 16, 128, 7
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int4")
# The wanted ratios of ours to theirs.
WANTED = [
    ("seqlab fp32", "transformers", 1.8),
    ("seqlab fp32", "CTranslate2 fp32", 1.0),
    ("seqlab fp32 ort", "CTranslate2 fp32", 1.0),
    ("seqlab int8", "transformers", 4.0),
    ("seqlab int8", "CTranslate2 int8", 0.9),
    ("seqlab int4", "seqlab int8", 0.95),
    *((f"seqlab {precision} ort", f"seqlab {precision}", 1.0) for precision in PRECISIONS),
]


def checkpoint() -> Path:
    """GPT-2's initial weights, wider, with varied biases and norms: texts vary, and no two tensors are equal."""
    folder = BUILD / "benchmarks" / "gpt2"
    if (folder / "model.safetensors").is_file():
        return folder
    torch.manual_seed(0)
    disable_progress_bar()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, initializer_range=0.05,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() == 1:
                weights.add_(0.05 * torch.randn_like(weights))
    model.save_pretrained(folder)
    return folder


def ours(folder: Path) -> DecoderLM:
    model = DecoderLM(
        VOCAB, LENGTH, d_model=WIDTH, num_layers=LAYERS, mixer=partial(Attention, num_heads=HEADS), positions=Learned
    )
    model.load_state_dict(read_pretrained(folder).weights)
    return model


def write_for_ctranslate2(model: DecoderLM, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    np.savez(folder / "weights.npz", positions=weights["positions.table.weight"], **weights)
    shape = {"layers": LAYERS, "heads": HEADS, "vocab_size": VOCAB, "activation": "GELUTanh", "translates": False}
    (folder / "shape.json").write_text(json.dumps(shape))


def compare(
    threads: int, runtime: Path, bundles: dict[str, Path], peers: Callable[[int], dict[str, Server]]
) -> dict[str, float]:
    """The median tokens/s of each."""
    with asking(peers(threads)) as servers:
        measured, written = write_in_turns(
            runtime, bundles, servers, threads, ROUNDS, prompt_tokens=PROMPT, new_tokens=NEW
        )
    show_contest(f"{threads} thread(s), {ROUNDS} rounds", measured, WANTED)
    for name in ("transformers", "CTranslate2 fp32"):
        if name in written:
            print(f"seqlab fp32 and {name}: {agreement(written['seqlab fp32'], written[name])}")
    return {name: statistics.median(values) for name, values in measured.items()}


def main() -> None:
    runtime = program("seqlab-run")
    pretrained = checkpoint()
    model = ours(pretrained)
    print(f"{sum(weights.numel() for weights in model.parameters()) / 1e6:.1f}M parameters")
    bundles = {f"seqlab {precision}": bundle(model, VOCAB, "gpt2", precision, LENGTH) for precision in PRECISIONS}
    bundles |= {
        f"seqlab {precision} ort": bundle(model, VOCAB, "gpt2", precision, LENGTH, "ort") for precision in PRECISIONS
    }
    converted = BUILD / "benchmarks" / f"{bundles['seqlab fp32'].name}-ctranslate2"
    write_for_ctranslate2(model, converted)

    def peers(threads: int) -> dict[str, Server]:
        servers = {"transformers": Server(sys.executable, "serve_transformers.py", pretrained, threads=threads)}
        try:
            python = environment("ctranslate2", "ctranslate2==4.8.5")
        except UnavailableError as reason:
            print(f"CTranslate2: {reason}")
            return servers
        for name, kind in (("fp32", "float32"), ("int8", "int8")):
            servers[f"CTranslate2 {name}"] = Server(python, "serve_ctranslate2.py", converted, kind, threads=threads)
        return servers

    medians = [compare(threads, runtime, bundles, peers) for threads in (1, 2)]
    ours_best, theirs_best = (
        max(found.get(name, 0.0) for found in medians) for name in ("seqlab int8", "CTranslate2 int8")
    )
    if theirs_best:
        print(
            f"int8, each at its best number of threads: seqlab / CTranslate2 {ours_best / theirs_best:.2f}, wanted 0.9"
        )


if __name__ == "__main__":
    run(main)
