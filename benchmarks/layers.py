"""Our layers against those of others at equal shape, forward and backward on one thread, as ratios of tokens/s.

python benchmarks/layers.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from seqlab.attention import Attention, Bidirectional
from seqlab.nn import Block, ReLU
from seqlab.recurrence import GRU, LSTM

WIDTH, HEADS, BATCH, LENGTH, ROUNDS = 256, 4, 8, 256, 15


def seconds(forward: Callable[[Tensor], Tensor]) -> float:
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    start = time.process_time()
    forward(x).sum().backward()
    return time.process_time() - start


def compare(name: str, ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], wanted: str) -> None:
    """In turns, so that what slows the machine slows both; processor time, the median of the rounds."""
    times = [(seconds(ours), seconds(theirs)) for _ in range(1 + ROUNDS)][1:]
    mine, other = (BATCH * LENGTH / statistics.median(column) for column in zip(*times, strict=True))
    print(f"{name:44} {mine:9,.0f} / {other:9,.0f} tokens/s = {mine / other:.3f} (wanted: {wanted})", flush=True)


def first(module: nn.Module) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        y: Tensor = module(x)[0]
        return y

    return forward


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for kind, theirs in ((GRU, nn.GRU), (LSTM, nn.LSTM)):
        bare = theirs(WIDTH, WIDTH, batch_first=True)
        compare(f"{kind.__name__} / torch.nn.{kind.__name__}", first(kind(WIDTH)), first(bare), "0.97")

    attention = partial(Attention, num_heads=HEADS, pattern=Bidirectional)
    block = Block(WIDTH, attention(WIDTH), norm_place="post", ffn=ReLU)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    compare("block / torch.nn.TransformerEncoderLayer", first(block), layer, "1.0")
    try:
        from x_transformers.x_transformers import Attention as XAttention
    except ImportError:
        print("x-transformers: not run, it is not installed (pip install x-transformers)")
        return
    causal = Attention(WIDTH, num_heads=HEADS, bias=False)
    other = XAttention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, causal=True, flash=True)
    compare("causal attention / x-transformers", first(causal), first(other), "1.0")


if __name__ == "__main__":
    main()
