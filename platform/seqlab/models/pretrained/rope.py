"""RoPE as the fields of a `config.json` describe it."""

from __future__ import annotations

from typing import Any

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.read import block


def read_rope(config: ForeignConfig, *, theta: float = 10000.0, fraction: float | None = None) -> dict[str, Any]:
    """RoPE from `rope_parameters` or, in older versions, `rope_theta`, `rope_scaling` and `partial_rotary_factor`.

    Args:
        theta: base of the frequencies if the config has none.
        fraction: rotated fraction of the channels if the config has none; None = the family rotates them all.
    """
    rope = config.section("rope_parameters")
    older = config.section("rope_scaling")
    if len(rope) and len(older):
        raise ValueError(f"{config.place} has both rope_parameters and rope_scaling; accepted: one of them")
    rope = rope if len(rope) else older
    base = rope.number("rope_theta", config.number("rope_theta", theta))
    config.only(rope_theta=base, rope_interleaved=False)
    if fraction is None:
        config.only(partial_rotary_factor=1.0)
        rope.only(partial_rotary_factor=1.0)
    else:
        fraction = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", fraction))
        config.only(partial_rotary_factor=fraction)
    told = read_rope_section(rope, base, config)
    if fraction is not None:
        told["init_args"]["fraction"] = fraction
    return told


def read_rope_section(rope: ForeignConfig, base: float, config: ForeignConfig) -> dict[str, Any]:
    """RoPE with the scaling of a `rope_parameters` section of `config`."""
    kinds = {kind: kind for kind in ("default", "linear", "llama3", "yarn")}
    kind = rope.choice("rope_type", rope.text("type", "default"), kinds)
    rope.only(type=kind)
    match kind:
        case "linear":
            scaling = block("positions.LinearScaling", factor=rope.number("factor"))
        case "llama3":
            turns = {"slow": rope.number("low_freq_factor"), "fast": rope.number("high_freq_factor")}
            length = rope.size("original_max_position_embeddings")
            scaling = block("positions.Llama3Scaling", original_seq_len=length, factor=rope.number("factor"), **turns)
        case "yarn":
            turns = {"slow": rope.number("beta_slow", 1.0), "fast": rope.number("beta_fast", 32.0)}
            length = rope.size("original_max_position_embeddings", config.size("max_position_embeddings"))
            rope.absent("attention_factor", "mscale", "mscale_all_dim")
            rope.only(truncate=True)
            scaling = block("positions.YaRN", original_seq_len=length, factor=rope.number("factor"), **turns)
        case _:
            scaling = block("positions.NoScaling")
    rope.finish()
    return block("positions.RoPE", base=base, scaling=scaling)
