"""A bundle without PyTorch: NumPy, onnxruntime and, if its tokenizer needs it, sentencepiece.

$ pip install numpy onnxruntime sentencepiece
$ pip install --no-deps CHECKOUT
$ python run_bundle.py DIR "The "
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from seqlab import generate
from seqlab_export import open_bundle, open_text_model, verify_bundle


def main(folder: str, prompt: str) -> int:
    report = verify_bundle(folder)
    print(f"proven: {report.ok}, {len(report.checks)} checks")
    if not report.ok:
        return 1

    # Texts in, texts out: each piece is shown as soon as it is complete.
    model = open_text_model(folder)
    options = {"max_new_tokens": 20, "temperature": 0.8, "top_k": 40, "seed": 1}
    model.write(prompt, on_text=lambda piece: print(piece, end="", flush=True), **options)
    print()

    # The same with ids instead of texts, and the logit of the likeliest next id.
    decoder: Any = open_bundle(folder)
    rows = model.encode([prompt])
    print("ids:", generate(decoder, rows, max_new_tokens=5))  # greedy
    logits, state = decoder.prefill(np.array(rows), np.ones((1, len(rows[0])), dtype=np.bool_))  # (1, V)
    for _ in range(5):
        best = logits.argmax(axis=-1)  # (1,)
        print(f"id {best[0]}: {logits[0, best[0]]:.3f}")
        logits, state = decoder.step(best, state)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
