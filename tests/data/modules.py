"""Data modules of every kind, over small files that they write."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from data.helpers import write
from seqlab_data import (
    AddingDataModule,
    ImageDataModule,
    LabelledTextDataModule,
    ParallelTextDataModule,
    TableDataModule,
    TaggedTextDataModule,
    TextDataModule,
)
from seqlab_data.synthetic import Sort, SyntheticDataModule
from seqlab_data.tokenizers import ByteTokenizer, WordTokenizer

MANY = [" ".join(f"w{i}x{k}" for k in range(1 + i % 5)) for i in range(60)]
"""Texts of 1 to 5 words, all different."""


def labelled(
    folder: Path, train: Any = None, val: list[tuple[str, str]] | None = None, **options: Any
) -> LabelledTextDataModule:
    """The module of these texts and labels; val, which defaults to train, is test too."""
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(MANY)] if train is None else train
    paths = [
        write(folder, name, "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in some))
        for name, some in (("train.tsv", rows), ("val.tsv", val or rows))
    ]
    given = {"val": paths[1], "test": paths[1], "max_len": 10, "max_tokens": 20, **options}
    return LabelledTextDataModule(paths[0], **given)


def tagged(folder: Path, train: str | None = None, val: str | None = None, **options: Any) -> TaggedTextDataModule:
    """The module of this text in CoNLL's columns; val, which defaults to train, is test too."""
    train = "\n".join(as_tagged(MANY)) if train is None else train
    held_out = write(folder, "val.conll", val or train)
    given = {"val": held_out, "test": held_out, "max_len": 10, "max_tokens": 20, **options}
    return TaggedTextDataModule(write(folder, "train.conll", train), **given)


def as_tagged(texts: list[str]) -> list[str]:
    """Each word with the tag of its place modulo 3."""
    return ["".join(f"{word} {'OBI'[k % 3]}\n" for k, word in enumerate(text.split())) for text in texts]


def parallel(folder: Path, train: str | bytes | None = None, val: str | None = None, **options: Any) -> Any:
    """The module of these lines; val defaults to train."""
    train = "".join(f"{text}\t{other}\n" for text, other in pairwise(MANY)) if train is None else train
    given = {"val": write(folder, "val.tsv", val or train), "max_len": 10, "max_tokens": 20, **options}
    tokenizers = {"source_tokenizer": WordTokenizer, "target_tokenizer": WordTokenizer}
    return ParallelTextDataModule(write(folder, "train.tsv", train), **{**tokenizers, **given})


def table(folder: Path, targets: Any = None, lengths: Any = None, **options: Any) -> TableDataModule:
    """The module of sequences that are all different, with these targets."""
    lengths = [1 + i % 5 for i in range(60)] if lengths is None else lengths
    targets = [i % 3 for i in range(len(lengths))] if targets is None else targets
    inputs = [[[float(i % 60), t] for t in range(length)] for i, length in enumerate(lengths)]
    parquet.write_table(pa.table({"inputs": inputs, "targets": targets}), folder / "x.parquet")
    given = {"split": (0.6, 0.2, 0.2), "max_len": 8, "max_tokens": 16, **options}
    return TableDataModule(str(folder / "x.parquet"), **given)


def some_images(count: int = 60) -> dict[str, Any]:
    images = np.random.default_rng(5).integers(0, 255, (count, 4, 6, 2), dtype=np.uint8)
    return {"images": images, "labels": np.arange(count) % 3 * 10}


def images(folder: Path, arrays: dict[str, Any] | None = None, **options: Any) -> ImageDataModule:
    """The module of these arrays."""
    np.savez(folder / "x.npz", **(some_images() if arrays is None else arrays))
    return ImageDataModule(str(folder / "x.npz"), **{"split": (0.6, 0.2, 0.2), "batch_size": 8, **options})


TEXTS = ["The first document, é and all.\n" * 20, "A second one.\n" * 30, "And the third: \u2581 \U0001f600!\n" * 15]


def text(folder: Path, path: Any = "", **options: Any) -> TextDataModule:
    """The module of a path, by default the folder of these texts."""
    for i, some in enumerate(TEXTS):
        write(folder / "text", f"{i}.txt", some)
    given = {"seq_len": 16, "batch_size": 4, "split": (0.6, 0.2, 0.2), "cache_dir": str(folder / "cache"), **options}
    return TextDataModule(str(folder / "text") if path == "" else path, **given)


def documents(folder: Path, path: str = "", **options: Any) -> TextDataModule:
    """The module of short documents, each in rows of its own."""
    rng = random.Random(0)
    for i in range(40):
        length = rng.choice([1, 2, 5, 15, 16, 17, 33, 60])
        write(folder / "documents", f"{i:02d}.txt", "".join(rng.choices("abc \n", k=length)))
    given = {"batch_size": 3, "tokenizer": ByteTokenizer, "packing": "documents", **options}
    return text(folder, path or str(folder / "documents"), **given)


SHARES = {"web": 0.7, "books": 0.2, "code": 0.1}


def mixture(folder: Path, path: Any = "", **options: Any) -> TextDataModule:
    """The module of three corpora in given shares."""
    files = {name: folder / f"{name}.txt" for name in SHARES}
    for (name, file), length in zip(files.items(), (2000, 3000, 700), strict=True):
        file.exists() or file.write_text((name[0] + "xyz") * (length // 4))
    corpora = {name: str(file) for name, file in files.items()}
    return text(folder, corpora if path == "" else path, **{"mixture": SHARES, **options})


def synthetic(folder: Path, **options: Any) -> SyntheticDataModule:
    return SyntheticDataModule(Sort, **{"num_train": 60, "num_eval": 20, "batch_size": 8, **options})


def adding(folder: Path, **options: Any) -> AddingDataModule:
    return AddingDataModule(**{"num_train": 60, "num_eval": 20, "batch_size": 8, **options})


MODULES: dict[str, Callable[..., Any]] = {
    "labelled": labelled,
    "tagged": tagged,
    "parallel": parallel,
    "table": table,
    "images": images,
    "text": text,
    "documents": documents,
    "packed": partial(documents, packing="packed"),
    "mixture": mixture,
    "shuffled labelled": partial(labelled, word_order="shuffled"),
    "shuffled parallel": partial(parallel, word_order="shuffled"),
    "synthetic": synthetic,
    "adding": adding,
}
