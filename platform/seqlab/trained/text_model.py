"""A run as a `TextModel`: texts in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from seqlab.decoding import TextCodec, WrittenIds
from seqlab.decoding.text_model import Generator, TextClassifier, TextModel, TextTagger, Translator, not_of_texts
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import BagOfWords, Classifier, DecoderLM, EncoderDecoder, RNNSeq2Seq, Tagger
from seqlab.trained.load import load_run


def open_text_model(run: str, *, trust: Sequence[str] = ()) -> TextModel:
    """The text model of a run, from its best checkpoint. One of ids that stand for no text is of texts that are ids.

    Args:
        run, trust: as `load_run` takes them.

    Raises:
        ValueError: as `load_run`, or the run's model reads no texts, or neither writes nor names classes.
    """
    loaded = load_run(run, trust=trust)
    model, tokenizer = loaded.model, loaded.tokenizer
    if isinstance(model, DecoderLM):
        codec = TextCodec("prompts", tokenizer or WrittenIds(model.vocab_size), stop_ids=loaded.stop_ids)
        return Generator(run, codec, TorchDecoder(model))
    if tokenizer is None or not isinstance(model, EncoderDecoder | RNNSeq2Seq | BagOfWords | Classifier | Tagger):
        raise not_of_texts(run)
    if isinstance(model, EncoderDecoder | RNNSeq2Seq):
        codec = TextCodec("sources", tokenizer, loaded.source_tokenizer)
        return Translator(run, codec, partial(TorchDecoder.begin, model), loaded.task.seq_len)
    codec = TextCodec("texts", tokenizer, labels=loaded.labels)
    return (TextTagger if isinstance(model, Tagger) else TextClassifier)(run, codec, partial(_probabilities, model))


@torch.inference_mode()
def _probabilities(model: Any, row: list[int]) -> NDArray[Any]:
    """Probabilities of the classes, (C,), or of each token's, (T, C)."""
    found: NDArray[Any] = model(torch.tensor([row])).softmax(dim=-1)[0].numpy()
    return found
