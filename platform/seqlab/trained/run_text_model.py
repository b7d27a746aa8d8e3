"""A run as a `TextModel`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from seqlab.decoding import TextCodec, WrittenIds
from seqlab.decoding.text_model import Generator, TextClassifier, TextModel, TextTagger, Translator, not_of_texts
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models.kind import kind_of
from seqlab.nn.lora import merge
from seqlab.trained.load import load_run


def open_text_model(run: str, *, trust: Sequence[str] = ()) -> TextModel:
    """Opens a run's best checkpoint as a text model. If a language model has no tokenizer, its texts are written ids.

    Args:
        run, trust: arguments of `load_run`.

    Raises:
        ValueError: as `load_run`, or the run's model does not read texts, or neither generates nor classifies.
    """
    loaded = load_run(run, trust=trust)
    merge(loaded.model)  # else each step would compute every update again
    model, tokenizer, kind = loaded.model, loaded.tokenizer, kind_of(loaded.model)
    if kind is not None and kind.reads == "prompts":
        codec = TextCodec("prompts", tokenizer or WrittenIds(model.vocab_size), stop_ids=loaded.stop_ids)
        return Generator(run, codec, TorchDecoder(model))
    if tokenizer is None or kind is None or not (kind.decodes or kind.labels):
        raise not_of_texts(run)
    if kind.decodes:
        codec = TextCodec("sources", tokenizer, loaded.source_tokenizer)
        return Translator(run, codec, partial(TorchDecoder.begin, model), loaded.task.seq_len)
    codec = TextCodec("texts", tokenizer, labels=loaded.labels)
    return (TextTagger if kind.labels == "token" else TextClassifier)(run, codec, partial(_probabilities, model))


@torch.inference_mode()
def _probabilities(model: Any, row: list[int]) -> NDArray[Any]:
    """Class probabilities of the text, (C,), or of each token, (T, C)."""
    found: NDArray[Any] = model(torch.tensor([row])).softmax(dim=-1)[0].numpy()
    return found
