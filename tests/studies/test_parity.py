"""Measurements of parity, on models whose answer is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies.parity import COUNTED, LAST, LENGTHS, ONE, TRAINED, Parity
from seqlab.tracking.runs import TrackedRun

RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]


def counts_to(limit: int) -> Any:
    """Knows the parity of the first so many bits."""

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        odd = (tokens[:, 1 : limit + 1] == ONE).sum(1) % 2
        return torch.nn.functional.one_hot(odd + 3, 5).float().unsqueeze(1), None

    return model


@pytest.mark.parametrize(("limit", "within", "beyond"), [(TRAINED, 1.0, 0.5), (LENGTHS[-1], 1.0, 1.0)])
def test_one_that_counts_so_far(limit: int, within: float, beyond: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: SimpleNamespace(model=counts_to(limit)))
    values = Parity().measure("cpu", 0, {"GRU": RUN}).values
    assert values["GRU, to 16"] == within and values["GRU, beyond 16"] == pytest.approx(beyond, abs=0.05)
    assert values[COUNTED] == 1.0 and values[LAST] == pytest.approx(0.5, abs=0.05)
