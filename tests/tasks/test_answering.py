"""Whole answers, by hand and against greedy decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqlab.batch import IGNORE, TokenBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab.tasks import Answering
from seqlab_data.synthetic.copying import Reverse
from seqlab_data.synthetic.data import Examples
from tasks.evaluated import trained, validated


class Successor(nn.Module):
    """Says that each token is followed by its number and one."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.eye = nn.Parameter(torch.eye(vocab_size).roll(1, dims=1))

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.eye[tokens], {}


def test_by_hand() -> None:
    """Batches of unequal size; a wrong target that does not count, one answer half right, a row of nothing."""
    tokens = torch.arange(9).expand(4, 9).clone()
    targets = tokens + 1
    targets[0, :5] = IGNORE
    targets[1, :5], targets[1, 7] = IGNORE, 0
    targets[2, 2:] = IGNORE
    targets[3] = IGNORE
    some = TokenBatch(tokens, targets, torch.ones(4))
    more = TokenBatch(tokens[:1], targets[:1].where(tokens[:1] < 8, 0), torch.ones(1))
    found = validated(Answering(10, 9, model=Successor), [some, more])
    each = validated(Answering(10, 9, model=Successor, each_length=True), [some, more])
    assert found["val/exact_match"] == 2 / 4
    assert found["val/exact_match_by_length/1-8"] == 1.0
    assert found["val/exact_match_by_length/9-16"] == pytest.approx(1 / 3)
    lengths = {name.rpartition("/")[2] for name in each if "exact_match_by_length" in name}
    assert lengths == {"2", "9"} and each["val/exact_match_by_length/9"] == pytest.approx(1 / 3)
    assert found["val/accuracy"] == pytest.approx((4 + 3 + 2 + 3) / (4 + 4 + 2 + 4))


def test_it_is_the_share_that_greedy_decoding_answers_exactly() -> None:
    """A model that knows some of the answers: the task is to reverse a string over two symbols."""
    torch.manual_seed(0)
    model: Any = partial(DecoderLM, d_model=32, num_layers=1, mixer=GRU, positions=NoPositions)
    task = Answering(Reverse(2).vocab_size, 10, model=model)
    batch = Examples(Reverse(2), (1, 4), 40, (0,)).read(np.arange(40))
    optimizer = torch.optim.Adam(task.parameters(), 1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        trained(task, batch).backward()
        optimizer.step()
    right = 0
    for row in range(40):
        counted = batch.targets[row] != IGNORE
        first = int(counted.int().argmax())
        prompt = batch.tokens[row, : first + 1].tolist()
        model = task.model
        decoder = TorchDecoder(model.eval(), model.init_state(1))
        (written,) = generate(decoder, [prompt], max_new_tokens=int(counted.sum()), stop_ids=())
        right += written == batch.targets[row][counted].tolist()
    assert 0 < right < 40
    assert sum(its["right"] for its in task.predictions(batch)) == right
    said = zip(task.predictions(batch), batch.targets, strict=True)
    assert sum(its["answer"] == targets[targets != IGNORE].tolist() for its, targets in said) == right
    assert validated(task, [batch])["val/exact_match"] == pytest.approx(right / 40)
