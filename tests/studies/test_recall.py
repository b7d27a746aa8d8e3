"""Measurements of recall, on models whose answer is known."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, MLSTM, CausalConv
from seqlab.studies.recall import PAIRS, SYMBOLS, WIDTH, share, state_size


def remembers(limit: int) -> object:
    """The values of the first so many pairs."""

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        said = torch.zeros_like(tokens)
        for row, text in enumerate(tokens.tolist()):
            end = text.index(2)
            known = {text[at]: text[at + 1] for at in range(1, min(end, 2 * limit + 1), 2)}
            said[row, end:] = torch.tensor([known.get(token, 0) for token in text[end:]])
        return torch.nn.functional.one_hot(said, 3 + 2 * SYMBOLS).float(), None

    return model


@pytest.mark.parametrize("limit", [1, 3, PAIRS])
def test_one_that_remembers_so_many_pairs(limit: int) -> None:
    assert share(remembers(limit), PAIRS, 0) == pytest.approx(limit / PAIRS)
    assert share(remembers(limit), 1, 0) == 1.0
    assert share(remembers(limit), PAIRS, 0, of_another=True) < 0.1


def test_the_numbers_of_a_state() -> None:
    def model(mixer: object) -> DecoderLM:
        mixers = [CausalConv, mixer]
        return DecoderLM(9, 32, d_model=WIDTH, num_layers=2, mixer=mixers, positions=NoPositions)  # type: ignore[arg-type]

    read = 4 * PAIRS + 1
    assert state_size(model(GRU)) == WIDTH
    assert read * 2 * WIDTH <= state_size(model(Attention)) <= read * (2 * WIDTH + 1) + 1
    one, many = (state_size(model(partial(MLSTM, num_heads=heads))) for heads in (1, 16))
    assert one > WIDTH * WIDTH > many > WIDTH * WIDTH / 16
