"""Windows against a naive walk along the stream: every token after the first is predicted once."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from seqlab.batch import IGNORE
from seqlab_data.text_counts import TextCounts
from seqlab_data.token_cache import TokenFile
from seqlab_data.windows import Windows

TOKEN_BYTES = [b"x" * int(size) for size in np.random.default_rng(0).integers(0, 4, size=300)]


def make_windows(folder: Path, num_tokens: int, seq_len: int) -> tuple[Windows, np.ndarray]:
    stream = np.random.default_rng(num_tokens).integers(0, 300, size=num_tokens)
    path = folder / "stream.bin"
    stream.astype("<u2").tofile(path)
    return Windows(
        TokenFile("train", str(path), "<u2", num_tokens, 0, "x.txt, byte 0"), seq_len, TextCounts(TOKEN_BYTES)
    ), stream


@pytest.mark.parametrize("seq_len", [1, 2, 7, 16])
@pytest.mark.parametrize("extra", [1, 2, 6, 7, 8, 15, 16, 17, 33, 100])
def test_every_token_after_the_first_is_predicted_once_from_the_one_before(
    tmp_path: Path, seq_len: int, extra: int
) -> None:
    windows, stream = make_windows(tmp_path, seq_len + extra, seq_len)
    pairs, words = [], 0
    for i in range(len(windows)):
        tokens, targets, num_chars, num_bytes, num_words, rows = windows.read(np.array([i]))
        assert rows is not None and rows.tolist() == [i]
        assert tokens.shape == targets.shape == (1, seq_len)
        assert (tokens != IGNORE).all()
        kept = targets[0] != IGNORE
        pairs += zip(tokens[0][kept].tolist(), targets[0][kept].tolist(), strict=True)
        assert num_chars.item() == sum(len(TOKEN_BYTES[t]) for t in targets[0][kept].tolist())
        assert num_bytes is not None and torch.equal(num_bytes, num_chars)
        words += num_words.item()
    assert pairs == list(zip(stream[:-1].tolist(), stream[1:].tolist(), strict=True))
    begun_anew = sum(not TOKEN_BYTES[a] and bool(TOKEN_BYTES[b]) for a, b in pairs)
    assert words == begun_anew, "a word begins after a token of no bytes only"


def test_an_ignored_target_still_has_its_tokens_as_context(tmp_path: Path) -> None:
    windows, stream = make_windows(tmp_path, 12, 8)
    tokens, targets, *_ = windows.read(np.array([1]))
    assert tokens[0].tolist() == stream[3:11].tolist()
    assert targets[0].tolist() == [IGNORE] * 5 + stream[9:12].tolist()


def test_a_batch_is_its_windows_stacked(tmp_path: Path) -> None:
    windows, _ = make_windows(tmp_path, 100, 7)
    indices = np.array([14, 0, 3, 3])
    batch = windows.read(indices)
    for row, i in enumerate(indices):
        for stacked, alone in zip(batch, windows.read(np.array([i])), strict=True):
            assert torch.equal(stacked[row : row + 1], alone)
            assert stacked.dtype == torch.int64
            assert stacked.is_contiguous()


def test_no_indices_give_one_window_that_counts_for_nothing(tmp_path: Path) -> None:
    windows, _ = make_windows(tmp_path, 100, 7)
    batch = windows.read(np.arange(0))
    assert batch.tokens.shape == (1, 7)
    assert (batch.targets == IGNORE).all()
    assert batch.num_chars.tolist() == [0]


@pytest.mark.parametrize("num_tokens", [0, 1, 8])
def test_a_stream_shorter_than_a_window_is_refused(tmp_path: Path, num_tokens: int) -> None:
    with pytest.raises(
        ValueError, match=rf"train split begins at x\.txt, byte 0 and has {num_tokens} tokens.* takes 9"
    ):
        make_windows(tmp_path, num_tokens, 8)
    make_windows(tmp_path, 9, 8)


def test_a_pickle_holds_no_tokens(tmp_path: Path) -> None:
    windows, _ = make_windows(tmp_path, 50_000, 7)
    first = windows.read(np.arange(5))
    pickled = pickle.dumps(windows)
    assert len(pickled) < 10_000
    assert torch.equal(pickle.loads(pickled).read(np.arange(5)).tokens, first.tokens)
