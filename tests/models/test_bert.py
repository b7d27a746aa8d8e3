"""BERT: the published sizes, and the numbers of `transformers`' models with the same weights."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention, Bidirectional
from seqlab.config.configs import build, config_path, load_short_yaml
from seqlab.models import Classifier, Encoder, MaskedLM
from seqlab.nn import GELU, Block, LayerNorm, TypedEmbedding
from seqlab.positions import Learned
from tolerances import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

VOCAB_SIZE, SEQ_LEN, D_MODEL, D_FF, NUM_LAYERS, NUM_CLASSES = 53, 19, 24, 40, 2, 5
NAMES = {
    "bert.embeddings.word_embeddings": "encoder.embedding",
    "bert.embeddings.token_type_embeddings": "encoder.embedding.types",
    "bert.embeddings.position_embeddings": "encoder.positions.table",
    "bert.embeddings.LayerNorm": "encoder.embed_norm",
    "bert.encoder.layer.": "encoder.stack.blocks.",
    "attention.self.query": "mixer.q_proj",
    "attention.self.key": "mixer.k_proj",
    "attention.self.value": "mixer.v_proj",
    "attention.output.dense": "mixer.out_proj",
    "attention.output.LayerNorm": "mixer_norm",
    "intermediate.dense": "ffn.up_proj",
    "output.dense": "ffn.down_proj",
    "output.LayerNorm": "ffn_norm",
    "bert.pooler.dense": "pooler.0",
    "classifier": "head",
    "cls.predictions.transform.dense": "transform",
    "cls.predictions.transform.LayerNorm": "norm",
    "cls.predictions.bias": "bias",
}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("name", "expected"), [("bert-base", 109_482_240), ("bert-large", 335_141_888)])
def test_the_presets_have_the_published_sizes(name: str, expected: int) -> None:
    config = load_short_yaml(config_path(f"presets/{name}").read_text(encoding="utf-8"))
    with torch.device("meta"):
        task, _ = build(config, {"vocab_size": 30_521, "seq_len": 512})
        encoder = task.model.encoder
        classifier = Classifier(8, 2, 8, encoder=lambda vocab_size, seq_len: encoder, pool="first", pooler=True)
    assert count(classifier.encoder) + count(classifier.pooler) == expected


def bert(num_heads: int) -> Any:
    """Called with vocab_size and max_seq_len."""
    return partial(
        Encoder,
        d_model=D_MODEL,
        num_layers=NUM_LAYERS,
        mixer=partial(Attention, num_heads=num_heads, pattern=Bidirectional),
        positions=Learned,
        block=partial(Block, norm_place="post", ffn=partial(GELU, d_ff=D_FF, exact=True)),
        embed=TypedEmbedding,
        embed_norm=LayerNorm,
    )


def theirs(kind: Any, num_heads: int) -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=D_MODEL,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=num_heads,
        intermediate_size=D_FF,
        max_position_embeddings=SEQ_LEN,
        layer_norm_eps=1e-5,
        num_labels=NUM_CLASSES,
    )
    model = kind(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def given(model: nn.Module, source: nn.Module) -> nn.Module:
    """The model with the other's weights, in float64."""
    weights = {}
    for name, weight in source.state_dict().items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        weights[name] = weight
    # The output layer is the embedding's table, and positions are counted, not stored.
    for name in [name for name in weights if name.startswith("cls.") or name.endswith("position_ids")]:
        del weights[name]
    model.double().eval().load_state_dict(weights)
    return model


def inputs() -> tuple[Tensor, Tensor]:
    tokens, pad_mask = torch.randint(VOCAB_SIZE, (3, SEQ_LEN)), torch.ones(3, SEQ_LEN, dtype=torch.bool)
    pad_mask[1, 11:] = False
    return tokens, pad_mask


@pytest.mark.parametrize("num_heads", [3, 4])
def test_masked_language_modelling(num_heads: int) -> None:
    reference = theirs(transformers.BertForMaskedLM, num_heads)
    ours: Any = given(MaskedLM(VOCAB_SIZE - 1, SEQ_LEN, encoder=bert(num_heads)), reference)
    tokens, pad_mask = inputs()
    expected = reference(tokens, attention_mask=pad_mask).logits
    found = ours(tokens, pad_mask=pad_mask)
    assert_close(found[pad_mask], expected[pad_mask])
    for logits in (found, expected):
        logits[pad_mask].square().sum().backward()
    assert_close(ours.encoder.embedding.weight.grad, reference.bert.embeddings.word_embeddings.weight.grad)


@pytest.mark.parametrize("num_heads", [3, 4])
def test_classification_by_the_pooled_first_token(num_heads: int) -> None:
    reference = theirs(transformers.BertForSequenceClassification, num_heads)
    model = Classifier(VOCAB_SIZE, NUM_CLASSES, SEQ_LEN, encoder=bert(num_heads), pool="first", pooler=True)
    ours = given(model, reference)
    tokens, pad_mask = inputs()
    assert_close(ours(tokens, pad_mask=pad_mask), reference(tokens, attention_mask=pad_mask).logits)


def test_token_types() -> None:
    reference = theirs(transformers.BertForMaskedLM, 4)
    ours = given(MaskedLM(VOCAB_SIZE - 1, SEQ_LEN, encoder=bert(4)), reference)
    tokens, pad_mask = inputs()
    token_types = (torch.arange(SEQ_LEN) > 7).long().expand(3, -1)
    expected = reference.bert(tokens, attention_mask=pad_mask, token_type_ids=token_types).last_hidden_state
    found = ours.encoder(tokens, pad_mask=pad_mask, token_types=token_types)
    assert_close(found[pad_mask], expected[pad_mask])
    assert (found - ours.encoder(tokens, pad_mask=pad_mask)).abs().max() > 0.1
