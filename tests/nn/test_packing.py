"""Packed rows: each document as if it were alone, in outputs and gradients, for every mixer."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts import cases
from contracts.cases import D_MODEL, MAX_SEQ_LEN, MixerCase
from contracts.subjects import randomized
from seqlab.attention import Attention
from seqlab.batch import IGNORE, TokenBatch, alone
from seqlab.models import DecoderLM
from seqlab.models.reading import read
from seqlab.nn.packing import SHORTEST, Documents, each_alone
from seqlab.nn.stack import forget_activations
from seqlab.positions import Learned, RoPE
from seqlab.recurrence import GRU
from seqlab.tasks import LanguageModeling
from tolerances import assert_close

# Documents of 7, 1 and 5 tokens, and of 3, 8 and 2; a document ends with its row.
IDS = torch.tensor([[0] * 7 + [1] + [2] * 5 + [-1] * 2, [2] * 3 + [7] * 8 + [2] * 2 + [-1] * 2])
PIECES = [(0, 0, 7), (0, 7, 8), (0, 8, 13), (1, 0, 3), (1, 3, 11), (1, 11, 13)]
ALONE = [mixer for mixer in cases.MIXERS if not mixer.memory]


def _gradients(y: Tensor, x: Tensor, module: nn.Module) -> dict[str, Tensor]:
    named = {"x": x, **dict(module.named_parameters())}
    found = torch.autograd.grad(y, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(named[name]) if grad is None else grad for name, grad in zip(named, found, strict=True)
    }


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_a_mixer_reads_each_document_alone(case: MixerCase) -> None:
    mixer = case.factory(D_MODEL, 0)
    encoding = RoPE(D_MODEL, MAX_SEQ_LEN) if case.attends else cases.POSITIONS[0].factory(D_MODEL, MAX_SEQ_LEN)
    mixer.attach_positions(encoding)
    randomized(mixer)
    x = torch.randn(*IDS.shape, D_MODEL, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    real = IDS >= 0
    y = each_alone(mixer, x, Documents.of(IDS))
    expected = torch.zeros_like(y)
    for row, begin, end in PIECES:
        expected[row, begin:end] = mixer(x[row : row + 1, begin:end])[0][0]
    assert_close(y[real], expected[real])
    found, wanted = (_gradients((out * weights)[real].sum(), x, mixer) for out in (y, expected))
    for name, gradient in wanted.items():
        assert_close(found[name], gradient, name)
    assert (found["x"][~real] == 0).all()


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(("mixer", "positions"), [(GRU, Learned), (Attention, RoPE)])
def test_a_decoder_reads_each_document_alone(mixer: Any, positions: Any, remembers: bool) -> None:
    """Positions count from the beginning of each document."""
    model = DecoderLM(11, 8, d_model=8, mixer=mixer, positions=partial(positions)).double()
    if not remembers:
        forget_activations(model)
    tokens = torch.randint(11, IDS.shape)
    logits, state = model(tokens, documents=IDS)
    assert state == {}
    for row, begin, end in PIECES:
        assert_close(logits[row, begin:end], model(tokens[row : row + 1, begin:end])[0][0])
    assert not torch.allclose(logits[0, 8:13], model(tokens[:1, :8])[0][0, :5])


def test_the_scores_of_packed_rows_are_those_of_the_documents() -> None:
    task = LanguageModeling(11, 15, model=partial(DecoderLM, d_model=8)).eval()
    tokens = torch.randint(11, IDS.shape)
    targets = torch.randint(11, IDS.shape).masked_fill(IDS < 0, IGNORE)
    packed = TokenBatch(tokens, targets, torch.ones(2), documents=IDS)
    apart = alone(packed)
    assert apart.documents is None and apart.tokens.shape == (6, 8)
    assert [row[row != IGNORE].tolist() for row in apart.targets] == [targets[r, b:e].tolist() for r, b, e in PIECES]
    for total, other in zip(task.loss(packed), task.loss(apart), strict=True):
        assert_close(total.double(), other.double(), tolerance=1e-6)
    (_, places), (_, others) = (task.evaluate(batch)["loss_by_position"] for batch in (packed, apart))
    assert places.tolist() == others.tolist() == [t + 1 for _, b, e in PIECES for t in range(e - b)]
    with torch.no_grad():
        read(task.model, packed)


@pytest.mark.parametrize(("length", "groups"), [(7, 2), (8, 1), (10, 1)])
def test_a_group_has_documents_of_similar_length(length: int, groups: int) -> None:
    assert SHORTEST == 0.8
    ids = torch.tensor([[0] * 10 + [-1] * 2 + [1] * length])
    documents = Documents.of(ids)
    assert len(documents.groups) == groups
    assert documents.positions[0, -length:].tolist() == list(range(length))
    tokens = torch.cat([g.places.flatten() if g.real is None else g.places[g.real] for g in documents.groups])
    assert sorted(tokens.tolist()) == [*range(10), *range(12, 12 + length)]
    assert tokens[documents.back][ids >= 0].tolist() == ids.ge(0).flatten().nonzero()[:, 0].tolist()


def test_no_document_is_refused() -> None:
    with pytest.raises(ValueError, match="no document"):
        Documents.of(torch.full((1, 3), -1))
