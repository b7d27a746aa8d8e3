"""`seqlab-run serve` with 1, 8 and 32 clients: tokens a second, time to the first token and between tokens.

python benchmarks/serving.py

Llama's shape (6 layers, d 512, 23M parameters, `--target ort`), and a GRU and Mamba-2 of the same width. Each client
asks for one text after another: 16 prompt tokens, 128 new ones, greedy and streamed. Numbers are medians of three
rounds, in which the numbers of clients take turns.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import torch
from cpp_decoder_vs_genai import LAYERS, LENGTH, VOCAB, WIDTH, checkpoint, ours
from peers.contest import bundle, program, run

from seqlab.attention import Mamba2
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.capture.target import TargetName
from seqlab_export.runner.program import find_onnxruntime

PROMPT, NEW, ROUNDS, TEXTS = 16, 128, 3, 2
CLIENTS = (1, 8, 32)
MIXERS: dict[str, Any] = {"gru": GRU, "mamba2": Mamba2}


def text(port: int, dice: random.Random) -> tuple[float, list[float]]:
    """Seconds to the first token of a text, and to each further event."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    prompt = [dice.randrange(3, VOCAB) for _ in range(PROMPT)]
    asked = {"prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": True}
    begun = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(asked))
    times = [begun]
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    connection.close()
    return times[1] - begun, [after - before for before, after in pairwise(times[1:])]


def measure(port: int, clients: int) -> dict[str, float]:
    def client(number: int) -> list[tuple[float, list[float]]]:
        dice = random.Random(number)
        return [text(port, dice) for _ in range(TEXTS)]

    before, begun = new_tokens(port), time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = [one for some in pool.map(client, range(clients)) for one in some]
    seconds = time.perf_counter() - begun
    first = sorted(first for first, _ in found)
    between = sorted(wait for _, waits in found for wait in waits)
    return {
        "tokens/s": (new_tokens(port) - before) / seconds,
        "first p50": statistics.median(first),
        "first p99": first[ceil(0.99 * len(first)) - 1],
        "next p50": statistics.median(between),
        "next p99": between[ceil(0.99 * len(between)) - 1],
    }


def new_tokens(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("seqlab_new_tokens_total"))


def serve(name: str, folder: Path) -> None:
    runtime = program("seqlab-run")
    command = [str(runtime), "serve", str(folder), "--port", "0", "--ort-lib", find_onnxruntime()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rsplit(":", 1)[1])
        measure(port, 1)
        rounds = [{clients: measure(port, clients) for clients in CLIENTS} for _ in range(ROUNDS)]
        process.terminate()
    one = statistics.median(each[1]["tokens/s"] for each in rounds)
    for clients in CLIENTS:
        found = {key: statistics.median(each[clients][key] for each in rounds) for key in rounds[0][clients]}
        waits = ", ".join(f"{key} {1000 * value:.1f} ms" for key, value in found.items() if key != "tokens/s")
        speed = found["tokens/s"]
        print(f"{name}, {clients} clients: {speed:.0f} tokens/s, {speed / one:.2f} of one; {waits}", flush=True)


def main() -> None:
    made: dict[str, tuple[DecoderLM, TargetName]] = {"llama": (ours(checkpoint()), "ort")}
    for name, mixer in MIXERS.items():
        torch.manual_seed(0)
        made[name] = (
            DecoderLM(VOCAB, LENGTH, d_model=WIDTH, num_layers=LAYERS, mixer=partial(mixer), positions=NoPositions),
            "portable",
        )
    for name, (model, target) in made.items():
        serve(name, bundle(model.eval(), VOCAB, name, "fp32", LENGTH, target))


if __name__ == "__main__":
    run(main)
