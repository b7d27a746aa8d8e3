"""Masked language modelling: what is hidden, what counts, and one choice for every validation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.batch import IGNORE, TokenBatch
from seqlab.tasks import MaskedLanguageModeling
from seqlab.tasks.masked_language_modeling import _draws_of
from tasks.evaluated import validated

VOCAB_SIZE = 11


class Certain(nn.Module):
    """Takes every token for what it reads, and the mask for token 0."""

    mask_id = VOCAB_SIZE

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.sure = nn.Parameter(torch.tensor(9.0))

    def forward(self, tokens: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        return self.sure * nn.functional.one_hot(tokens % VOCAB_SIZE, VOCAB_SIZE + 1)


def task_of(seq_len: int, model: Any = Certain, **options: Any) -> MaskedLanguageModeling:
    return MaskedLanguageModeling(VOCAB_SIZE, seq_len, model=model, **options)


def batch(rows: int, length: int) -> TokenBatch:
    tokens = torch.randint(VOCAB_SIZE, (rows, length))
    return TokenBatch(tokens, tokens.roll(-1, dims=1), torch.full((rows,), length))


@pytest.mark.parametrize("share", [0.15, 0.6])
def test_what_is_chosen_and_what_becomes_of_it(share: float) -> None:
    task, some = task_of(500, share=share), batch(200, 500)
    some.targets[:, 400:] = IGNORE
    tokens, targets, _ = task.masked(some)
    chosen = targets != IGNORE
    assert torch.equal(targets[chosen], some.tokens[chosen]) and torch.equal(tokens[~chosen], some.tokens[~chosen])
    assert not chosen[:, 400:].any()
    assert float(chosen[:, :400].double().mean()) == pytest.approx(share, abs=0.01)
    read, was = tokens[chosen], targets[chosen]
    hidden = read == task.model.mask_id
    assert float(hidden.double().mean()) == pytest.approx(0.8, abs=0.015)
    # Of the others half are drawn from all tokens, of which one in eleven is the same.
    assert float((read == was)[~hidden].double().mean()) == pytest.approx(0.5 + 0.5 / VOCAB_SIZE, abs=0.03)
    assert set(read[~hidden & (read != was)].tolist()) == set(range(VOCAB_SIZE))


def test_every_validation_chooses_the_same_and_scores_it() -> None:
    task, batches = task_of(60), [batch(8, 60), batch(3, 60)]
    first = validated(task, batches)
    torch.manual_seed(7)
    assert validated(task, batches) == first
    rows = [[entry.split(1) for entry in some[:3]] for some in batches]
    apart = [TokenBatch(*row) for some in rows for row in zip(*some, strict=True)]
    assert validated(task, apart) == pytest.approx(first, rel=1e-5), "the choice depends on the batch"
    nats, right = [], []
    for some in batches:
        said = task.predictions(some)
        chosen = torch.zeros(some.tokens.shape, dtype=torch.bool)
        for row, its in enumerate(said):
            chosen[row, its["positions"]] = True
        tokens, targets, _ = task.masked(some, _draws_of(some.tokens, some.pad_mask))
        assert torch.equal(chosen, targets != IGNORE)
        logits = task.model(tokens).double()[chosen].log_softmax(-1)
        counted = targets[chosen]
        assert [token for its in said for token in its["tokens"]] == logits.argmax(-1).tolist()
        nats += (-logits[range(len(counted)), counted]).tolist()
        right += (logits.argmax(-1) == counted).tolist()
        found = [nat for its in said for nat in its["nats"]]
        # A log-probability of logits up to 9 is as exact as float32 has 9.
        assert found == pytest.approx(nats[-len(found) :], rel=1e-5, abs=1e-6)
    assert first["val/loss"] == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert first["val/accuracy"] == pytest.approx(sum(right) / len(right))
    assert sum(right) < len(right) and {"val/loss_by_position/1-8", "val/loss_by_position/33-64"} <= set(first)


def test_what_a_row_is_asked_is_the_same_in_a_wider_batch() -> None:
    tokens = torch.randint(VOCAB_SIZE, (3, 7))
    narrow = _draws_of(tokens, torch.ones(3, 7, dtype=torch.bool))
    wide = _draws_of(nn.functional.pad(tokens, (0, 5), value=3), (torch.arange(12) < 7).expand(3, 12))
    assert torch.equal(wide[..., :7], narrow)
