"""Our decoder with copied weights against that of `transformers`, with random weights and nothing downloaded."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention, DifferentialAttention, LatentAttention
from seqlab.models import DecoderLM
from seqlab.models.pretrained import read_pretrained
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import Learned, RoPE
from tolerances import FLOAT32_ANGLES, TOLERANCE, assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

VOCAB_SIZE, SEQ_LEN, D_MODEL, NUM_LAYERS = 97, 32, 24, 3
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
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
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _randomize(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)


def _saved_and_read(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    model.save_pretrained(folder)
    return read_pretrained(folder).weights


def _renamed(model: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """The model's weights by our names."""
    weights = {}
    for name, weight in model.state_dict().items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        weights[name] = weight
    return weights


def _gpt2(dtype: torch.dtype, folder: Path) -> tuple[DecoderLM, nn.Module]:
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=SEQ_LEN, n_embd=D_MODEL, n_layer=NUM_LAYERS, n_head=4, **NO_TOKENS
    )
    theirs = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    _randomize(theirs)
    ours = DecoderLM(VOCAB_SIZE, SEQ_LEN, d_model=D_MODEL, num_layers=NUM_LAYERS, positions=Learned).to(dtype)
    ours.load_state_dict(_saved_and_read(theirs, folder))
    return ours, theirs


def _llama(dtype: torch.dtype, folder: Path) -> tuple[DecoderLM, nn.Module]:
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=SEQ_LEN,
        hidden_size=D_MODEL,
        intermediate_size=40,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        **NO_TOKENS,
    )
    theirs = transformers.LlamaForCausalLM(config).to(dtype).eval()
    _randomize(theirs)
    ours = DecoderLM(
        VOCAB_SIZE,
        SEQ_LEN,
        d_model=D_MODEL,
        num_layers=NUM_LAYERS,
        mixer=partial(Attention, num_heads=4, num_kv_heads=2, bias=False),
        positions=RoPE,
        block=partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=40)),
        tie_embeddings=False,
    ).to(dtype)
    ours.load_state_dict(_saved_and_read(theirs, folder))
    return ours, theirs


def _diff_llama(dtype: torch.dtype, folder: Path) -> tuple[DecoderLM, nn.Module]:
    num_heads, head_dim = 2, 6
    config = transformers.DiffLlamaConfig(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=SEQ_LEN,
        hidden_size=D_MODEL,
        intermediate_size=40,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=2 * num_heads,
        num_key_value_heads=2 * num_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        **NO_TOKENS,
    )
    theirs = transformers.DiffLlamaForCausalLM(config).to(dtype).eval()
    _randomize(theirs)
    ours = DecoderLM(
        VOCAB_SIZE,
        SEQ_LEN,
        d_model=D_MODEL,
        num_layers=NUM_LAYERS,
        mixer=partial(DifferentialAttention, num_heads=num_heads),
        positions=RoPE,
        block=partial(Block, norm=partial(RMSNorm, eps=1e-5), ffn=partial(SwiGLU, d_ff=40)),
        tie_embeddings=False,
    ).to(dtype)
    weights = _renamed(theirs, LLAMA_NAMES)
    for layer in range(NUM_LAYERS):
        mixer = f"stack.blocks.{layer}.mixer"
        # One of our values is two of theirs, j and j + num_heads; they have no gains.
        values = weights[f"{mixer}.v_proj.weight"].view(2, num_heads, head_dim, -1)
        weights[f"{mixer}.v_proj.weight"] = values.transpose(0, 1).flatten(0, 2)
        weights[f"{mixer}.head_norm.weight"] = torch.ones(2 * head_dim)
    ours.load_state_dict(weights)
    return ours, theirs


def _deepseek(dtype: torch.dtype, folder: Path) -> tuple[DecoderLM, nn.Module]:
    """DeepSeek-V3 whose every layer is dense."""
    num_heads, head_dim, rope_head_dim, kv_rank = 4, 6, 4, 10
    config = transformers.DeepseekV3Config(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=SEQ_LEN,
        hidden_size=D_MODEL,
        intermediate_size=40,
        num_hidden_layers=NUM_LAYERS,
        first_k_dense_replace=NUM_LAYERS,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        q_lora_rank=14,
        kv_lora_rank=kv_rank,
        qk_nope_head_dim=head_dim,
        qk_rope_head_dim=rope_head_dim,
        v_head_dim=head_dim,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        **NO_TOKENS,
    )
    theirs = transformers.DeepseekV3ForCausalLM(config).to(dtype).eval()
    _randomize(theirs)
    ours = DecoderLM(
        VOCAB_SIZE,
        SEQ_LEN,
        d_model=D_MODEL,
        num_layers=NUM_LAYERS,
        mixer=partial(
            LatentAttention,
            num_heads=num_heads,
            head_dim=head_dim,
            kv_rank=kv_rank,
            q_rank=14,
            rope_head_dim=rope_head_dim,
        ),
        positions=RoPE,
        block=partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=40)),
        tie_embeddings=False,
    ).to(dtype)
    # Its rotary channels are paired (2i, 2i + 1), ours (i, i + R / 2).
    halves = torch.arange(rope_head_dim).view(-1, 2).t().flatten()
    weights = {}
    for name, weight in _renamed(theirs, DEEPSEEK_NAMES).items():
        if name.endswith("mixer.q_proj.weight"):
            heads = weight.view(num_heads, head_dim + rope_head_dim, -1)
            weight = torch.cat((heads[:, :head_dim], heads[:, head_dim:][:, halves]), dim=1).flatten(0, 1)
        if name.endswith("kv_down_proj.weight"):
            weight = torch.cat((weight[:kv_rank], weight[kv_rank:][halves]))
        if name.endswith("kv_b_proj.weight"):
            for part, of_heads in zip("kv", weight.view(num_heads, 2, head_dim, -1).unbind(1), strict=True):
                weights[name.replace("kv_b", part)] = of_heads.flatten(0, 1)
        else:
            weights[name] = weight
    ours.load_state_dict(weights)
    return ours, theirs


@dtypes
@pytest.mark.parametrize("build", [_gpt2, _llama, _deepseek, _diff_llama])
def test_logits_steps_and_gradients(build: object, dtype: torch.dtype, tmp_path: Path) -> None:
    assert callable(build)
    ours, theirs = build(dtype, tmp_path)
    tolerance = max(TOLERANCE[dtype], 0.0 if build is _gpt2 else FLOAT32_ANGLES)
    tokens = torch.randint(VOCAB_SIZE, (3, SEQ_LEN))
    expected = theirs(tokens).logits
    logits, _ = ours(tokens)
    assert expected.std() > 0.3
    assert_close(logits, expected, "the logits", tolerance=tolerance)

    state = ours.init_state(3)
    for t in range(SEQ_LEN):
        step_logits, state = ours.step(tokens[:, t], state)
        assert_close(step_logits, expected[:, t], f"the logits of step {t}", tolerance=tolerance)

    def gradient(logits: Tensor, weight: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        return torch.autograd.grad(loss, weight)[0]

    their_embedding = theirs.get_input_embeddings().weight
    assert_close(
        gradient(logits, ours.embedding.weight), gradient(expected, their_embedding), "a gradient", tolerance=tolerance
    )
