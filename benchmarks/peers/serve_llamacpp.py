"""serve_llamacpp.py FOLDER TYPE THREADS: greedy decoding by llama.cpp of the Llama checkpoint in FOLDER, its weights
stored as F32, Q8_0 or Q4_0; contest.py has the protocol. All rows of a question are decoded in one batch."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import gguf  # type: ignore[import-not-found]
import llama_cpp  # type: ignore[import-not-found]
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
PROMPT_BATCH = 512


def write(folder: Path, kind: str, out: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    heads, width = config["num_attention_heads"], config["hidden_size"]
    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(width // heads)
    writer.add_tokenizer_model("no_vocab")
    for name, weight in load_file(folder / "model.safetensors").items():
        place = name.removesuffix(".weight")
        if place.endswith(("q_proj", "k_proj")):
            # It rotates neighbours, the checkpoint the halves of a head: (2, K / 2) to (K / 2, 2).
            weight = weight.reshape(heads, 2, -1, width).swapaxes(1, 2).reshape(weight.shape)
        if place.startswith("model.layers."):
            layer, place = place.removeprefix("model.layers.").split(".", 1)
            place = f"blk.{layer}.{NAMES[place]}"
        else:
            place = NAMES[place]
        stored = gguf.GGMLQuantizationType[kind if weight.ndim == 2 else "F32"]
        writer.add_tensor(f"{place}.weight", gguf.quants.quantize(weight, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Decoder:
    """One context, and a batch that is refilled for each call."""

    def __init__(self, path: Path, threads: int, rows: int, length: int) -> None:
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max, settings.n_batch = rows * length, rows, rows * PROMPT_BATCH
        settings.n_threads = settings.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.batch = llama_cpp.llama_batch_init(rows * PROMPT_BATCH, 0, 1)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def write(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        entries = [
            (token, place, row, place == len(prompt) - 1)
            for row, prompt in enumerate(prompts)
            for place, token in enumerate(prompt)
        ]
        written: list[list[int]] = [[] for _ in prompts]
        for position in range(len(prompts[0]), len(prompts[0]) + count):
            for row, token in enumerate(self._best(entries)):
                written[row].append(token)
            entries = [(text[-1], position, row, True) for row, text in enumerate(written)]
        return written

    def _best(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        """The likeliest token after each entry that asks for it."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for k, (token, position, row, wanted) in enumerate(entries):
            batch.token[k], batch.pos[k], batch.n_seq_id[k], batch.logits[k] = token, position, 1, wanted
            batch.seq_id[k][0] = row
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        asked = [k for k, entry in enumerate(entries) if entry[3]]
        logits = (llama_cpp.llama_get_logits_ith(self.context, k) for k in asked)
        return [int(np.ctypeslib.as_array(row, (self.vocab_size,)).argmax()) for row in logits]


def main() -> None:
    folder, kind, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    path = folder / f"{kind}.gguf"
    if not path.is_file():
        part = folder / f"{kind}-{os.getpid()}.gguf"
        write(folder, kind, part)
        part.rename(path)
    decoder, rows = Decoder(path, threads, 1, PROMPT_BATCH), 1
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        prompts, count = question["prompts"], question["new_tokens"]
        if len(prompts) != rows:
            decoder, rows = Decoder(path, threads, len(prompts), PROMPT_BATCH), len(prompts)
        start = time.perf_counter()
        written = decoder.write(prompts, count)
        print(json.dumps({"seconds": time.perf_counter() - start, "written": written}), flush=True)


main()
