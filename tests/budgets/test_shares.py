"""Time on a GPU is that of its kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from seqlab.budgets.parts import REST, Part
from seqlab.budgets.shares import Time, in_words, shares


def event(name: str, parent: Any = None, *, kernel: float = 0, number: int = -1, thread: int = 1, of: int = 0) -> Any:
    """Profiler event with a kernel of so many milliseconds; a step takes 10 ms."""
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        kernels=[SimpleNamespace(duration=1e3 * kernel)] if kernel else [],
        sequence_nr=number,
        thread=thread,
        fwd_thread=of,
        device_type=SimpleNamespace(name="CPU"),
        is_async=False,
        time_range=SimpleNamespace(start=0),
        cpu_time_total=1e4,
    )


def test_kernels_of_both_passes_and_the_time_in_which_there_is_none() -> None:
    parts = [Part("mixer", "GRU", "", 0), Part("mixer", "GRU", "", 1), Part("loss"), REST]
    first, second, loss, _ = parts
    step = event("ProfilerStep#6")
    training = event("loss", step)
    ranges = [event(str(part), training) for part in (first, second)]
    forward = [event("mm", within, kernel=1, number=k) for k, within in enumerate(ranges)]
    # Kernels of the backward pass are launched by a thread of its own.
    backward = [event("MmBackward0", kernel=3, number=k, thread=2, of=1) for k in range(2)]
    found = shares([step, training, *ranges, *forward, *backward], {str(part): part for part in parts})
    mixers = {first: Time(1, 3), second: Time(1, 3)}
    assert found == mixers | {loss: Time(0, 0), REST: Time(0, 0), Part("waiting"): Time(2, 0)}
    assert in_words(found)[:2] == [
        "the mixer GRU of blocks 0-1 takes 80% of a step: 8.0 ms",
        "the waiting takes 20% of a step: 2.0 ms",
    ]


def test_blocks_of_several_stacks_in_words() -> None:
    parts = [Part("norm", "LayerNorm", "encoder", block) for block in (0, 1, 2, 4)] + [Part("norm", "LayerNorm", "", 3)]
    (said,) = in_words(dict.fromkeys(parts, Time(1, 0)))
    assert said.startswith("the norm LayerNorm of block 3 and encoder blocks 0-2, 4 takes 100% of a step")
