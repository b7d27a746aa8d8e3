"""Qwen3 with a mixture of experts in every layer (Yang et al. 2025).

E experts, F width of an expert.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.decoder import Decoder, ForeignFeedForward, gated_shapes, read_decoder
from seqlab.models.pretrained.llama import biases, refuse_windows
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.rope import read_rope
from seqlab.models.pretrained.weights import ForeignWeights


def read_qwen3_moe(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    refuse_windows(config)
    config.ignore("intermediate_size", "output_router_logits", "router_aux_loss_coef")
    config.only(hidden_act="silu", decoder_sparse_step=1)
    if not config.is_null("mlp_only_layers"):
        config.only(mlp_only_layers=[])
    told = Decoder(read_rope(config), biases=biases(config), query_key_norm="QueryKeyNorm", ffn=_experts(config))
    return read_decoder(config, weights, told)


def _experts(config: ForeignConfig) -> ForeignFeedForward:
    name = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    num_experts, top_k = config.size(name), config.size("num_experts_per_tok")
    if top_k > num_experts:
        config.refuse("num_experts_per_tok", f"at most {name}, {num_experts}")
    # The gate of a single expert is its affinity, and gates of several are divided by their sum.
    if config.flag("norm_topk_prob", False) != (top_k > 1):
        config.refuse("norm_topk_prob", "true with several experts for a token, false with one")
    d_model, d_ff = config.size("hidden_size"), config.size("moe_intermediate_size")
    shapes = gated_shapes(d_model, d_ff)

    def read(weights: ForeignWeights, at: str, to: str) -> dict[str, Tensor]:
        ours = {f"{to}.router.weight": weights.take(f"{at}.gate.weight", num_experts, d_model)}
        ours[f"{to}.raises"] = torch.zeros(num_experts, dtype=torch.int64)
        for part, shape in shapes.items():
            own = [weights.take(f"{at}.experts.{e}.{part}.weight", *shape) for e in range(num_experts)]
            ours[f"{to}.{part}.weight"] = torch.stack(own)  # (E, F, D) or (E, D, F)
        return ours

    told = block("nn.MixtureOfExperts", d_ff=d_ff, num_experts=num_experts, top_k=top_k, balance_rate=0.0)
    return ForeignFeedForward(told, read)
