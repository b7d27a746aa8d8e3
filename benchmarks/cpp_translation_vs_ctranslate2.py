"""A Transformer of 6 + 6 layers through `seqlab-run`, against CTranslate2 with the same weights.

python benchmarks/cpp_translation_vs_ctranslate2.py

Beam 4, 24 source tokens and 32 target tokens, at 1 and at 2 threads, batches of 1 and 32; both take turns. The best
hypotheses are compared too.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peers.contest import (
    BUILD,
    Server,
    agreement,
    asking,
    bundle,
    environment,
    program,
    run,
    show_contest,
    write_in_turns,
)

from seqlab.attention import Attention, Bidirectional, CrossAttention
from seqlab.models import Encoder, EncoderDecoder
from seqlab.nn import Block, ReLU

LAYERS, WIDTH, HEADS, VOCAB, LENGTH = 6, 512, 8, 8000, 128
SOURCE, NEW, BEAMS = 24, 32, 4
ROUNDS = {1: 7, 32: 5}
WANTED = {"fp32": 1.0, "int8": 0.9}


def make_model() -> EncoderDecoder:
    torch.manual_seed(0)
    attention, block = partial(Attention, num_heads=HEADS), partial(Block, ffn=ReLU)
    model = EncoderDecoder(
        VOCAB,
        VOCAB,
        LENGTH,
        encoder=partial(
            Encoder, d_model=WIDTH, num_layers=LAYERS, mixer=partial(attention, pattern=Bidirectional), block=block
        ),
        num_layers=LAYERS,
        mixer=attention,
        cross=partial(CrossAttention, num_heads=HEADS),
        block=block,
    ).eval()
    with torch.no_grad():
        for weights in model.parameters():
            # The biases and norms differ, so that no two tensors are equal.
            if weights.dim() == 1:
                weights.add_(0.05 * torch.randn_like(weights))
        # The stop token's logit is 0, so no beam ends: all have the same length in both programs.
        model.embedding.weight[2] = 0.0
    return model


def write_for_ctranslate2(model: EncoderDecoder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    positions = model.positions.encode(torch.arange(LENGTH), torch.float32)
    np.savez(folder / "weights.npz", positions=positions.numpy(), **weights)
    shape = {"layers": LAYERS, "heads": HEADS, "vocab_size": VOCAB, "activation": "RELU", "translates": True}
    (folder / "shape.json").write_text(json.dumps(shape))


def compare(threads: int, batch: int, runtime: Path, bundles: dict[str, Path], peers: dict[str, Server]) -> None:
    options = {"batch": batch, "beams": BEAMS, "prompt_tokens": SOURCE, "new_tokens": NEW}
    measured, written = write_in_turns(runtime, bundles, peers, threads, ROUNDS[batch], **options)
    pairs = [(f"seqlab {name}", f"CTranslate2 {name}", least) for name, least in WANTED.items()]
    show_contest(f"batch {batch}, {threads} thread(s), {ROUNDS[batch]} rounds", measured, pairs)
    for precision in WANTED:
        same = agreement(written[f"seqlab {precision}"], written[f"CTranslate2 {precision}"])
        print(f"the best hypotheses of both in {precision}: {same}", flush=True)


def main() -> None:
    runtime = program("seqlab-run")
    python = environment("ctranslate2", "ctranslate2==4.8.5")
    model = make_model()
    print(f"{sum(weights.numel() for weights in model.parameters()) / 1e6:.1f}M parameters")
    bundles = {f"seqlab {kind}": bundle(model, VOCAB, "transformer", kind, LENGTH) for kind in ("fp32", "int8")}
    converted = BUILD / "benchmarks" / f"{bundles['seqlab fp32'].name}-ctranslate2"
    write_for_ctranslate2(model, converted)
    for threads in (1, 2):
        peers = {
            f"CTranslate2 {name}": Server(python, "serve_ctranslate2.py", converted, kind, threads=threads)
            for name, kind in (("fp32", "float32"), ("int8", "int8"))
        }
        with asking(peers):
            for batch in ROUNDS:
                compare(threads, batch, runtime, bundles, peers)


if __name__ == "__main__":
    run(main)
