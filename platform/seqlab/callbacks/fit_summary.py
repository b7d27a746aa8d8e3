"""Closing line of a fit: the run, its checkpoint, and the next command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.loggers import Logger

from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.models.kind import kind_of

EXPORT = "seqlab export {run} --out {bundle}"
TEST = "seqlab test {run}"


class FitSummary(Callback):
    """Prints a fit's checkpoint and the next command on stdout, and the reason if the fit ended early.

    Args:
        trust: modules that `--trust` must name in the next command.
    """

    def __init__(self, trust: Sequence[str] = ()) -> None:
        self.trust = trust

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        best, last = (getattr(_checkpoints(trainer), f"{which}_model_path", "") for which in ("best", "last"))
        if trainer.is_global_zero and (reason := _why_early(trainer)):
            print(f"Stopped early at step {_step(trainer)}: {reason}", flush=True)
        if trainer.is_global_zero and (best or last):
            command = getattr(pl_module, "next_command", EXPORT if _has_bundle(pl_module) else TEST)
            print(closing_line(trainer.logger, best, last, command, self.trust), flush=True)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if trainer.is_global_zero and isinstance(exception, KeyboardInterrupt | SystemExit):
            last: Path | None = getattr(_checkpoints(trainer), "last", None)
            saved: int = getattr(_checkpoints(trainer), "saved_step", 0)
            how, go_on = str(exception) or "Interrupted", how_to_go_on(trainer.logger, last, saved, self.trust)
            print(f"{how} at step {_step(trainer)} · {go_on}", flush=True)


def closing_line(logger: Logger | None, best: str, last: str, command: str = EXPORT, trust: Sequence[str] = ()) -> str:
    """Closing line for a logger, which may have a run, and the checkpoint paths, one of which may be empty.

    Args:
        command: template of the next command, with placeholders `{run}` and, optionally, `{bundle}`.
        trust: modules that `--trust` must name in the command.
    """
    which, path = ("best", _shown(best)) if best else ("last", _shown(last))
    run_id = getattr(logger, "run_id", None)
    if run_id is None:
        return f"Checkpoint {path} · next: {_typed(command, path, which, trust)}"
    name = getattr(logger, "run_name", run_id)
    return f"Run {name} ({run_id[:8]}) · {which} checkpoint {path} · next: {_typed(command, name, name, trust)}"


def _typed(command: str, run: str, name: str, trust: Sequence[str]) -> str:
    """Command line, quoted for a shell."""
    return command.format(run=" ".join([shlex.quote(run), *_flags(trust)]), bundle=shlex.quote(f"bundles/{name}"))


def _flags(trust: Sequence[str]) -> list[str]:
    return [f"--trust {module}" for module in trust]


def _has_bundle(task: L.LightningModule) -> bool:
    """True if a task's model can be exported."""
    return kind_of(getattr(task, "model", None)) is not None


def how_to_go_on(logger: Logger | None, last: Path | None, step: int, trust: Sequence[str] = ()) -> str:
    """End of the closing line of a stopped fit.

    Args:
        last: checkpoint to resume from; None = no checkpoint yet.
        step: optimiser step of that checkpoint.
        trust: modules that `--trust` must name in the command.
    """
    if last is None:
        return "there is no checkpoint yet"
    run_id = getattr(logger, "run_id", None)
    resume = " ".join(["seqlab resume", (run_id or "")[:8], *_flags(trust)])
    command = f"--ckpt_path {shlex.quote(_shown(str(last)))}" if run_id is None else resume
    return f"last checkpoint {_shown(str(last))} of step {step} · next: {command}"


def _checkpoints(trainer: L.Trainer) -> Checkpoints | None:
    """The callback that writes the run's own checkpoints; the user's checkpoint callbacks are ignored."""
    ours = (one for one in trainer.callbacks if isinstance(one, Checkpoints))  # type: ignore[attr-defined]
    return next(ours, None)


def _why_early(trainer: L.Trainer) -> str:
    """Reason why a callback ended the fit; empty if none did."""
    for callback in trainer.callbacks if trainer.should_stop else []:  # type: ignore[attr-defined]
        if isinstance(callback, EarlyStopping) and callback.stopping_reason_message:
            return callback.stopping_reason_message.removesuffix(" Signaling Trainer to stop.")
        if isinstance(callback, Timer) and (callback.time_remaining() or 0.0) <= 0:
            return "the time of --trainer.max_time is over"
    return ""


def _step(trainer: L.Trainer) -> str:
    limit = f" of {trainer.max_steps}" if trainer.max_steps > 0 else ""
    return f"{trainer.global_step}{limit}"


def _shown(path: str) -> str:
    """Path, made relative if that is shorter."""
    return min(path, os.path.relpath(path), key=len)
