"""Positional encodings against those of `transformers`: T5's buckets, RoPE's scalings, GPT-NeoX's partial rotation."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from models.theirs import randomly, transformers
from seqlab.attention import Attention, Bidirectional, Causal
from seqlab.positions import LinearScaling, Llama3Scaling, NoScaling, NTKScaling, RoPE, RotaryScaling, T5Bias, YaRN
from seqlab.positions.t5 import bucket
from tolerances import FLOAT32_ANGLES, assert_close

t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
llama = pytest.importorskip("transformers.models.llama.modeling_llama")
gpt_neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")

LENGTH, D_MODEL, NUM_HEADS, HEAD_DIM = 41, 24, 3, 8


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("max_distance", [20, 64, 100, 128, 1000, 2048])
@pytest.mark.parametrize("num_buckets", [4, 8, 16, 32])
def test_buckets_are_t5s(num_buckets: int, max_distance: int, both_ways: bool) -> None:
    """`num_buckets` each way."""
    distance, all_buckets = torch.arange(max_distance + 50), num_buckets * (2 if both_ways else 1)
    theirs = t5.T5Attention._relative_position_bucket(-distance, both_ways, all_buckets, max_distance)
    assert [bucket(n, num_buckets, max_distance) for n in distance.tolist()] == theirs.tolist()


@pytest.mark.parametrize("decoder", [True, False])
def test_t5_attention(decoder: bool) -> None:
    sizes = {"d_model": D_MODEL, "d_kv": HEAD_DIM, "num_heads": NUM_HEADS, "is_decoder": decoder, "dropout_rate": 0.0}
    table = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
    config = transformers.T5Config(**sizes, **table, attn_implementation="eager")
    theirs = randomly(t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0), torch.float64)
    pattern: Any = Causal if decoder else Bidirectional
    ours = Attention(D_MODEL, num_heads=NUM_HEADS, head_dim=HEAD_DIM, scale=1.0, bias=False, pattern=pattern)
    encoding = T5Bias(D_MODEL, LENGTH, num_buckets=8, max_distance=20, bidirectional=not decoder)
    ours.attach_positions(encoding)
    ours.double(), encoding.double()
    weights = theirs.state_dict()
    ours.load_state_dict({f"{name}_proj.weight": weights[f"{name[0]}.weight"] for name in ("q", "k", "v", "out")})
    encoding.load_state_dict({"table": weights["relative_attention_bias.weight"]})

    x = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64)
    mask = torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64)
    if decoder:
        mask = mask.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -torch.inf)
    assert_close(ours(x)[0], theirs(x, mask=mask)[0])


def _rope(scaling: Any, positions: torch.Tensor, fraction: float = 1.0, base: float = 10000.0) -> torch.Tensor:
    encoding = RoPE(D_MODEL, LENGTH, base=base, fraction=fraction, scaling=scaling)
    encoding.attach(NUM_HEADS, 32)
    return encoding.rotate(QUERIES, QUERIES, positions)[0]


QUERIES = torch.randn(2, 3, LENGTH, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


SIZES = {"hidden_size": 96, "num_attention_heads": 3}


def _llama(**parameters: Any) -> Any:
    told = {"rope_parameters": {"rope_theta": 10000.0, **parameters}}
    config = transformers.LlamaConfig(**SIZES, head_dim=32, max_position_embeddings=256, **told)
    return llama.LlamaRotaryEmbedding(config)


def _yarn(length: int, factor: float, **told: float) -> dict[str, Any]:
    return {"rope_type": "yarn", "original_max_position_embeddings": length, "factor": factor, **told}


LLAMA3 = {"rope_type": "llama3", "original_max_position_embeddings": 64, "factor": 4.0}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "none": (NoScaling, {"rope_type": "default"}),
    "linear": (partial(LinearScaling, factor=3.0), {"rope_type": "linear", "factor": 3.0}),
    "llama3": (partial(Llama3Scaling, 64, factor=4.0), LLAMA3),
    "yarn": (partial(YaRN, 64, factor=4.0), _yarn(64, 4.0)),
    "yarn-of-long-contexts": (
        partial(YaRN, 4096, factor=16.0, fast=24.0, slow=2.0),
        _yarn(4096, 16.0, beta_fast=24.0, beta_slow=2.0),
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_rotation_is_llamas(name: str) -> None:
    scaling, parameters = SCALINGS[name]
    rotary = _llama(**parameters)
    positions = torch.arange(LENGTH)[None]
    cos, sin = rotary(QUERIES, positions)
    expected, _ = llama.apply_rotary_pos_emb(QUERIES, QUERIES, cos, sin)
    assert_close(_rope(scaling, positions), expected, tolerance=FLOAT32_ANGLES)
    frequencies = torch.tensor(scaling().frequencies(10000.0, 32), dtype=torch.float64)
    assert_close((rotary.inv_freq / frequencies).double(), torch.ones(16).double(), tolerance=1e-6)
    assert scaling().temperature == pytest.approx(rotary.attention_scaling)


def test_ntk_is_the_dynamic_form_at_one_length() -> None:
    """The dynamic form with factor 1 stretches five times at five times the trained length."""
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = _llama(rope_type="dynamic", factor=1.0).config
    theirs, _ = rope_utils.ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=5 * config.max_position_embeddings)
    ours = NTKScaling(5.0).frequencies(10000.0, 32)
    assert ours == pytest.approx(theirs.tolist(), rel=1e-6)
    plain = NoScaling().frequencies(10000.0, 32)
    assert (ours[0], ours[-1]) == pytest.approx((plain[0], plain[-1] / 5))


def test_partial_rotation_is_gpt_neoxs() -> None:
    told = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25}
    config = transformers.GPTNeoXConfig(**SIZES, rope_parameters=told)
    positions = torch.arange(LENGTH)[None]
    cos, sin = gpt_neox.GPTNeoXRotaryEmbedding(config)(QUERIES, positions)
    assert cos.shape[-1] == 8
    expected, _ = gpt_neox.apply_rotary_pos_emb(QUERIES, QUERIES, cos, sin)
    assert_close(_rope(NoScaling, positions, 0.25, 5000.0), expected, tolerance=FLOAT32_ANGLES)


@pytest.mark.parametrize("scaling", [LinearScaling, NTKScaling, partial(Llama3Scaling, 2048), partial(YaRN, 2048)])
def test_a_factor_of_1_changes_nothing(scaling: Any) -> None:
    unscaled: RotaryScaling = scaling(factor=1.0)
    assert unscaled.frequencies(10000.0, 32) == pytest.approx(NoScaling().frequencies(10000.0, 32), rel=1e-15)
    assert unscaled.temperature == 1.0
    with pytest.raises(ValueError, match=r"at least 1, got 0\.5"):
        scaling(factor=0.5)
