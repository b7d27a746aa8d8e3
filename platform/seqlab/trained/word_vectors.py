"""Beginning with word vectors that another program has trained.

D d_model.
"""

from __future__ import annotations

import math
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from seqlab.nn import ScaledEmbedding


def begin_words_with(task: Any, data: Any, path: str) -> str:
    """Gives the words of a data module's tokenizer the vectors that a file has for them, where the model embeds its
    input, which is the source of a pair. The other tokens keep theirs. A `ScaledEmbedding` is given them scaled down,
    so that what it embeds a word as is the file's vector.

    Returns:
        How many words the file has, in one sentence.

    Raises:
        ValueError: a model without an embedding of tokens, data whose tokens are no words, or what is wrong with the
            file, as of `read_word_vectors`.
    """
    from seqlab_data.tokenizers import WordTokenizer

    model = task.model
    places = (
        getattr(model, "source_embedding", None),
        getattr(getattr(model, "encoder", None), "embedding", None),
        getattr(model, "embedding", None),
    )
    embedding = next((found for found in places if isinstance(found, nn.Embedding)), None)
    if embedding is None:
        raise ValueError(f"--word_vectors {path}: this model, {type(model).__name__}, has no embedding of tokens")
    tokenizer = getattr(data, "source_tokenizer", None) or getattr(data, "tokenizer", None)
    if not isinstance(tokenizer, WordTokenizer):
        raise ValueError(f"--word_vectors {path}: it needs a WordTokenizer, this data has {type(tokenizer).__name__}")
    ids = dict(zip(tokenizer.words, tokenizer.encode(" ".join(tokenizer.words)), strict=True))
    vectors = read_word_vectors(path, ids, embedding.embedding_dim)
    scale = math.sqrt(embedding.embedding_dim) if isinstance(embedding, ScaledEmbedding) else 1.0
    with torch.no_grad():
        for word, vector in vectors.items():
            embedding.weight[ids[word]] = torch.from_numpy(vector / scale)
    return f"{path} has {len(vectors)} of the {len(ids)} words of the vocabulary"


def read_word_vectors(path: str, words: Container[str], dim: int) -> dict[str, NDArray[np.float64]]:
    """The vectors (D,) of these words: the first of each that a text file has.

    Args:
        path: a file of lines `word number ... number`, as GloVe writes it (Pennington et al. 2014), or with a first
            line `count dim`, as word2vec does (Mikolov et al. 2013). A line's last D fields are its numbers, since some
            files have words with spaces in them; no word of a tokenizer has.
        dim: D.

    Raises:
        ValueError: there is no such file; a line is not UTF-8, has another number of numbers, or has a vector of one of
            these words that is not of finite numbers; or there are fewer vectors than the first line says, or none.
    """
    from seqlab_data.reading import UTF_8, lines_of, read_chunks, read_text

    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"--word_vectors {path} is not a file; give word vectors in word2vec's or GloVe's text format")
    found: dict[str, NDArray[np.float64]] = {}
    count, announced = 0, 1
    text = read_text(read_chunks(file), UTF_8, path, "save it as UTF-8")
    for number, line in enumerate(lines_of(text, path), start=1):
        place = f"{path}, line {number}"
        fields = line.rstrip(" ").rsplit(" ", dim)
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            announced, given = map(int, fields)
            if given != dim:
                raise ValueError(f"{place} says that the vectors have {given} numbers, this model's have {dim}")
            continue
        word, *numbers = fields
        if len(numbers) != dim or (" " in word and _is_number(word.rpartition(" ")[2])):
            given = word.count(" ") + len(numbers)
            raise ValueError(
                f"{place} has {given} numbers after its word, this model's vectors have {dim}; give vectors of {dim}, "
                "or another d_model"
            )
        count += 1
        if word in words and word not in found:
            found[word] = _vector(place, numbers)
    if count < announced:
        raise ValueError(f"{path} ends after {count} word vectors, there should be {announced}")
    return found


def _vector(place: str, numbers: list[str]) -> NDArray[np.float64]:
    for number in numbers:
        if not _is_number(number):
            raise ValueError(f"{place} has {number!r} in its vector; give finite numbers")
    return np.array(numbers, dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        return text.isascii() and "_" not in text and math.isfinite(float(text))  # to Python 1_0 is ten
    except ValueError:
        return False
