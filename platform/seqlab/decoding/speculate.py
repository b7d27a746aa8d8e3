"""Self-speculative decoding: a model's own heads guess several tokens, and one pass checks them.

T tokens, V vocabulary, N heads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.generate import Decoder, check_lengths
from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.sampling import GREEDY, Sampling, choose


class Guesser(Decoder, Protocol):
    """Decoder with heads that guess further tokens."""

    @property
    def num_ahead(self) -> int:
        """Number of heads N; 0 = none."""

    def guess(
        self, tokens: NDArray[np.int64], state: Any, first: int
    ) -> tuple[NDArray[np.floating], NDArray[np.int64], Any]:
        """Reads tokens (1, T) after a state, None = from the beginning.

        Returns:
            From the token `first` on, logits (T - first, V) of the token after each and guesses (T - first, N) of the
            tokens after that one; and the next state.
        """


class Speculated(NamedTuple):
    """Tokens of a text, and the number of passes over the model that chose them."""

    tokens: list[int]
    passes: int


def speculate(
    model: Guesser,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    repetition: Repetition = FREE,
    stop_ids: Collection[int] = (),
    on_token: Callable[[int, int], None] | None = None,
) -> Speculated:
    """Continues a prompt as `generate` does for a single row, with fewer passes over the model.

    A guess is kept where it is the token that `choose` takes from the model's logits with the random number of its
    place. So a sampled text too is that of `generate`, and a guess is kept as often as under rejection sampling
    (Leviathan et al. 2023), with the probability that the model gives it. Arguments and errors are as in `generate`.

    No state has to be undone: after a wrong guess the state before the pass stays, and the tokens that it has not read
    are read again in the next pass. After 2 (N + 1) of them a pass without guesses reads them for good.
    """
    check_lengths(model, [prompt], max_new_tokens)
    longest = len(prompt) + max_new_tokens - 1  # the model never reads the last new token
    text, state, read = list(prompt), None, 0  # the state has read text[:read]
    guesses: list[int] = []
    passes = 0
    while len(text) < len(prompt) + max_new_tokens:
        known = len(text)
        if read and known - read > 2 * (model.num_ahead + 1):
            _, _, state = model.guess(np.array([text[read:-1]]), state, known - read - 2)
            read, passes = known - 1, passes + 1
        guesses = guesses[: longest - known]
        logits, further, new_state = model.guess(np.array([[*text[read:], *guesses]]), state, known - read - 1)
        passes += 1
        place = 0
        for guessed in [*guesses, None]:
            scores = repetition.apply(logits[place], text)
            token = choose(scores, sampling, step=len(text) - len(prompt), row=0)
            text.append(token)
            if on_token is not None:
                on_token(0, token)
            if token in stop_ids:
                return Speculated(text[len(prompt) :], passes)
            if token != guessed:
                break
            place += 1
        if place == len(guesses):  # every guess was right
            state, read = new_state, known + place
        guesses = further[place].tolist()
    return Speculated(text[len(prompt) :], passes)
