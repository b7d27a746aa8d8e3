"""Documents in rows of their own: what windows predict, each token once, with the loss that its document alone has."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from data.order import check_order
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE
from seqlab.mixer import Mixer
from seqlab.models import DecoderLM, Encoder, MaskedLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from seqlab.tasks import MaskedLanguageModeling
from seqlab_data import TextDataModule, token_stream
from seqlab_data.tokenizers import ByteTokenizer

SEQ_LEN = 16


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., TextDataModule]:
    rng = random.Random(0)
    for i in range(40):
        length = rng.choice([1, 2, 5, 15, 16, 17, 33, 60])
        (tmp_path / f"{i:02d}.txt").write_text("".join(rng.choices("abc \n", k=length)))
    defaults = {"seq_len": SEQ_LEN, "batch_size": 3, "tokenizer": ByteTokenizer, "packing": "documents"}
    options = {"split": (0.6, 0.2, 0.2), "cache_dir": str(tmp_path / ".cache")}
    return lambda path=str(tmp_path), **given: TextDataModule(path, **{**defaults, **options, **given})


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
    make: Callable[..., TextDataModule], split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_stream, "SCANNED", 7)
    data, bos = make(), ByteTokenizer.bos_id
    rows = rows_of(data, split)
    stream = torch.from_numpy(np.fromfile(data._caches[0].splits[split].path, "<u2").astype("int64")).tolist()
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
    predicted = [target for _, targets in rows for target in targets]
    assert sorted(predicted) == sorted(stream[1:])


def losses(model: DecoderLM, tokens: Tensor, targets: Tensor) -> Tensor:
    logits, _ = model(tokens)
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


@pytest.mark.parametrize("mixer, positions", [(Attention, RoPE), (GRU, NoPositions), (Mamba, NoPositions)])
def test_the_loss_of_each_token_is_that_of_its_document_alone(
    make: Callable[..., TextDataModule], mixer: Callable[[int, int], Mixer], positions: Callable[..., NoPositions]
) -> None:
    data = make()
    model = DecoderLM(data.vocab_size, SEQ_LEN, d_model=8, num_layers=2, mixer=mixer, positions=positions).double()
    for batch in data.val_dataloader():
        found = losses(model, batch.tokens, batch.targets)
        for row, real in enumerate(batch.pad_mask):
            alone = losses(model, batch.tokens[row : row + 1, real], batch.targets[row : row + 1, real])
            torch.testing.assert_close(found[row, real], alone[0], rtol=1e-12, atol=1e-12)


def test_a_masked_model_does_not_read_pads(make: Callable[..., TextDataModule]) -> None:
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


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., TextDataModule]) -> None:
    check_order(make, len(make().rows("val")))


def test_another_batch_size_is_other_batches(make: Callable[..., TextDataModule]) -> None:
    data = make()
    data.groups("train")
    data.batch_size = 6
    found, expected = data.groups("train"), make(batch_size=6).groups("train")
    assert found is not None and expected is not None
    assert [*map(np.ndarray.tolist, found)] == [*map(np.ndarray.tolist, expected)]


def test_another_packing_is_other_data(make: Callable[..., TextDataModule]) -> None:
    state = {**make().state_dict(), "batch": 1}
    with pytest.raises(ValueError, match="trained with seq_len 16 of one document, this data has seq_len 16"):
        make(packing="stream").load_state_dict(state)
    with pytest.raises(ValueError, match=r"data\.packing must be stream or documents, got sentences"):
        make(packing="sentences")


def test_an_empty_split_is_refused(make: Callable[..., TextDataModule], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the (val|test) split begins at .*00\.txt, line \d+ and has no text"):
        make(str(tmp_path / "00.txt"), split=(0.98, 0.01, 0.01)).setup("fit")
