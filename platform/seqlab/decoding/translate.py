"""Source texts in, target texts out. NumPy only.

B texts, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.beam import BeamDecoder, beam_search
from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.text import TextTokenizer


class SourceReader(NamedTuple):
    """A model that writes what a source says.

    Attributes:
        begin: the decoder that has read source (B, S) int64, source_mask (B, S) bool.
        source_tokenizer, tokenizer: of the source and of the target.
        max_tokens: the most tokens of a target.
    """

    begin: Callable[[NDArray[np.int64], NDArray[np.bool_]], BeamDecoder]
    source_tokenizer: TextTokenizer
    tokenizer: TextTokenizer
    max_tokens: int


def translate(
    reader: SourceReader,
    texts: Sequence[str],
    *,
    beams: int = 1,
    length_penalty: float = 1.0,
    repetition: Repetition = FREE,
    prefix: str = "",
) -> list[list[str]]:
    """What a model writes of each text, the best first: at most as many texts as beams.

    Args:
        beams, length_penalty, repetition: as of `beam_search`; one beam is greedy.
        prefix: each target begins with it.

    Raises:
        ValueError: as `beam_search` does, a text is longer than the model reads, or the prefix as long as a target.
    """
    tokenizer, of_source = reader.tokenizer, reader.source_tokenizer
    sources = [[*of_source.encode(text), of_source.eos_id] for text in texts]
    mask = np.arange(max(map(len, sources))) < np.array([[len(source)] for source in sources])
    padded = np.zeros(mask.shape, dtype=np.int64)
    padded[mask] = np.concatenate(sources)
    forced = tokenizer.encode(prefix) if prefix else []
    if len(forced) >= reader.max_tokens:
        raise ValueError(f"the prefix has {len(forced)} tokens, a target at most {reader.max_tokens}; shorten it")
    found = beam_search(
        reader.begin(padded, mask),
        [[tokenizer.bos_id, *forced]] * len(texts),
        beams=beams,
        max_new_tokens=reader.max_tokens - len(forced),
        stop_ids=(tokenizer.eos_id,),
        length_penalty=length_penalty,
        repetition=repetition,
    )
    return [[tokenizer.decode([*forced, *hypothesis.tokens]) for hypothesis in hypotheses] for hypotheses in found]
