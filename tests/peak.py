"""The peak memory of a call."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak(run: Callable[[], object]) -> int:
    """The most bytes of tensors that a call allocates at once, beyond those that existed before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        run()
    events = (event for event in found.profiler.kineto_results.events() if event.name() == "[memory]")
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most
