"""GPT-2 and Llama checkpoints in the layout of Hugging Face `transformers`, as a `DecoderLM` and its weights.

L layers, D d_model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

Config = Mapping[str, Any]


class Pretrained(NamedTuple):
    """A checkpoint folder, read.

    Attributes:
        vocab_size: tokens V.
        seq_len: how far its positions were trained.
        model: class path and arguments of the `DecoderLM`, as a seqlab config has them.
        weights: the `DecoderLM`'s `state_dict`.
    """

    vocab_size: int
    seq_len: int
    model: dict[str, Any]
    weights: dict[str, Tensor]


def read_pretrained(folder: Path) -> Pretrained:
    """Reads `config.json` and `model.safetensors` (or its shards and their index).

    Raises:
        ValueError: a file is missing, or the model is not one that DecoderLM computes.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json; give a folder as transformers' save_pretrained writes it")
    config = json.loads(path.read_text(encoding="utf-8"))
    families: dict[str, Callable[[Config, dict[str, Tensor]], Pretrained]] = {"gpt2": _gpt2, "llama": _llama}
    kind = config.get("model_type")
    if kind not in families:
        raise ValueError(f"{path} describes a {kind!r} model; accepted: {', '.join(families)}")
    return families[kind](config, _read_weights(folder))


def _read_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        shards = ["model.safetensors"]
    for shard in shards:
        if not (folder / Path(shard).name).is_file():
            raise ValueError(f"{folder} lacks {shard}; save the checkpoint as safetensors")
    return {name: weight for shard in shards for name, weight in load_file(folder / Path(shard).name).items()}


def _gpt2(config: Config, weights: dict[str, Tensor]) -> Pretrained:
    """GPT-2 stores linear weights transposed, with queries, keys and values in one."""
    _require(config, activation_function="gelu_new", scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    d_model, num_layers = config["n_embd"], config["n_layer"]
    source = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    renamed = {
        "attn.c_proj": "mixer.out_proj",
        "mlp.c_fc": "ffn.up_proj",
        "mlp.c_proj": "ffn.down_proj",
        "ln_1": "mixer_norm",
        "ln_2": "ffn_norm",
    }
    ours = {"embedding.weight": source["wte.weight"], "positions.table.weight": source["wpe.weight"]}
    for part in ("weight", "bias"):
        ours[f"stack.norm.{part}"] = source[f"ln_f.{part}"]
        for layer in range(num_layers):
            at, to = f"h.{layer}", f"stack.blocks.{layer}"
            projections = source[f"{at}.attn.c_attn.{part}"].chunk(3, dim=-1)
            for name, weight in zip(("q_proj", "k_proj", "v_proj"), projections, strict=True):
                ours[f"{to}.mixer.{name}.{part}"] = weight.t()
            for theirs, name in renamed.items():
                weight = source[f"{at}.{theirs}.{part}"]
                ours[f"{to}.{name}.{part}"] = weight if theirs.startswith("ln") else weight.t()
    norm = _class("nn.LayerNorm", eps=config["layer_norm_epsilon"])
    ffn = _class("nn.GELU", d_ff=config.get("n_inner") or 4 * d_model)
    model = _class(
        "models.DecoderLM",
        d_model=d_model,
        num_layers=num_layers,
        mixer=_class("attention.Attention", num_heads=config["n_head"]),
        positions=_class("positions.Learned"),
        block=_class("nn.Block", norm=norm, ffn=ffn),
    )
    ours = {name: weight.contiguous() for name, weight in ours.items()}
    return Pretrained(config["vocab_size"], config["n_positions"], model, ours)


def _llama(config: Config, weights: dict[str, Tensor]) -> Pretrained:
    _require(config, hidden_act="silu", attention_bias=False, mlp_bias=False)
    rope = {"rope_theta": config.get("rope_theta", 10000.0)} | (config.get("rope_parameters") or {})
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", rope.get("rope_type", "default")))
    if kind != "default":
        raise ValueError(f"config.json has rope_type {kind!r}; accepted: 'default'")
    tied = bool(config.get("tie_word_embeddings", False))
    renamed = {
        "model.embed_tokens": "embedding",
        "lm_head": "head",
        "model.layers": "stack.blocks",
        "model.norm": "stack.norm",
        "self_attn.o_proj": "mixer.out_proj",
        "self_attn": "mixer",
        "mlp": "ffn",
        "input_layernorm": "mixer_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    ours = {}
    for name, weight in weights.items():
        for theirs, to in renamed.items():
            name = name.replace(theirs, to)
        if not name.endswith("rotary_emb.inv_freq") and not (tied and name == "head.weight"):
            ours[name] = weight
    norm = _class("nn.RMSNorm", eps=config["rms_norm_eps"])
    ffn = _class("nn.SwiGLU", d_ff=config["intermediate_size"])
    mixer = _class(
        "attention.Attention",
        num_heads=config["num_attention_heads"],
        num_kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        bias=False,
    )
    model = _class(
        "models.DecoderLM",
        d_model=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        mixer=mixer,
        positions=_class("positions.RoPE", base=rope["rope_theta"]),
        block=_class("nn.Block", norm=norm, ffn=ffn),
        tie_embeddings=tied,
    )
    return Pretrained(config["vocab_size"], config["max_position_embeddings"], model, ours)


def _require(config: Config, **expected: object) -> None:
    """Refuses a setting that would compute something else."""
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise ValueError(f"config.json has {name} {config[name]!r}; accepted: {value!r}")


def _class(path: str, **init_args: object) -> dict[str, Any]:
    return {"class_path": f"seqlab.{path}", "init_args": init_args}
