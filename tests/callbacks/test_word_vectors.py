"""Word vectors: both formats by hand, what the model then embeds, refusals with file and line."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from seqlab.models import BagOfWords, Encoder, RNNSeq2Seq, Tagger
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab.trained.word_vectors import begin_words_with, read_word_vectors
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer

GLOVE = "the 0.5 -1e-2 3\n. . . 1 2 3\ncat 1 2 3 \ncat 4 5 6\n10 7 8 9\nthe 0 0 0\ncaf\u00e9\u00a0x\u2028\x85 1 1 1\n"
WORDS = WordTokenizer("the cat sat on 10 mats .")


def write(folder: Path, content: str | bytes) -> str:
    (folder / "v.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / "v.txt")


@pytest.mark.parametrize("text", [GLOVE, "7 3\n" + GLOVE, GLOVE.rstrip("\n").replace("\n", "\r\n"), "\ufeff" + GLOVE])
def test_vectors_by_hand(tmp_path: Path, text: str) -> None:
    """The first of a word counts; words that are not asked for may be odd."""
    found = read_word_vectors(write(tmp_path, text), {"the", "cat", "10", "sat", "caf\u00e9"}, 3)
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "the": [0.5, -0.01, 3],
        "cat": [1, 2, 3],
        "10": [7, 8, 9],
    }


SIZE = WORDS.vocab_size
ENCODER = partial(Encoder, mixer=GRU, d_model=3, positions=NoPositions)


@pytest.mark.parametrize(
    ("make", "place", "data"),
    [
        (lambda: Tagger(SIZE, 2, 8, encoder=ENCODER), "encoder.embedding", {"tokenizer": WORDS}),
        (lambda: BagOfWords(SIZE, 2, 8, d_model=3), "embedding", {"tokenizer": WORDS}),
        (
            lambda: RNNSeq2Seq(SIZE, 9, 8, d_model=3),
            "source_embedding",
            {"tokenizer": CharTokenizer("abc"), "source_tokenizer": WORDS},
        ),
    ],
)
def test_known_words_are_embedded_as_the_file_says_and_others_stay(
    tmp_path: Path, make: Any, place: str, data: dict[str, Any]
) -> None:
    """Also by an embedding that scales."""
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    said = begin_words_with(SimpleNamespace(model=model), SimpleNamespace(**data), path := write(tmp_path, GLOVE))
    assert said == f"{path} has 3 of the 7 words of the vocabulary"
    known, embedding = torch.tensor(WORDS.encode("the cat 10")), model.get_submodule(place)
    expected = torch.tensor([[0.5, -0.01, 3], [1, 2, 3], [7, 8, 9]])
    assert torch.allclose(embedding(known), expected, rtol=0, atol=1e-6)
    others = [i for i in range(SIZE) if i not in known]
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
    assert len(changed) == 1 and model.get_parameter(changed[0]) is embedding.weight
    assert torch.equal(embedding.weight[others], before[changed[0]][others])
    assert embedding.weight.requires_grad


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\ncat 1 2\n", r"v\.txt, line 2 has 2 numbers after its word, but this model's vectors have 3"),
        ("the 1 2 3 4\n", r"v\.txt, line 1 has 4 numbers after its word, but this model's vectors have 3"),
        ("the 1 2 3\n\n", r"v\.txt, line 2 has 0 numbers after its word"),
        ("2 4\nthe 1 2 3\n", r"v\.txt, line 1 announces vectors of 4 numbers, but this model's have 3"),
        ("the 1 2 3\ncat 1 x 3\n", r"v\.txt, line 2 has 'x' in its vector; give finite numbers"),
        ("the 1 nan 3\n", r"v\.txt, line 1 has 'nan' in its vector"),
        (b"the 1 2 3\nc\xe9t 1 2 3\n", r"v\.txt, line 2 is not UTF-8 text: byte 11 is 0xe9 .*; save it as UTF-8"),
        ("2 3\nthe 1 2 3\n", r"v\.txt ends after 1 word vectors, but its first line announces 2"),
        ("", r"v\.txt is empty"),
        ("1 3\n", r"v\.txt ends after 0 word vectors, but its first line announces 1"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_word_vectors(write(tmp_path, content), {"the", "cat"}, 3)


def test_models_and_data_without_words_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GLOVE)
    model = SimpleNamespace(model=BagOfWords(9, 2, 8, d_model=3))
    with pytest.raises(ValueError, match=r"v\.txt: it needs a WordTokenizer, but this data has CharTokenizer"):
        begin_words_with(model, SimpleNamespace(tokenizer=CharTokenizer("abc")), path)
    with pytest.raises(ValueError, match=r"it needs a WordTokenizer, but this data has NoneType"):
        begin_words_with(model, SimpleNamespace(), path)
    with pytest.raises(ValueError, match=r"v\.txt: this model, Linear, has no token embedding"):
        begin_words_with(SimpleNamespace(model=nn.Linear(2, 2)), SimpleNamespace(tokenizer=WORDS), path)
    with pytest.raises(ValueError, match=r"--word_vectors .*no\.txt is not a file; give word vectors in word2vec's or"):
        read_word_vectors(str(tmp_path / "no.txt"), {"the"}, 3)
