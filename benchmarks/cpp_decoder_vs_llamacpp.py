"""A decoder of Llama's shape through `seqlab-run`, against llama.cpp with the same weights.

python benchmarks/cpp_decoder_vs_llamacpp.py

fp32, int8 against its q8_0, int4 against its q4_0: 128 new tokens after 16, greedy, of 1, 8 and 32 rows at once, and
2 after a prompt of 384, at 1 and at 2 threads, in turns; the tokens of fp32 are compared too. llama.cpp is built from
its Python package's source, in a separate environment, which takes a quarter of an hour on the first run.
"""

from __future__ import annotations

from pathlib import Path

from cpp_decoder_vs_genai import LENGTH, VOCAB, checkpoint, ours
from peers.contest import Server, agreement, asking, bundle, environment, program, run, show_contest, write_in_turns

from seqlab_export.capture.precision import Precision

KINDS: dict[Precision, str] = {"fp32": "F32", "int8": "Q8_0", "int4": "Q4_0"}
CASES = (
    {"batch": 1, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 8, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 32, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 1, "prompt_tokens": 384, "new_tokens": 2},
)
ROUNDS = {1: 7, 8: 5, 32: 3}
WANTED = 1.0


def compare(threads: int, runtime: Path, bundles: dict[str, Path], peers: dict[str, Server]) -> None:
    for case in CASES:
        measured, written = write_in_turns(runtime, bundles, peers, threads, ROUNDS[case["batch"]], **case)
        title = "{batch} row(s), {prompt_tokens} prompt tokens, {new_tokens} new ones".format(**case)
        pairs = [(f"seqlab {precision}", f"llama.cpp {kind}", WANTED) for precision, kind in KINDS.items()]
        show_contest(f"{threads} thread(s), {title}", measured, pairs)
        print(f"in fp32: {agreement(written['seqlab fp32'], written['llama.cpp F32'])}", flush=True)


def main() -> None:
    runtime = program("seqlab-run")
    python = environment("llamacpp", "llama-cpp-python==0.3.36", "gguf==0.19.0", "safetensors==0.8.0")
    pretrained = checkpoint()
    model = ours(pretrained)
    print(f"{sum(weights.numel() for weights in model.parameters()) / 1e6:.1f}M parameters")
    bundles = {f"seqlab {precision}": bundle(model, VOCAB, "llama", precision, LENGTH, "ort") for precision in KINDS}
    for threads in (1, 2):
        peers = {
            f"llama.cpp {kind}": Server(python, "serve_llamacpp.py", pretrained, kind, threads=threads)
            for kind in KINDS.values()
        }
        with asking(peers):
            compare(threads, runtime, bundles, peers)


if __name__ == "__main__":
    run(main)
