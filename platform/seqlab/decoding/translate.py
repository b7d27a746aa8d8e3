"""Source texts in, target texts out. NumPy only.

B texts, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.beam import BeamDecoder, beam_search
from seqlab.decoding.generate import padded_right
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


def source_tokens(tokenizer: TextTokenizer, text: str) -> list[int]:
    """What the model reads of a source."""
    return [*tokenizer.encode(text), tokenizer.eos_id]


def translate(
    reader: SourceReader,
    texts: Sequence[str],
    *,
    beams: int = 1,
    length_penalty: float = 1.0,
    repetition: Repetition = FREE,
    prefix: str = "",
) -> list[list[str]]:
    """What a model writes of each text, the best first: at most as many texts as beams; see `translate_tokens`."""
    found = translate_tokens(
        reader,
        [source_tokens(reader.source_tokenizer, text) for text in texts],
        beams=beams,
        length_penalty=length_penalty,
        repetition=repetition,
        prefix=prefix,
    )
    return [[reader.tokenizer.decode(tokens) for tokens in targets] for targets in found]


def translate_tokens(
    reader: SourceReader,
    sources: Sequence[Sequence[int]],
    *,
    beams: int = 1,
    length_penalty: float = 1.0,
    repetition: Repetition = FREE,
    prefix: str = "",
) -> list[list[list[int]]]:
    """The tokens of what a model writes of each source, the best first: at most as many targets as beams.

    Args:
        sources: the ids of each, as `source_tokens` gives them.
        beams, length_penalty, repetition: as of `beam_search`; one beam is greedy.
        prefix: each target begins with it.

    Raises:
        ValueError: as `beam_search` does, a source is longer than the model reads, or the prefix as long as a target.
    """
    if not sources:
        return []
    tokenizer = reader.tokenizer
    forced = tokenizer.encode(prefix) if prefix else []
    if len(forced) >= reader.max_tokens:
        raise ValueError(f"the prefix has {len(forced)} tokens, a target at most {reader.max_tokens}; shorten it")
    found = beam_search(
        reader.begin(*padded_right(sources)),
        [[tokenizer.bos_id, *forced]] * len(sources),
        beams=beams,
        max_new_tokens=reader.max_tokens - len(forced),
        stop_ids=(tokenizer.eos_id,),
        length_penalty=length_penalty,
        repetition=repetition,
    )
    return [[[*forced, *hypothesis.tokens] for hypothesis in hypotheses] for hypotheses in found]
