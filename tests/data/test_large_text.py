"""Text in pieces gives the tokens of the whole text, in bounded memory, in several processes, and after a kill."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.helpers import left_in, refused, stream
from seqlab_data import begun, encoding, reading, token_cache
from seqlab_data.corpus import Corpus
from seqlab_data.documents import find_documents
from seqlab_data.splits import SPLITS
from seqlab_data.token_cache import open_token_cache
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer
from seqlab_data.tokenizers.pieces import recut

FRACTIONS = (0.6, 0.3, 0.1)
FACTORIES: dict[str, Callable[[str], Tokenizer]] = {
    "byte": ByteTokenizer,
    "char": CharTokenizer,
    "word": WordTokenizer,
    "word-newlines": partial(WordTokenizer, newlines=True, min_count=2),
    "subword": partial(SubwordTokenizer, vocab_size=300),
    "own": lambda text: WordTokenizer(text, max_size=9),
}


LETTERS = "ab c\n\u2581\u2003äé猫😀\r\t"


def write(folder: Path, lengths: list[int]) -> list[str]:
    """Writes random files of these lengths, and returns their texts as they are to be read."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(0)
    texts = ["".join(rng.choices(LETTERS, k=length)) for length in lengths]
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_bytes(text.encode())
    return [text.replace("\r\n", "\n") for text in texts]


def expected(texts: list[str], make: Callable[[str], Tokenizer]) -> dict[str, list[int]]:
    """The tokens of each split by whole texts: cut by characters, learnt from train, bos before each document."""
    text = "".join(texts)
    cuts = [0, round(len(text) * FRACTIONS[0]), round(len(text) * (FRACTIONS[0] + FRACTIONS[1])), len(text)]
    starts = [*itertools.accumulate(map(len, texts), initial=0)]
    tokenizer = make(text[: cuts[1]])
    splits = {}
    for split, begin, end in zip(SPLITS, cuts, cuts[1:], strict=False):
        places = sorted({begin, end, *(start for start in starts if begin < start < end)})
        parts = [text[one:two] for one, two in itertools.pairwise(places)]
        splits[split] = [i for part in parts for i in (tokenizer.bos_id, *tokenizer.encode(part))]
    return splits


