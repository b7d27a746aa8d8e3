"""Data and task of each kind, for fits of a second."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from seqlab.attention import AdditiveAttention, Attention, Bidirectional
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.config.configs import LINKS, build_task
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder, MaskedLM, Tagger
from seqlab.nn.embedding import TypedEmbedding
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab.tasks import (
    Answering,
    Classification,
    Distillation,
    LanguageModeling,
    MaskedLanguageModeling,
    MultilabelClassification,
    Regression,
    Tagging,
    Translation,
)
from seqlab_data import (
    AddingDataModule,
    ImageDataModule,
    LabelledTextDataModule,
    ParallelTextDataModule,
    SyntheticDataModule,
    TableDataModule,
    TaggedTextDataModule,
    TextDataModule,
)
from seqlab_data.synthetic import Reverse
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer

KINDS = (
    *("language modelling", "masked", "answering", "translation", "classification", "tagging", "images"),
    *("regression", "frames", "distillation"),
)
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


def write_files(folder: Path) -> None:
    """Writes 41 and 74 rows of different lengths, which two processes cannot share evenly."""
    texts = [" ".join(WORDS[(i * k + j) % 7] for k in range(1 + i % 12)) for i in range(1, 38) for j in (0, 3)]
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts[:41]), encoding="utf-8")
    (folder / "labelled.txt").write_text("".join(f"{text.split()[0]} {text}\n" for text in texts), encoding="utf-8")
    tagged = ("".join(f"{word} {'B-X' if word == 'two' else 'O'}\n" for word in text.split()) for text in texts)
    (folder / "tagged.conll").write_text("\n".join(tagged), encoding="utf-8")
    frames = np.random.default_rng(0).normal(size=(41, 9, 2))
    lengths = np.arange(41) % 9 + 1
    np.savez(folder / "frames.npz", inputs=frames, targets=frames > 0, lengths=lengths)
    write_teacher(folder / "teacher.ckpt", characters(folder))


def write_teacher(path: Path, data: TextDataModule) -> None:
    """Writes the checkpoint of a language model for the vocabulary of the data, with large weights, so that it is sure
    of its tokens."""
    model = {"class_path": "DecoderLM", "init_args": {"d_model": 8, "num_layers": 1, "dropout": 0.5}}
    config = {"model": {"class_path": "LanguageModeling", "init_args": {"model": model}}}
    sizes = told(data)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        weights = {name: 3 * weight for name, weight in build_task(config, sizes).state_dict().items()}
    stored = {"config": config, "told": sizes, "tokenizer": data.tokenizer.to_dict()}
    AtomicCheckpointIO().save_checkpoint({"seqlab": stored, "state_dict": weights}, path)


def characters(folder: Path) -> TextDataModule:
    """The text of `write_files`, in windows of 16 characters."""
    cache = str(folder / "cache")
    return TextDataModule(str(folder / "text.txt"), cache_dir=cache, seq_len=16, batch_size=3, tokenizer=CharTokenizer)


def kinds(folder: Path) -> dict[str, tuple[L.LightningDataModule, Any]]:
    """The data of each kind, and a function that makes its task from the data's values. Where the data is one batch,
    the second process has nothing."""
    both_ways = partial(Encoder, d_model=8, num_layers=1, mixer=partial(Attention, num_heads=2, pattern=Bidirectional))
    of_features = partial(both_ways, embed=torch.nn.Linear)
    decoder = partial(DecoderLM, d_model=8, num_layers=1, mixer=GRU, positions=NoPositions)
    writer = partial(EncoderDecoder, encoder=both_ways, num_layers=1, mixer=AdditiveAttention)
    one_batch: dict[str, Any] = {"max_len": 64}
    few: dict[str, Any] = {"num_train": 24, "num_eval": 13, "batch_size": 5}
    few |= {"train_lengths": (2, 9), "test_lengths": (2, 9)}

    def of(name: str, **options: Any) -> dict[str, Any]:
        path = str(folder / name)
        return {"train": path, "val": path, "test": path, **one_batch, **options}

    pairs = ParallelTextDataModule(**of("pairs.tsv", source_tokenizer=WordTokenizer, target_tokenizer=WordTokenizer))
    masked = partial(MaskedLM, encoder=partial(both_ways, embed=TypedEmbedding))
    of_rows = partial(Classifier, encoder=of_features)
    of_texts = partial(Classification, model=partial(Classifier, encoder=both_ways))
    of_frames = partial(MultilabelClassification, model=partial(Tagger, encoder=of_features))
    images = ImageDataModule(patch_size=4, batch_size=50)
    return {
        "language modelling": (characters(folder), partial(LanguageModeling, model=decoder)),
        "masked": (characters(folder), partial(MaskedLanguageModeling, model=masked)),
        "answering": (SyntheticDataModule(Reverse, **few), partial(Answering, model=decoder)),
        "translation": (pairs, partial(Translation, model=writer, label_smoothing=0.1)),
        "classification": (LabelledTextDataModule(**of("labelled.txt", max_tokens=64)), of_texts),
        "tagging": (
            TaggedTextDataModule(**of("tagged.conll")),
            partial(Tagging, model=partial(Tagger, encoder=both_ways)),
        ),
        "images": (images, partial(Classification, model=of_rows)),
        "regression": (AddingDataModule(**few), partial(Regression, model=of_rows)),
        "frames": (TableDataModule(**of("frames.npz")), of_frames),
        "distillation": (
            characters(folder),
            partial(Distillation, model=decoder, teacher=str(folder / "teacher.ckpt"), z_loss=0.01),
        ),
    }


def told(data: L.LightningDataModule) -> dict[str, int]:
    """The values that a data module passes to its task."""
    return {link: found for link in LINKS if (found := getattr(data, link, None)) is not None}


def of_kind(name: str, folder: Path) -> tuple[Any, Any]:
    """Its data, of the files in the folder, and its task, of the same first weights each time."""
    data, make = kinds(folder)[name]
    torch.manual_seed(0)
    return data, make(**told(data))
