"""Rows that each hold several whole documents.

B batch, N rows, P pieces, T sequence length.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, TokenBatch
from seqlab_data.document_rows import DocumentRows


class PackedRows:
    """Pieces of text in rows of T tokens, by best-fit packing (Ding et al. 2024, "Fewer truncations improve language
    modeling"): each piece, the longest first, goes into the fullest row that has room for it.

    A piece is one of the rows of `DocumentRows`: a document, or the next T tokens of a longer one.

    Attributes:
        rows: (N,) list of the pieces of each row.
    """

    def __init__(self, pieces: DocumentRows, seq_len: int) -> None:
        self.pieces = pieces
        self.seq_len = seq_len
        self.rows = pack(pieces.lengths, seq_len)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, indices: NDArray[np.int64]) -> TokenBatch:
        """The rows with these indices, (B,), right-padded: tokens, targets and documents (B, T), and counts of their
        text, (B,) each."""
        own = [self.rows[row] for row in indices]
        numbers = np.concatenate(own)  # (P,)
        row = torch.from_numpy(np.repeat(np.arange(len(own)), [len(each) for each in own]))  # (P,) row in the batch
        lengths = [self.pieces.lengths[each] for each in own]
        begins = torch.from_numpy(np.concatenate([np.cumsum(each) - each for each in lengths]))  # (P,) in the row
        text = self.pieces.read(numbers)  # (P, longest)
        real = text.pad_mask
        columns = (begins[:, None] + torch.arange(real.shape[1]))[real]
        places = row[:, None].expand_as(real)[real], columns
        shape = len(own), self.seq_len

        def packed(of_piece: torch.Tensor, fill: int) -> torch.Tensor:
            return torch.full(shape, fill, dtype=torch.int64).index_put(places, of_piece[real])

        def added(amount: torch.Tensor | None) -> torch.Tensor | None:
            return None if amount is None else torch.zeros(len(own), dtype=amount.dtype).index_add(0, row, amount)

        amounts = {name: added(getattr(text, name)) for name in ("num_chars", "num_bytes", "num_words")}
        ids = torch.arange(len(numbers))[:, None].expand_as(real)
        return TokenBatch(
            packed(text.tokens, self.pieces.pad_id),
            packed(text.targets, IGNORE),
            **amounts,  # type: ignore[arg-type]
            rows=torch.from_numpy(indices.copy()),
            documents=packed(ids, -1),
        )


def pack(lengths: NDArray[np.int64], capacity: int) -> list[NDArray[np.int64]]:
    """Pieces (P,) of each row, in order, given their lengths; the rows are in the order of their first pieces."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # free tokens and index of each row that is not full, sorted
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[piece])
        place = bisect_left(room, (length, 0))
        free, row = room.pop(place) if place < len(room) else (capacity, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(piece)
        if free > length:
            insort(room, (free - length, row))
    return sorted((np.sort(row) for row in map(np.array, rows)), key=lambda row: int(row[0]))