def small(monkeypatch: pytest.MonkeyPatch, chunk: int, block: int) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    monkeypatch.setattr(token_cache, "BLOCK", block)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("name", FACTORIES)
def test_tokens_are_the_whole_texts(name: str, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = write(tmp_path / "text", [1, 300, 3, 1, 700, 40, 5])
    for chunk, block in ((5, 30), (333, 100), (1 << 20, 1 << 20))[:: 3 if processes else 1]:
        small(monkeypatch, chunk, block)
        root = tmp_path / f"{chunk}"
        cache = open_token_cache(
            find_documents(str(tmp_path / "text")), FRACTIONS, FACTORIES[name], root, None, processes
        )
        assert {split: stream(cache, split) for split in SPLITS} == expected(texts, FACTORIES[name])


@pytest.mark.parametrize("encoding", ["utf-16", "shift_jis", "utf-7"])
def test_a_character_is_cut_by_no_piece(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 1)
    text = "ab 日本語\nc" * 9
    (tmp_path / "x.txt").write_bytes(text.encode(encoding))
    [document] = find_documents(str(tmp_path / "x.txt"), encoding)
    assert document.read() == text


@pytest.fixture(scope="module", params=[name for name in FACTORIES if name != "own"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return FACTORIES[request.param]("".join(random.Random(1).choices(LETTERS, k=2000)))


@given(text=st.text(LETTERS, max_size=12), after=st.text(LETTERS, max_size=12))
def test_a_text_may_be_cut_where_its_tokenizer_says(tokenizer: Tokenizer, text: str, after: str) -> None:
    place = tokenizer.cut(text)
    assert tokenizer.encode(text[:place]) + tokenizer.encode(text[place:] + after) == tokenizer.encode(text + after)
    pieces = [text[i : i + 2] for i in range(0, len(text), 2)]
    assert "".join(recut(pieces, tokenizer.cut)) == text
    assert tokenizer.cut("ab  c d") >= 4, "a text without lines is not held whole"


def test_one_of_ones_own_is_given_whole_documents_and_the_whole_train_split() -> None:
    """Also where it inherits its way to encode."""

    class Direct(CharTokenizer):
        def __init__(self, text: str) -> None:
            super().__init__(text)

        def encode_array(self, text: str) -> Any:
            return super().encode_array(text)

    class Lower:
        def __init__(self, text: str) -> None:
            super().__init__(text)  # type: ignore[call-arg]

        def encode_array(self, text: str) -> Any:
            return super().encode_array(text)  # type: ignore[misc]

    class Own(Lower, CharTokenizer): ...

    for own in (Direct, Own):
        assert own("ab").cut("ab") == 0 and own.learn.__func__ is Tokenizer.learn.__func__  # type: ignore[attr-defined]


def test_what_has_no_place_to_be_cut_is_not_held_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab_data.tokenizers.pieces.LONGEST", 1000)
    monkeypatch.setattr(reading, "CHUNK", 100)
    (tmp_path / "x.txt").write_text("x" * 2000)
    for make in (WordTokenizer, FACTORIES["own"]):
        with refused("1000 characters after 'xxxxx.* have no place where they can be cut"):
            open_token_cache(find_documents(str(tmp_path / "x.txt")), FRACTIONS, make, tmp_path / "cache")


def test_of_a_long_text_subwords_are_learnt_from_parts_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab_data.tokenizers.subword.LEARNT", 250)
    monkeypatch.setattr("seqlab_data.tokenizers.subword.PART", 50)
    text = "".join(f"{letter}{letter} {letter}\n" * 10 for letter in "abcdefghijklmnopqrstuvwxyz")
    for stored in (7, 50, 1300):
        texts = (text[i : i + stored] for i in range(0, len(text), stored))
        tokenizer = SubwordTokenizer.learn(texts, vocab_size=270)
        learnt = {piece for piece in b"".join(tokenizer.token_bytes[4 + 256 :]).decode() if piece.isalpha()}
        assert learnt == set("aiqy"), "every eighth of 26 parts of 50 characters"


def test_of_a_text_without_lines_subwords_are_learnt_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end between words, so the tokenizer is that of the whole text."""
    words = random.Random(0).choices(["one", "two", "three", "seven"], k=1000)
    whole = SubwordTokenizer(" ".join(words), vocab_size=275)
    monkeypatch.setattr("seqlab_data.tokenizers.pieces.LONGEST", 1000)
    monkeypatch.setattr("seqlab_data.tokenizers.subword.PART", 50)
    assert SubwordTokenizer.learn([" ".join(words)], vocab_size=275).to_dict() == whole.to_dict()
    with refused("1000 characters after "):
        SubwordTokenizer.learn(["x" * 2000], vocab_size=275)


def test_text_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    for content in ("y" * 99, "y" * 100, "y" * 101):

        def changes(text: str, content: str = content) -> Tokenizer:
            path.write_text(content)
            return ByteTokenizer()

        path.write_text("x" * 100)
        with refused(r"x\.txt.* changed while it was read"):
            open_token_cache(find_documents(str(path)), FRACTIONS, changes, tmp_path / "cache")
        assert left_in(tmp_path / "cache") == []


KILLED = """
import os, signal, sys
from seqlab_data import begun, reading, token_cache
from seqlab_data.documents import find_documents
from seqlab_data.tokenizers import CharTokenizer
begun.EVERY, reading.CHUNK, token_cache.BLOCK = 3, 40, 50
add = begun.BegunFiles.add
def killed(self, *block):
    if self.blocks == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, *block)
begun.BegunFiles.add = killed
text, root = sys.argv[1:]
token_cache.open_token_cache(find_documents(text), (0.6, 0.3, 0.1), CharTokenizer, root, None, 2)
"""


@pytest.mark.slow
def test_after_a_kill_it_goes_on_with_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = write(tmp_path / "text", [900, 3, 800])
    small(monkeypatch, 40, 50)
    monkeypatch.setattr(begun, "EVERY", 3)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "text"), str(tmp_path / "cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.read() == b"", "ends when its last child has ended"
    assert process.returncode == -signal.SIGKILL
    corpus = Corpus(find_documents(str(tmp_path / "text")), FRACTIONS, {}, tmp_path / "cache")
    num_blocks = len([*token_cache._blocks(corpus, ByteTokenizer(), {})])
    encode = Mock(wraps=encoding.encode)
    monkeypatch.setattr(encoding, "encode", encode)
    cache = open_token_cache(find_documents(str(tmp_path / "text")), FRACTIONS, CharTokenizer, tmp_path / "cache")
    assert {split: stream(cache, split) for split in SPLITS} == expected(texts, CharTokenizer)
    assert encode.call_count == num_blocks - 18, "which were written whole"
    assert not [*(tmp_path / "cache").glob("*.begun")]


@pytest.mark.parametrize("changed", ["storage", "tokenizer"])
def test_what_is_left_of_others_is_not_used(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = write(tmp_path / "text", [1700])
    same = (tmp_path / "text" / "0.txt").read_bytes().decode()
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": same}))
    small(monkeypatch, 40, 50)
    monkeypatch.setattr(begun, "EVERY", 1)
    add = begun.BegunFiles.add

    def stopped(self: begun.BegunFiles, *args: Any) -> None:
        add(self, *args)
        if self.blocks == 12:
            raise KeyboardInterrupt

    path = tmp_path / ("rows.jsonl" if changed == "storage" else "text")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(begun.BegunFiles, "add", stopped)
        if changed == "tokenizer":  # as of another version of the library that learns
            patch.setattr(CharTokenizer, "learn", classmethod(lambda cls, texts: cls("".join(texts) + "\0")))
        open_token_cache(find_documents(str(path)), FRACTIONS, CharTokenizer, tmp_path / "cache")
    assert len([*(tmp_path / "cache").glob("*.begun")]) == 1
    cache = open_token_cache(find_documents(str(tmp_path / "text")), FRACTIONS, CharTokenizer, tmp_path / "cache")
    assert {split: stream(cache, split) for split in SPLITS} == expected([text], CharTokenizer)
    assert not [*(tmp_path / "cache").glob("*.begun")], "both have one cache"


BOUNDED = """
import resource, sys
from seqlab_data.documents import find_documents
from seqlab_data.token_cache import open_token_cache
from seqlab_data.tokenizers import CharTokenizer
text, root = sys.argv[1:]
begun = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = begun + 60 * 1000**2  # beside what the interpreter and its libraries take
assert limit < 2 * 1000**3
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cache = open_token_cache(find_documents(text), (0.9, 0.05, 0.05), CharTokenizer, root)
print(sum(split.num_chars for split in cache.splits.values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_100_mb_of_text_take_60_mb_of_memory(tmp_path: Path) -> None:
    """Learns from it and encodes it."""
    block = ("".join(map(chr, range(32, 127))) * 10 + "äöü 猫\n") * 100
    with open(tmp_path / "large.txt", "w") as file:
        written = sum(file.write(block) for _ in range(round(100e6 / len(block.encode()))))
    command = [sys.executable, "-c", BOUNDED, str(tmp_path / "large.txt"), str(tmp_path / "cache")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{written}\n", "")
