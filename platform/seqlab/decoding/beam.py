"""Beam search: the highest-scoring continuations of a prompt.

B prompts, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.generate import Decoder, check_lengths, padded_left
from seqlab.decoding.repetition import FREE, Repetition


class BeamDecoder(Decoder, Protocol):
    """Interface that beam search requires of a model."""

    def select(self, state: Any, rows: NDArray[np.int64]) -> Any:
        """State of the given rows, in the given order; rows may repeat."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation.

    Attributes:
        tokens: new tokens, including the stop token if there is one.
        score: sum of their log-probabilities, divided by (number of tokens)^length_penalty.
    """

    tokens: list[int]
    score: float


def beam_search(
    model: BeamDecoder,
    prompts: Sequence[Sequence[int]],
    *,
    beams: int,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    length_penalty: float = 1.0,
    repetition: Repetition = FREE,
) -> list[list[Hypothesis]]:
    """Returns the K best continuations of each prompt (Graves 2012, section 3.2; length normalisation of Wu et al. 2016
    without its constant). With one beam it is greedy decoding.

    Each step keeps the K best continuations of a prompt's K beams. A continuation that ends with a stop token and ranks
    among the K best is finished. A prompt is done at max_new_tokens, or when K hypotheses are finished and no active
    beam has a better score than the best of them. Stopping at K finished hypotheses alone would return short texts of
    low rank and leave the best beam unfinished. All scores are float64. Ties go to the earlier beam, then to the lower
    token id.

    A greedy text can score better than the best hypothesis only where its prefix dropped out of the K best, or, with a
    length_penalty above 0, where later tokens would have raised its average. A better score does not always mean a
    better text.

    Args:
        beams: beam width K, at least 1.
        max_new_tokens: maximum number of tokens added to a prompt.
        stop_ids: tokens that end a text; they are kept in it.
        length_penalty: exponent of the length normalisation; 0 favours short texts, 1 compares mean log-probabilities.
        repetition: penalties on tokens that a beam already contains, applied before the softmax.

    Returns:
        At most K hypotheses per prompt, best first.

    Raises:
        ValueError: beams is below 1, or an argument is invalid as in `generate`.
    """
    if beams < 1:
        raise ValueError(f"beams must be at least 1, got {beams}")
    lengths = check_lengths(model, prompts, max_new_tokens)
    logits, state = model.prefill(*padded_left(prompts, lengths))
    state = model.select(state, np.repeat(np.arange(len(prompts)), beams))
    logits = np.repeat(logits, beams, axis=0)
    searches = [_Search(prompt, beams, length_penalty, repetition) for prompt in prompts]
    going = searches
    for step in range(max_new_tokens):
        chosen = [
            search.extend(part, stop_ids, last=step == max_new_tokens - 1)
            for search, part in zip(going, np.split(logits, len(going)), strict=True)
        ]
        rest = [row for row, search in enumerate(going) if not search.done]
        going = [going[row] for row in rest]
        if not going or step == max_new_tokens - 1:
            break
        rows = np.concatenate([row * beams + chosen[row][0] for row in rest])
        logits, state = model.step(np.concatenate([chosen[row][1] for row in rest]), model.select(state, rows))
    return [sorted(search.finished, key=lambda found: -found.score)[:beams] for search in searches]


class _Search:
    """Beams of one prompt."""

    def __init__(self, prompt: Sequence[int], beams: int, length_penalty: float, repetition: Repetition) -> None:
        self.prompt = prompt
        self.beams = beams
        self.length_penalty = length_penalty
        self.repetition = repetition
        self.finished: list[Hypothesis] = []
        self.tokens: list[list[int]] = [[] for _ in range(beams)]
        # Initially all beams are identical, so only the first may score.
        self.scores = np.where(np.arange(beams) == 0, 0.0, -np.inf)

    @property
    def done(self) -> bool:
        if len(self.finished) < self.beams:
            return False
        going = self.scores.max() / len(self.tokens[0]) ** self.length_penalty
        return bool(going <= max(found.score for found in self.finished))

    def extend(
        self, logits: NDArray[np.floating], stop_ids: Collection[int], *, last: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Extends the beams by one token, from logits (K, V).

        Returns:
            Index of the beam that each new beam extends, and its token, (K,) each.
        """
        vocab_size = logits.shape[1]
        texts = ([*self.prompt, *tokens] for tokens in self.tokens)
        scores = [self.repetition.apply(row, text) for row, text in zip(logits, texts, strict=True)]
        totals = (self.scores[:, None] + _log_softmax(np.stack(scores))).ravel()
        going: list[tuple[int, int]] = []
        for rank, place in enumerate(np.argsort(-totals, kind="stable")[: self.beams * (1 + len(stop_ids))].tolist()):
            beam, token = divmod(place, vocab_size)
            if len(going) == self.beams or not np.isfinite(totals[place]):
                break
            if token not in stop_ids and not last:
                going.append((beam, token))
            elif rank < self.beams:
                tokens = [*self.tokens[beam], token]
                self.finished.append(Hypothesis(tokens, float(totals[place]) / len(tokens) ** self.length_penalty))
        # A small vocabulary may allow fewer continuations than beams; the others get a score of -inf.
        fill = self.beams - len(going)
        chosen = np.array([*going, *[(0, 0)] * fill], dtype=np.int64)
        self.scores = np.array([totals[b * vocab_size + t] for b, t in going] + [-np.inf] * fill)
        self.tokens = [[*self.tokens[b], t] for b, t in chosen.tolist()]
        return chosen[:, 0], chosen[:, 1]


def _log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return result
