"""Measurements at each length, on models whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies.length import LONGEST, TRAINED, apart, distances
from seqlab.studies.lengths import by_length, reach
from seqlab.tracking.runs import TrackedRun
from seqlab_data.synthetic import Copy

RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]


def copier(limit: int) -> Any:
    """Copies its input up to a length, then writes zeros."""

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        length = tokens.shape[1] // 2
        said = torch.zeros_like(tokens)
        if length <= limit:
            said[:, length + 1 :] = tokens[:, 1 : tokens.shape[1] - length]
        return torch.nn.functional.one_hot(said, 20).float(), None

    return model


@pytest.mark.parametrize("limit", [TRAINED - 1, TRAINED, TRAINED + 1, LONGEST])
def test_the_reach_of_one_that_copies_to_a_length(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(model=copier(limit), datamodule=SimpleNamespace(task=Copy(8)))
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)
    share = by_length(RUN, 0, LONGEST)
    assert share == [float(length <= limit) for length in range(1, LONGEST + 1)]
    assert reach(share, TRAINED) == limit / TRAINED
    assert max(by_length(RUN, 0, LONGEST, of_another=True)[2:]) < 0.1, "another string is not copied by chance"


def test_distances_and_nearness_by_hand() -> None:
    at = torch.arange(512, dtype=torch.float64)
    turned = torch.stack((at.sin(), at.cos()), 1)
    assert distances(turned) < -12 and distances(turned * (1 + at / 512).unsqueeze(1)) > -2
    assert apart(at.unsqueeze(1)) == pytest.approx(math.log10(1 / (513 / 3)))
    assert apart(torch.cat((turned, turned))) < -12
