"""Gemma (2024), Gemma 2 (2024) and the text models of Gemma 3 (2025)."""

from __future__ import annotations

from typing import Any

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.decoder import PRE, Decoder, gated, read_decoder
from seqlab.models.pretrained.llama import biases
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.rope import read_rope, read_rope_section
from seqlab.models.pretrained.weights import ForeignWeights

SANDWICH = {
    "input_layernorm": "mixer_norm",
    "post_attention_layernorm": "mixer_out_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_out_norm",
}


def read_gemma(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    # transformers computes "gelu" as the tanh approximation here.
    config.choice("hidden_act", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "", "gelu": ""})
    if not config.is_null("hidden_activation"):
        config.only(hidden_activation="gelu_pytorch_tanh")
    return _read(config, weights, Decoder(read_rope(config), norms=PRE))


def read_gemma2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Scores and logits are soft-capped, and every second layer has a window."""
    config.only(hidden_activation="gelu_pytorch_tanh")
    cap = _cap(config, "attn_logit_softcapping", 50.0)
    told = Decoder(
        read_rope(config),
        parts=() if cap is None else (block("attention.LogitSoftCap", cap=cap),),
        layers=_layers(config, 2, {}),
        scale=config.size("query_pre_attn_scalar", 256) ** -0.5,
        norms=SANDWICH,
        norm_place="sandwich",
        logit_cap=_cap(config, "final_logit_softcapping", 30.0),
    )
    return _read(config, weights, told)


def read_gemma3(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries and keys are normalised; layers with a window have a RoPE of their own."""
    config.only(hidden_activation="gelu_pytorch_tanh")
    rope, older = config.section("rope_parameters"), config.section("rope_scaling")
    if len(rope) and len(older):
        raise ValueError(f"{config.place} has both rope_parameters and rope_scaling; accepted: one of them")
    full, local = rope.section("full_attention") if len(rope) else older, rope.section("sliding_attention")
    rope.finish()
    if full.has("type") and not full.has("rope_type"):
        full.refuse("type", "none, since transformers reads rope_type only")
    base = full.number("rope_theta", config.number("rope_theta", 1e6))
    local_base = local.number("rope_theta", config.number("rope_local_base_freq", 1e4))
    told = Decoder(
        read_rope_section(full, base, config),
        query_key_norm="QueryKeyNorm",
        layers=_layers(
            config,
            config.size("sliding_window_pattern", 6),
            {"positions": read_rope_section(local, local_base, config)},
        ),
        scale=config.size("query_pre_attn_scalar", 256) ** -0.5,
        norms=SANDWICH,
        norm_place="sandwich",
        logit_cap=_cap(config, "final_logit_softcapping", None),
    )
    config.absent("attn_logit_softcapping")  # transformers does not apply it
    config.ignore("_sliding_window_pattern")
    return _read(config, weights, told)


def _read(config: ForeignConfig, weights: ForeignWeights, family: Decoder) -> Pretrained:
    """Reads what all have in common: gains stored less 1, and GEGLU."""
    if not config.is_null("use_bidirectional_attention"):
        config.only(use_bidirectional_attention=False)
    weights.change("norm.weight", lambda gain: gain.float() + 1.0)
    ffn = gated("GEGLU", config.size("hidden_size"), config.size("intermediate_size"))
    config.size("head_dim")  # Its default is not D / H.
    told = family._replace(ffn=ffn, biases=biases(config), embed="nn.embedding.ScaledEmbedding", tied=True)
    return read_decoder(config, weights, told)


def _layers(config: ForeignConfig, interval: int, of_local: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Options of each layer: those of `layer_types`, or a window in all but every `interval`-th."""
    num_layers = config.size("num_hidden_layers")
    default = ["full_attention" if (layer + 1) % interval == 0 else "sliding_attention" for layer in range(num_layers)]
    kinds = config.names("layer_types", default, ("sliding_attention", "full_attention"))
    if len(kinds) != num_layers:
        config.refuse("layer_types", f"a list of {num_layers} names")
    config.ignore("sliding_window")
    if "sliding_attention" not in kinds:
        return ({},)
    window = {"pattern": block("attention.SlidingWindow", window=config.size("sliding_window"))}
    return tuple({} if kind == "full_attention" else window | of_local for kind in kinds)


def _cap(config: ForeignConfig, name: str, default: float | None) -> float | None:
    """Bound of logits; null, or absent without a default, = none."""
    if config.is_null(name) or (default is None and not config.has(name)):
        return None
    return config.number(name, default)
