"""Accuracy of a model by question length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.study.study import Points
from seqlab.tracking.runs import TrackedRun

EXAMPLES = 200
"""Number of questions tested at each length."""
TRAINED = 6
LONGEST = 2 * TRAINED
"""Maximum length of strings to copy or reverse, in training (`TRAINED`) and in tests (`LONGEST`)."""
COPIED, OF_ANOTHER, ORACLE = "RoPE", "RoPE, of another string", "the string itself"


def reach(share: Sequence[float], trained: int) -> float:
    """Largest length before the first whose share is below one half, relative to the maximum training length."""
    first = next((length for length, whole in enumerate(share, start=1) if whole < 0.5), len(share) + 1)
    return (first - 1) / trained


def of_all(
    runs: Mapping[str, TrackedRun], seed: int, longest: int, known: str, of_another: str, oracle: str
) -> tuple[dict[str, list[float]], Points]:
    """Shares by length of each run, and the same values as rows for figures.

    Args:
        known: name of the run that is also tested with other questions.
        of_another, oracle: names of that result, and of an oracle that is correct at any length.
    """
    shares = {name: by_length(run, seed, longest) for name, run in runs.items()}
    shares[of_another] = by_length(runs[known], seed, longest, of_another=True)
    shares[oracle] = [1.0] * longest
    points: Points = [
        {"model": name, "length": length, "whole": whole}
        for name, share in shares.items()
        for length, whole in enumerate(share, start=1)
    ]
    return shares, points


@torch.inference_mode()
def by_length(run: TrackedRun, seed: int, longest: int, *, of_another: bool = False) -> list[float]:
    """Share of fully correct answers at each length up to `longest`, with teacher forcing. With `of_another`, the model
    gets another question, to test that it reads the question."""
    from seqlab.batch import IGNORE
    from seqlab.trained.load import load_run
    from seqlab_data.synthetic import Draw

    loaded = load_run(run.id)
    task: Any = loaded.datamodule.task  # type: ignore[union-attr]
    shares = []
    for length in range(1, longest + 1):
        found = [task.example(Draw(seed, length, place), length) for place in range(EXAMPLES)]
        tokens, targets = (torch.tensor([list(example[part]) for example in found]) for part in (0, 1))
        if of_another:
            asked = int((targets[0] != IGNORE).nonzero()[0]) + 1
            tokens[:, :asked] = tokens[:, :asked].roll(1, 0)
        shares.append(float(whole(loaded.model, tokens, targets).double().mean()))
    return shares


def whole(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """(B,): True if every target (B, T) that is not ignored is the most likely token after tokens (B, T)."""
    from seqlab.batch import IGNORE

    best = model(tokens)[0].argmax(-1)
    right: Tensor = (best == targets) | (targets == IGNORE)
    return right.all(1)
