"""Callbacks of a fit from the command line."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.callbacks.checkpoint import Checkpoints, ValidateOnce
from seqlab.callbacks.compile_time import CompileTime
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.callbacks.fit_summary import FitSummary
from seqlab.callbacks.noise_scale import GradientNoiseScale
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.callbacks.skip_spikes import SkipSpikes
from seqlab.callbacks.speed import Speed
from seqlab.callbacks.summary import ModelTable
from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.config.trust import to_trust


def fit_callbacks(options: Any, config: dict[str, Any], speed: Speed, tags: dict[str, str]) -> list[Callback]:
    """Callbacks selected by the options, in the order that they depend on.

    Args:
        config: config stored with the fit.
        tags: additional tags of the run.
    """
    return [
        *([] if options.tokens_per_step is None else [TokensPerStep(options.tokens_per_step)]),
        *([] if options.ema is None else [AveragedWeights(options.ema)]),
        *([GradientNoiseScale()] if options.noise_scale else []),
        *([] if options.skip_spikes is None else [SkipSpikes(options.skip_spikes)]),
        *([CompileTime()] if options.compile else []),
        ExactResume(int(options.seed_everything)),
        RunTracker(config, speed, tags),
        ModelTable(),
        ValidateOnce(),
        FitSummary(to_trust(config)),
        *([] if _keeps_nothing(options.trainer) else [_checkpoints(options, config)]),
    ]


def _checkpoints(options: Any, config: dict[str, Any]) -> Checkpoints:
    every_n_steps, every_n_minutes = options.checkpoint_every, options.checkpoint_minutes
    return Checkpoints(config=config, every_n_steps=every_n_steps, every_n_minutes=every_n_minutes)


def _keeps_nothing(trainer: Any) -> bool:
    return trainer.enable_checkpointing is False or bool(trainer.barebones)
