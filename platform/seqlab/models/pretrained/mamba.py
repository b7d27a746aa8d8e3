"""Mamba (Gu & Dao 2023) and Mamba-2 (Dao & Gu 2024).

D d_model, E inner channels, H heads, N d_state, R rank of dt, W convolution width.
"""

from __future__ import annotations

import math
from typing import Any

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.weights import ForeignWeights

TRAINED = 2048
"""Sequence length that the published models were trained on; their configs have none."""


def read_mamba(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    d_model, expand, d_state = config.size("hidden_size"), config.size("expand", 2), config.size("state_size", 16)
    inner, width = expand * d_model, config.size("conv_kernel", 4)
    config.only(intermediate_size=inner)
    rank = -(-d_model // 16)
    if not config.is_one_of("time_step_rank", "auto"):
        rank = config.size("time_step_rank")
    config.ignore("time_step_scale", "use_mambapy", "use_associative_scan")
    shapes = {
        "in_proj.weight": ("in_proj.weight", 2 * inner, d_model),
        "conv1d.weight": ("conv.conv.weight", inner, 1, width),
        "conv1d.bias": ("conv.conv.bias", inner),
        "x_proj.weight": ("x_proj.weight", rank + 2 * d_state, inner),
        "dt_proj.weight": ("dt_weight", inner, rank),
        "dt_proj.bias": ("dt_bias", inner),
        "A_log": ("a_log", inner, d_state),
        "D": ("skip", inner),
        "out_proj.weight": ("out_proj.weight", d_model, inner),
    }
    options = {"d_state": d_state, "expand": expand, "conv_width": width, "dt_rank": rank}
    return _read(config, weights, shapes, block("recurrence.Mamba", **options), tied=True)


def read_mamba2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Only one group: with more, transformers normalises all of them together, and the paper's code each alone."""
    d_model, expand, d_state = config.size("hidden_size"), config.size("expand", 2), config.size("state_size", 128)
    inner, width = expand * d_model, config.size("conv_kernel", 4)
    num_heads, head_dim = config.size("num_heads", 128), config.size("head_dim", 64)
    if num_heads * head_dim != inner:
        config.refuse("num_heads", f"{inner} / head_dim, since expand times hidden_size is {inner}")
    if config.size("n_groups", 8) != 1:
        config.refuse("n_groups", "1")
    if not config.is_one_of("time_step_limit", [0.0, math.inf], [0.0, {"__float__": "Infinity"}]):
        config.refuse("time_step_limit", "[0.0, Infinity]")
    config.only(layer_norm_epsilon=1e-5)
    config.ignore("chunk_size", "time_step_rank")
    convolved = inner + 2 * d_state
    shapes = {
        "in_proj.weight": ("in_proj.weight", inner + convolved + num_heads, d_model),
        "conv1d.weight": ("conv.conv.weight", convolved, 1, width),
        "conv1d.bias": ("conv.conv.bias", convolved),
        "A_log": ("a_log", num_heads),
        "dt_bias": ("dt_bias", num_heads),
        "D": ("skip", num_heads),
        "norm.weight": ("norm_weight", inner),
        "out_proj.weight": ("out_proj.weight", d_model, inner),
    }
    options = {"d_state": d_state, "head_dim": head_dim, "expand": expand, "conv_width": width}
    return _read(config, weights, shapes, block("attention.Mamba2", **options), tied=False)


def _read(
    config: ForeignConfig, weights: ForeignWeights, shapes: dict[str, Any], mixer: dict[str, Any], *, tied: bool
) -> Pretrained:
    """Reads what both have in common.

    Args:
        shapes: a layer's tensors in the checkpoint, each with its name here and its shape.
        tied: default of `tie_word_embeddings`.
    """
    d_model, num_layers, vocab_size = (config.size(name) for name in ("hidden_size", "num_hidden_layers", "vocab_size"))
    tied = config.flag("tie_word_embeddings", tied)
    config.only(hidden_act="silu", use_bias=False, use_conv_bias=True, is_encoder_decoder=False, pruned_heads={})
    config.only(rescale_prenorm_residual=False)  # transformers rescales the weights that it loads, too
    config.ignore("residual_in_fp32")
    config.ignore("time_step_min", "time_step_max", "time_step_floor", "time_step_init_scheme")

    embedding = weights.take("backbone.embeddings.weight", vocab_size, d_model)
    ours = {"embedding.weight": embedding, "stack.norm.weight": weights.take("backbone.norm_f.weight", d_model)}
    for layer in range(num_layers):
        at, to = f"backbone.layers.{layer}", f"stack.blocks.{layer}"
        ours[f"{to}.mixer_norm.weight"] = weights.take(f"{at}.norm.weight", d_model)
        for theirs, (name, *shape) in shapes.items():
            ours[f"{to}.mixer.{name}"] = weights.take(f"{at}.mixer.{theirs}", *shape)
    ours |= weights.take_head("lm_head.weight", embedding, tied=tied)

    norm = block("nn.RMSNorm", eps=config.number("layer_norm_epsilon", 1e-5))
    model = block(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=mixer,
        positions=block("positions.NoPositions"),
        block=block("nn.Block", norm=norm, ffn=block("nn.NoFeedForward")),
        tie_embeddings=tied,
    )
    return Pretrained(vocab_size, TRAINED, model, ours)
