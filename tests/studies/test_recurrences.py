"""Measurements of recurrences, and of gradients through time, where the answer is known."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.cli import main
from seqlab.models import Classifier, Encoder
from seqlab.nn import Block, NoFeedForward
from seqlab.nn.residual import NoResidual
from seqlab.positions import NoPositions
from seqlab.probes.through_time import gradients_back
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab.recurrence.fused import FusedRecurrence
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import load_run
from seqlab_data.adding import AddingDataModule
from seqlab_studies.lib.gradients import BATCH, LENGTH, WIDTH, lifted, orthogonal
from seqlab_studies.lib.recurrences import first_weights, given, kept, through
from seqlab_studies.memory import errors, gradients
from seqlab_studies.saturation import share

BARE = partial(Block, norm_place="none", ffn=NoFeedForward, residual=NoResidual)


def classifier(mixer: Any) -> nn.Module:
    encoder = partial(Encoder, d_model=8, num_layers=1, mixer=mixer, positions=NoPositions, block=BARE, embed=nn.Linear)
    return Classifier(2, 1, 20, encoder=encoder, pool="last").double().eval()


def test_what_is_kept_by_hand() -> None:
    """The first step does not count: it keeps nothing. Rows whose best units keep 0.25, 0.5 and 0.81: the middle."""
    gates = torch.tensor([[[0.1], [0.5], [0.5]], [[0.1], [1.0], [0.5]], [[0.1], [0.9], [0.9]]])
    worse = torch.full_like(gates, 0.2)
    assert float(kept({"forget": torch.cat((gates, worse), dim=-1), "input": gates})) == 0.5
    assert float(kept({"update": gates, "reset": worse})) == 0.5


@pytest.mark.parametrize(("bias", "least", "most"), [(8.0, 0.9, 1.0), (-8.0, 0.0, 1e-30)])
def test_gates_that_are_held_open_or_shut(bias: float, least: float, most: float) -> None:
    seen = through(classifier(partial(LSTM, forget_bias=bias)), torch.randn(3, 20, 2, dtype=torch.float64))
    assert seen.kept is not None and least <= float(seen.kept) <= most and seen.lifted is None
    assert (float(seen.back[-1]) > 0.1) == (bias > 0)
    assert seen.shares["gates"] == pytest.approx(1 / 3), "one of three gates"


def test_a_gru_keeps_by_its_update_gate_and_an_rnn_has_none() -> None:
    inputs = torch.randn(3, 20, 2, dtype=torch.float64)
    model: Any = classifier(GRU)
    with torch.no_grad():
        model.encoder.stack.blocks[0].mixer.cell.bias_ih_l0[8:16] = 20.0
    assert float(through(model, inputs).kept or 0) == pytest.approx(1, abs=1e-3)
    assert through(classifier(RNN), inputs).kept is None


def test_slopes_are_lifted_in_the_backward_pass_alone() -> None:
    """Without slopes it is the product of the recurrent matrix: of an orthogonal one, 1 at any distance."""
    x = torch.randn(2, 30, WIDTH, dtype=torch.float64, requires_grad=True)
    model = orthogonal()
    torch.testing.assert_close(lifted(model, x), model(x)[0])
    torch.testing.assert_close(gradients_back(x, lifted(model, x, 0.0)), torch.ones(30, dtype=torch.float64))
    doubles = orthogonal(gain=2.0)
    torch.testing.assert_close(gradients_back(x, lifted(doubles, x, 0.0)), 2.0 ** torch.arange(30).double())
    assert gradients_back(x, model(x)[0])[-1] < 0.1, "with its slopes it fades"
    torch.testing.assert_close(gradients_back(x, lifted(model, x, 2.0)), gradients_back(x, model(x)[0]))


def test_saturated_slopes_alone_are_lifted() -> None:
    x = torch.randn(2, 30, WIDTH, dtype=torch.float64, requires_grad=True)
    saturates, does_not = orthogonal(bias=8.0), orthogonal()
    assert share(saturates, x) == 1 and share(does_not, 0.01 * x) == 0
    torch.testing.assert_close(gradients_back(x, lifted(saturates, x)), torch.ones(30, dtype=torch.float64))
    small = (0.01 * x).detach().requires_grad_()
    torch.testing.assert_close(
        gradients_back(small, lifted(does_not, small)), gradients_back(small, does_not(small)[0])
    )


def test_of_an_lstm_the_share_is_of_its_forget_gates() -> None:
    x = torch.randn(2, 30, WIDTH, dtype=torch.float64)
    models: list[FusedRecurrence] = [LSTM(WIDTH, forget_bias=bias).double() for bias in (-8.0, 0.0, 8.0)]
    assert [round(share(model, 0.01 * x)) for model in models] == [1, 0, 1]


@pytest.mark.slow
def test_the_first_weights_are_those_that_the_fit_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that moves nothing ends with them."""
    monkeypatch.chdir(tmp_path)
    length = [f"--data.{split}_lengths=[6,6]" for split in ("train", "test")]
    steps = ["--trainer.max_steps=1", "--trainer.val_check_interval=1", "--model.lr=1e-30", "--seed_everything=5"]
    assert main(["fit", "--config=synthetic/adding", *length, *steps, "--data.num_eval=300", "--run_name=still"]) == 0
    loaded = load_run("still")
    state = torch.get_rng_state()
    first = first_weights(loaded).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    for name, weight in loaded.model.state_dict().items():
        torch.testing.assert_close(first[name], weight, rtol=0, atol=1e-20)
    inputs = given(loaded)
    assert inputs.shape == (256, 6, 2) and inputs.dtype == torch.float64


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
    monkeypatch.setattr("seqlab_studies.memory.load_run", lambda _: loaded)
    run: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]
    ours, one, exact = errors(run)
    assert exact < 1e-12 and one == pytest.approx(1 / 6, abs=0.02)
    assert ours == pytest.approx(1 / 12 * 3 + 1 / 4, abs=0.06), "the variances of three numbers, and their means' 1/2"
