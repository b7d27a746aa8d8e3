"""Text in, text out, with the project's own tokenizers."""

from __future__ import annotations

import pytest

from seqlab.attention import Attention
from seqlab.decoding import Sampling, generate, generate_text
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer


@pytest.fixture(params=["byte", "char"], name="tokenizer")
def _tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return ByteTokenizer() if request.param == "byte" else CharTokenizer("abc é\n")


def decoder(tokenizer: Tokenizer) -> TorchDecoder:
    return TorchDecoder(DecoderLM(tokenizer.vocab_size, 64, d_model=16, mixer=Attention))


def test_text_is_the_decoded_tokens_and_streams(tokenizer: Tokenizer) -> None:
    model = decoder(tokenizer)
    pieces: list[str] = []
    options = {"max_new_tokens": 30, "sampling": Sampling(seed=3)}
    text = generate_text(model, tokenizer, "abé", on_text=pieces.append, **options)  # type: ignore[arg-type]
    [tokens] = generate(model, [tokenizer.encode("abé")], stop_ids=(tokenizer.eos_id, tokenizer.bos_id), **options)  # type: ignore[arg-type]
    assert text == tokenizer.decode(tokens) == "".join(pieces)
    assert len(text) > 5 and all(pieces)


def test_an_empty_prompt_starts_a_document(tokenizer: Tokenizer) -> None:
    model = decoder(tokenizer)
    [tokens] = generate(model, [[tokenizer.bos_id]], max_new_tokens=8, stop_ids=(tokenizer.eos_id, tokenizer.bos_id))
    assert generate_text(model, tokenizer, "", max_new_tokens=8) == tokenizer.decode(tokens)


def test_a_document_ends_where_the_next_begins() -> None:
    tokenizer = CharTokenizer("abc é\n")
    model, options = decoder(tokenizer), {"max_new_tokens": 60, "sampling": Sampling(seed=1)}
    [whole] = generate(model, [tokenizer.encode("a")], **options)  # type: ignore[arg-type]
    document = whole[: whole.index(tokenizer.bos_id)]
    assert document and tokenizer.eos_id not in document
    assert generate_text(model, tokenizer, "a", **options) == tokenizer.decode(document)  # type: ignore[arg-type]
