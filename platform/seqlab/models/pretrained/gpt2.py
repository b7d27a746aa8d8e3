"""GPT-2 (Radford et al. 2019).

V vocabulary, D d_model, F d_ff.
"""

from __future__ import annotations

from typing import Any

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.read import Pretrained, block
from seqlab.models.pretrained.weights import ForeignWeights

ACTIVATIONS: dict[str, dict[str, Any]] = {
    "gelu_new": block("nn.GELU"),
    "gelu_pytorch_tanh": block("nn.GELU"),
    "gelu": block("nn.GELU", exact=True),
    "relu": block("nn.ReLU"),
}


def read_gpt2(config: ForeignConfig, weights: ForeignWeights) -> Pretrained:
    """Linear weights are stored transposed, with queries, keys and values in one."""
    d_model, num_layers = config.size("n_embd"), config.size("n_layer")
    vocab_size, seq_len = config.size("vocab_size"), config.size("n_positions")
    num_heads, d_ff = config.size("n_head"), config.size("n_inner", 4 * d_model)
    if d_model % num_heads:
        config.refuse("n_head", f"what divides n_embd, {d_model}")
    ffn = config.choice("activation_function", "gelu_new", ACTIVATIONS)
    ffn = {**ffn, "init_args": {**ffn["init_args"], "d_ff": d_ff}}
    scaled = config.flag("scale_attn_weights", True)
    tied = config.flag("tie_word_embeddings", True)
    config.only(scale_attn_by_inverse_layer_idx=False, add_cross_attention=False, is_encoder_decoder=False)
    config.only(pruned_heads={})
    config.ignore("n_ctx")  # Only n_positions is read.

    weights.drop_prefix("transformer.")
    embedding = weights.take("wte.weight", vocab_size, d_model)
    ours = {"embedding.weight": embedding, "positions.table.weight": weights.take("wpe.weight", seq_len, d_model)}
    norms = {"ln_1": "mixer_norm", "ln_2": "ffn_norm"}
    linears = {
        "attn.c_proj": ("mixer.out_proj", d_model, d_model),
        "mlp.c_fc": ("ffn.up_proj", d_model, d_ff),
        "mlp.c_proj": ("ffn.down_proj", d_ff, d_model),
    }
    for part in ("weight", "bias"):
        ours[f"stack.norm.{part}"] = weights.take(f"ln_f.{part}", d_model)
    for layer in range(num_layers):
        at, to = f"h.{layer}", f"stack.blocks.{layer}"
        for part in ("weight", "bias"):
            for theirs, name in norms.items():
                ours[f"{to}.{name}.{part}"] = weights.take(f"{at}.{theirs}.{part}", d_model)
            for theirs, (name, width, wide) in linears.items():
                shape = (width, wide) if part == "weight" else (wide,)
                ours[f"{to}.{name}.{part}"] = weights.take(f"{at}.{theirs}.{part}", *shape).t()
            shape = (d_model, 3 * d_model) if part == "weight" else (3 * d_model,)
            joined = weights.take(f"{at}.attn.c_attn.{part}", *shape)
            for name, weight in zip(("q_proj", "k_proj", "v_proj"), joined.chunk(3, dim=-1), strict=True):
                ours[f"{to}.mixer.{name}.{part}"] = weight.t()
    ours |= weights.take_head("lm_head.weight", embedding, tied=tied)

    mixer = block("attention.Attention", num_heads=num_heads, scale=None if scaled else 1.0)
    norm = block("nn.LayerNorm", eps=config.number("layer_norm_epsilon", 1e-5))
    model = block(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=mixer,
        positions=block("positions.Learned"),
        block=block("nn.Block", norm=norm, ffn=ffn),
        tie_embeddings=tied,
    )
    return Pretrained(vocab_size, seq_len, model, {name: weight.contiguous() for name, weight in ours.items()})
