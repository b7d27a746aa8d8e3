"""The text of a bundle with onnxruntime alone, as docs/bundle.md describes it: a language model of characters, greedy.

$ pip install numpy onnxruntime
$ python onnxruntime_loop.py DIR "The "
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort


def main(folder: str, prompt: str, most: int = 200) -> None:
    manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
    tokenizer = json.loads(Path(folder, "tokenizer", "tokenizer.json").read_text(encoding="utf-8"))
    assert tokenizer["class"] == "CharTokenizer" and manifest["encoder"] is None
    letters = ["", "", "", "\ufffd", *tokenizer["alphabet"]]  # pad, bos, eos, any other character
    id_of = {letter: token for token, letter in enumerate(tokenizer["alphabet"], start=4)}
    sessions = {name: ort.InferenceSession(Path(folder, manifest[name]["file"])) for name in ("model", "step")}

    sizes = {"B": 1, "S": 0, "C": manifest["max_seq_len"]}
    state = {}
    for entry in manifest["state"]:
        shape = [sizes.get(dim, dim) for dim in entry["dims"]]
        state[f"state_{entry['name']}"] = np.full(shape, entry["initial"], dtype=entry["dtype"])
    graph, ids = "model", [id_of.get(letter, 3) for letter in prompt] or [tokenizer["bos_id"]]
    for _ in range(most):
        names = [output["name"] for output in manifest[graph]["outputs"]]
        tokens = np.array([ids], dtype=np.int64)
        given = {"tokens": tokens, "pad_mask": np.ones_like(tokens, dtype=bool), **state}
        if graph == "model":
            given["scored"] = np.array([len(ids) - 1])  # logits of the last position alone
        found = dict(zip(names, sessions[graph].run(names, given), strict=True))
        token = int(found.pop("logits")[0, -1].argmax())
        state |= {name.removeprefix("new_"): entry for name, entry in found.items()}
        if token in manifest["stop_ids"]:
            break
        print(letters[token], end="", flush=True)
        graph, ids = "step", [token]
    print()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
