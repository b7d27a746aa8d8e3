"""Documents in rows of their own: what windows predict, each token once, and that pads are not read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from data.helpers import refused
from data.modules import documents
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE
from seqlab.models import Encoder, MaskedLM
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


def test_a_masked_model_does_not_read_pads(make: Make) -> None:
    data = make()

    def make_model(vocab_size: int, seq_len: int) -> MaskedLM:
        mixer = partial(Attention, num_heads=2, pattern=Bidirectional)
        return MaskedLM(vocab_size, seq_len, encoder=partial(Encoder, mixer=mixer, d_model=8, num_layers=1))

    task = MaskedLanguageModeling(data.vocab_size, SEQ_LEN, model=make_model)
    task.double()
    batch = next(batch for batch in data.val_dataloader() if not batch.pad_mask.all())
    found = []
    for pads in (0, 5):
        torch.manual_seed(0)
        found.append(task.loss(batch._replace(tokens=torch.where(batch.pad_mask, batch.tokens, pads)))[0])
    torch.testing.assert_close(*found)


def test_an_empty_split_is_refused(make: Make, tmp_path: Path) -> None:
    with refused(r"the (val|test) split begins at .*00\.txt, line \d+ and has no text"):
        make(f"{tmp_path}/documents/00.txt", split=(0.98, 0.01, 0.01)).setup("fit")
