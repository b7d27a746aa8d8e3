"""Cost of a checkpoint: written at once or in the background, against `torch.save`, and in a fit that writes one
every 100 steps.

python benchmarks/checkpoints.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from seqlab.attention import Attention
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.models import DecoderLM

ROUNDS, STEPS, EVERY = 7, 12, 100
MEGABYTES = 360


def large() -> dict[str, Any]:
    """A checkpoint of 30 million weights, with AdamW's state."""
    return {f"{name}.{k}": torch.randn(250_000) for name in ("weight", "exp_avg", "exp_avg_sq") for k in range(120)}


def trained() -> tuple[dict[str, Any], float]:
    """A decoder's checkpoint, and the processor seconds of one of its steps of 8 rows of 256 tokens."""
    model = DecoderLM(256, 256, d_model=256, num_layers=4, mixer=Attention)
    optimizer = torch.optim.AdamW(model.parameters())
    seconds = []
    for _ in range(STEPS):
        tokens = torch.randint(256, (8, 257))
        began = time.process_time()
        logits, _ = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - began)
    return {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}, statistics.median(seconds)


def measured(checkpoint: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Processor seconds of a save, and the seconds that a fit waits for it. The methods take turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.ckpt"
        at_once, background = AtomicCheckpointIO(), AtomicCheckpointIO(in_background=True)
        ways: dict[str, Callable[[], None]] = {
            "torch.save": lambda: torch.save(checkpoint, path),
            "at once": lambda: at_once.save_checkpoint(checkpoint, path),
            "in the background": lambda: background.save_checkpoint(checkpoint, path),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, save in ways.items():
                processor, clock = time.process_time(), time.perf_counter()
                save()
                waited = time.perf_counter() - clock
                background.teardown()
                taken[name].append((time.process_time() - processor, waited))
        middle = statistics.median
        return {name: (middle(p for p, _ in times), middle(w for _, w in times)) for name, times in taken.items()}


def main() -> None:
    torch.set_num_threads(1)
    times = measured(large())
    for name, (processor, waited) in times.items():
        ratio = processor / times["torch.save"][0]
        print(f"{MEGABYTES} MB, {name}: {processor:.3f} s of processor time (ratio {ratio:.2f}), {waited:.3f} s waited")
    checkpoint, step = trained()
    for name, (processor, waited) in measured(checkpoint).items():
        shares = (f"{100 * seconds / (EVERY * step):.2f}%" for seconds in (processor, waited))
        print(f"every {EVERY} steps of {step:.3f} s, {name}: processor time +{next(shares)}, waited +{next(shares)}")


if __name__ == "__main__":
    main()
