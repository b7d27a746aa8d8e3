"""Windows against a naive walk along the stream, how much text they stand for, and documents in rows of their own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.helpers import refused
from data.modules import documents
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE, alone
from seqlab.models import Encoder, MaskedLM
from seqlab.tasks import MaskedLanguageModeling
from seqlab_data import TextDataModule, token_stream
from seqlab_data.packed_rows import pack
from seqlab_data.token_cache import TokenFile
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer
from seqlab_data.windows import TextCounts, Windows

TOKEN_BYTES = [b"x" * int(size) for size in np.random.default_rng(0).integers(0, 4, size=300)]


def make_windows(folder: Path, num_tokens: int, seq_len: int) -> tuple[Windows, np.ndarray]:
    stream = np.random.default_rng(num_tokens).integers(0, 300, size=num_tokens)
    stream.astype("<u2").tofile(path := folder / "stream.bin")
    file = TokenFile("train", str(path), "<u2", num_tokens, 0, "x.txt, byte 0")
    return Windows(file, seq_len, TextCounts(TOKEN_BYTES)), stream


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


@given(seq_len=st.integers(1, 16), extra=st.integers(1, 40))
def test_every_token_after_the_first_is_predicted_once(folder: Path, seq_len: int, extra: int) -> None:
    windows, stream = make_windows(folder, seq_len + extra, seq_len)
    pairs: list[tuple[int, int]] = []
    words = 0
    for i in range(len(windows)):
        tokens, targets, num_chars, num_bytes, num_words, rows, _ = windows.read(np.array([i]))
        assert rows is not None and rows.tolist() == [i]
        begin = min(i * seq_len, extra - 1)  # the last window ends with the stream
        assert tokens[0].tolist() == stream[begin : begin + seq_len].tolist() and targets.shape == (1, seq_len)
        kept = targets[0] != IGNORE
        pairs += zip(tokens[0][kept].tolist(), targets[0][kept].tolist(), strict=True)
        assert num_chars.item() == sum(len(TOKEN_BYTES[t]) for t in targets[0][kept].tolist())
        assert num_bytes is not None and torch.equal(num_bytes, num_chars)
        words += int(num_words.sum())
    assert pairs == list(zip(stream[:-1].tolist(), stream[1:].tolist(), strict=True))
    begun_anew = sum(not TOKEN_BYTES[a] and bool(TOKEN_BYTES[b]) for a, b in pairs)
    assert words == begun_anew, "a word begins after a token of no bytes only"


def test_a_batch_is_its_windows_stacked_and_a_pickle_holds_no_tokens(tmp_path: Path) -> None:
    windows, _ = make_windows(tmp_path, 50_000, 7)
    indices = np.array([14, 0, 3, 3])
    batch, pickled = windows.read(indices), pickle.dumps(windows)
    assert len(pickled) < 10_000
    for row, i in enumerate(indices):
        for stacked, single in zip(batch[:-1], pickle.loads(pickled).read(np.array([i]))[:-1], strict=True):
            assert stacked is not None and single is not None and torch.equal(stacked[row : row + 1], single)
            assert stacked.dtype == torch.int64 and stacked.is_contiguous()
    assert batch.documents is None


def test_a_stream_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    for num_tokens in (0, 1, 8):
        with refused(rf"train split begins at x\.txt, byte 0 and has {num_tokens} tokens.* takes 9"):
            make_windows(tmp_path, num_tokens, 8)
    make_windows(tmp_path, 9, 8)


TEXT = "The cat  sat.\n\n\tOn the äöü mat,\r\nnaïvely 猫 \u2581x\n" * 8


def _amounts(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = np.array([[tokenizer.bos_id, *tokenizer.encode(text)]], dtype=np.int64)
    return [int(amount.sum()) for amount in TextCounts(tokenizer.token_bytes).of(ids[:, :-1], ids[:, 1:])]


@pytest.mark.parametrize(
    "tokenizer", [ByteTokenizer(TEXT), CharTokenizer(TEXT), SubwordTokenizer(TEXT, vocab_size=300)]
)
@settings(max_examples=60)
@given(text=st.text(st.sampled_from(TEXT), max_size=60))
@example(text=TEXT)
def test_they_are_the_texts_whatever_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    words = len(text.encode().split()) + text.count("\n")  # ASCII's spaces; str.split knows more
    assert _amounts(tokenizer, text) == [len(text), len(text.encode()), words]


def test_a_character_counts_in_the_token_of_its_first_byte() -> None:
    tokenizer = ByteTokenizer("")
    ids = np.array([tokenizer.encode("aé€😀")])
    assert TextCounts(tokenizer.token_bytes).of(ids, ids)[0].tolist() == [[1, 1, 0, 1, 0, 0, 1, 0, 0, 0]]


def test_words_begin_by_token_and_anew_after_bos() -> None:
    assert _amounts(WordTokenizer("a b\n", newlines=True), "a b\n\nc a") == [14, 14, 6], "c is <unk>"
    counts = TextCounts(ByteTokenizer("").token_bytes)
    a, bos = (np.array([[i]]) for i in (ByteTokenizer("").encode("a")[0], Tokenizer.bos_id))
    assert [counts.of(before, a)[2].item() for before in (a, bos)] == [0, 1]


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
        batch = alone(batch)
        for tokens, targets, real in zip(batch.tokens, batch.targets, batch.pad_mask, strict=True):
            assert not tokens[~real].any() and (targets[~real] == IGNORE).all() and (targets[real] != IGNORE).all()
            rows.append((tokens[real].tolist(), targets[real].tolist()))
    return rows


@pytest.mark.parametrize("packing", ["documents", "packed"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_each_token_is_predicted_in_its_document(
    make: Make, split: str, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_stream, "SCANNED", 7)
    data, bos = make(packing=packing), ByteTokenizer.bos_id
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


@settings(max_examples=60)
@given(lengths=st.lists(st.integers(1, SEQ_LEN), min_size=1, max_size=40))
def test_packed_rows_are_full(lengths: list[int]) -> None:
    """No two rows would fit into one."""
    rows = pack(np.array(lengths), SEQ_LEN)
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
    totals = sorted(sum(lengths[piece] for piece in row) for row in rows)
    assert totals[-1] <= SEQ_LEN < sum(totals[:2]) or len(rows) == 1


@pytest.mark.parametrize("packing", ["documents", "packed"])
def test_a_masked_model_does_not_read_pads(make: Make, packing: str) -> None:
    data = make(packing=packing)

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
