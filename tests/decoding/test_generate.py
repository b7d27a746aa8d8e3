"""The decoding loop over a real model: the cache, the batch and the padding change nothing; and text in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from contracts.cases import D_MODEL, MIXERS, MixerCase
from contracts.subjects import VOCAB_SIZE, decoder_subject
from seqlab.attention import Attention
from seqlab.decoding import GREEDY, Sampling, TextCodec, beam_search, choose, generate, padded_right
from seqlab.decoding.text_model import Generator
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer

MODELS = {"attention": (Attention, RoPE), "learned": (Attention, Learned), "gru": (GRU, NoPositions)}
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 2], [3, 3]]
SAMPLINGS = [Sampling(temperature=1.3, seed=4), Sampling(top_k=4, top_p=0.9, seed=2**63 + 5)]


@pytest.fixture(params=MODELS, name="model")
def _model(request: pytest.FixtureRequest) -> DecoderLM:
    mixer, positions = MODELS[request.param]
    module: DecoderLM = decoder_subject(mixer, positions).module
    return module


def whole_sequences(model: DecoderLM, prompt: list[int], count: int, sampling: Sampling, row: int) -> list[int]:
    """Decoding without a cache, a state or a batch."""
    tokens = list(prompt)
    for step in range(count):
        with torch.no_grad():
            logits, _ = model(torch.tensor([tokens]))
        tokens.append(choose(logits[0, -1].numpy(), sampling, step=step, row=row))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["sampled", "cut"])
def test_batched_and_cached_equals_one_by_one_and_uncached(model: DecoderLM, sampling: Sampling) -> None:
    batched = generate(TorchDecoder(model), PROMPTS, max_new_tokens=12, sampling=sampling)
    assert batched == [whole_sequences(model, prompt, 12, sampling, row) for row, prompt in enumerate(PROMPTS)]


def kinds(case: MixerCase) -> tuple[Any, ...]:
    """The first call and the entries of a mixer's state."""
    mixer = case.factory(D_MODEL, 0)
    return mixer.first_call, *((entry.kind, len(entry.dims), entry.dtype) for entry in mixer.state_spec())


ONE_OF_EACH = {kinds(case): case for case in MIXERS if case.causal and not case.memory}


@pytest.mark.parametrize("case", ONE_OF_EACH.values(), ids=lambda case: case.name)
def test_over_every_make_of_state(case: MixerCase) -> None:
    """Ragged prompts padded on the left, a cache and a batch change nothing, and a beam of one is greedy."""
    model = decoder_subject(case.factory, RoPE if case.attends else NoPositions).module
    # A prefix that sees itself whole is read in one call.
    prompts = [prompt for prompt in PROMPTS if len(prompt) >= model.first_call]
    decoder = TorchDecoder(model)
    greedy = generate(decoder, prompts, max_new_tokens=6)
    assert greedy == [whole_sequences(model, prompt, 6, GREEDY, row) for row, prompt in enumerate(prompts)]
    found = beam_search(decoder, prompts, beams=1, max_new_tokens=6)
    assert [best.tokens for [best] in found] == greedy


def test_seeds_reproduce_and_differ_and_rows_end_with_their_own_eos(model: DecoderLM) -> None:
    def text(seed: int, **options: Any) -> list[list[int]]:
        return generate(TorchDecoder(model), PROMPTS, max_new_tokens=15, sampling=Sampling(seed=seed), **options)

    free = text(3)
    assert text(3) == free != text(2)
    eos_id = free[0][4]
    ended = text(3, stop_ids=[eos_id])
    for tokens, whole in zip(ended, free, strict=True):
        assert tokens == (whole[: whole.index(eos_id) + 1] if eos_id in whole else whole)
    assert len({len(tokens) for tokens in ended}) > 1


def test_on_token_sees_each_token_as_it_is_chosen(model: DecoderLM) -> None:
    seen: list[tuple[int, int]] = []
    tokens = generate(
        TorchDecoder(model), PROMPTS[:2], max_new_tokens=4, on_token=lambda row, token: seen.append((row, token))
    )
    assert seen == [(row, tokens[row][step]) for step in range(4) for row in range(2)]


