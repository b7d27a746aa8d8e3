"""Our decoder with copied weights against `transformers`: GPT-2 and Llama, random weights, nothing downloaded."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.models.pretrained import read_pretrained
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import Learned, RoPE
from tolerances import FLOAT32_ANGLES, TOLERANCE, assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

VOCAB_SIZE, SEQ_LEN, D_MODEL, NUM_LAYERS = 97, 32, 24, 3
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _randomize(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)


def _saved_and_read(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    model.save_pretrained(folder)
    return read_pretrained(folder).weights


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


@dtypes
@pytest.mark.parametrize("build", [_gpt2, _llama], ids=["gpt2", "llama"])
def test_logits_steps_and_gradients(build: object, dtype: torch.dtype, tmp_path: Path) -> None:
    assert callable(build)
    ours, theirs = build(dtype, tmp_path)
    tolerance = max(TOLERANCE[dtype], FLOAT32_ANGLES if build is _llama else 0.0)
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
