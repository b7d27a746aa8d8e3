"""Beam search against greedy decoding, all texts there are, and a search without cache, state or batch."""

from __future__ import annotations

import math
from functools import partial
from itertools import product, zip_longest
from typing import Any

import numpy as np
import pytest
import torch

from contracts.subjects import VOCAB_SIZE, decoder_subject
from models.test_sequence_to_sequence import MODELS as PAIR_MODELS
from models.test_sequence_to_sequence import built
from seqlab.attention import Attention
from seqlab.decoding import Hypothesis, beam_search, generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
STOPS = (2, 7)


@pytest.fixture(params=[(Attention, RoPE), (GRU, NoPositions)], ids=["attention", "gru"], name="model")
def _model(request: pytest.FixtureRequest) -> Any:
    return decoder_subject(*request.param, tie_embeddings=False).module


def log_probs(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens]))[0][0, -1].log_softmax(-1)


def search_alone(model: Any, prompt: list[int], beams: int, count: int, penalty: float) -> list[Hypothesis]:
    """Search by the docstring of `beam_search`, for one prompt, with everything recomputed."""
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for step in range(count):
        ways = []
        for beam, (score, tokens) in enumerate(going):
            found = log_probs(model, [*prompt, *tokens]).tolist()
            ways += [(-(score + p), beam, token, [*tokens, token]) for token, p in enumerate(found)]
        ways.sort()
        next_going: list[tuple[float, list[int]]] = []
        for rank, (negative, _, token, tokens) in enumerate(ways):
            ends = token in STOPS or step == count - 1
            if ends and rank < beams and len(next_going) < beams:
                finished.append(Hypothesis(tokens, -negative / len(tokens) ** penalty))
            elif not ends and len(next_going) < beams:
                next_going.append((-negative, tokens))
        going = next_going
        best = max((found.score for found in finished), default=-math.inf)
        if len(finished) >= beams and all(score / (step + 1) ** penalty <= best for score, _ in going):
            break
    return sorted(finished, key=lambda found: -found.score)[:beams]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("beams", [1, 2, 5])
def test_each_prompt_is_searched_as_if_alone_without_a_cache(model: Any, beams: int, penalty: float) -> None:
    options: Any = {"beams": beams, "max_new_tokens": 6, "stop_ids": STOPS, "length_penalty": penalty}
    found = beam_search(TorchDecoder(model), PROMPTS, **options)
    for hypotheses, prompt in zip(found, PROMPTS, strict=True):
        expected = search_alone(model, prompt, beams, 6, penalty)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-9)


class Steady:
    """Says of every next token: stop with 25%, token 1 with 70%, token 2 with 5%."""

    vocab_size, max_seq_len, first_call = 3, None, 1

    def prefill(self, tokens: Any, pad_mask: Any) -> Any:
        return np.log(np.tile([0.25, 0.7, 0.05], (len(tokens), 1))), None

    def step(self, tokens: Any, state: Any) -> Any:
        return self.prefill(tokens, None)

    def select(self, state: Any, rows: Any) -> Any:
        return None


@pytest.mark.parametrize(("penalty", "expected"), [(0.0, [0]), (1.0, [1] * 6)])
def test_short_texts_from_behind_do_not_end_a_search(penalty: float, expected: list[int]) -> None:
    """Stopping at once has ln 0.25 = -1.39; six times token 1 have 6 ln 0.7 = -2.14, or -0.36 each. After two steps two
    have stopped, with less each."""
    model: Any = Steady()
    options: Any = {"beams": 2, "max_new_tokens": 6, "stop_ids": [0], "length_penalty": penalty}
    [[best, _]] = beam_search(model, [[1]], **options)
    assert best.tokens == expected
    assert best.score == pytest.approx(
        sum(math.log((0.25, 0.7)[token]) for token in expected) / len(expected) ** penalty
    )


class Counting(TorchDecoder):
    """Remembers how many rows each step read."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.rows: list[int] = []

    def step(self, tokens: Any, state: Any) -> Any:
        self.rows.append(len(tokens))
        return super().step(tokens, state)


def test_a_prompt_that_is_done_is_read_no_further(model: Any) -> None:
    def rows_of(prompts: list[list[int]]) -> list[int]:
        decoder = Counting(model)
        beam_search(decoder, prompts, beams=2, max_new_tokens=12, stop_ids=range(4), length_penalty=0.0)
        return decoder.rows

    prompts = [*PROMPTS, [1], [8, 3], [6, 6, 2]]
    alone = [rows_of([prompt]) for prompt in prompts]
    assert len({*map(len, alone)}) > 1, "some are done before others"
    assert rows_of(prompts) == [sum(rows) for rows in zip_longest(*alone, fillvalue=0)]


@pytest.mark.parametrize("name", PAIR_MODELS)
def test_one_beam_is_greedy_over_every_model_with_a_source(name: str) -> None:
    model, source, mask, _ = built(name)
    decoder, prompts = TorchDecoder(model, model.begin(source, mask)), [[1]] * 3
    options: Any = {"max_new_tokens": 6, "stop_ids": STOPS}
    best = beam_search(decoder, prompts, beams=1, **options)
    assert [found.tokens for [found] in best] == generate(decoder, prompts, **options)
    several = beam_search(decoder, prompts, beams=4, **options)
    for row in range(3):
        start = model.begin(source[row : row + 1, : int(mask[row].sum())])
        [alone] = beam_search(TorchDecoder(model, start), [[1]], beams=4, **options)
        assert [h.tokens for h in alone] == [h.tokens for h in several[row]]


def test_with_enough_beams_the_best_of_all_texts_are_found(model: Any) -> None:
    prompt, count = [3, 1], 3
    texts = list(product(range(VOCAB_SIZE), repeat=count))
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens] for tokens in texts]))[0][:, len(prompt) - 1 : -1]
    told = logits.log_softmax(-1).gather(2, torch.tensor(texts)[..., None]).sum(dim=(1, 2)) / count
    scores = dict(zip(texts, told.tolist(), strict=True))
    best = sorted(scores, key=lambda tokens: -scores[tokens])[:10]
    [found] = beam_search(TorchDecoder(model), [prompt], beams=VOCAB_SIZE**2, max_new_tokens=count)
    assert [tuple(h.tokens) for h in found[:10]] == best
    assert found[0].score == pytest.approx(scores[best[0]], abs=1e-9)


def test_more_beams_than_tokens_and_none(model: Any) -> None:
    search = partial(beam_search, TorchDecoder(model), [[1]], max_new_tokens=1)
    assert sorted(h.tokens[0] for h in search(beams=50)[0]) == list(range(VOCAB_SIZE))
    with pytest.raises(ValueError, match="beams must be at least 1, got 0"):
        search(beams=0)
