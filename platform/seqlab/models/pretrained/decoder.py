"""Decoders of attention and a gated feed-forward in the layout of Llama's checkpoints.

V vocabulary, D d_model, F d_ff, H heads, K head_dim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.weights import ForeignWeights

PRE = {"input_layernorm": "mixer_norm", "post_attention_layernorm": "ffn_norm"}


class ForeignFeedForward(NamedTuple):
    """Feed-forward of every layer: its block, and a function from the weights, the layer's name in the checkpoint and
    its name here to the weights by our names."""

    block: dict[str, Any]
    weights: Callable[[ForeignWeights, str, str], dict[str, Tensor]]


class Decoder(NamedTuple):
    """Family of decoders.

    Attributes:
        positions: positional encoding, as a config has it.
        biases: which of the projections q, k, v and o have one.
        query_key_norm: part of `Attention` that normalises queries and keys; None = they are not normalised.
        parts: further parts of `Attention`.
        layers: options of `Attention` in each layer; a single entry is for all layers.
        scale: factor on the scores; None = 1 / sqrt(K).
        norms: norms of a layer in the checkpoint and here.
        norm_place, embed, logit_cap: as in `Block` and `DecoderLM`.
        ffn: None = SwiGLU.
        eps, tied: `rms_norm_eps` and `tie_word_embeddings` if the config has none.
        all_heads: whether keys have as many heads as queries if the config does not say.
    """

    positions: dict[str, Any]
    biases: str = ""
    query_key_norm: str | None = None
    parts: tuple[dict[str, Any], ...] = ()
    layers: tuple[dict[str, Any], ...] = ({},)
    scale: float | None = None
    norms: Mapping[str, str] = PRE
    norm_place: str = "pre"
    embed: str | None = None
    logit_cap: float | None = None
    ffn: ForeignFeedForward | None = None
    eps: float = 1e-6
    tied: bool = False
    all_heads: bool = False


def read_decoder(config: ForeignConfig, weights: ForeignWeights, family: Decoder) -> Pretrained:
    vocab_size, seq_len = config.size("vocab_size"), config.size("max_position_embeddings")
    d_model, num_layers = config.size("hidden_size"), config.size("num_hidden_layers")
    num_heads = config.size("num_attention_heads")
    num_kv_heads = config.size("num_key_value_heads", num_heads if family.all_heads else None)
    head_dim = config.size("head_dim", max(d_model // num_heads, 1))
    if num_heads % num_kv_heads:
        config.refuse("num_key_value_heads", f"what divides num_attention_heads, {num_heads}")
    if head_dim % 2:
        config.refuse("head_dim", "an even number, of which RoPE rotates pairs")
    eps, tied = config.number("rms_norm_eps", family.eps), config.flag("tie_word_embeddings", family.tied)
    config.only(is_encoder_decoder=False, pruned_heads={})
    ffn = family.ffn or _swiglu(config, d_model)

    embedding = weights.take("model.embed_tokens.weight", vocab_size, d_model)
    ours = {"embedding.weight": embedding, "stack.norm.weight": weights.take("model.norm.weight", d_model)}
    heads = {"q": num_heads, "k": num_kv_heads, "v": num_kv_heads}
    shapes = {name: (number * head_dim, d_model) for name, number in heads.items()}
    shapes["o"] = (d_model, num_heads * head_dim)
    gains = {name: head_dim * (heads[name] if family.query_key_norm == "FullQueryKeyNorm" else 1) for name in "qk"}
    for layer in range(num_layers):
        at, to = f"model.layers.{layer}", f"stack.blocks.{layer}"
        for theirs, norm in family.norms.items():
            ours[f"{to}.{norm}.weight"] = weights.take(f"{at}.{theirs}.weight", d_model)
        ours |= ffn.weights(weights, f"{at}.mlp", f"{to}.ffn")
        for name, shape in shapes.items():
            theirs = f"{at}.self_attn.{name}_proj"
            projection = f"{to}.mixer.{'out' if name == 'o' else name}_proj"
            ours[f"{projection}.weight"] = weights.take(f"{theirs}.weight", *shape)
            if name in family.biases:
                ours[f"{projection}.bias"] = weights.take(f"{theirs}.bias", shape[0])
            elif family.biases:
                ours[f"{projection}.bias"] = torch.zeros(shape[0])
        for name, size in gains.items() if family.query_key_norm else ():
            ours[f"{to}.mixer.parts.0.{name}_norm.weight"] = weights.take(f"{at}.self_attn.{name}_norm.weight", size)
    ours |= weights.take_head("lm_head.weight", embedding, tied=tied)

    parts = list(family.parts)
    if family.query_key_norm is not None:
        told = {"num_kv_heads": num_kv_heads} if family.query_key_norm == "FullQueryKeyNorm" else {}
        parts.insert(0, block(f"attention.{family.query_key_norm}", eps=eps, **told))
    attention: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    attention |= {"parts": parts, "scale": family.scale, "bias": bool(family.biases)}
    mixers = [block("attention.Attention", **attention, **options) for options in family.layers]
    model = block(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=mixers[0] if len(mixers) == 1 else mixers,
        positions=family.positions,
        block=block("nn.Block", norm=block("nn.RMSNorm", eps=eps), norm_place=family.norm_place, ffn=ffn.block),
        embed=None if family.embed is None else block(family.embed),
        tie_embeddings=tied,
        logit_cap=family.logit_cap,
    )
    return Pretrained(vocab_size, seq_len, model, ours)


def gated(name: str, d_model: int, d_ff: int) -> ForeignFeedForward:
    """SwiGLU or GEGLU."""
    shapes = gated_shapes(d_model, d_ff)

    def read(weights: ForeignWeights, at: str, to: str) -> dict[str, Tensor]:
        return {f"{to}.{part}.weight": weights.take(f"{at}.{part}.weight", *shape) for part, shape in shapes.items()}

    return ForeignFeedForward(block(f"nn.{name}", d_ff=d_ff), read)


def gated_shapes(d_model: int, d_ff: int) -> dict[str, tuple[int, int]]:
    """Shapes of the weights of a gated feed-forward, by layer."""
    return {"gate_proj": (d_ff, d_model), "up_proj": (d_ff, d_model), "down_proj": (d_model, d_ff)}


def _swiglu(config: ForeignConfig, d_model: int) -> ForeignFeedForward:
    config.only(hidden_act="silu", mlp_bias=False)
    return gated("SwiGLU", d_model, config.size("intermediate_size"))
