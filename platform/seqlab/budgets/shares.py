"""Attribution of a training step's time to its parts, from events of PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqlab.budgets.parts import REST, Part, among

STEP = "ProfilerStep"


class Time(NamedTuple):
    """Milliseconds per step of a part: in the forward pass or outside both passes, and in the backward pass."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


def shares(events: Sequence[Any], parts: Mapping[str, Part]) -> dict[Part, Time]:
    """Times of the parts, which add up to the time of a step.

    On a CPU, this is the time of the training thread; on a GPU, the time of the kernels, and "waiting" while no kernel
    runs. An operation belongs to the innermost enclosing range of a part. A backward operation belongs to the range of
    the forward operation whose gradient it computes: autograd gives both the same sequence number. Gradient
    accumulation has no such number and belongs to the rest.

    Args:
        events: events from `torch.profiler.profile.events()`.
        parts: parts by the names of their ranges, including the rest.
    """
    on_cpu = [event for event in events if event.device_type.name == "CPU" and not event.is_async]
    owners = _owners(on_cpu, parts)
    steps = [event for event in on_cpu if event.name.startswith(STEP)]
    on_gpu = any(event.kernels for event in on_cpu)
    found: dict[Part, list[float]] = {part: [0.0, 0.0] for part in dict.fromkeys(parts.values())}
    for event in on_cpu:
        if on_gpu:
            spent = sum(kernel.duration for kernel in event.kernels)
        elif _root(event).name.startswith(STEP):
            spent = event.self_cpu_time_total
        else:
            continue
        part, backward = owners[id(event)]
        found[part][backward] += spent
    if on_gpu:
        busy = sum(sum(times) for times in found.values())
        found[Part("waiting")] = [max(0.0, sum(step.cpu_time_total for step in steps) - busy), 0.0]
    per_step = 1e3 * len(steps)  # microseconds
    return {part: Time(forward / per_step, backward / per_step) for part, (forward, backward) in found.items()}


def _owners(events: Sequence[Any], parts: Mapping[str, Part]) -> dict[int, tuple[Part, bool]]:
    """Part of each event, keyed by the event's id, and whether the event is in the backward pass."""
    inner: dict[int, Part | None] = {}

    def around(event: Any) -> Part | None:
        """Part of the innermost enclosing range."""
        if id(event) not in inner:
            own = parts.get(event.name)
            inner[id(event)] = own if own or event.cpu_parent is None else around(event.cpu_parent)
        return inner[id(event)]

    # The last forward operation that starts with a sequence number creates the autograd node with that number.
    forwards = sorted((e for e in events if e.sequence_nr >= 0 and not e.fwd_thread), key=lambda e: e.time_range.start)
    by_number = {(event.thread, event.sequence_nr): around(event) for event in forwards}
    owners: dict[int, tuple[Part, bool]] = {}

    def owner(event: Any) -> tuple[Part, bool]:
        if id(event) not in owners:
            key = event.fwd_thread, event.sequence_nr
            if (own := parts.get(event.name)) is not None:
                owners[id(event)] = own, False
            elif event.fwd_thread and key in by_number:
                owners[id(event)] = by_number[key] or REST, True
            else:
                owners[id(event)] = (REST, False) if event.cpu_parent is None else owner(event.cpu_parent)
        return owners[id(event)]

    return {id(event): owner(event) for event in events}


def _root(event: Any) -> Any:
    while event.cpu_parent is not None:
        event = event.cpu_parent
    return event


def in_words(found: Mapping[Part, Time]) -> list[str]:
    """One line per kind and class, largest first, e.g. "the mixer GRU of blocks 0-1 takes 61% of a step: 12.3 ms"."""
    step = sum(time.both for time in found.values())
    alike: dict[tuple[str, str], list[Part]] = {}
    for part in found:
        alike.setdefault(part[:2], []).append(part)
    spent = sorted(((sum(found[part].both for part in parts), parts) for parts in alike.values()), reverse=True)
    return [f"{among(parts)} takes {time / step:.0%} of a step: {time:,.1f} ms" for time, parts in spent]
