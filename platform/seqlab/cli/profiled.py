"""Profile of a few training steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from rich.console import Console
from rich.table import Table

from seqlab.budgets.parts import Part
from seqlab.budgets.shares import Time, in_words, shares
from seqlab.callbacks.step_profiler import StepProfiler
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import resolve_names
from seqlab.files.atomic import make_folder, replacing

ALONE = (
    "--trainer.logger=false",
    "--trainer.enable_checkpointing=false",
    "--trainer.limit_val_batches=0",
    "--trainer.max_epochs=-1",
)
"""Options that disable logging, checkpoints and validation."""


class _Profiled(SeqlabCLI):
    def __init__(self, args: list[str], profiler: StepProfiler) -> None:
        self.profiler = profiler
        super().__init__("fit", args)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        return super().instantiate_trainer(profiler=self.profiler, **kwargs)

    def before_instantiate_classes(self) -> None:
        if self.config["fit"].compile:
            raise ValueError("profile cannot tell apart the parts of a compiled model; leave --compile out")
        super().before_instantiate_classes()

    def before_fit(self) -> None:
        if self.trainer.world_size > 1:
            raise ValueError("profile measures one process; give --trainer.devices 1")
        super().before_fit()


def profiled(args: list[str], steps: int, trace: Path) -> None:
    """Profiles training steps after a warm-up, writes their trace and prints a table.

    Args:
        args: options of the fit.
        steps: number of profiled steps.

    Raises:
        ValueError: an option is wrong, there are several processes, or the fit ends too early.
        CannotWriteError: the trace cannot be written.
    """
    profiler = StepProfiler(steps)
    _Profiled([*resolve_names(args), *ALONE, f"--trainer.max_steps={profiler.needed}"], profiler)
    if profiler.recorded is None:
        raise ValueError(f"the fit ended after {profiler.done} of the {profiler.needed} steps that profile needs")
    make_folder(trace.parent)
    with replacing(trace) as partial:
        profiler.recorded.export_chrome_trace(str(partial))
    events: Any = profiler.recorded.events()  # type: ignore[no-untyped-call]
    found = shares(events, profiler.parts)
    Console().print(_table(found))
    step = sum(time.both for time in found.values())
    print(f"A step takes {step:,.1f} ms, and {1e3 * profiler.without:,.1f} ms without the profiler")
    print(*in_words(found)[:3], sep="\n")
    print(f"Trace {trace} · next: https://ui.perfetto.dev opens it")


def _table(found: dict[Part, Time]) -> Table:
    """Table with one row per part."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("part", "forward ms", "backward ms", "of a step"):
        table.add_column(title, justify="left" if title == "part" else "right", no_wrap=True)
    forward, backward = (sum(times) for times in zip(*found.values(), strict=True))
    for part, time in found.items():
        share = f"{time.both / (forward + backward):.1%}"
        table.add_row(str(part), f"{time.forward:.2f}", f"{time.backward:.2f}" if time.backward else "", share)
    table.add_row("a step", f"{forward:.2f}", f"{backward:.2f}", "100.0%", style="bold")
    return table
