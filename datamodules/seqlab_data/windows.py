"""Windows of a token stream, and counts of the text that their tokens represent.

B batch, T sequence length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, TokenBatch
from seqlab_data.token_cache import TokenFile
from seqlab_data.token_stream import TokenStream

SPACES = b" \t\n\r\v\f"


class Windows:
    """Windows of `seq_len` = T tokens: window i reads stream[i*T : i*T + T] and predicts the same shifted by one.

    The last window is moved back to end with the stream. Targets that the previous window already predicted are
    ignored in it, so every token after the first is predicted exactly once, without padding.

    Args:
        counts: amount of text that each token represents.

    Raises:
        ValueError: the stream has fewer than `seq_len` + 1 tokens.
    """

    def __init__(self, file: TokenFile, seq_len: int, counts: TextCounts) -> None:
        if file.num_tokens <= seq_len:
            raise ValueError(
                f"the {file.split} split begins at {file.begins} and has {file.num_tokens} tokens, but a window "
                f"of seq_len {seq_len} takes {seq_len + 1}; give more text, a smaller seq_len or a larger share"
            )
        self.file = file
        self.seq_len = seq_len
        self.counts = counts
        self._stream = TokenStream(file)

    def __len__(self) -> int:
        return -(-(self.file.num_tokens - 1) // self.seq_len)

    def read(self, indices: NDArray[np.int64]) -> TokenBatch:
        """The windows with these indices, (B,): tokens and targets (B, T), and counts of their text, (B,) each."""
        start = np.minimum(indices * self.seq_len, self.file.num_tokens - 1 - self.seq_len)
        ids = self._stream.at(start[:, None] + np.arange(self.seq_len + 1))  # (B, T + 1)
        counted = (indices * self.seq_len - start)[:, None] <= np.arange(self.seq_len)  # (B, T)
        return token_batch(ids, counted, self.counts, indices)


class TextCounts:
    """Tokenizer-independent counts of the text that tokens represent.

    A word is a run of bytes other than ASCII's spaces and counts in the token that holds its first byte. A newline
    counts as a word too, the <eos> of word-level language models (Merity et al. 2016, "Pointer sentinel mixture
    models", section 4).

    Args:
        token_bytes: UTF-8 bytes of each token; a token without bytes starts a new text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._bytes = np.array([len(token) for token in token_bytes])
        # All bytes but UTF-8's continuation bytes begin a character.
        self._chars = np.array([sum(byte & 0xC0 != 0x80 for byte in token) for token in token_bytes])
        self._words = np.array([len(token.split()) + token.count(b"\n") for token in token_bytes])
        self._begins_inside = np.array([token[:1] not in SPACES for token in token_bytes])
        self._ends_inside = np.array([bool(token) and token[-1] not in SPACES for token in token_bytes])

    def of(self, before: NDArray[np.int64], tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Numbers of characters, bytes and words of each of `tokens` (B, T); `before` holds the preceding tokens."""
        goes_on = self._ends_inside[before] & self._begins_inside[tokens]
        return self._chars[tokens], self._bytes[tokens], self._words[tokens] - goes_on


def token_batch(
    ids: NDArray[np.int64], counted: NDArray[np.bool_], counts: TextCounts, rows: NDArray[np.int64]
) -> TokenBatch:
    """Batch of next-token predictions from rows of ids, (B, T + 1); positions not `counted`, (B, T), are ignored."""
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    amounts = [np.where(counted, one, 0).sum(axis=1) for one in counts.of(tokens, targets)]
    targets[~counted] = IGNORE
    return TokenBatch(*map(torch.from_numpy, (tokens, targets, *amounts, rows.copy())))
