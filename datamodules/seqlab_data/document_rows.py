"""Rows that never span two documents.

B batch, N rows, T longest row of a batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import TokenBatch
from seqlab_data.token_cache import TokenFile
from seqlab_data.token_stream import TokenStream
from seqlab_data.tokenizers import Tokenizer
from seqlab_data.windows import TextCounts, token_batch


class DocumentRows:
    """Rows that each hold one document from its bos, or the next `seq_len` tokens of a longer one. A row predicts the
    token after each, including the next document's bos: every prediction of `Windows`, exactly once.

    Args:
        counts: amount of text that each token represents.

    Attributes:
        lengths: (N,) number of input tokens of each row.
        pad_id: token at padding.

    Raises:
        ValueError: the stream has no token to predict.
    """

    def __init__(self, file: TokenFile, seq_len: int, counts: TextCounts, tokenizer: Tokenizer) -> None:
        if file.num_tokens < 2:
            raise ValueError(f"the {file.split} split begins at {file.begins} and has no text; give more text")
        self.counts = counts
        self._stream = TokenStream(file)
        self.pad_id = tokenizer.pad_id
        begins = self._stream.places_of(tokenizer.bos_id)
        predicted = np.diff(begins, append=file.num_tokens - 1)  # per document; all tokens but the first
        rows = -(-predicted // seq_len)
        number = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)  # (N,) row index in its document
        self._begins = np.repeat(begins, rows) + number * seq_len
        self.lengths = np.minimum(np.repeat(predicted, rows) - number * seq_len, seq_len)

    def __len__(self) -> int:
        return len(self.lengths)

    def read(self, indices: NDArray[np.int64]) -> TokenBatch:
        """The rows with these indices, (B,), right-padded: tokens and targets (B, T), and counts of their text, (B,)
        each."""
        lengths = self.lengths[indices, None]
        places = np.arange(lengths.max() + 1)
        # Positions past a row's end repeat its last token, so that none is past the end of the stream.
        ids = self._stream.at(self._begins[indices, None] + np.minimum(places, lengths))  # (B, T + 1)
        ids[places > lengths] = self.pad_id
        real = places[:-1] < lengths  # (B, T)
        batch = token_batch(ids, real, self.counts, indices)
        return batch._replace(tokens=batch.tokens.masked_fill(~torch.from_numpy(real), self.pad_id))
