"""Numbers that make no sense to a callback."""

from __future__ import annotations

from typing import Any

import pytest

from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.callbacks.rank_watchdog import RankWatchdog
from seqlab.callbacks.skip_spikes import SkipSpikes
from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.probes.gradient_probe import GradientProbe

NAN = float("nan")


@pytest.mark.parametrize(
    ("callback", "options", "said"),
    [
        *((AveragedWeights, {"decay": bad}, "--ema must be above 0 and below 1, got") for bad in (0.0, 1.0, NAN)),
        (Checkpoints, {"every_n_steps": 0}, "--checkpoint_every must be at least 1, got 0"),
        *((Checkpoints, {"every_n_minutes": bad}, "--checkpoint_minutes must be above 0") for bad in (0.0, -1.0, NAN)),
        (ExactResume, {"seed": -1}, "seed must be at least 0, got -1"),
        (GradientProbe, {"rows": 0}, "rows of GradientProbe must be at least 1, got 0"),
        (RankWatchdog, {"timeout": 0}, "--timeout must be above 0 seconds, got 0"),
        (SkipSpikes, {"times": 1}, "above 1, got 1"),
        (TokensPerStep, {"tokens": 0}, "at least 1, got 0"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(callback: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        callback(**options)