def test_it_stops_calling_the_model_when_all_rows_have_ended() -> None:
    class Counting:
        vocab_size, max_seq_len, steps = 3, None, 0

        def prefill(self, tokens: np.ndarray, pad_mask: np.ndarray) -> tuple[np.ndarray, None]:
            return np.array([[0.0, 1.0, 0.0]]), None

        def step(self, tokens: np.ndarray, state: None) -> tuple[np.ndarray, None]:
            self.steps += 1
            return np.array([[0.0, 0.0, 1.0]]), None

    model = Counting()
    assert generate(model, [[0]], max_new_tokens=50, stop_ids=[2]) == [[1, 2]]
    assert model.steps == 1
    assert generate(model, [[0]], max_new_tokens=1) == [[1]]
    assert model.steps == 1


def test_the_last_position_is_used_and_no_more() -> None:
    model = DecoderLM(VOCAB_SIZE, 8, d_model=D_MODEL, mixer=Attention, positions=Learned)
    decoder = TorchDecoder(model)
    assert len(generate(decoder, [[1, 2, 3]], max_new_tokens=6)[0]) == 6  # the sixth new token is never read
    with pytest.raises(ValueError, match="3 tokens and 7 new ones need 9 positions, the model has 8"):
        generate(decoder, [[1, 2, 3]], max_new_tokens=7)


@pytest.mark.parametrize(
    ("prompts", "count", "message"),
    [
        ([], 1, "there is no prompt"),
        ([[1], []], 1, "prompt 1 is empty"),
        ([[1, VOCAB_SIZE]], 1, f"prompt 0 has token {VOCAB_SIZE}, outside the vocabulary"),
        ([[-1]], 1, "prompt 0 has token -1"),
        ([[1]], 0, "max_new_tokens must be at least 1, got 0"),
    ],
)
def test_bad_requests_are_refused(prompts: list[list[int]], count: int, message: str) -> None:
    model = DecoderLM(VOCAB_SIZE, 8, d_model=D_MODEL, mixer=GRU, positions=NoPositions)
    with pytest.raises(ValueError, match=message):
        generate(TorchDecoder(model), prompts, max_new_tokens=count)


@pytest.mark.parametrize("rows", [[], [[3]], [[5, 6, 7], [0], [9, 9]], [[], [4]]])
def test_rows_are_padded_on_the_right(rows: list[list[int]]) -> None:
    tokens, mask = padded_right(rows)
    assert tokens.shape == mask.shape == (len(rows), max(map(len, rows), default=0)) and tokens.dtype == np.int64
    assert [row[real].tolist() for row, real in zip(tokens, mask, strict=True)] == rows
    assert not tokens[~mask].any() and all((np.diff(row.astype(int)) <= 0).all() for row in mask)


@pytest.fixture(params=["byte", "char"], name="tokenizer")
def _tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return ByteTokenizer() if request.param == "byte" else CharTokenizer("abc é\n")


def text_decoder(tokenizer: Tokenizer) -> TorchDecoder:
    return TorchDecoder(DecoderLM(tokenizer.vocab_size, 64, d_model=16, mixer=Attention))


def write(model: TorchDecoder, tokenizer: Tokenizer, prompt: str, **options: Any) -> str:
    return Generator("a model", TextCodec("prompts", tokenizer), model).write(prompt, **options)


def test_text_is_the_decoded_tokens_and_streams(tokenizer: Tokenizer) -> None:
    model = text_decoder(tokenizer)
    pieces: list[str] = []
    text = write(model, tokenizer, "abé", on_text=pieces.append, max_new_tokens=30, seed=3)
    options: dict[str, Any] = {"max_new_tokens": 30, "sampling": Sampling(seed=3)}
    [tokens] = generate(model, [tokenizer.encode("abé")], stop_ids=(tokenizer.eos_id, tokenizer.bos_id), **options)
    assert text == tokenizer.decode(tokens) == "".join(pieces)
    assert len(text) > 5 and all(pieces)


def test_an_empty_prompt_starts_a_document(tokenizer: Tokenizer) -> None:
    model = text_decoder(tokenizer)
    [tokens] = generate(model, [[tokenizer.bos_id]], max_new_tokens=8, stop_ids=(tokenizer.eos_id, tokenizer.bos_id))
    assert write(model, tokenizer, "", max_new_tokens=8, temperature=0) == tokenizer.decode(tokens)


def test_a_document_ends_where_the_next_begins() -> None:
    tokenizer = CharTokenizer("abc é\n")
    model = text_decoder(tokenizer)
    [whole] = generate(model, [tokenizer.encode("a")], max_new_tokens=60, sampling=Sampling(seed=1))
    document = whole[: whole.index(tokenizer.bos_id)]
    assert document and tokenizer.eos_id not in document
    assert write(model, tokenizer, "a", max_new_tokens=60, seed=1) == tokenizer.decode(document)
