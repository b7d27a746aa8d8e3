"""Our blocks with the weights of `transformers`' Bloom give what its layers give of the same embeddings."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.nn import Block, Stack
from seqlab.positions import ALiBi
from tolerances import FLOAT32_SOFTMAX, TOLERANCE, assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

VOCAB_SIZE, SEQ_LEN, D_MODEL, NUM_LAYERS = 53, 19, 24, 2
NAMES = {
    "input_layernorm": "mixer_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attention.dense": "mixer.out_proj",
    "mlp.dense_h_to_4h": "ffn.up_proj",
    "mlp.dense_4h_to_h": "ffn.down_proj",
    "h.": "blocks.",
    "ln_f": "norm",
}
Pair = tuple[Stack, nn.Module, Callable[[Tensor], Tensor]]


def _bloom(num_heads: int, dtype: torch.dtype) -> Pair:
    config = transformers.BloomConfig(
        vocab_size=VOCAB_SIZE, hidden_size=D_MODEL, n_layer=NUM_LAYERS, n_head=num_heads, layer_norm_epsilon=1e-5
    )
    theirs = transformers.BloomModel(config).to(dtype).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    ours = Stack(
        [Attention(D_MODEL, k, num_heads=num_heads) for k in range(NUM_LAYERS)],
        positions=ALiBi(D_MODEL, SEQ_LEN),
        block=Block,
        causal=True,
    ).to(dtype)
    weights = {}
    for name, weight in theirs.state_dict().items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.startswith("word_embeddings"):
            continue
        if "query_key_value" not in name:
            weights[name] = weight
            continue
        # Of each head its query, its key and its value, one head after the other.
        parts = weight.view(num_heads, 3, D_MODEL // num_heads, *weight.shape[1:]).unbind(1)
        for letter, part in zip("qkv", parts, strict=True):
            weights[name.replace("self_attention.query_key_value", f"mixer.{letter}_proj")] = part.flatten(0, 1)
    ours.load_state_dict(weights)
    return ours, theirs, lambda tokens: theirs.word_embeddings_layernorm(theirs.word_embeddings(tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_heads", [3, 4])
def test_outputs_and_gradients(num_heads: int, dtype: torch.dtype) -> None:
    ours, theirs, embed = _bloom(num_heads, dtype)
    tokens = torch.randint(VOCAB_SIZE, (3, SEQ_LEN))
    pad_mask = torch.ones(3, SEQ_LEN, dtype=torch.bool)
    pad_mask[1, 11:] = False
    expected = theirs(tokens, attention_mask=pad_mask).last_hidden_state
    y, _ = ours(embed(tokens), pad_mask=pad_mask)
    tolerance = max(TOLERANCE[dtype], FLOAT32_SOFTMAX)
    assert expected.std() > 0.3
    assert_close(y[pad_mask], expected[pad_mask], tolerance=tolerance)

    ramp = torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y) * pad_mask.unsqueeze(-1)
    embedding = theirs.get_input_embeddings().weight
    ours_grad, theirs_grad = (torch.autograd.grad((ramp * out).sum(), embedding)[0] for out in (y, expected))
    assert_close(ours_grad, theirs_grad, "a gradient", tolerance=tolerance)
