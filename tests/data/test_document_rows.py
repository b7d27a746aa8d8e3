"""Documents in rows of their own: what windows predict, each token once, with the loss that its document alone has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from data.helpers import refused
from data.modules import documents
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE
from seqlab.mixer import Mixer
from seqlab.models import DecoderLM, Encoder, MaskedLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from seqlab.tasks import MaskedLanguageModeling
from seqlab_data import TextDataModule, token_stream
from seqlab_data.tokenizers import ByteTokenizer

Make = Callable[..., TextDataModule]
SEQ_LEN = 16


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return partial(documents, tmp_path)


def rows_of(data: TextDataModule, split: str) -> list[tuple[list[int], list[int]]]:
    """Tokens and targets of each row, without pads."""
    rows = []
    for batch in data._loader(data._batches(split)):
        assert batch.tokens.numel() <= 3 * SEQ_LEN
        for tokens, targets, real in zip(batch.tokens, batch.targets, batch.pad_mask, strict=True):
            assert not tokens[~real].any() and (targets[~real] == IGNORE).all() and (targets[real] != IGNORE).all()
            rows.append((tokens[real].tolist(), targets[real].tolist()))
    return rows


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_each_token_is_predicted_once_from_its_document_alone(
    make: Make, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_stream, "SCANNED", 7)
    data, bos = make(), ByteTokenizer.bos_id
    rows = rows_of(data, split)
    stream = np.fromfile(data._caches[0].splits[split].path, "<u2").tolist()
    begins = [i for i, token in enumerate(stream) if token == bos]
    documents = [stream[i:j] for i, j in zip(begins, [*begins[1:], len(stream)], strict=True)]
    expected = []
    for document, after in zip(documents, [[bos]] * (len(documents) - 1) + [[]], strict=True):
        whole = document + after
        for i in range(0, len(whole) - 1, SEQ_LEN):
            expected.append((whole[i : i + SEQ_LEN][: len(whole) - 1 - i], whole[i + 1 : i + 1 + SEQ_LEN]))
    assert sorted(rows) == sorted(expected)
    windows = make(packing="stream")
    for amount in ("num_chars", "num_bytes", "num_words"):
        totals = [
            sum(int(getattr(batch, amount).sum()) for batch in some._loader(some._batches(split)))
            for some in (data, windows)
        ]
        assert totals[0] == totals[1]


def losses(model: DecoderLM, tokens: Tensor, targets: Tensor) -> Tensor:
    logits, _ = model(tokens)
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


@pytest.mark.parametrize("mixer, positions", [(Attention, RoPE), (GRU, NoPositions), (Mamba, NoPositions)])
def test_the_loss_of_each_token_is_that_of_its_document_alone(
    make: Make, mixer: Callable[[int, int], Mixer], positions: Callable[..., NoPositions]
) -> None:
    data = make()
    model = DecoderLM(data.vocab_size, SEQ_LEN, d_model=8, num_layers=2, mixer=mixer, positions=positions).double()
    for batch in data.val_dataloader():
        found = losses(model, batch.tokens, batch.targets)
        for row, real in enumerate(batch.pad_mask):
            alone = losses(model, batch.tokens[row : row + 1, real], batch.targets[row : row + 1, real])
            torch.testing.assert_close(found[row, real], alone[0], rtol=1e-12, atol=1e-12)


def test_a_masked_model_does_not_read_pads(make: Make) -> None:
    data = make()

    def make_model(vocab_size: int, seq_len: int) -> MaskedLM:
        mixer = partial(Attention, num_heads=2, pattern=Bidirectional)
        return MaskedLM(vocab_size, seq_len, encoder=partial(Encoder, mixer=mixer, d_model=8, num_layers=1))

    task = MaskedLanguageModeling(data.vocab_size, SEQ_LEN, model=make_model)
    task.double()
    batch = next(batch for batch in data.val_dataloader() if not batch.pad_mask.all())
    masked = task.masked(batch)
    found = task.model(masked.tokens, pad_mask=masked.pad_mask)
    for row, real in enumerate(batch.pad_mask):
        torch.testing.assert_close(found[row, real], task.model(masked.tokens[row : row + 1, real])[0])
    other = batch._replace(tokens=torch.where(batch.pad_mask, batch.tokens, 5))
    torch.manual_seed(0)
    first = task.loss(batch)[0]
    torch.manual_seed(0)
    torch.testing.assert_close(task.loss(other)[0], first)


def test_an_empty_split_is_refused(make: Make, tmp_path: Path) -> None:
    with refused(r"the (val|test) split begins at .*00\.txt, line \d+ and has no text"):
        make(f"{tmp_path}/documents/00.txt", split=(0.98, 0.01, 0.01)).setup("fit")
