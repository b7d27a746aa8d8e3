"""A decoder of Llama's shape through `seqlab-run`, against onnxruntime-genai with the same weights.

python benchmarks/cpp_decoder_vs_genai.py

onnxruntime-genai's model builder does not support GPT-2, so both run a Llama: 6 layers, d 512, 23M parameters, as
graphs of onnxruntime's own nodes (`--target ort`). It is installed with its own onnxruntime, in a separate environment.
Batch 1, greedy, tokens/s of 16 prompt tokens and 128 new ones, at 1 and at 2 threads, in turns; the tokens are compared
too.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from peers.contest import (
    BUILD,
    Server,
    UnavailableError,
    agreement,
    asking,
    bundle,
    environment,
    program,
    run,
    show_contest,
    write_in_turns,
)
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.models.pretrained import read_pretrained
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab_export.capture.precision import Precision

LAYERS, WIDTH, HEADS, INNER, VOCAB, LENGTH = 6, 512, 8, 1376, 8000, 512
PROMPT, NEW, ROUNDS, WANTED = 16, 128, 31, 1.0
PRECISIONS: tuple[Precision, ...] = ("fp32", "int4")


def checkpoint() -> Path:
    folder = BUILD / "benchmarks" / "llama"
    if (folder / "tokenizer.json").is_file():
        return folder
    torch.manual_seed(0)
    disable_progress_bar()
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, initializer_range=0.05,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=LENGTH, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weights in model.parameters():
            # The norms differ, so that no two tensors are equal.
            if weights.dim() == 1:
                weights.add_(0.05 * torch.randn_like(weights))
    model.save_pretrained(folder)
    # The builder needs a tokenizer; both models are run on ids.
    words = Tokenizer(models.WordLevel({str(token): token for token in range(VOCAB)}, unk_token="3"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="0", bos_token="1", eos_token="2", unk_token="3"
    ).save_pretrained(folder)
    return folder


def ours(folder: Path) -> DecoderLM:
    model = DecoderLM(
        VOCAB,
        LENGTH,
        d_model=WIDTH,
        num_layers=LAYERS,
        mixer=partial(Attention, num_heads=HEADS, bias=False),
        block=partial(Block, norm=partial(RMSNorm, eps=1e-6), ffn=partial(SwiGLU, d_ff=INNER)),
    )
    model.load_state_dict(read_pretrained(folder).weights)
    return model


def build_theirs(python: Path, pretrained: Path, precision: str) -> Path:
    """Builds their model with their own builder, which needs torch and transformers and runs in this environment."""
    out = BUILD / "benchmarks" / f"llama-genai-{precision}"
    if not (out / "genai_config.json").is_file():
        builder = next(python.parents[1].glob("lib/python3*/site-packages/onnxruntime_genai/models/builder.py"))
        command = [sys.executable, str(builder), "-i", str(pretrained), "-o", str(out), "-p", precision, "-e", "cpu"]
        done = subprocess.run([*command, "-c", str(out / "cache")], capture_output=True, text=True)
        if done.returncode != 0:
            raise UnavailableError(f"not run: onnxruntime-genai's builder fails: {done.stderr.splitlines()[-1]}")
    return out


def main() -> None:
    runtime = program("seqlab-run")
    python = environment("genai", "onnxruntime-genai==0.18.0")
    pretrained = checkpoint()
    theirs = {precision: build_theirs(python, pretrained, precision) for precision in PRECISIONS}
    model = ours(pretrained)
    print(f"{sum(weights.numel() for weights in model.parameters()) / 1e6:.1f}M parameters")
    bundles = {
        f"seqlab {precision}": bundle(model, VOCAB, "llama", precision, LENGTH, "ort") for precision in PRECISIONS
    }
    for threads in (1, 2):
        peers = {
            f"genai {name}": Server(python, "serve_genai.py", folder, threads=threads)
            for name, folder in theirs.items()
        }
        with asking(peers):
            measured, written = write_in_turns(
                runtime, bundles, peers, threads, ROUNDS, prompt_tokens=PROMPT, new_tokens=NEW
            )
        pairs = [(f"seqlab {name}", f"genai {name}", WANTED) for name in PRECISIONS]
        show_contest(f"{threads} thread(s), {ROUNDS} rounds", measured, pairs)
        print(f"in fp32: {agreement(written['seqlab fp32'], written['genai fp32'])}", flush=True)


if __name__ == "__main__":
    run(main)
