"""Text in, text out, with the project's own tokenizers."""

from __future__ import annotations

from typing import Any

import pytest

from seqlab.attention import Attention
from seqlab.decoding import Sampling, TextCodec, generate
from seqlab.decoding.text_model import Generator
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer


@pytest.fixture(params=["byte", "char"], name="tokenizer")
def _tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return ByteTokenizer() if request.param == "byte" else CharTokenizer("abc é\n")


def decoder(tokenizer: Tokenizer) -> TorchDecoder:
    return TorchDecoder(DecoderLM(tokenizer.vocab_size, 64, d_model=16, mixer=Attention))


def write(model: TorchDecoder, tokenizer: Tokenizer, prompt: str, **options: Any) -> str:
    return Generator("a model", TextCodec("prompts", tokenizer), model).write(prompt, **options)


def test_text_is_the_decoded_tokens_and_streams(tokenizer: Tokenizer) -> None:
    model = decoder(tokenizer)
    pieces: list[str] = []
    text = write(model, tokenizer, "abé", on_text=pieces.append, max_new_tokens=30, seed=3)
    options: dict[str, Any] = {"max_new_tokens": 30, "sampling": Sampling(seed=3)}
    [tokens] = generate(model, [tokenizer.encode("abé")], stop_ids=(tokenizer.eos_id, tokenizer.bos_id), **options)
    assert text == tokenizer.decode(tokens) == "".join(pieces)
    assert len(text) > 5 and all(pieces)


def test_an_empty_prompt_starts_a_document(tokenizer: Tokenizer) -> None:
    model = decoder(tokenizer)
    [tokens] = generate(model, [[tokenizer.bos_id]], max_new_tokens=8, stop_ids=(tokenizer.eos_id, tokenizer.bos_id))
    assert write(model, tokenizer, "", max_new_tokens=8, temperature=0) == tokenizer.decode(tokens)


def test_a_document_ends_where_the_next_begins() -> None:
    tokenizer = CharTokenizer("abc é\n")
    model = decoder(tokenizer)
    [whole] = generate(model, [tokenizer.encode("a")], max_new_tokens=60, sampling=Sampling(seed=1))
    document = whole[: whole.index(tokenizer.bos_id)]
    assert document and tokenizer.eos_id not in document
    assert write(model, tokenizer, "a", max_new_tokens=60, seed=1) == tokenizer.decode(document)
