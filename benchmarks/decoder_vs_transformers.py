"""Our decoder against transformers' GPT2LMHeadModel, training steps at GPT-2 shape. Prints a ratio.

python benchmarks/decoder_vs_transformers.py
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.optim import AdamW, DecayMatrices
from seqlab.positions import Learned

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCAB = 4, 256, 4, 256, 8, 1024
ROUNDS, STEPS = 9, 3


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    output = model(tokens[:, :-1])
    logits = output.logits if hasattr(output, "logits") else output[0]
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ours = DecoderLM(
        VOCAB, LENGTH, d_model=WIDTH, num_layers=LAYERS, mixer=partial(Attention, num_heads=HEADS), positions=Learned
    )
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip
    tokens = torch.randint(VOCAB, (BATCH, LENGTH + 1))
    groups = DecayMatrices(0.1)
    models = [(model, AdamW(groups(model.named_parameters()), 1e-3, betas=(0.9, 0.95))) for model in (ours, theirs)]
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    seconds: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for (model, optimizer), times in zip(models, seconds, strict=True):
            start = time.perf_counter()
            for _ in range(STEPS):
                train_step(model, optimizer, tokens)
            times.append((time.perf_counter() - start) / STEPS)
    rates = [BATCH * LENGTH / statistics.median(times) for times in seconds]
    print(f"seqlab {rates[0]:,.0f} tokens/s, transformers {rates[1]:,.0f} tokens/s, ratio {rates[0] / rates[1]:.3f}")


if __name__ == "__main__":
    main()
