"""The decoding loop: a prefill, then one decode step per token, for every model and every runtime.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.sampling import GREEDY, Sampling, choose


class Decoder(Protocol):
    """Interface that the decoding loop requires of a model. The state is opaque to the loop."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_seq_len(self) -> int | None:
        """Maximum sequence length in tokens; None = no limit."""

    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], Any]:
        """Runs the prefill on tokens (B, T), left-padded where pad_mask (B, T) is False.

        Returns:
            Logits (B, V) at the last token, and the state.
        """

    def step(self, tokens: NDArray[np.int64], state: Any) -> tuple[NDArray[np.floating], Any]:
        """Runs a decode step on one token per row, tokens (B,); returns logits (B, V) and the next state."""


def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    repetition: Repetition = FREE,
    stop_ids: Collection[int] = (),
    on_token: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """Continues each prompt. Prompts of different lengths are decoded together, padded on the left.

    Args:
        prompts: token ids, one list per row.
        max_new_tokens: maximum number of tokens added to a prompt.
        sampling: sampling options; greedy by default. Random numbers depend on the row index.
        repetition: penalties on tokens that a row already contains.
        stop_ids: tokens that end a row; they are kept in it.
        on_token: called with (row, token) as each token is chosen.

    Returns:
        The new tokens of each row, without the prompt.

    Raises:
        ValueError: prompts or one of them is empty, an id is outside the vocabulary, max_new_tokens is below 1, or the
            total length exceeds `max_seq_len`.
    """
    lengths = check_lengths(model, prompts, max_new_tokens)
    chosen: list[list[int]] = [[] for _ in prompts]
    running = list(range(len(prompts)))
    # A finished row is fed token 0 until the others finish; its logits are ignored.
    last = np.zeros(len(prompts), dtype=np.int64)
    logits, state = model.prefill(*padded_left(prompts, lengths))
    for step in range(max_new_tokens):
        if step > 0:
            logits, state = model.step(last, state)
        for row in running:
            scores = repetition.apply(logits[row], [*prompts[row], *chosen[row]])
            last[row] = choose(scores, sampling, step=step, row=row)
            chosen[row].append(int(last[row]))
            if on_token is not None:
                on_token(row, chosen[row][-1])
        running = [row for row in running if chosen[row][-1] not in stop_ids]
        if not running:
            break
        last[[row for row in range(len(prompts)) if row not in running]] = 0
    return chosen


def padded_left(
    prompts: Sequence[Sequence[int]], lengths: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Prompts of the given lengths as one left-padded array (B, T), and its mask (B, T), True = a real token."""
    width = max(lengths)
    tokens = np.zeros((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - lengths[row] :] = prompt
    return tokens, np.arange(width) >= width - np.array(lengths)[:, None]


def padded_right(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows as one right-padded array (B, T), and its mask (B, T), True = a real token. B may be 0."""
    lengths = np.array([*map(len, rows)], dtype=np.int64)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    tokens = np.zeros(mask.shape, dtype=np.int64)
    tokens[mask] = [token for row in rows for token in row]
    return tokens, mask


def check_lengths(model: Decoder, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[int]:
    """Lengths of the prompts in tokens; raises ValueError if the model cannot read and continue them."""
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    if not prompts:
        raise ValueError("there is no prompt to continue; give at least one")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {row} is empty; it needs at least one token")
        outside = [token for token in prompt if not 0 <= token < model.vocab_size]
        if outside:
            raise ValueError(f"prompt {row} has token {outside[0]}, outside the vocabulary 0..{model.vocab_size - 1}")
    lengths = [len(prompt) for prompt in prompts]
    # The model never reads the last new token.
    needed = max(lengths) + max_new_tokens - 1
    if model.max_seq_len is not None and needed > model.max_seq_len:
        raise ValueError(
            f"a prompt of {max(lengths)} tokens and {max_new_tokens} new ones need {needed} positions, "
            f"the model has {model.max_seq_len}; shorten the prompt or ask for fewer tokens"
        )
    return lengths
