"""Llama (Touvron et al. 2023) and its family: Mistral, Qwen2 and Qwen3, which differ from it in their attention.

V vocabulary, D d_model, F d_ff, H heads, K head_dim.
"""

from __future__ import annotations

from typing import Any

import torch

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.weights import ForeignWeights


def read_llama(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    return _read(config, weights, biases="qkvo" if config.flag("attention_bias", False) else "")


def read_mistral(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """A query sees the last `sliding_window` tokens (Jiang et al. 2023); null = all."""
    pattern = block("attention.Causal")
    if not config.is_null("sliding_window"):
        pattern = block("attention.SlidingWindow", window=config.size("sliding_window"))
    config.only(attention_bias=False)
    return _read(config, weights, pattern=pattern)


def read_qwen2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries, keys and values have biases (Yang et al. 2024)."""
    config.only(attention_bias=False)
    _refuse_windows(config)
    return _read(config, weights, biases="qkv")


def read_qwen3(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries and keys are normalised (Yang et al. 2025)."""
    config.size("head_dim")  # Its default is not D / H.
    _refuse_windows(config)
    norm = block("attention.QueryKeyNorm", eps=config.number("rms_norm_eps", 1e-6))
    return _read(config, weights, biases="qkvo" if config.flag("attention_bias", False) else "", parts=(norm,))


def _refuse_windows(config: ForeignConfig) -> None:
    """Refuses Qwen's windows in some layers, which are off unless `use_sliding_window` is true."""
    config.only(use_sliding_window=False, layer_types=["full_attention"] * config.size("num_hidden_layers"))
    config.ignore("sliding_window", "max_window_layers")


def _read(
    config: ForeignConfig,
    weights: ForeignWeights,
    *,
    biases: str = "",
    pattern: dict[str, Any] | None = None,
    parts: tuple[dict[str, Any], ...] = (),
) -> Pretrained:
    """Reads what the models of this family share.

    Args:
        biases: which of the projections q, k, v and o have one.
        pattern: None = causal.
        parts: of `Attention`: none, or QueryKeyNorm.
    """
    vocab_size, seq_len = config.size("vocab_size"), config.size("max_position_embeddings")
    d_model, d_ff = config.size("hidden_size"), config.size("intermediate_size")
    num_layers, num_heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    num_kv_heads = config.size("num_key_value_heads", num_heads if config.text("model_type") == "llama" else None)
    head_dim = config.size("head_dim", max(d_model // num_heads, 1))
    if num_heads % num_kv_heads:
        config.refuse("num_key_value_heads", f"what divides num_attention_heads, {num_heads}")
    if head_dim % 2:
        config.refuse("head_dim", "an even number, of which RoPE rotates pairs")
    tied = config.flag("tie_word_embeddings", False)
    config.only(hidden_act="silu", mlp_bias=False, is_encoder_decoder=False, pruned_heads={})

    embedding = weights.take("model.embed_tokens.weight", vocab_size, d_model)
    ours = {"embedding.weight": embedding, "stack.norm.weight": weights.take("model.norm.weight", d_model)}
    shapes = {
        "q": (num_heads * head_dim, d_model),
        "k": (num_kv_heads * head_dim, d_model),
        "v": (num_kv_heads * head_dim, d_model),
        "o": (d_model, num_heads * head_dim),
    }
    for layer in range(num_layers):
        at, to = f"model.layers.{layer}", f"stack.blocks.{layer}"
        ours[f"{to}.mixer_norm.weight"] = weights.take(f"{at}.input_layernorm.weight", d_model)
        ours[f"{to}.ffn_norm.weight"] = weights.take(f"{at}.post_attention_layernorm.weight", d_model)
        for name, shape in (("gate", (d_ff, d_model)), ("up", (d_ff, d_model)), ("down", (d_model, d_ff))):
            ours[f"{to}.ffn.{name}_proj.weight"] = weights.take(f"{at}.mlp.{name}_proj.weight", *shape)
        for name, shape in shapes.items():
            theirs = f"{at}.self_attn.{name}_proj"
            projection = f"{to}.mixer.{'out' if name == 'o' else name}_proj"
            ours[f"{projection}.weight"] = weights.take(f"{theirs}.weight", *shape)
            if name in biases:
                ours[f"{projection}.bias"] = weights.take(f"{theirs}.bias", shape[0])
            elif biases:
                ours[f"{projection}.bias"] = torch.zeros(shape[0])
        for name in ("q_norm", "k_norm") if parts else ():
            ours[f"{to}.mixer.parts.0.{name}.weight"] = weights.take(f"{at}.self_attn.{name}.weight", head_dim)
    ours |= weights.take_head("lm_head.weight", embedding, tied=tied)

    mixer = block(
        "attention.Attention",
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        pattern=pattern or block("attention.Causal"),
        parts=list(parts),
        bias=bool(biases),
    )
    norm = block("nn.RMSNorm", eps=config.number("rms_norm_eps", 1e-6))
    model = block(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=mixer,
        positions=_rope(config),
        block=block("nn.Block", norm=norm, ffn=block("nn.SwiGLU", d_ff=d_ff)),
        tie_embeddings=tied,
    )
    return Pretrained(vocab_size, seq_len, model, ours)


def _rope(config: ForeignConfig) -> dict[str, Any]:
    """RoPE as `rope_parameters` say or, in older versions, `rope_theta` and `rope_scaling`."""
    rope = config.section("rope_parameters")
    older = config.section("rope_scaling")
    if len(rope) and len(older):
        raise ValueError(f"{config.place} has both rope_parameters and rope_scaling; accepted: one of them")
    rope = rope if len(rope) else older
    base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    config.only(rope_theta=base, partial_rotary_factor=1.0, rope_interleaved=False)
    kind = rope.choice("rope_type", rope.text("type", "default"), {"default": "default", "linear": "linear"})
    rope.only(type=kind, partial_rotary_factor=1.0)
    scaling = block("positions.NoScaling")
    if kind == "linear":
        scaling = block("positions.LinearScaling", factor=rope.number("factor"))
    rope.finish()
    return block("positions.RoPE", base=base, scaling=scaling)
