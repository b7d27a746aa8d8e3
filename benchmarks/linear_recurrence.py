"""Linear recurrences, forward and backward on one thread: the parallel implementation against its own step loop, and
the growth of time with the length, beside softmax attention. Prints a table.

python benchmarks/linear_recurrence.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqlab.attention import (
    Attention,
    DeltaNet,
    GatedDeltaNet,
    GatedLinearAttention,
    LinearAttention,
    Mamba2,
    Retention,
)
from seqlab.mixer import Mixer
from seqlab.recurrence import LRU, MLSTM, RGLRU, RWKV7, S4D, Mamba, MinGRU, MinLSTM

WIDTH, BATCH, LENGTH = 64, 1, 1024
LENGTHS = [256, 512, 1024, 2048, 4096, 8192]
ROUNDS = 5
LINEAR = [
    *(MinGRU, MinLSTM, LRU, S4D, RGLRU, Mamba, MLSTM, RWKV7),
    *(LinearAttention, Retention, GatedLinearAttention, DeltaNet, GatedDeltaNet, Mamba2),
]


def parallel(mixer: Mixer, x: Tensor) -> Tensor:
    return mixer(x)[0]


def step_loop(mixer: Mixer, x: Tensor) -> Tensor:
    state, outputs = mixer.init_state(BATCH), []
    for x_t in x.unbind(dim=1):
        y_t, state = mixer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


def seconds(form: Callable[[Mixer, Tensor], Tensor], mixer: Mixer, length: int) -> float:
    """Processor time on one thread, so that other programs do not count. The fastest of several rounds."""
    x = torch.randn(BATCH, length, WIDTH, requires_grad=True)
    times = []
    for _ in range(1 + ROUNDS):
        start = time.process_time()
        form(mixer, x).sum().backward()
        times.append(time.process_time() - start)
    return min(times[1:])


def exponent(times: list[float], shortest: int) -> float:
    """The slope of log(time) over log(length), from a length on."""
    first = LENGTHS.index(shortest)
    return float(np.polyfit(np.log(LENGTHS[first:]), np.log(times[first:]), 1)[0])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"d_model {WIDTH}, batch {BATCH}, float32, one thread, forward and backward, milliseconds")
    head = ["parallel", "step loop", "ratio", *(f"T {length}" for length in LENGTHS), "exponent", "from 2048"]
    print(f"{'':20}" + "".join(f"{name:>10}" for name in head))
    for build in [*LINEAR, Attention]:
        mixer = build(WIDTH)
        times = [seconds(parallel, mixer, length) for length in LENGTHS]
        loop = seconds(step_loop, mixer, LENGTH) if build in LINEAR else float("nan")
        fast = times[LENGTHS.index(LENGTH)]
        row = [f"{1e3 * value:.1f}" for value in (fast, loop)] + [f"{loop / fast:.1f}"]
        row += [f"{1e3 * value:.1f}" for value in times] + [
            f"{exponent(times, shortest):.2f}" for shortest in (LENGTHS[0], 2048)
        ]
        print(f"{build.__name__:20}" + "".join(f"{cell:>10}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
