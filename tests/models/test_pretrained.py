"""Every field of a foreign config.json is read: changed, it gives the logits that `transformers` then computes, or is
refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.theirs import NO_TOKENS, randomly, transformers
from seqlab.config.configs import build
from seqlab.models.pretrained import read_pretrained
from seqlab.models.pretrained.config import WITHOUT_EFFECT
from seqlab.trained.foreign_logits import LIMIT

VOCAB_SIZE, SEQ_LEN = 61, 32
GPT2 = {"vocab_size": VOCAB_SIZE, "n_positions": SEQ_LEN, "n_embd": 16, "n_layer": 2, "n_head": 4, **NO_TOKENS}
LLAMA: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "intermediate_size": 20, **NO_TOKENS}
LLAMA |= {"max_position_embeddings": SEQ_LEN, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2}
GEMMA: dict[str, Any] = {"head_dim": 6, "sliding_window": 5, "query_pre_attn_scalar": 9, "pad_token_id": None}
STATE_SPACE: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "state_size": 5, "num_hidden_layers": 2}
STATE_SPACE |= {"pad_token_id": None, **NO_TOKENS}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama": LLAMA | {"attention_bias": True},
    "mistral": LLAMA | {"sliding_window": 5},
    "qwen2": LLAMA | {"tie_word_embeddings": True},
    "qwen3": LLAMA | {"head_dim": 6},
    "phi3": LLAMA | {"sliding_window": 5, "pad_token_id": None},
    "smollm3": LLAMA | {"no_rope_layers": [1, 0], "pad_token_id": None},
    "olmo2": LLAMA | {"pad_token_id": None},
    "gemma": LLAMA | {"head_dim": 6, "pad_token_id": None},
    "gemma2": LLAMA | GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": LLAMA | GEMMA | {"layer_types": ["sliding_attention", "full_attention"]},
    "gpt_neox": {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}
    | {"num_attention_heads": 2},
    "mamba": STATE_SPACE,
    "mamba2": STATE_SPACE | {"num_heads": 4, "head_dim": 8, "n_groups": 1},
    "qwen3_moe": LLAMA | {"head_dim": 6, "num_experts": 4, "norm_topk_prob": True} | EXPERTS,
}
NAMES = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "float16", "default", "last"]
LENGTH = {"original_max_position_embeddings": 16}
THETA = {"rope_theta": 10000.0}
SECTIONS: list[dict[str, Any]] = [
    {"rope_theta": 77.0, "rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0, **THETA},
    {"type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0, **THETA},
    {"rope_type": "yarn", "factor": 3.0, **LENGTH, **THETA},
    {"rope_type": "default", "partial_rotary_factor": 0.5, **THETA},
    {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTH, **THETA},
    {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.5, "high_freq_factor": 2.0, **LENGTH, **THETA},
    {"rope_type": "yarn", "factor": 3.0, "beta_fast": 16.0, "beta_slow": 2.0, **LENGTH, **THETA},
    {"rope_type": "yarn", "factor": 3.0, "attention_factor": 2.0, **LENGTH, **THETA},
    {"rope_type": "yarn", "factor": 3.0, **THETA},
]
# Of no family, of old versions, or what changes a model from outside its own fields.
OTHERS: dict[str, list[Any]] = {
    "rope_theta": [77.0, "10000"],
    "rope_scaling": [None, *SECTIONS],
    "rope_parameters": SECTIONS,
    "partial_rotary_factor": [0.5, 1.0],
    "rope_interleaved": [True, False],
    "quantization_config": [{"quant_method": "bitsandbytes", "load_in_8bit": True}],
    "auto_map": [{"AutoModelForCausalLM": "modeling.Model"}],
    "layer_types": [["sliding_attention", "full_attention"], ["full_attention"] * 2],
    "per_layer_config": [{"0": {"hidden_act": "relu"}}],
    "hidden_size": [24],
    "num_hidden_layers": [1],
    "n_ctx": [7],
    "is_causal": [False, None],
    "is_decoder": [True],
    "pruned_heads": [{"0": [1]}, {}],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "logit_scale": [2.0],
    "transformers.js_config": [{"dtype": "q4"}],
}


@cache
def _model(described: str) -> Any:
    told = {"vocab_size": VOCAB_SIZE, "seq_len": SEQ_LEN}
    task, _ = build(
        {"model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": json.loads(described)}}, told
    )
    return task.model.eval()


def _others(value: Any) -> Iterator[Any]:
    """Other values of a field, of its kind and of none."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value / 2, 0, -1)
    elif isinstance(value, str):
        yield from (name for name in NAMES if name != value)
    if value is None:
        yield from (True, 12, 0.5, "relu")
    yield from ([], {"x": 1}, str(value))


def _changes(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in config:
        others = [None, *_others(config[name])]
        if name in WITHOUT_EFFECT:
            others = others[1:2]
        else:
            yield name, {field: value for field, value in config.items() if field != name}
        yield from ((name, config | {name: other}) for other in others)
    for name, values in OTHERS.items():
        yield from ((name, config | {name: value}) for value in values)
    without = {name: value for name, value in config.items() if name != "rope_parameters"}
    for section in SECTIONS:
        yield "rope_scaling", without | {"rope_scaling": section, "rope_theta": 55.0}


def _theirs(folder: Path, tokens: Tensor) -> Tensor | None:
    """None where transformers refuses the folder."""
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            logits: Tensor = model(tokens).logits
    except Exception:
        return None
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_no_field_is_ignored(kind: str, tmp_path: Path) -> None:
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    made = transformers.AutoConfig.for_model(kind, **FAMILIES[kind])
    randomly(transformers.AutoModelForCausalLM.from_config(made)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = made.to_dict() | json.loads(path.read_text())
    tokens = torch.randint(VOCAB_SIZE, (2, SEQ_LEN))
    accepted, wrong = set(), []
    for name, changed in [("nothing", config), *_changes(config)]:
        told = f"{name} {json.dumps(changed.get(name, 'absent'))[:60]}"
        path.write_text(json.dumps(changed))
        try:
            read = read_pretrained(tmp_path)
            model = _model(json.dumps({"model": read.model}))
        except ValueError as error:
            said = str(error)
            if name not in said and "config.json" not in said:
                wrong.append(f"{told} is refused without its name: {said}")
            continue
        expected = _theirs(tmp_path, tokens)
        if expected is None:
            continue
        accepted.add(name)
        model.load_state_dict(read.weights)
        with torch.inference_mode():
            difference = (model(tokens)[0] - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        if not difference < LIMIT:
            wrong.append(f"{told} differs by {difference:.1e}")
    assert not wrong, "\n".join(wrong)
    assert {"nothing", "use_cache", "transformers_version"} <= accepted


@pytest.mark.parametrize(
    ("kind", "why"),
    [("gemma3", ": Gemma 3 with images has an image encoder, which no block"), ("mixtral", "; accepted")],
)
def test_a_family_that_is_not_ours_is_refused_by_its_name(kind: str, why: str, tmp_path: Path) -> None:
    transformers.AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"'{kind}' model{why}.*gpt2, gpt_neox, llama, mamba"):
        read_pretrained(tmp_path)
