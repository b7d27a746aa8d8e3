"""What surrounds the graphs of a bundle of texts: texts to ids, and ids to texts. It needs no onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqlab.decoding.text import prompt_tokens
from seqlab.decoding.translate import source_tokens
from seqlab_data.tokenizers import Tokenizer, load_tokenizer
from seqlab_export.runner.manifest import BundleError, hash_files, load_manifest

Rows = list[list[int]]
"""Ids of different lengths, one list a text."""


class TextCodec:
    """A bundle's tokenizers and the names of its classes.

    Args:
        folder: the bundle, of which the manifest and the tokenizers are read.

    Attributes:
        source_tokenizer, tokenizer: of what the model reads, and of what it writes.

    Raises:
        ValueError: the bundle has no tokenizer, or one that is not as it was written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = load_manifest(folder)
        self.tokenizer = self._load(self.manifest.tokenizer)
        other = self.manifest.source_tokenizer
        self.source_tokenizer = self._load(other) if other else self.tokenizer

    def _load(self, name: str | None) -> Tokenizer:
        if name is None:
            raise BundleError(f"{self.folder} has no tokenizer")
        stated = {file: digest for file, digest in self.manifest.files.items() if file.startswith(f"{name}/")}
        if stated != {f"{name}/{file}": digest for file, digest in hash_files(self.folder / name).items()}:
            raise BundleError(f"{self.folder / name} is not as it was written: its sha256 are not the manifest's")
        return load_tokenizer(self.folder / name)

    def encode(self, texts: Sequence[str]) -> Rows:
        """What the model reads of each text.

        Raises:
            ValueError: one is no text, is not UTF-8, or is empty and not to be continued.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"text {number} is {text!r}, which is no text")
        if self.manifest.encoder is None:
            return [prompt_tokens(self.tokenizer, text) for text in texts]
        for number, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"text {number} is empty")
        if self.manifest.model is not None:
            return [source_tokens(self.source_tokenizer, text) for text in texts]
        return [self.tokenizer.encode(text) for text in texts]

    def decode(self, rows: Rows) -> list[str]:
        """The text of each row of ids: what was written, or the names of classes, separated by a space.

        Raises:
            ValueError: there is no such token or class.
        """
        if self.manifest.model is not None:
            return [self.tokenizer.decode(row) for row in rows]
        return [" ".join(map(self._label, row)) for row in rows]

    def _label(self, place: int) -> str:
        labels = self.manifest.labels
        if not 0 <= place < len(labels):
            raise ValueError(f"there is no class {place}, classes run from 0 to {len(labels) - 1}")
        return labels[place]
