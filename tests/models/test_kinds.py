"""Each model's kind is what the model has: steps, a source, an embedding, labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import seqlab.models
from seqlab.attention import Attention, Bidirectional
from seqlab.models import MODELS, Encoder
from seqlab.models.kind import kind_of

SIZES = {"vocab_size": 7, "target_vocab_size": 7, "num_classes": 3, "max_seq_len": 8}
ENCODER = partial(Encoder, d_model=8, num_layers=1, mixer=partial(Attention, num_heads=2, pattern=Bidirectional))


def built(model: Any) -> nn.Module:
    names = model.__init__.__annotations__
    given = {name: size for name, size in SIZES.items() if name in names}
    return model(**given, **({"encoder": ENCODER} if "encoder" in names else {"d_model": 8}))


def test_every_model_has_a_kind() -> None:
    public = {getattr(seqlab.models, name) for name in seqlab.models.__all__}
    modules = {found for found in public if isinstance(found, type) and issubclass(found, nn.Module)}
    assert modules - {Encoder} == {*MODELS} == {model for model in modules if kind_of(model)}
    assert kind_of(nn.Linear(1, 1)) is kind_of(None) is None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_kind_is_what_the_model_has(model: Any) -> None:
    made, kind = built(model), model.kind
    assert kind.decodes == hasattr(made, "step") and (kind.reads == "sources") == hasattr(made, "begin")
    assert isinstance(made.get_submodule(kind.embedded_by), nn.Embedding)
    assert {*kind.once} <= {name for name, _ in made.named_children()} | {"context_proj"}
    if not kind.decodes:
        labels = {(2, 3): "text", (2, 5, 3): "token"}
        assert labels.get(tuple(made(torch.zeros(2, 5, dtype=torch.int64)).shape)) == kind.labels
