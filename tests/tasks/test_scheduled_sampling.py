"""Scheduled sampling: what the decoder reads at both ends of the ratio, how often its own tokens, and how it draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.test_sequence_to_sequence import built
from seqlab.batch import IGNORE, PairBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.tasks import ScheduledSampling, Translation
from seqlab.tasks.scheduled_sampling import _drawn
from tasks.evaluated import trained
from tasks.test_translation import Repeats, pairs


class Sure(nn.Module):
    """A model whose draws are its likeliest tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, state: Any, *, pad_mask: Tensor | None = None) -> Any:
        logits, state = self.model(tokens, state, pad_mask=pad_mask)
        return 1e6 * logits, state

    def step(self, tokens: Tensor, state: Any) -> Any:
        logits, state = self.model.step(tokens, state)
        return 1e6 * logits, state


@pytest.fixture(params=["transformer", "gru"], name="case")
def _case(request: pytest.FixtureRequest) -> tuple[Any, Any, PairBatch]:
    model, source, mask, _ = built(request.param)
    target = torch.randint(3, 9, (len(source), 7))
    tokens = torch.cat((torch.ones(len(source), 1, dtype=torch.int64), target), dim=1)
    targets = torch.cat((target, torch.full((len(source), 1), 2)), dim=1)
    targets[0, 5:] = IGNORE
    return model, model.begin(source, mask), PairBatch(source, mask, tokens, targets, torch.arange(len(source)))


def test_what_is_read_at_both_ends_of_the_ratio(case: Any) -> None:
    """All true tokens give nothing else; none give the model's own text in sequence, and in parallel its
    choices after true tokens."""
    model, state, batch = case
    sampling = ScheduledSampling(last=0.0)
    assert torch.equal(sampling.tokens(model, batch, state, 0.0), batch.tokens)
    read = sampling.tokens(Sure(model), batch, state, 1.0)
    written = generate(TorchDecoder(model, state), batch.tokens[:, :1].tolist(), max_new_tokens=7)
    real = batch.targets != IGNORE
    assert torch.equal(read[:, 1:][real[:, 1:]], torch.tensor(written)[real[:, 1:]])
    assert torch.equal(read[~real], batch.tokens[~real]) and torch.equal(read[:, 0], batch.tokens[:, 0])
    read = ScheduledSampling(first=0.0, last=0.0, passes="parallel").tokens(Sure(model), batch, state, 0.3)
    for length in range(1, 5):
        logits = model(batch.tokens[:, :length], state)[0][:, -1]
        assert torch.equal(read[:, length], logits.argmax(dim=-1))


@pytest.mark.parametrize("passes", ["sequential", "parallel"])
def test_the_ratio_falls_with_the_fit(passes: Any) -> None:
    model = Repeats(9, 9, 99)
    batch = pairs([[3] * 50] * 40, [[8] * 50] * 40, list(range(40)))
    state = model.begin(batch.source, batch.source_mask)
    sampling = ScheduledSampling(first=0.9, last=0.5, passes=passes)
    for progress, ratio in ((0.0, 0.9), (0.5, 0.7), (1.0, 0.5)):
        read = sampling.tokens(model, batch, state, progress)
        # Of its own tokens one in 32 is the true one by chance.
        share = float((read[:, 1:] == batch.tokens[:, 1:]).double().mean())
        assert share == pytest.approx(ratio + (1 - ratio) / 32, abs=0.04)


def test_draws_have_the_models_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = _drawn(probabilities.log().expand(40_000, 4))
    torch.testing.assert_close(drawn.bincount() / 40_000, probabilities, rtol=0, atol=0.01)


def test_a_training_step_learns_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Translation(9, 9, 6, model=Repeats, sampling=lambda: ScheduledSampling(first=0.0, last=0.0))
    monkeypatch.setattr(task, "_total_steps", lambda: 10)
    loss = trained(task, pairs([[3, 4]], [[3, 5]], [0]))
    loss.backward()
    assert loss.isfinite() and task.model.weight.grad.isfinite()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"first": 1.5}, r"from 0 to 1, got 1.5 and 0.75"), ({"passes": "both"}, "sequential or parallel, got both")],
)
def test_bad_input(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ScheduledSampling(**options)
