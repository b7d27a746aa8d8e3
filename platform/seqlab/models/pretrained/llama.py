"""Llama (Touvron et al. 2023) and decoders that differ from it in a few options: Mistral, Qwen2, Qwen3, Phi-3, SmolLM3
and OLMo 2.

V vocabulary, D d_model, F d_ff, H heads, K head_dim.
"""

from __future__ import annotations

from typing import Any

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.decoder import Decoder, read_decoder
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.rope import read_rope
from seqlab.models.pretrained.weights import ForeignWeights


def read_llama(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    return read_decoder(config, weights, Decoder(read_rope(config), biases=biases(config), all_heads=True))


def read_mistral(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """A query sees the last `sliding_window` tokens (Jiang et al. 2023); null = all."""
    config.only(attention_bias=False)
    return read_decoder(config, weights, Decoder(read_rope(config), layers=(_window(config),)))


def read_qwen2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries, keys and values have biases (Yang et al. 2024)."""
    config.only(attention_bias=False)
    refuse_windows(config)
    return read_decoder(config, weights, Decoder(read_rope(config), biases="qkv"))


def read_qwen3(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries and keys are normalised (Yang et al. 2025)."""
    config.size("head_dim")  # Its default is not D / H.
    refuse_windows(config)
    told = Decoder(read_rope(config), biases=biases(config), query_key_norm="QueryKeyNorm")
    return read_decoder(config, weights, told)


def read_phi3(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries, keys and values are stored in one matrix, the two layers of a SwiGLU in another (Abdin et al. 2024)."""
    config.ignore("original_max_position_embeddings")
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    head_dim, d_ff = config.size("hidden_size") // heads, config.size("intermediate_size")
    for layer in range(config.size("num_hidden_layers")):
        attention, ffn = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        sizes = {"q_proj": heads * head_dim, "k_proj": kv_heads * head_dim, "v_proj": kv_heads * head_dim}
        weights.split(f"{attention}.qkv_proj", {f"{attention}.{name}": size for name, size in sizes.items()})
        weights.split(f"{ffn}.gate_up_proj", {f"{ffn}.gate_proj": d_ff, f"{ffn}.up_proj": d_ff})
    rope = read_rope(config, fraction=1.0)
    return read_decoder(config, weights, Decoder(rope, layers=(_window(config),), eps=1e-5, all_heads=True))


def read_smollm3(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Every fourth layer has no positions (Yang et al. 2025, "RoPE to NoPE and back again")."""
    refuse_windows(config)
    num_layers, interval = config.size("num_hidden_layers"), config.size("no_rope_layer_interval", 4)
    default = [int((layer + 1) % interval != 0) for layer in range(num_layers)]
    has_rope = config.numbers("no_rope_layers", default)
    if len(has_rope) < num_layers:
        config.refuse("no_rope_layers", f"a list of {num_layers} numbers, 1 = RoPE and 0 = no positions")
    without = {"positions": block("positions.NoPositions")}
    layers = tuple({} if rotated else without for rotated in has_rope[:num_layers])
    rope = read_rope(config, theta=2e6)
    return read_decoder(config, weights, Decoder(rope, biases=biases(config), layers=layers, tied=True))


def read_olmo2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Branches are normalised at their outputs, and the queries and keys of all heads together (OLMo team 2024)."""
    told = Decoder(
        read_rope(config),
        biases=biases(config),
        query_key_norm="FullQueryKeyNorm",
        norms={"post_attention_layernorm": "mixer_out_norm", "post_feedforward_layernorm": "ffn_out_norm"},
        norm_place="branch",
        eps=1e-5,
        all_heads=True,
    )
    return read_decoder(config, weights, told)


def refuse_windows(config: ForeignConfig) -> None:
    """Refuses windows in some layers, which are off unless `use_sliding_window` is true."""
    config.only(use_sliding_window=False, layer_types=["full_attention"] * config.size("num_hidden_layers"))
    config.ignore("sliding_window", "max_window_layers")


def _window(config: ForeignConfig) -> dict[str, Any]:
    """Options of a layer with the window of `sliding_window`; null = none."""
    if config.is_null("sliding_window"):
        return {}
    return {"pattern": block("attention.SlidingWindow", window=config.size("sliding_window"))}


def biases(config: ForeignConfig) -> str:
    return "qkvo" if config.flag("attention_bias", False) else ""
