"""The C++ tokenizers make of a text what Python's make of it, and refuse the same bytes."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from once import SEED
from runtime.pretrained_tokenizers import MORE, MORE_PRETRAINED, PRETRAINED, TEXT, assigned
from runtime.programs import ENVIRONMENT, build
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer

TOKENIZERS = {
    "byte": lambda: ByteTokenizer(),
    "char": lambda: CharTokenizer(TEXT),
    "word": lambda: WordTokenizer(TEXT),
    "word with newlines": lambda: WordTokenizer(TEXT, newlines=True),
    "subword": lambda: SubwordTokenizer(TEXT, vocab_size=350),
}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTE_LEVEL = PRETRAINED | MORE_PRETRAINED
SPECIAL = "\n\t \r\x0b\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\ufeff\u2581\0"
BAD_BYTES = [b"\x80", b"\xff", b"\xc0\xaf", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f"]


def texts(dice: random.Random, number: int) -> Iterator[bytes]:
    """Words of the training text, any characters, whitespace of all kinds; one in ten is broken."""

    def part() -> str:
        start, code_point = dice.randrange(len(TEXT)), dice.randrange(dice.choice([0x80, 0x800, 0x110000]))
        some = TEXT[start : start + dice.randint(1, 9)]
        other = "\ufffd" if 0xD800 <= code_point < 0xE000 else chr(code_point)
        return dice.choices([some, dice.choice(SPECIAL), other], [5, 3, 2])[0]

    for _ in range(number):
        data = "".join(part() for _ in range(dice.randint(0, 8))).encode()
        place = dice.randint(0, len(data))
        yield data if dice.random() > 0.1 else data[:place] + dice.choice(BAD_BYTES) + data[place:]


def of_python(tokenizer: Tokenizer, data: bytes) -> str:
    try:
        ids = tokenizer.encode_bytes(data)
    except ValueError as error:
        return f"refused: {error}"
    return f"{''.join(f'{i} ' for i in ids)}|{tokenizer.decode(ids).encode().hex()}"


def of_cpp(folder: Path, data: list[bytes]) -> list[str]:
    lines = "".join(some.hex() + "\n" for some in data)
    command = [build("answer_tokens"), folder]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", TOKENIZERS | BYTE_LEVEL)
def test_the_same_ids(name: str, tmp_path: Path) -> None:
    """(`SEQLAB_TEST_SEED` gives other texts.)"""
    tokenizer, number = (TOKENIZERS | BYTE_LEVEL)[name](), 3000
    tokenizer.save(tmp_path)
    dice = random.Random(f"{name} {SEED}")
    data = [*texts(dice, number)]
    if name in BYTE_LEVEL:
        special = [*MORE, "<|endoftext|>", "<tool>", "<tools>", "  ", "     ", "12345", "1234567 12 123", "'LL", " 's"]
        data = [_assigned(some) + dice.choice(["", "", dice.choice(special)]).encode() for some in data]
    found, expected = of_cpp(tmp_path, data), [of_python(tokenizer, some) for some in data]
    assert not [pair for pair in zip(data, found, expected, strict=True) if pair[1] != pair[2]][:3]
    refused = sum(answer.startswith("refused: ") for answer in expected)
    assert refused == 0 if name == "byte" else number // 20 < refused < number // 5


def _assigned(data: bytes) -> bytes:
    """Broken bytes stay."""
    return assigned(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


UNKNOWN: dict[str, Any] = {
    "normalizer": ({"type": "Lowercase"}, "does not have the normalizer Lowercase"),
    "pre_tokenizer": (
        {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, BYTES]},
        "does not have the pre-tokenizer Punctuation",
    ),
    "truncation": ({"max_length": 4}, "does not have the option truncation"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_another_step_is_refused(name: str, tmp_path: Path) -> None:
    """Names the step; a bundle runs on ids then."""
    value, said = UNKNOWN[name]
    PRETRAINED["gpt2"]().save(tmp_path)
    content = json.dumps(json.loads((tmp_path / "pretrained.json").read_text()) | {name: value})
    (tmp_path / "pretrained.json").write_text(content)
    told = json.loads((tmp_path / "tokenizer.json").read_text())
    told["assets"]["pretrained.json"] = sha256(content.encode()).hexdigest()
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    done = subprocess.run([build("answer_tokens"), tmp_path], input="", capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2 and said in done.stderr


def test_a_long_word_is_split_in_no_time(tmp_path: Path) -> None:
    """A hundred thousand letters: merges are not looked for anew after each."""
    tokenizer = PRETRAINED["gpt2"]()
    tokenizer.save(tmp_path)
    word = ("the cat" * 15_000).replace(" ", "").encode()
    assert of_cpp(tmp_path, [word]) == [of_python(tokenizer, word)]


def test_the_offset_is_of_the_first_bad_byte(tmp_path: Path) -> None:
    CharTokenizer("ab").save(tmp_path)
    said = "refused: the text is not UTF-8 at byte 4; only a byte tokenizer takes any bytes"
    assert of_cpp(tmp_path, [b"ab\xc3\xa9\xff\x80"]) == [said]
