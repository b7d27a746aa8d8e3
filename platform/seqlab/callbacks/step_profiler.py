"""Time breakdown of a training step: torch's profiler over a few steps, with a range for each part."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from seqlab.budgets.parts import REST, Part, parts_of

WARM_UP = 5
"""Steps before profiling; steps from the second on are timed without the profiler."""
DATA, LOSS, OPTIMISER, LOGGING = Part("data"), Part("loss"), Part("optimiser"), Part("logging")
ACTIONS = {
    "train_dataloader_next": DATA,
    "batch_to_device": DATA,
    "training_step": LOSS,
    "backward": REST,
    "optimizer_step": OPTIMISER,
    "optimizer_zero_grad": OPTIMISER,
    "configure_gradient_clipping": OPTIMISER,
    "lr_scheduler_step": OPTIMISER,
}
"""Part of each action that Lightning profiles, by the last component of its name. Nested parts count separately."""
LOGGERS = ("[Callback]RunTracker", "[Callback]FitProgress")


class StepProfiler(Profiler):
    """Profiles optimiser steps of a single-process fit, after `WARM_UP` + 1 steps.

    Args:
        steps: number of profiled steps.

    Attributes:
        parts: parts by range name, in the order of the model.
        recorded: recording of torch's profiler; None = the fit ended too early.
        without: mean seconds per step without the profiler.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.parts: dict[str, Part] = {}
        self.recorded: profile | None = None
        self.without = 0.0
        self.done = 0
        self._recording: profile | None = None
        self._began = 0.0
        self._open: dict[str, record_function] = {}
        self._hooks: list[Any] = []

    @property
    def needed(self) -> int:
        """Number of steps that the fit must have."""
        return WARM_UP + 1 + self.steps

    def start(self, action_name: str) -> None:
        logs = action_name.startswith(LOGGERS)
        part = LOGGING if logs else ACTIONS.get(action_name.rpartition(".")[2])
        if self._recording is not None and part is not None:
            self._open[action_name] = _entered(str(part))

    def stop(self, action_name: str) -> None:
        if (within := self._open.pop(action_name, None)) is not None:
            within.__exit__(None, None, None)
        task: Any = getattr(self, "_lightning_module", None)
        if action_name == "run_training_batch" and task.trainer.global_step > self.done:
            self.done += 1
            self._step(task)

    def _step(self, task: Any) -> None:
        on_gpu = task.device.type == "cuda"
        if on_gpu and self.done in (1, WARM_UP, self.needed):
            torch.cuda.synchronize()
        if self.done == 1:
            self._began = time.perf_counter()
        elif self.done == WARM_UP:
            self.without = (time.perf_counter() - self._began) / (WARM_UP - 1)
            phases = schedule(wait=0, warmup=1, active=self.steps, repeat=1)
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
            self._recording = profile(activities=activities, schedule=phases)
            self._watch(getattr(task, "model", task))
            self._recording.start()
        elif self._recording is not None:
            self._recording.step()
            if self.done == self.needed:
                self.recorded, self._recording = self._recording, None
                self.recorded.stop()
                for hook in self._hooks:
                    hook.remove()

    def _watch(self, model: torch.nn.Module) -> None:
        """Records a range for each call of a part and of the model."""
        parts = dict(parts_of(model))
        self.parts = {str(part): part for part in (*parts.values(), LOSS, OPTIMISER, DATA, LOGGING, REST)}
        for module, part in ({model: REST} | parts).items():
            before, after = _range(str(part))
            self._hooks.append(module.register_forward_pre_hook(before))
            self._hooks.append(module.register_forward_hook(after, always_call=True))


def _range(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Hooks that begin and end a range."""
    begun: list[record_function] = []

    def before(*_: Any) -> None:
        begun.append(_entered(name))

    def after(*_: Any) -> None:
        begun.pop().__exit__(None, None, None)

    return before, after


def _entered(name: str) -> record_function:
    within = record_function(name)
    within.__enter__()  # type: ignore[no-untyped-call]
    return within
