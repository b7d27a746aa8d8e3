"""A stream of tokens cut into windows.

B batch, T sequence length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, TokenBatch
from seqlab_data.batch_order import row_numbers
from seqlab_data.text_counts import TextCounts
from seqlab_data.token_cache import TokenFile


class Windows:
    """Window i reads stream[i*T : i*T + T], with T = `seq_len`, and predicts the same moved on by one.

    The last window is moved back to end with the stream, and what an earlier one has predicted is ignored in it:
    every token after the first is predicted exactly once, without padding.

    Args:
        counts: how much text each token stands for.

    Raises:
        ValueError: the stream is shorter than one window and the token after it.
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
        self._stream: NDArray[Any] | None = None

    def __len__(self) -> int:
        return -(-(self.file.num_tokens - 1) // self.seq_len)

    def read(self, indices: NDArray[np.int64]) -> TokenBatch:
        """The windows with these indices, (B,). With none, one window of which all is ignored."""
        wanted = indices if len(indices) else np.zeros(1, dtype=np.int64)
        start = np.minimum(wanted * self.seq_len, self.file.num_tokens - 1 - self.seq_len)
        ids = self._tokens()[start[:, None] + np.arange(self.seq_len + 1)].astype(np.int64)
        tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
        again = (wanted * self.seq_len - start)[:, None] > np.arange(self.seq_len)
        ignored = again if len(indices) else np.ones_like(again)
        amounts = [np.where(ignored, 0, amount).sum(axis=1) for amount in self.counts.of(tokens, targets)]
        targets[ignored] = IGNORE
        batch = TokenBatch(*map(torch.from_numpy, (tokens, targets, *amounts)))
        return batch._replace(rows=row_numbers(indices))

    def _tokens(self) -> NDArray[Any]:
        if self._stream is None:
            self._stream = np.memmap(self.file.path, dtype=self.file.dtype, mode="r")
        return self._stream

    def __getstate__(self) -> dict[str, Any]:
        """Without the memory map, which would be pickled as its content."""
        return {**self.__dict__, "_stream": None}
