"""Logits that are computed a few rows at a time: the same losses, gradients and scores, less memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from peak import peak
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE, PairBatch, TokenBatch
from seqlab.models import DecoderLM, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq
from seqlab.nn import Block
from seqlab.tasks import LanguageModeling, MaskedLanguageModeling, Translation, large_vocabulary
from seqlab.tasks.large_vocabulary import Logits

V = 37
TARGETS = torch.arange(24).view(3, 8).masked_fill(torch.arange(8) > torch.tensor([[8], [4], [0]]), IGNORE)
TEXT = TokenBatch(torch.arange(24).view(3, 8) % 11, TARGETS, num_chars=torch.ones(3, dtype=torch.int64))
PAIRS = PairBatch(TEXT.tokens, TARGETS != IGNORE, TEXT.tokens, TARGETS, torch.arange(3))
DROPPING = partial(Block, dropout=0.2)
ENCODER = partial(
    Encoder, d_model=8, num_layers=1, mixer=partial(Attention, num_heads=2, pattern=Bidirectional), block=DROPPING
)
DECODER = partial(DecoderLM, d_model=8, num_layers=1, block=DROPPING, mixer=partial(Attention, num_heads=2))
TASKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "tied": (lambda: LanguageModeling(V, 8, model=DECODER), TEXT),
    "with a z-loss": (lambda: LanguageModeling(V, 8, model=DECODER, z_loss=0.1), TEXT),
    "untied": (lambda: LanguageModeling(V, 8, model=partial(DECODER, tie_embeddings=False)), TEXT),
    "masked": (lambda: MaskedLanguageModeling(V, 8, share=0.5, model=partial(MaskedLM, encoder=ENCODER)), TEXT),
    "translation": (
        lambda: Translation(V, V, 8, label_smoothing=0.1, model=partial(EncoderDecoder, encoder=ENCODER, num_layers=1)),
        PAIRS,
    ),
    "recurrences": (lambda: Translation(V, V, 8, model=partial(RNNSeq2Seq, d_model=8)), PAIRS),
}


@pytest.mark.parametrize("name", TASKS)
def test_losses_gradients_and_scores_by_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, with 5 rows at once; the last chunk has fewer."""
    make, batch = TASKS[name]

    def found() -> list[Tensor]:
        torch.manual_seed(0)
        task = make().double()
        total, count = task.loss(batch)
        (total / count).backward()
        scores = []
        if batch is TEXT:
            with torch.no_grad():
                scores = [torch.as_tensor(one) for values in task.eval().evaluate(batch).values() for one in values]
        return [total.detach(), count, *(weight.grad for weight in task.parameters()), *scores]

    whole = found()
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", 5 * (V + 1))
    assert len(whole) > 10 and all(one is not None for one in whole)
    for by_rows, expected in zip(found(), whole, strict=True):
        torch.testing.assert_close(by_rows, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_output_layer_frozen_or_halved(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    task = LanguageModeling(V, 8, model=partial(DECODER, tie_embeddings=False)).to(dtype)
    task.model.head.weight.requires_grad_(dtype == torch.bfloat16)
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", 5 * V)
    total, _ = task.loss(TEXT)
    assert total.dtype == torch.float32
    total.backward()
    grad = task.model.head.weight.grad
    assert (grad is None) == (dtype == torch.float32) and (grad is None or grad.dtype == dtype)
    assert all(weight.grad is not None for weight in task.model.stack.parameters())


def test_in_float16_gradients_are_scaled_before_they_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens with a probability of 1.5e-8, which half precision rounds to 0."""
    model: Any = nn.Module()
    model.vocab_size, model.output = V, nn.Linear(4, V, bias=False)
    model.output.weight.data.fill_(-4.5)[0] = 0
    features, targets = torch.ones(3, 8, 4), torch.zeros(3, 8, dtype=torch.int64)
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", 5 * V)

    def gradients(scale: float) -> tuple[Tensor, Tensor]:
        said = features.clone().requires_grad_()
        nats, _ = Logits(model, lambda **what: said).summed_nats(targets)
        of_said, of_weight = torch.autograd.grad(nats * scale, (said, model.output.weight))
        return of_said / scale, of_weight[1:] / scale

    expected = gradients(1.0)
    with torch.autocast("cpu", torch.float16):
        found = gradients(2.0**16)
    assert all(one.abs().min() > 0 and one.abs().max() < 1e-5 for one in expected)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=0.0)


def test_the_logits_of_a_large_vocabulary_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 tokens at 512 places: 102 MB of logits."""
    model = DecoderLM(50_000, 512, d_model=8, num_layers=1, mixer=partial(Attention, num_heads=2))
    tokens = torch.randint(50_000, (1, 512))

    def train() -> None:
        Logits(model, lambda **what: model(tokens, **what)[0]).summed_nats(tokens)[0].backward()

    whole = peak(train)
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", 2**21)
    assert whole > 200e6 and peak(train) < 0.2 * whole
