"""The classifier over patches is ViT: its published size, and the logits of `transformers`' with the same weights."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.models import BagOfWords, Classifier, Encoder, EncoderDecoder
from seqlab.models.classifier import prepended
from seqlab.nn import GELU, Block
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU, Mamba
from seqlab_data.images import patches
from tolerances import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

D_MODEL, NUM_LAYERS, D_FF, NUM_CLASSES = 24, 2, 40, 5
NAMES = {
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


def vit(
    num_features: int, num_classes: int, seq_len: int, *, d_model: int, num_layers: int, **options: int
) -> Classifier:
    """`options` are num_heads and d_ff."""
    encoder = partial(
        Encoder,
        embed=nn.Linear,
        d_model=d_model,
        num_layers=num_layers,
        mixer=partial(Attention, num_heads=options["num_heads"], pattern=Bidirectional),
        positions=Learned,
        block=partial(Block, ffn=partial(GELU, d_ff=options["d_ff"], exact=True)),
    )
    return Classifier(num_features, num_classes, seq_len, encoder=encoder, pool="class")


def test_vit_b_16_has_its_published_size() -> None:
    """86,567,656 parameters at 224 x 224 pixels and 1,000 classes (torchvision's and timm's ViT-B/16)."""
    with torch.device("meta"):
        model = vit(16 * 16 * 3, 1000, 14 * 14, d_model=768, num_layers=12, num_heads=12, d_ff=3072)
    assert sum(parameter.numel() for parameter in model.parameters()) == 86_567_656


@pytest.mark.parametrize("num_heads", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_and_gradients_are_transformers(num_heads: int, dtype: torch.dtype) -> None:
    config = transformers.ViTConfig(
        image_size=[8, 12],
        patch_size=[4, 4],
        num_channels=3,
        hidden_size=D_MODEL,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=num_heads,
        intermediate_size=D_FF,
        layer_norm_eps=1e-5,
        num_labels=NUM_CLASSES,
    )
    theirs = transformers.ViTForImageClassification(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    theirs = theirs.to(dtype).eval()
    ours: Any = vit(48, NUM_CLASSES, 6, d_model=D_MODEL, num_layers=NUM_LAYERS, num_heads=num_heads, d_ff=D_FF)
    ours.to(dtype)
    weights = {}
    for name, weight in theirs.state_dict().items():
        for their_name, our_name in NAMES.items():
            name = name.replace(their_name, our_name)
        weights[name] = weight
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
    ramp = torch.linspace(-1, 1, logits.numel(), dtype=dtype).view_as(logits)
    gradient = torch.autograd.grad((ramp * logits).sum(), ours.class_token)[0]
    assert_close(
        gradient, torch.autograd.grad((ramp * expected).sum(), theirs.vit.embeddings.cls_token)[0][0, 0], "a gradient"
    )


def features_model(mixer: Any, positions: Any, pool: Any) -> Classifier:
    encoder = partial(Encoder, embed=nn.Linear, mixer=mixer, d_model=16, num_layers=2, positions=positions)
    model: Classifier = randomized(Classifier(3, 4, 20, encoder=encoder, pool=pool))
    return model


MODELS = {
    "vit": lambda: features_model(partial(Attention, num_heads=2, pattern=Bidirectional), Learned, "class"),
    "gru-both-ways": lambda: features_model(partial(GRU, bidirectional=True), NoPositions, "mean"),
    "gru-with-class-token": lambda: features_model(partial(GRU, bidirectional=True), NoPositions, "class"),
    "mamba": lambda: features_model(Mamba, NoPositions, "last"),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_on_either_side_changes_nothing(name: str) -> None:
    model = MODELS[name]()
    features = torch.randn(3, 7, 3, dtype=torch.float64)
    expected = model(features)
    assert expected.shape == (3, 4) and expected.std() > 0.05
    for left, right in ((3, 0), (0, 4), (2, 2)):
        pads = torch.randn(3, left + right, 3, dtype=torch.float64)
        padded = torch.cat((pads[:, :left], features, pads[:, left:]), dim=1)
        mask = torch.cat((torch.zeros(3, left), torch.ones(3, 7), torch.zeros(3, right)), dim=1).bool()
        assert_close(model(padded, pad_mask=mask), expected)


def test_the_class_token_comes_first_by_hand() -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    y, mask = prepended(torch.tensor([9.0]), x, torch.tensor([[False, True, True]]))
    assert y.tolist() == [[[9], [2], [3], [1]]] and mask is not None and mask.tolist() == [[True, True, True, False]]


def test_features_where_tokens_are_read_and_the_other_way_round_are_refused() -> None:
    encoder = partial(Encoder, mixer=GRU, d_model=16, positions=NoPositions)
    features, tokens = torch.randn(2, 7, 3), torch.ones(2, 7, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"which ScaledEmbedding does not embed; .* to torch\.nn\.Linear"):
        Classifier(3, 4, 20, encoder=encoder)(features)
    with pytest.raises(ValueError, match=r"are tokens, which Linear does not embed; .* to torch\.nn\.Embedding"):
        Classifier(3, 4, 20, encoder=partial(encoder, embed=nn.Linear))(tokens)
    with pytest.raises(ValueError, match="are features, which Embedding does not embed"):
        BagOfWords(3, 4, 20)(features)
    with pytest.raises(ValueError, match='tie_embeddings "all" needs a source of tokens'):
        EncoderDecoder(9, 9, 20, encoder=partial(encoder, embed=nn.Linear), tie_embeddings="all")
