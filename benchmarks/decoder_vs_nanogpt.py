"""Our decoder against a GPT laid out as nanoGPT has it (one product for queries, keys and values, exact GELU), training
steps on one thread, eager and compiled. Prints ratios of tokens/s.

python benchmarks/decoder_vs_nanogpt.py
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.nn import GELU, Block
from seqlab.positions import Learned

LAYERS, WIDTH, HEADS, VOCAB = 4, 256, 4, 1024
SHAPES = ((256, 8), (1024, 2))
ROUNDS = 15


class PlainBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        # (B, T, 3 D) to three of (B, H, T, K)
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        y: Tensor = x + self.ffn(self.norm_2(x))
        return y


class PlainGPT(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.Sequential(*(PlainBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def seconds(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> float:
    """Processor time of one training step."""
    start = time.process_time()
    output = model(tokens[:, :-1])
    logits = output[0] if isinstance(output, tuple) else output
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.process_time() - start


def compare(length: int, batch: int, *, compiled: bool) -> None:
    """Prints the median ratio and its interquartile range over rounds. Both take turns, in alternating order."""
    mixer, block = partial(Attention, num_heads=HEADS), partial(Block, ffn=partial(GELU, exact=True))
    ours = DecoderLM(
        VOCAB, length, d_model=WIDTH, num_layers=LAYERS, mixer=mixer, block=block, positions=Learned
    )  # fmt: skip
    models = {"ours": ours, "theirs": PlainGPT(length)}
    assert len({sum(parameter.numel() for parameter in model.parameters()) for model in models.values()}) == 1
    optimizers = {name: torch.optim.AdamW(model.parameters(), 1e-3) for name, model in models.items()}
    if compiled:
        for model in models.values():
            model.compile()
    tokens = torch.randint(VOCAB, (batch, length + 1))
    ratios = []
    for turn in range(-2, ROUNDS):
        order = ("ours", "theirs") if turn % 2 else ("theirs", "ours")
        times = {name: seconds(models[name], optimizers[name], tokens) for name in order}
        if turn >= 0:
            ratios.append(times["theirs"] / times["ours"])
    low, median, high = statistics.quantiles(ratios, n=4)
    how = "compiled" if compiled else "eager"
    print(f"T {length}, {how}: {median:.3f} times the tokens/s, {low:.3f} to {high:.3f} (wanted: 1.0)", flush=True)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for compiled in (False, True):
        for length, batch in SHAPES:
            compare(length, batch, compiled=compiled)


if __name__ == "__main__":
    main()
