"""BERT and ViT: the numbers of `transformers`' models with the same weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from models.theirs import padded, ramp, randomly, renamed, transformers
from seqlab.attention import Attention, Bidirectional
from seqlab.models import Classifier, Encoder, MaskedLM
from seqlab.nn import GELU, Block, LayerNorm, TypedEmbedding
from seqlab.positions import Learned
from seqlab_data.images import patches
from tolerances import assert_close

VOCAB_SIZE, SEQ_LEN, D_MODEL, D_FF, NUM_LAYERS, NUM_CLASSES = 53, 19, 24, 40, 2, 5
BERT_NAMES = {
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
VIT_NAMES = {
    "vit.embeddings.cls_token": "class_token",
    "vit.embeddings.position_embeddings": "encoder.positions.table.weight",
    "vit.embeddings.patch_embeddings.projection": "encoder.embedding",
    "vit.layernorm": "encoder.stack.norm",
    "vit.layers.": "encoder.stack.blocks.",
    "attention.o_proj": "mixer.out_proj",
    "attention.": "mixer.",
    "mlp.fc1": "ffn.up_proj",
    "mlp.fc2": "ffn.down_proj",
    "layernorm_before": "mixer_norm",
    "layernorm_after": "ffn_norm",
    "classifier": "head",
}


def encoder(num_heads: int, norm_place: Any, **options: Any) -> Any:
    """Called with vocab_size and max_seq_len."""
    return partial(
        Encoder,
        d_model=D_MODEL,
        num_layers=NUM_LAYERS,
        mixer=partial(Attention, num_heads=num_heads, pattern=Bidirectional),
        positions=Learned,
        block=partial(Block, norm_place=norm_place, ffn=partial(GELU, d_ff=D_FF, exact=True)),
        **options,
    )


def sizes(num_heads: int) -> dict[str, Any]:
    return {
        "hidden_size": D_MODEL,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": num_heads,
        "intermediate_size": D_FF,
        "layer_norm_eps": 1e-5,
        "num_labels": NUM_CLASSES,
    }


def bert(num_heads: int, *, classifier: bool = False) -> tuple[Any, Any]:
    """Ours and theirs, in float64."""
    kind = transformers.BertForSequenceClassification if classifier else transformers.BertForMaskedLM
    config = transformers.BertConfig(vocab_size=VOCAB_SIZE, max_position_embeddings=SEQ_LEN, **sizes(num_heads))
    theirs = randomly(kind(config), torch.float64)
    make = encoder(num_heads, "post", embed=TypedEmbedding, embed_norm=LayerNorm)
    if classifier:
        ours: Any = Classifier(VOCAB_SIZE, NUM_CLASSES, SEQ_LEN, encoder=make, pool="first", pooler=True)
    else:
        ours = MaskedLM(VOCAB_SIZE - 1, SEQ_LEN, encoder=make)
    weights = renamed(theirs, BERT_NAMES)
    # The output layer is the embedding's table, and positions are counted, not stored.
    kept = {name for name in weights if not name.startswith("cls.") and not name.endswith("position_ids")}
    ours.double().eval().load_state_dict({name: weights[name] for name in kept})
    return ours, theirs


@pytest.mark.parametrize("num_heads", [3, 4])
def test_masked_language_modelling(num_heads: int) -> None:
    ours, theirs = bert(num_heads)
    tokens, pad_mask = torch.randint(VOCAB_SIZE, (3, SEQ_LEN)), padded(SEQ_LEN)
    expected, found = theirs(tokens, attention_mask=pad_mask).logits, ours(tokens, pad_mask=pad_mask)
    assert_close(found[pad_mask], expected[pad_mask])
    for logits in (found, expected):
        logits[pad_mask].square().sum().backward()
    assert_close(ours.encoder.embedding.weight.grad, theirs.bert.embeddings.word_embeddings.weight.grad)


@pytest.mark.parametrize("num_heads", [3, 4])
def test_classification_by_the_pooled_first_token(num_heads: int) -> None:
    ours, theirs = bert(num_heads, classifier=True)
    tokens, pad_mask = torch.randint(VOCAB_SIZE, (3, SEQ_LEN)), padded(SEQ_LEN)
    assert_close(ours(tokens, pad_mask=pad_mask), theirs(tokens, attention_mask=pad_mask).logits)


def test_token_types() -> None:
    ours, theirs = bert(4)
    tokens, pad_mask = torch.randint(VOCAB_SIZE, (3, SEQ_LEN)), padded(SEQ_LEN)
    token_types = (torch.arange(SEQ_LEN) > 7).long().expand(3, -1)
    expected = theirs.bert(tokens, attention_mask=pad_mask, token_type_ids=token_types).last_hidden_state
    found = ours.encoder(tokens, pad_mask=pad_mask, token_types=token_types)
    assert_close(found[pad_mask], expected[pad_mask])
    assert (found - ours.encoder(tokens, pad_mask=pad_mask)).abs().max() > 0.1


@pytest.mark.parametrize("num_heads", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vit(num_heads: int, dtype: torch.dtype) -> None:
    config = transformers.ViTConfig(image_size=[8, 12], patch_size=[4, 4], num_channels=3, **sizes(num_heads))
    theirs = randomly(transformers.ViTForImageClassification(config), dtype)
    make = encoder(num_heads, "pre", embed=nn.Linear)
    ours: Any = Classifier(48, NUM_CLASSES, 6, encoder=make, pool="class").to(dtype)
    weights = renamed(theirs, VIT_NAMES)
    weights["class_token"] = weights["class_token"][0, 0]
    weights["encoder.positions.table.weight"] = weights["encoder.positions.table.weight"][0]
    # (D, C, P, P) to (D, P P C): a patch's features are its pixels row by row, a pixel's channels together.
    weights["encoder.embedding.weight"] = weights["encoder.embedding.weight"].permute(0, 2, 3, 1).flatten(1)
    ours.load_state_dict(weights)

    images: Any = np.random.default_rng(0).normal(size=(3, 8, 12, 3))
    expected = theirs(torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype)).logits
    features = torch.from_numpy(patches(images, 4)).to(dtype)
    assert features.shape == (3, 6, 48) and expected.std() > 0.3
    logits = ours(features)
    assert_close(logits, expected)
    assert_close(ramp(logits, ours.class_token), ramp(expected, theirs.vit.embeddings.cls_token)[0, 0], "a gradient")
