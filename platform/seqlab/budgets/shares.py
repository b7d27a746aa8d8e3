"""Attribution of a training step's time to its parts, from what torch's profiler has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqlab.budgets.parts import REST, Part, among

STEP = "ProfilerStep"


class Time(NamedTuple):
    """Milliseconds a step of a part: in the forward pass, or outside both passes, and in the backward pass."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


def shares(events: Sequence[Any], parts: Mapping[str, Part]) -> dict[Part, Time]:
    """Times of the parts, which add up to the time of a step.

    On a CPU it is the time of the thread that trains, on a GPU that of the kernels; while none runs the device is
    "waiting". An operation belongs to the innermost range around it that is a part's. In the backward pass that is the
    range of the forward operation whose gradient it computes: autograd gives both the same sequence number. What adds
    up gradients has none, and belongs to the rest.

    Args:
        events: of `torch.profiler.profile.events()`.
        parts: by the names of their ranges; the rest is one.
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
    """The part of each event, by id, and whether it is of the backward pass."""
    inner: dict[int, Part | None] = {}

    def around(event: Any) -> Part | None:
        """The innermost range that is a part's."""
        if id(event) not in inner:
            own = parts.get(event.name)
            inner[id(event)] = own if own or event.cpu_parent is None else around(event.cpu_parent)
        return inner[id(event)]

    # The last operation that begins with a number makes the node that has it.
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
    """Share of each kind and class, the largest first: the mixer GRU of blocks 0-1 takes 61% of a step: 12.3 ms."""
    step = sum(time.both for time in found.values())
    alike: dict[tuple[str, str], list[Part]] = {}
    for part in found:
        alike.setdefault(part[:2], []).append(part)
    spent = sorted(((sum(found[part].both for part in parts), parts) for parts in alike.values()), reverse=True)
    return [f"{among(parts)} takes {time / step:.0%} of a step: {time:,.1f} ms" for time, parts in spent]
