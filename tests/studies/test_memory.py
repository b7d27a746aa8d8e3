"""Measurements of gradients through time, on mixers whose answer is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.studies.memory import BATCH, LENGTH, errors, gradients
from seqlab.tracking.runs import TrackedRun
from seqlab_data.adding import AddingDataModule


class Fades(nn.Module):
    """h = a h + x."""

    def __init__(self, width: int, a: float) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        h, out = torch.zeros_like(x[:, 0]), []
        for x_t in x.unbind(1):
            h = self.a * h + x_t
            out.append(h)
        return torch.stack(out, 1), {}


@pytest.mark.parametrize("a", [0.9, 1.0, 1.1])
def test_the_gradient_of_a_product(a: float) -> None:
    found = gradients(lambda width: Fades(width, a))
    assert found.shape == (LENGTH,) and BATCH > 1
    torch.testing.assert_close(found, torch.tensor(a, dtype=torch.float64) ** torch.arange(LENGTH))


def test_errors_of_a_model_that_says_the_first_number(monkeypatch: pytest.MonkeyPatch) -> None:
    data = AddingDataModule(train_lengths=(20, 20), test_lengths=(20, 20), num_train=32, num_eval=2000)
    loaded = SimpleNamespace(model=lambda inputs, pad_mask: inputs[:, :1, 0], datamodule=data)
    monkeypatch.setattr("seqlab.studies.memory.load_run", lambda _: loaded)
    run: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]
    ours, one, exact = errors(run)
    assert exact < 1e-12 and one == pytest.approx(1 / 6, abs=0.02)
    assert ours == pytest.approx(1 / 12 * 3 + 1 / 4, abs=0.06), "the variances of three numbers, and their means' 1/2"
