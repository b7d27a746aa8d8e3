"""The C++ tokenizers make of a text what Python's make of it, and refuse the same bytes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.programs import ENVIRONMENT, build
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer

TEXT = "The cat sat on the mat, the cat  ate.\nÜber 9 000 naïve Größen €5 😀 日本語\t\u2581x\u00a0y " * 30
TOKENIZERS = {
    "byte": lambda: ByteTokenizer(),
    "char": lambda: CharTokenizer(TEXT),
    "word": lambda: WordTokenizer(TEXT),
    "word with newlines": lambda: WordTokenizer(TEXT, newlines=True),
    "subword": lambda: SubwordTokenizer(TEXT, vocab_size=350),
}
SPECIAL = "\n\t \r\x0b\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\ufeff\u2581\0"
BAD_BYTES = [b"\x80", b"\xff", b"\xc0\xaf", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f"]


def texts(dice: random.Random, number: int) -> Iterator[bytes]:
    """Words of the training text, any characters, whitespace of all kinds; one in ten is broken."""
    for _ in range(number):
        parts = []
        for _ in range(dice.randint(0, 8)):
            kind = dice.random()
            if kind < 0.5:
                start = dice.randrange(len(TEXT))
                parts.append(TEXT[start : start + dice.randint(1, 9)])
            elif kind < 0.8:
                parts.append(dice.choice(SPECIAL))
            else:
                code_point = dice.choice([dice.randrange(0x80), dice.randrange(0x800), dice.randrange(0x110000)])
                parts.append("\ufffd" if 0xD800 <= code_point < 0xE000 else chr(code_point))
        data = "".join(parts).encode()
        if dice.random() < 0.1:
            place = dice.randint(0, len(data))
            data = data[:place] + dice.choice(BAD_BYTES) + data[place:]
        yield data


def of_python(tokenizer: Tokenizer, data: bytes) -> str:
    try:
        ids = tokenizer.encode_bytes(data)
    except ValueError as error:
        return f"refused: {error}"
    return f"{''.join(f'{i} ' for i in ids)}|{tokenizer.decode(ids).encode().hex()}"


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("number", [3000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_the_same_ids(name: str, number: int, tmp_path: Path) -> None:
    """With the slow ones it is a million strings."""
    tokenizer = TOKENIZERS[name]()
    tokenizer.save(tmp_path)
    data = [*texts(random.Random(f"{name} {number}"), number)]
    lines = "".join(some.hex() + "\n" for some in data)
    command = [build("answer_tokens"), tmp_path]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    found, expected = done.stdout.splitlines(), [of_python(tokenizer, some) for some in data]
    assert len(found) == number
    assert not [pair for pair in zip(data, found, expected, strict=True) if pair[1] != pair[2]][:3]
    refused = sum(answer.startswith("refused: ") for answer in expected)
    assert refused == 0 if name == "byte" else number // 20 < refused < number // 5


def test_the_offset_is_of_the_first_bad_byte(tmp_path: Path) -> None:
    CharTokenizer("ab").save(tmp_path)
    done = subprocess.run(
        [build("answer_tokens"), tmp_path], input="6162c3a9ff80\n", capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.stdout == "refused: the text is not UTF-8 at byte 4; only a byte tokenizer takes any bytes\n"
