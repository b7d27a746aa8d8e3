"""Uncertainty of a test score over test examples, for runs with stored predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from seqlab.comparison.scores import Scores, read_scores
from seqlab.comparison.statistics import Estimate, over_examples, resampled
from seqlab.tracking.runs import TrackedRun

METRICS = {
    "nats": ("loss", "loss_per_frame"),
    "of accuracy": ("accuracy", "exact_match"),
    "of squared error": ("loss",),
    "BLEU": ("bleu",),
}
"""Metrics that a score of each unit can reproduce."""
ALIKE = 1e-3
"""Relative tolerance between a metric and the score of its predictions, for rounding differences between devices."""


def kept_predictions(run: TrackedRun) -> Path:
    """Local cache folder for a run's predictions, because the store may belong to someone else and is not changed."""
    from seqlab_data.cache import cache_root

    return cache_root(None) / "predictions" / sha256(run.id.encode()).hexdigest()[:32]


def known_by_examples(runs: Sequence[TrackedRun], metric: str, values: Sequence[float]) -> Estimate | None:
    """Mean of a test metric over runs, with its bootstrap error over examples (1,000 resamples). None if a run has no
    predictions on this machine that reproduce its value.

    Args:
        values: value of the metric for each run.
    """
    if not metric.startswith("test/"):
        return None
    found = [_scores(run, metric, value) for run, value in zip(runs, values, strict=True)]
    scores = [one for one in found if one is not None]
    if len(scores) < len(runs) or any(one.examples != scores[0].examples for one in scores):
        return None
    drawn = scores[0].total(resampled(np.stack([one.parts for one in scores], axis=1)))
    return over_examples(np.mean(values), drawn.mean(axis=1), len(scores[0].examples))


def _scores(run: TrackedRun, metric: str, value: float) -> Scores | None:
    for path in sorted(kept_predictions(run).glob("*.jsonl")):
        with suppress(ValueError):  # a damaged file, or one without scored fields
            scores = read_scores(path, run.name, run.params.get("model.init_args.bleu_tokenize", "13a"))
            is_of = metric.removeprefix("test/") in METRICS[scores.unit]
            if is_of and math.isclose(scores.total(scores.parts.sum(0)), value, rel_tol=ALIKE):
                return scores
    return None
