"""Clients that read, hang up and send nonsense, all at once: what a server must bear.

`python tests/runtime/load.py HOST:PORT PID --seconds 600` prints what became of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROMPTS = ("a", "abc", "fed cab", "b a d", "face", "abcdef abcdef abcdef", "d", "bad cafe")
NONSENSE: tuple[bytes, ...] = (
    *(b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": 7}', b'{"prompt": "a", "max_tokens": -1}'),
    b'{"prompt": "a", "seed": 1e99}',
)


class Load:
    """Counts of what clients saw, and the seconds that each whole text took."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.answered = self.cancelled = self.refused = 0
        self.lost: list[str] = []
        self.seconds: list[float] = []
        self._lock = threading.Lock()
        self._expected = {(prompt, seed): self._text(prompt, seed) for prompt in PROMPTS for seed in range(4)}

    def _post(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.request("POST", "/v1/completions", body)
        return connection, connection.getresponse()

    def _text(self, prompt: str, seed: int) -> str:
        asked = {"prompt": prompt, "seed": seed, "max_tokens": 8 + 12 * seed}
        connection, answer = self._post(json.dumps(asked).encode())
        body: Any = json.loads(answer.read())
        connection.close()
        text: str = body["choices"][0]["text"]
        return text

    def one(self, dice: random.Random) -> None:
        """A whole text, a stream that is read or left, or nonsense."""
        kind = dice.random()
        if kind < 0.1:
            connection, answer = self._post(dice.choice(NONSENSE))
            answer.read()
            assert answer.status == 400, answer.status
            self.refused += 1
        elif kind < 0.3:
            asked = {"prompt": dice.choice(PROMPTS), "max_tokens": 20_000, "stream": True}
            connection, answer = self._post(json.dumps(asked).encode())
            for _ in range(dice.randrange(9)):
                answer.readline()
            self.cancelled += 1
        else:
            prompt, seed = dice.choice(PROMPTS), dice.randrange(4)
            asked = {"prompt": prompt, "seed": seed, "max_tokens": 8 + 12 * seed, "stream": kind < 0.6}
            begun = time.monotonic()
            connection, answer = self._post(json.dumps(asked).encode())
            text = _streamed(answer) if asked["stream"] else json.loads(answer.read())["choices"][0]["text"]
            assert text == self._expected[prompt, seed], (prompt, seed, text)
            with self._lock:
                self.seconds.append(time.monotonic() - begun)
                self.answered += 1
        connection.close()

    def run(self, clients: int, seconds: float) -> None:
        """Lets so many clients ask for so long."""
        end = time.monotonic() + seconds

        def client(number: int) -> None:
            dice = random.Random(number)
            while time.monotonic() < end:
                try:
                    self.one(dice)
                except Exception as error:
                    with self._lock:
                        self.lost.append(repr(error))

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))

    def percentile(self, share: float) -> float:
        """Seconds within which this share of the whole texts came."""
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def _streamed(answer: http.client.HTTPResponse) -> str:
    text = ""
    for line in answer:
        if line.startswith(b"data: {"):
            text += json.loads(line[6:])["choices"][0]["text"]
    assert line == b"\n" or line.startswith(b"data: [DONE]")
    return text


def resident(pid: int) -> int:
    """Memory of a process that is in RAM, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="HOST:PORT of a server")
    parser.add_argument("pid", type=int, help="process of the server")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    host, port = options.address.split(":")
    load = Load(host, int(port))
    load.run(options.clients, options.seconds / 10)
    before = resident(options.pid)
    load.run(options.clients, 0.9 * options.seconds)
    print(f"{load.answered} texts, {load.cancelled} cancelled, {load.refused} refused, {len(load.lost)} lost")
    print(f"p50 {load.percentile(0.5):.3f} s, p99 {load.percentile(0.99):.3f} s")
    print(f"memory {before} MiB after a tenth of the time, {resident(options.pid)} MiB in the end")
    print(*load.lost[:5], sep="\n")


if __name__ == "__main__":
    main()
