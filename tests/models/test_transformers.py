"""Our decoders with copied weights against those of `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.theirs import NO_TOKENS, padded, ramp, randomly, renamed, transformers
from seqlab.attention import Attention, DifferentialAttention, LatentAttention
from seqlab.models import DecoderLM
from seqlab.models.pretrained import read_pretrained
from seqlab.nn import Block, RMSNorm, Stack, SwiGLU
from seqlab.positions import ALiBi, Learned, RoPE
from tolerances import FLOAT32_ANGLES, FLOAT32_SOFTMAX, TOLERANCE, assert_close

VOCAB_SIZE, SEQ_LEN, D_MODEL, D_FF, NUM_LAYERS = 97, 32, 24, 40, 3
LLAMA_NAMES = {
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
DEEPSEEK_NAMES = {
    "self_attn.q_a_proj": "mixer.q_down_proj",
    "self_attn.q_a_layernorm": "mixer.q_norm",
    "self_attn.q_b_proj": "mixer.q_proj",
    "self_attn.kv_a_proj_with_mqa": "mixer.kv_down_proj",
    "self_attn.kv_a_layernorm": "mixer.kv_norm",
} | LLAMA_NAMES
BLOOM_NAMES = {
    "input_layernorm": "mixer_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attention.dense": "mixer.out_proj",
    "mlp.dense_h_to_4h": "ffn.up_proj",
    "mlp.dense_4h_to_h": "ffn.down_proj",
    "h.": "blocks.",
    "ln_f": "norm",
}
Pair = tuple[DecoderLM, Any]
"""Ours, without weights, and theirs."""
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _like_llama(name: str, mixer: Any, *, eps: float = 1e-6, heads: int = 4, kv_heads: int = 4, **options: Any) -> Pair:
    """`options` are those of their config."""
    width = {"vocab_size": VOCAB_SIZE, "hidden_size": D_MODEL, "intermediate_size": D_FF, "rms_norm_eps": eps}
    length = {"max_position_embeddings": SEQ_LEN, "num_hidden_layers": NUM_LAYERS, "tie_word_embeddings": False}
    options |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, **NO_TOKENS}
    config = getattr(transformers, f"{name}Config")(**width, **length, **options)
    block = partial(Block, norm=partial(RMSNorm, eps=eps), ffn=partial(SwiGLU, d_ff=D_FF))
    sizes: dict[str, Any] = {"d_model": D_MODEL, "num_layers": NUM_LAYERS}
    ours = DecoderLM(VOCAB_SIZE, SEQ_LEN, **sizes, mixer=mixer, positions=RoPE, block=block, tie_embeddings=False)
    return ours, getattr(transformers, f"{name}ForCausalLM")(config)


def _read(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    model.save_pretrained(folder)
    return read_pretrained(folder).weights


def _gpt2() -> Pair:
    sizes = {"n_embd": D_MODEL, "n_layer": NUM_LAYERS, "n_head": 4}
    config = transformers.GPT2Config(vocab_size=VOCAB_SIZE, n_positions=SEQ_LEN, **sizes, **NO_TOKENS)
    ours = DecoderLM(VOCAB_SIZE, SEQ_LEN, d_model=D_MODEL, num_layers=NUM_LAYERS, positions=Learned)
    return ours, transformers.GPT2LMHeadModel(config)


def _llama() -> Pair:
    return _like_llama("Llama", partial(Attention, num_heads=4, num_kv_heads=2, bias=False), kv_heads=2)


def _diff_llama() -> Pair:
    return _like_llama("DiffLlama", partial(DifferentialAttention, num_heads=2), eps=1e-5, head_dim=6)


def _diff_llama_weights(theirs: nn.Module, folder: Path) -> dict[str, Tensor]:
    weights = renamed(theirs, LLAMA_NAMES)
    for layer in range(NUM_LAYERS):
        mixer = f"stack.blocks.{layer}.mixer"
        # One of our values is two of theirs, j and j + num_heads; they have no gains.
        values = weights[f"{mixer}.v_proj.weight"].view(2, 2, 6, -1)
        weights[f"{mixer}.v_proj.weight"] = values.transpose(0, 1).flatten(0, 2)
        weights[f"{mixer}.head_norm.weight"] = torch.ones(2 * 6)
    return weights


HEADS, HEAD_DIM, KV_RANK, ROPE_HEAD_DIM = 4, 6, 10, 4


def _deepseek() -> Pair:
    """DeepSeek-V3 whose every layer is dense."""
    latent = partial(LatentAttention, num_heads=HEADS, head_dim=HEAD_DIM, kv_rank=KV_RANK, q_rank=14)
    ranks: dict[str, Any] = {"first_k_dense_replace": NUM_LAYERS, "q_lora_rank": 14, "kv_lora_rank": KV_RANK}
    ranks |= {"qk_nope_head_dim": HEAD_DIM, "qk_rope_head_dim": ROPE_HEAD_DIM, "v_head_dim": HEAD_DIM}
    return _like_llama("DeepseekV3", partial(latent, rope_head_dim=ROPE_HEAD_DIM), **ranks)


def _deepseek_weights(theirs: nn.Module, folder: Path) -> dict[str, Tensor]:
    # Its rotary channels are paired (2i, 2i + 1), ours (i, i + R / 2).
    halves = torch.arange(ROPE_HEAD_DIM).view(-1, 2).t().flatten()
    weights = {}
    for name, weight in renamed(theirs, DEEPSEEK_NAMES).items():
        if name.endswith("mixer.q_proj.weight"):
            heads = weight.view(HEADS, HEAD_DIM + ROPE_HEAD_DIM, -1)
            weight = torch.cat((heads[:, :HEAD_DIM], heads[:, HEAD_DIM:][:, halves]), dim=1).flatten(0, 1)
        if name.endswith("kv_down_proj.weight"):
            weight = torch.cat((weight[:KV_RANK], weight[KV_RANK:][halves]))
        if name.endswith("kv_b_proj.weight"):
            for part, of_heads in zip("kv", weight.view(HEADS, 2, HEAD_DIM, -1).unbind(1), strict=True):
                weights[name.replace("kv_b", part)] = of_heads.flatten(0, 1)
        else:
            weights[name] = weight
    return weights


@dtypes
@pytest.mark.parametrize(
    ("build", "weights", "least"),
    [
        (_gpt2, _read, 0.0),
        (_llama, _read, FLOAT32_ANGLES),
        (_deepseek, _deepseek_weights, FLOAT32_ANGLES),
        (_diff_llama, _diff_llama_weights, FLOAT32_ANGLES),
    ],
)
def test_logits_steps_and_gradients(
    build: Callable[[], Pair], weights: Any, least: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    ours, theirs = build()
    ours.to(dtype).load_state_dict(weights(randomly(theirs, dtype), tmp_path))
    tolerance = max(TOLERANCE[dtype], least)
    tokens = torch.randint(VOCAB_SIZE, (3, SEQ_LEN))
    expected, (logits, _) = theirs(tokens).logits, ours(tokens)
    assert expected.std() > 0.3
    assert_close(logits, expected, "the logits", tolerance=tolerance)

    state = ours.init_state(3)
    for t in range(SEQ_LEN):
        step_logits, state = ours.step(tokens[:, t], state)
        assert_close(step_logits, expected[:, t], f"the logits of step {t}", tolerance=tolerance)

    def gradient(logits: Tensor, weight: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        return torch.autograd.grad(loss, weight)[0]

    found = gradient(logits, ours.embedding.weight)
    assert_close(found, gradient(expected, theirs.get_input_embeddings().weight), "a gradient", tolerance=tolerance)


@dtypes
@pytest.mark.parametrize("num_heads", [3, 4])
def test_blooms_layers(num_heads: int, dtype: torch.dtype) -> None:
    """Given the same embeddings."""
    sizes = {"hidden_size": D_MODEL, "n_layer": 2, "n_head": num_heads}
    config = transformers.BloomConfig(vocab_size=VOCAB_SIZE, layer_norm_epsilon=1e-5, **sizes)
    theirs = randomly(transformers.BloomModel(config), dtype)
    mixers = [Attention(D_MODEL, k, num_heads=num_heads) for k in range(2)]
    ours = Stack(mixers, positions=ALiBi(D_MODEL, SEQ_LEN), block=Block, causal=True).to(dtype)
    weights = {}
    for name, weight in renamed(theirs, BLOOM_NAMES).items():
        if "query_key_value" in name:
            # Of each head its query, its key and its value, one head after the other.
            parts = weight.view(num_heads, 3, D_MODEL // num_heads, *weight.shape[1:]).unbind(1)
            for letter, part in zip("qkv", parts, strict=True):
                weights[name.replace("self_attention.query_key_value", f"mixer.{letter}_proj")] = part.flatten(0, 1)
        elif not name.startswith("word_embeddings"):
            weights[name] = weight
    ours.load_state_dict(weights)

    tokens, pad_mask = torch.randint(VOCAB_SIZE, (3, SEQ_LEN)), padded(SEQ_LEN)
    expected = theirs(tokens, attention_mask=pad_mask).last_hidden_state
    y, _ = ours(theirs.word_embeddings_layernorm(theirs.word_embeddings(tokens)), pad_mask=pad_mask)
    tolerance = max(TOLERANCE[dtype], FLOAT32_SOFTMAX)
    assert expected.std() > 0.3
    assert_close(y[pad_mask], expected[pad_mask], tolerance=tolerance)
    embedding, real = theirs.get_input_embeddings().weight, pad_mask.unsqueeze(-1)
    assert_close(ramp(y * real, embedding), ramp(expected * real, embedding), "a gradient", tolerance=tolerance)
