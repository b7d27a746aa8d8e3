"""A decoder of Llama's shape through `seqlab-run`, against llama.cpp with the same weights.

python benchmarks/cpp_decoder_vs_llamacpp.py

fp32, int8 against its q8_0, int4 against its q4_0: 128 new tokens after 16, greedy, of 1, 8 and 32 rows at once, and
2 after a prompt of 384, at 1 and at 2 threads, in turns; the tokens of fp32 are compared too. llama.cpp is built from
its Python package's source, in an environment of its own, which takes a quarter of an hour on the first run.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from cpp_decoder_vs_genai import LENGTH, VOCAB, checkpoint, ours
from peers.contest import (
    Server,
    UnavailableError,
    agreement,
    bundle,
    decode_in_turns,
    environment,
    program,
    ratio,
    show,
)

from seqlab_export.capture.precision import Precision

KINDS: dict[Precision, str] = {"fp32": "F32", "int8": "Q8_0", "int4": "Q4_0"}
CASES = (
    {"batch": 1, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 8, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 32, "prompt_tokens": 16, "new_tokens": 128},
    {"batch": 1, "prompt_tokens": 384, "new_tokens": 2},
)
ROUNDS, WANTED = 7, 1.0


def compare(threads: int, runtime: Path, bundles: dict[str, Path], peers: dict[str, Server]) -> None:
    for case in CASES:
        measured, written = decode_in_turns(runtime, bundles, peers, threads, ROUNDS, **case)
        rows = []
        for precision, kind in KINDS.items():
            pair = f"seqlab {precision}", f"llama.cpp {kind}"
            medians = [f"{statistics.median(measured[name]):,.0f}" for name in pair]
            rows.append([" / ".join(pair), *medians, ratio(measured, *pair), str(WANTED)])
        title = "{batch} row(s), {prompt_tokens} prompt tokens, {new_tokens} new ones".format(**case)
        show(f"{threads} thread(s), {title}", ["tokens/s", "ours", "theirs", "ratio", "wanted"], rows)
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
        compare(threads, runtime, bundles, peers)
        for server in peers.values():
            server.close()


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as reason:
        print(f"cpp_decoder_vs_llamacpp: {reason}")
