"""GPT-NeoX (Black et al. 2022), the family of Pythia.

D d_model, F d_ff, H heads, K head_dim.
"""

from __future__ import annotations

import torch

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.gpt2 import ACTIVATIONS
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.rope import read_rope
from seqlab.models.pretrained.weights import ForeignWeights


def read_gpt_neox(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Queries, keys and values of each head follow one another in one matrix."""
    d_model, num_layers = config.size("hidden_size"), config.size("num_hidden_layers")
    vocab_size, seq_len = config.size("vocab_size"), config.size("max_position_embeddings")
    num_heads, d_ff = config.size("num_attention_heads"), config.size("intermediate_size")
    if d_model % num_heads:
        config.refuse("num_attention_heads", f"what divides hidden_size, {d_model}")
    ffn = config.choice("hidden_act", "gelu", ACTIVATIONS)
    bias, tied = config.flag("attention_bias", True), config.flag("tie_word_embeddings", False)
    theta, fraction = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    positions = read_rope(config, theta=theta, fraction=fraction)
    config.only(is_encoder_decoder=False, pruned_heads={})
    config.ignore("hidden_dropout", "classifier_dropout", "is_decoder")

    weights.drop_prefix("gpt_neox.")
    embedding = weights.take("embed_in.weight", vocab_size, d_model)
    ours = {"embedding.weight": embedding}
    norms = {"input_layernorm": "mixer_norm", "post_attention_layernorm": "ffn_norm"}
    linears = {
        "attention.dense": ("mixer.out_proj", d_model, d_model),
        "mlp.dense_h_to_4h": ("ffn.up_proj", d_ff, d_model),
        "mlp.dense_4h_to_h": ("ffn.down_proj", d_model, d_ff),
    }
    for part in ("weight", "bias"):
        ours[f"stack.norm.{part}"] = weights.take(f"final_layer_norm.{part}", d_model)
        width = (d_model,) if part == "weight" else ()
        for layer in range(num_layers):
            at, to = f"layers.{layer}", f"stack.blocks.{layer}"
            for theirs, name in norms.items():
                ours[f"{to}.{name}.{part}"] = weights.take(f"{at}.{theirs}.{part}", d_model)
            for theirs, (name, outputs, inputs) in linears.items():
                if part == "weight" or bias or "mlp" in theirs:
                    shape = (outputs, inputs) if part == "weight" else (outputs,)
                    ours[f"{to}.{name}.{part}"] = weights.take(f"{at}.{theirs}.{part}", *shape)
            if part == "weight" or bias:
                joined = weights.take(f"{at}.attention.query_key_value.{part}", 3 * d_model, *width)
                heads = torch.unflatten(joined, 0, (num_heads, 3, -1)).unbind(1)  # (H, K, D) or (H, K) each
                for name, own in zip("qkv", heads, strict=True):
                    ours[f"{to}.mixer.{name}_proj.{part}"] = own.flatten(0, 1)
    ours |= weights.take_head("embed_out.weight", embedding, tied=tied)

    parallel = config.flag("use_parallel_residual", True)
    norm = block("nn.LayerNorm", eps=config.number("layer_norm_eps", 1e-5))
    ffn = {**ffn, "init_args": {**ffn["init_args"], "d_ff": d_ff}}
    model = block(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=block("attention.Attention", num_heads=num_heads, bias=bias),
        positions=positions,
        block=block("nn.Block", norm=norm, ffn=ffn, parallel=parallel, shared_norm=False),
        tie_embeddings=tied,
    )
    return Pretrained(vocab_size, seq_len, model, ours)
