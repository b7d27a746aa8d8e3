"""Training steps on short documents: packed rows and rows of similar length against one document a row in random order.

python benchmarks/packing.py

Predicted tokens a second. Documents are the paragraphs of CPython's documentation, at most 256 characters of each, and
a batch has about 8,192 tokens, padding included. The three ways take turns over five rounds; ratios are medians.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from seqlab.attention import Attention, Mamba2
from seqlab.batch import IGNORE, TokenBatch
from seqlab.config.quiet import quiet
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab.tasks import LanguageModeling
from seqlab_data import TextDataModule
from seqlab_data.batches import shuffled

LENGTH, ROWS, STEPS, ROUNDS = 256, 32, 4, 5
WAYS = ("one a row", "similar lengths", "packed")
MODELS: dict[str, dict[str, Any]] = {
    "attention": {"mixer": partial(Attention, num_heads=4), "positions": RoPE},
    "GRU": {"mixer": GRU, "positions": NoPositions},
    "Mamba-2": {"mixer": partial(Mamba2, head_dim=32), "positions": NoPositions},
}


def batches(way: str, folder: Path) -> Iterator[TokenBatch]:
    """Batches of an epoch."""
    packing: Any = "packed" if way == "packed" else "documents"
    options: dict[str, Any] = {"seq_len": LENGTH, "batch_size": ROWS, "cache_dir": str(folder / "cache")}
    data = TextDataModule(str(folder / "paragraphs.jsonl"), packing=packing, **options)
    data.setup("fit")
    rows, groups = data.rows("train"), data.groups("train")
    if way == "similar lengths" and groups is not None:
        for group in shuffled(len(groups), 0):
            yield rows.read(groups[group])
        return
    for begin in range(0, len(rows) - ROWS, ROWS):
        yield rows.read(shuffled(len(rows), 0)[begin : begin + ROWS])


def tokens_a_second(task: LanguageModeling, optimizer: torch.optim.Optimizer, some: list[TokenBatch]) -> float:
    start = time.perf_counter()
    for batch in some:
        total, count = task.loss(batch)
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()
    return sum(int((batch.targets != IGNORE).sum()) for batch in some) / (time.perf_counter() - start)


def main() -> None:
    quiet()
    with TemporaryDirectory() as name:
        folder = Path(name)
        paragraphs = [part for topic in sorted(topics) for part in topics[topic].split("\n\n") if part.strip()]
        lines = (json.dumps({"text": part}) for part in paragraphs)
        (folder / "paragraphs.jsonl").write_text("\n".join(lines))
        found = {way: list(batches(way, folder)) for way in WAYS}
    for way, some in found.items():
        real = sum(int((batch.targets != IGNORE).sum()) for batch in some)
        print(f"{way}: {len(some)} batches, {1 - real / sum(batch.targets.numel() for batch in some):.1%} padding")
    vocab_size = 1 + max(int(batch.tokens.max()) for some in found.values() for batch in some)
    for model, options in MODELS.items():
        task = LanguageModeling(vocab_size, LENGTH, model=partial(DecoderLM, d_model=128, num_layers=2, **options))
        optimizer = torch.optim.AdamW(task.parameters())
        speeds: dict[str, list[float]] = {way: [] for way in WAYS}
        for round_ in range(ROUNDS + 1):
            for way, some in found.items():
                chosen = [some[i] for i in np.linspace(0, len(some) - 1, STEPS).astype(int)]
                speed = tokens_a_second(task, optimizer, chosen)
                if round_:  # the first warms up
                    speeds[way].append(speed)
        base = median(speeds[WAYS[0]])
        told = [f"{way} {median(of):,.0f} tokens/s ({median(of) / base:.2f})" for way, of in speeds.items()]
        print(f"{model}: {', '.join(told)}")


if __name__ == "__main__":
    main()
