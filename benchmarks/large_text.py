"""Cost of preparing a large text: memory and processor time, including learning its tokenizer, and of a later start.

python benchmarks/large_text.py [MEGABYTES ...]     (default 100; needs three times as much free disk space)

The text is CPython's documentation, shuffled by lines, interleaved with lines of random words (out of 250,000). Each
case is a separate process, whose interpreter and libraries count too (500 MB with PyTorch).
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from seqlab_data.documents import find_documents
from seqlab_data.token_cache import open_token_cache
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer

TOKENIZERS: dict[str, Any] = {
    one.__name__: one for one in (CharTokenizer, ByteTokenizer, WordTokenizer, SubwordTokenizer)
}
OPTIONS = {"WordTokenizer": {"max_size": 250_000}, "SubwordTokenizer": {"vocab_size": 8000}}
UNIT = 10


def write(path: Path, megabytes: int) -> None:
    """Writes parts of 10 MB, at most ten of them different."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(250_000)]
    lines = [line + "\n" for topic in topics.values() for line in topic.splitlines()]
    parts = []
    for _ in range(min(10, megabytes // UNIT)):
        part, size = [], 0
        while size < UNIT * 10**6:
            line = rng.choice(lines) if rng.random() < 0.75 else " ".join(rng.choices(words, k=10)) + "\n"
            part.append(line.encode())
            size += len(part[-1])
        parts.append(b"".join(part))
    with path.open("wb") as file:
        for number in range(megabytes // UNIT):
            file.write(parts[number % len(parts)])


def timed(run: Callable[[], object]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def measure(name: str, path: str, root: str) -> dict[str, float]:
    """Processor seconds and peak memory in MB of this process."""
    cls, seconds = TOKENIZERS[name], {}
    learn = cls.learn

    def learnt(texts: object, **options: object) -> Tokenizer:
        found: list[Tokenizer] = []
        seconds["learning"] = timed(lambda: found.append(learn(texts, **options)))
        return found[0]

    cls.learn = learnt
    start = partial(
        open_token_cache, find_documents(path), (0.9, 0.05, 0.05), partial(cls, **OPTIONS.get(name, {})), root
    )
    seconds["all"] = timed(start)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"MB at most": most, **seconds, "later": timed(start)}


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    given = sys.argv[1:] or ["100"]
    if wrong := [size for size in given if not size.isdecimal() or not int(size) or int(size) % UNIT]:
        sys.exit(f"MEGABYTES {wrong[0]}: texts are written in parts of {UNIT} MB; give multiples of {UNIT}")
    sizes = [int(size) for size in given]
    print("| tokenizer | text | largest memory | processor time | a MB | of it learning | a later start |")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.txt"
            write(path, megabytes)
            for name in TOKENIZERS:
                command = [sys.executable, __file__, "--measure", name, str(path), f"{folder}/{name}"]
                found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                each = f"{found['all']:.3g} s | {found['all'] / megabytes:.3f} s | {found['learning']:.2g} s"
                print(f"| {name} | {megabytes} MB | {found['MB at most']:.0f} MB | {each} | {found['later']:.2f} s |")


if __name__ == "__main__":
    main()
