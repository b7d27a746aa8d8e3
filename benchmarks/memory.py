"""Memory of a training step: recomputed activations, and logits of a large vocabulary by rows.

python benchmarks/memory.py
torchrun --nproc_per_node 2 benchmarks/memory.py

Peaks of tensors as PyTorch's profiler counts them, in MB and as ratios to the plain step in the same run. The second
command splits the models over two ranks (tensor parallel), and shows the first rank's peak.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from peers.contest import show
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.nn.stack import forget_activations
from seqlab.parallel.cut import cut
from seqlab.tasks import large_vocabulary
from seqlab.tasks.large_vocabulary import Logits

LENGTH, WIDTH, HEADS = 1024, 256, 4


def peak(run: Callable[[], object]) -> float:
    """Peak megabytes of the tensors of a call, beyond those that existed before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        run()
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most / 1e6


def step(*, layers: int, vocab_size: int, batch: int, forget: bool = False, at_once: int | None = None) -> float:
    """The peak of a step's forward and backward pass."""
    torch.manual_seed(0)
    mixer = partial(Attention, num_heads=HEADS)
    model = DecoderLM(vocab_size, LENGTH, d_model=WIDTH, num_layers=layers, mixer=mixer)
    if dist.is_initialized():
        cut(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    if forget:
        forget_activations(model)
    tokens = torch.randint(vocab_size, (batch, LENGTH))
    large_vocabulary.AT_ONCE = at_once or 1 << 40

    def said(**what: Any) -> Tensor:
        return model(tokens, **what)[0]

    return peak(lambda: Logits(model, said).summed_nats(tokens)[0].backward())


def main() -> None:
    usual = large_vocabulary.AT_ONCE
    blocks: dict[str, Any] = {"layers": 8, "vocab_size": 1024, "batch": 1}
    words: dict[str, Any] = {"layers": 1, "vocab_size": 50_257, "batch": 4}
    cases: dict[str, list[tuple[str, dict[str, Any]]]] = {
        f"8 layers, 1 row of {LENGTH} tokens": [
            ("plain", blocks),
            ("--checkpoint_activations true", blocks | {"forget": True}),
        ],
        f"50,257 tokens in the vocabulary, 4 rows of {LENGTH}": [
            ("logits whole", words),
            ("2^26 logits at once, the default", words | {"at_once": usual}),
            ("2^24", words | {"at_once": 1 << 24}),
        ],
    }
    for title, kinds in cases.items():
        peaks = [(name, step(**options)) for name, options in kinds]
        lines = [[name, f"{most:,.0f}", f"{most / peaks[0][1]:.2f}"] for name, most in peaks]
        if os.environ.get("RANK", "0") == "0":
            show(title, ["step", "MB", "ratio"], lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    main()
