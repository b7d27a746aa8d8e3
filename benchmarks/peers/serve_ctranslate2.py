"""serve_ctranslate2.py FOLDER COMPUTE_TYPE THREADS: greedy or beam search by CTranslate2; contest.py has the protocol.

FOLDER/shape.json has "layers", "heads", "vocab_size" and "activation"; FOLDER/weights.npz the `state_dict` of a
`DecoderLM` or, where "translates" is true, an `EncoderDecoder`, and the table "positions". They are converted first.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-not-found]
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec  # type: ignore[import-not-found]

Weights = dict[str, np.ndarray]


def set_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def set_linear(spec: Any, weights: Weights, *names: str) -> None:
    """One layer of the outputs of several."""
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def set_self_attention(spec: Any, weights: Weights, block: str) -> None:
    set_norm(spec.layer_norm, weights, f"{block}.mixer_norm")
    set_linear(spec.linear[0], weights, *(f"{block}.mixer.{part}_proj" for part in "qkv"))
    set_linear(spec.linear[1], weights, f"{block}.mixer.out_proj")


def set_cross_attention(spec: Any, weights: Weights, block: str) -> None:
    set_norm(spec.layer_norm, weights, f"{block}.mixer_norm")
    set_linear(spec.linear[0], weights, f"{block}.mixer.q_proj")
    set_linear(spec.linear[1], weights, f"{block}.mixer.k_proj", f"{block}.mixer.v_proj")
    set_linear(spec.linear[2], weights, f"{block}.mixer.out_proj")


def set_feed_forward(spec: Any, weights: Weights, block: str) -> None:
    set_norm(spec.layer_norm, weights, f"{block}.ffn_norm")
    set_linear(spec.linear_0, weights, f"{block}.ffn.up_proj")
    set_linear(spec.linear_1, weights, f"{block}.ffn.down_proj")


def set_ends(spec: Any, embeddings: Any, weights: Weights, prefix: str, scaled: bool) -> None:
    spec.scale_embeddings = scaled
    embeddings.weight = weights[f"{prefix}embedding.weight"]
    spec.position_encodings.encodings = weights["positions"]
    set_norm(spec.layer_norm, weights, f"{prefix}stack.norm")


def convert(folder: Path, out: Path) -> None:
    shape = json.loads((folder / "shape.json").read_text())
    weights = dict(np.load(folder / "weights.npz"))
    activation = common_spec.Activation[shape["activation"]]
    translates = shape["translates"]
    kind = transformer_spec.TransformerSpec if translates else transformer_spec.TransformerDecoderModelSpec
    spec = kind.from_config(shape["layers"], shape["heads"], pre_norm=True, activation=activation)
    set_ends(spec.decoder, spec.decoder.embeddings, weights, "", translates)
    spec.decoder.projection.weight = weights["embedding.weight"]
    for place, layer in enumerate(spec.decoder.layer):
        block = f"stack.blocks.{2 * place if translates else place}"
        set_self_attention(layer.self_attention, weights, block)
        if translates:
            block = f"stack.blocks.{2 * place + 1}"
            set_cross_attention(layer.attention, weights, block)
        set_feed_forward(layer.ffn, weights, block)
    tokens = [str(token) for token in range(shape["vocab_size"])]
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = tokens[1:4]
    if translates:
        set_ends(spec.encoder, spec.encoder.embeddings[0], weights, "encoder.", True)
        for place, layer in enumerate(spec.encoder.layer):
            set_self_attention(layer.self_attention, weights, f"encoder.stack.blocks.{place}")
            set_feed_forward(layer.ffn, weights, f"encoder.stack.blocks.{place}")
        spec.config.decoder_start_token = tokens[1]
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
    else:
        spec.register_vocabulary(tokens)
    spec.validate()
    out.mkdir()
    spec.save(str(out))


def main() -> None:
    folder, compute_type, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    converted = folder / "converted"
    if not converted.is_dir():
        part = folder / f"converting-{os.getpid()}"
        convert(folder, part)
        part.rename(converted)
    translates = json.loads((folder / "shape.json").read_text())["translates"]
    kind = ctranslate2.Translator if translates else ctranslate2.Generator
    model = kind(str(converted), compute_type=compute_type, inter_threads=1, intra_threads=threads)
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        rows = [list(map(str, row)) for row in question["sources" if translates else "prompts"]]
        count = question["new_tokens"]
        start = time.perf_counter()
        if translates:
            # `length_penalty` of 1 is the mean log-probability of a token.
            found = model.translate_batch(
                rows,
                beam_size=question["beams"],
                length_penalty=1,
                max_decoding_length=count,
                min_decoding_length=count,
            )
            written = [[int(token) for token in one.hypotheses[0]] for one in found]
        else:
            found = model.generate_batch(
                rows, beam_size=1, max_length=count, min_length=count, include_prompt_in_result=False
            )
            written = [one.sequences_ids[0] for one in found]
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "written": written}), flush=True)


main()
