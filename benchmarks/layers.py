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

WIDTH, HEADS, BATCH, LENGTH, ROUNDS = 256, 4, 8, 256, 60


def seconds(forward: Callable[[Tensor], Tensor], width: int) -> float:
    """Processor time with a dense gradient, as a layer inside a model gets it."""
    x, grad = torch.randn(2, BATCH, LENGTH, width)
    x.requires_grad_()
    start = time.process_time()
    forward(x).backward(grad)
    return time.process_time() - start


def compare(
    name: str,
    ours: Callable[[Tensor], Tensor],
    theirs: Callable[[Tensor], Tensor],
    wanted: str,
    width: int = WIDTH,
) -> None:
    """Prints the median ratio and its interquartile range over rounds. Both take turns, each first in alternate rounds,
    so that a slower machine slows both."""
    ratios = []
    for turn in range(-2, ROUNDS):
        first, second = (ours, theirs) if turn % 2 else (theirs, ours)
        times = {first: seconds(first, width), second: seconds(second, width)}
        if turn >= 0:
            ratios.append(times[theirs] / times[ours])
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"{name:44} {median:.3f} times the tokens/s, {low:.3f} to {high:.3f} (wanted: {wanted})", flush=True)


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
    for width in (32, 64, 128, 256):
        compare(f"GRU / LSTM, d {width}", first(GRU(width)), first(LSTM(width)), "0.5", width)

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
    compare("causal attention / x-transformers", first(causal), other, "1.0")


if __name__ == "__main__":
    main()
