"""Self-speculative decoding: the text of `generate`, in fewer passes over the model."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.attention import Attention, Mamba2, SlidingWindow
from seqlab.batch import IGNORE, TokenBatch
from seqlab.decoding.generate import generate
from seqlab.decoding.repetition import Repetition
from seqlab.decoding.sampling import GREEDY, Sampling
from seqlab.decoding.speculate import speculate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.models.ahead import HeadsAhead
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab.tasks import LanguageModeling
from seqlab.tasks.language_modeling import further
from tolerances import assert_close

VOCAB_SIZE, PROMPT, MOST = 13, [3, 1, 4], 25
MODELS: dict[str, dict[str, Any]] = {
    "GRU": {"mixer": GRU, "positions": NoPositions},
    "attention": {"mixer": Attention, "positions": RoPE},
    "window": {"mixer": partial(Attention, pattern=partial(SlidingWindow, window=5)), "positions": RoPE},
    "learned": {"mixer": Attention, "positions": Learned},
    "Mamba-2": {"mixer": partial(Mamba2, head_dim=4), "positions": NoPositions},
}
DRAWN = Sampling(temperature=1.0, top_k=6, seed=7)


def _decoder(name: str, num_ahead: int = 3) -> TorchDecoder:
    model = DecoderLM(VOCAB_SIZE, len(PROMPT) + MOST - 1, d_model=8, num_ahead=num_ahead, **MODELS[name]).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return TorchDecoder(model)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": GREEDY},
        {"sampling": DRAWN},
        {"sampling": DRAWN, "stop_ids": [2]},
        {"sampling": GREEDY, "repetition": Repetition(penalty=1.3, ngram=3)},
    ],
    ids=["greedy", "drawn", "stopped", "penalised"],
)
@pytest.mark.parametrize("name", MODELS)
def test_the_text_is_that_of_generate(name: str, options: dict[str, Any]) -> None:
    decoder = _decoder(name)
    seen: list[int] = []
    text = speculate(decoder, PROMPT, max_new_tokens=MOST, on_token=lambda row, token: seen.append(token), **options)
    assert [text.tokens] == generate(decoder, [PROMPT], max_new_tokens=MOST, **options) and seen == text.tokens
    assert text.passes <= MOST + MOST // 8  # at worst a token a pass, and the passes that catch up


class Told(TorchDecoder):
    """Guesses the text that it is told, every `wrong`-th guess wrongly."""

    def __init__(self, decoder: TorchDecoder, text: list[int], wrong: int) -> None:
        super().__init__(decoder.model)
        self.text, self.wrong, self.read = text, wrong, [0]

    def guess(self, tokens: Any, state: Any, first: int) -> Any:
        self.read.append(tokens.shape[1])
        begins = 0 if state is None else int(state["position"][0])
        logits, guesses, new_state = super().guess(tokens, state, first)
        for place in range(len(guesses)):
            for k in range(self.num_ahead):
                at = begins + first + place + 2 + k
                token = self.text[at] if at < len(self.text) else 0
                guesses[place, k] = token if at % self.wrong else (token + 1) % VOCAB_SIZE
        return logits, guesses, new_state


@pytest.mark.parametrize("name", MODELS)
def test_right_guesses_save_passes(name: str) -> None:
    decoder = _decoder(name)
    [text] = generate(decoder, [PROMPT], max_new_tokens=MOST)
    told = Told(decoder, PROMPT + text, wrong=10**6)
    found = speculate(told, PROMPT, max_new_tokens=MOST)
    # The prompt's pass chooses one token, each of the others four.
    assert found == (text, 1 + (MOST - 1) // 4)
    assert max(told.read[2:]) == 4
    for wrong in (2, 3, 5):
        told = Told(decoder, PROMPT + text, wrong)
        found = speculate(told, PROMPT, max_new_tokens=MOST)
        assert found.tokens == text and found.passes < MOST
        # At most 8 tokens that the state has not read, one more chosen, and three guesses.
        assert max(told.read[2:]) <= 8 + 3


def test_wrong_guesses_cost_at_most_a_pass_a_token_and_those_that_catch_up() -> None:
    decoder = _decoder("attention")
    [text] = generate(decoder, [PROMPT], max_new_tokens=MOST)
    told = Told(decoder, PROMPT + text, wrong=1)
    found = speculate(told, PROMPT, max_new_tokens=MOST)
    assert found.tokens == text and MOST < found.passes <= MOST + MOST // 8


def test_a_model_without_room_reads_no_further() -> None:
    """Learned positions end with the text."""
    decoder = _decoder("learned")
    assert decoder.max_seq_len == len(PROMPT) + MOST - 1
    assert len(speculate(decoder, PROMPT, max_new_tokens=MOST).tokens) == MOST
    with pytest.raises(ValueError, match="the model has"):
        speculate(decoder, PROMPT, max_new_tokens=MOST + 1)


def test_heads_begin_as_the_model() -> None:
    model = DecoderLM(VOCAB_SIZE, 8, d_model=8, num_ahead=2)
    assert isinstance(model.ahead, HeadsAhead)
    x = torch.randn(2, 5, 8)
    assert_close(model.ahead(x), x.unsqueeze(-2).expand(2, 5, 2, 8))
    assert DecoderLM(VOCAB_SIZE, 8).ahead is None
    with pytest.raises(ValueError, match="num_ahead must be at least 0, got -1"):
        DecoderLM(VOCAB_SIZE, 8, num_ahead=-1)
    with pytest.raises(ValueError, match="ahead_weight must be at least 0, got -1"):
        LanguageModeling(VOCAB_SIZE, 8, ahead_weight=-1.0)


def test_a_head_is_trained_on_the_token_that_it_predicts() -> None:
    """Medusa's head k, against a loop over positions."""
    model = partial(DecoderLM, d_model=8, num_ahead=2)
    task: Any = LanguageModeling(VOCAB_SIZE, 8, model=model, ahead_weight=0.5).double()
    for layer in task.model.ahead.layers:
        torch.nn.init.normal_(layer.weight)
    tokens, targets = torch.randint(VOCAB_SIZE, (2, 2, 8))
    targets[1, :3] = IGNORE
    documents = torch.tensor([[0] * 8, [0] * 5 + [1] * 3])
    batch = TokenBatch(tokens, targets, torch.ones(2), documents=documents)
    total, count = task.loss(batch)
    x, _ = task.model(tokens, documents=documents, features=True)
    expected = torch.zeros((), dtype=torch.float64)
    for k, layer in enumerate(task.model.ahead.layers, start=1):
        for row, t in np.ndindex(2, 8 - k):
            if targets[row, t] != IGNORE and documents[row, t] == documents[row, t + k]:
                mapped = x[row, t] + torch.nn.functional.silu(layer(x[row, t]))
                expected = expected + 0.25 * torch.nn.functional.cross_entropy(
                    task.model.output(mapped), targets[row, t + k]
                )
    task.ahead_weight = 0.0
    plain, same = task.loss(batch)
    assert count == same == 13
    assert_close(total, plain + expected)
    assert further(batch, 9).eq(IGNORE).all()
