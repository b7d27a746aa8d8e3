"""Initialisation with pretrained word vectors.

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
    """Initialises the model's input embedding, of the source for pairs, with the vectors in a file for the words of the
    data module's tokenizer. Other tokens keep their embeddings. For a `ScaledEmbedding` the vectors are scaled down, so
    that its output is the file's vector.

    Returns:
        One sentence with the number of words found in the file.

    Raises:
        ValueError: the model has no token embedding, the tokens are not words, or the file is invalid as in
            `read_word_vectors`.
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
        raise ValueError(f"--word_vectors {path}: this model, {type(model).__name__}, has no token embedding")
    tokenizer = getattr(data, "source_tokenizer", None) or getattr(data, "tokenizer", None)
    if not isinstance(tokenizer, WordTokenizer):
        raise ValueError(
            f"--word_vectors {path}: it needs a WordTokenizer, but this data has {type(tokenizer).__name__}"
        )
    ids = dict(zip(tokenizer.words, tokenizer.encode(" ".join(tokenizer.words)), strict=True))
    vectors = read_word_vectors(path, ids, embedding.embedding_dim)
    scale = math.sqrt(embedding.embedding_dim) if isinstance(embedding, ScaledEmbedding) else 1.0
    with torch.no_grad():
        for word, vector in vectors.items():
            embedding.weight[ids[word]] = torch.from_numpy(vector / scale)
    return f"{path} has {len(vectors)} of the {len(ids)} words of the vocabulary"


def read_word_vectors(path: str, words: Container[str], dim: int) -> dict[str, NDArray[np.float64]]:
    """Reads the vectors (D,) of the given words from a text file; the first vector of each word counts.

    Args:
        path: file with lines `word number ... number`, as in GloVe (Pennington et al. 2014), optionally with a first
            line `count dim`, as in word2vec (Mikolov et al. 2013). The last D fields of a line are the vector, because
            some files contain words with spaces; tokenizer words never do.
        words: words to read.
        dim: vector size D.

    Raises:
        ValueError: the file does not exist; a line is not UTF-8, has a wrong number of numbers, or has a vector of a
            given word that is not finite; or there are fewer vectors than the first line announces, or none.
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
                raise ValueError(f"{place} announces vectors of {given} numbers, but this model's have {dim}")
            continue
        word, *numbers = fields
        if len(numbers) != dim or (" " in word and _is_number(word.rpartition(" ")[2])):
            given = word.count(" ") + len(numbers)
            raise ValueError(
                f"{place} has {given} numbers after its word, but this model's vectors have {dim}; give vectors of "
                f"{dim}, or another d_model"
            )
        count += 1
        if word in words and word not in found:
            found[word] = _vector(place, numbers)
    if count < announced:
        raise ValueError(f"{path} ends after {count} word vectors, but its first line announces {announced}")
    return found


def _vector(place: str, numbers: list[str]) -> NDArray[np.float64]:
    for number in numbers:
        if not _is_number(number):
            raise ValueError(f"{place} has {number!r} in its vector; give finite numbers")
    return np.array(numbers, dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        return text.isascii() and "_" not in text and math.isfinite(float(text))  # Python would read 1_0 as ten
    except ValueError:
        return False
