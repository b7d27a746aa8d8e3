"""A bundle as a `TextModel`: texts in, texts out. Needs only NumPy and onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seqlab.decoding import TextCodec, WrittenIds
from seqlab.decoding.text_model import Generator, TextClassifier, TextModel, TextTagger, Translator, not_of_texts
from seqlab_data.tokenizers import Tokenizer, load_tokenizer
from seqlab_export.runner.manifest import BundleError, Manifest, hash_files, load_manifest

if TYPE_CHECKING:
    from seqlab_export.runner.sessions import ProviderName


def open_text_model(folder: Path | str, *, provider: ProviderName = "cpu") -> TextModel:
    """The text model of a bundle. If the bundle's ids do not represent text, its texts are ids in decimal form.

    Raises:
        ValueError: as in `Bundle` and `load_codec`.
    """
    # Imported here, since processes that only convert texts to ids have no onnxruntime.
    from seqlab_export.runner.graph_runner import BundleRunner, open_bundle

    bundle, name = open_bundle(folder, provider=provider), str(folder)
    codec, encoder = load_codec(bundle.folder), bundle.manifest.encoder
    if isinstance(bundle, BundleRunner):
        if encoder is None:
            return Generator(name, codec, bundle)
        return Translator(name, codec, bundle.begin, bundle.manifest.seq_len)
    assert encoder is not None
    each_word = len(encoder.outputs[0].dims) > 2
    return (TextTagger if each_word else TextClassifier)(name, codec, bundle.probabilities)


def load_codec(folder: Path) -> TextCodec:
    """Codec around the graphs of a text bundle, built only from its manifest and tokenizers.

    Raises:
        ValueError: the bundle does not read text, or a tokenizer does not match its checksum.
    """
    stated = load_manifest(folder)
    if stated.tokenizer is None and stated.encoder is None and stated.vocab_size is not None:
        return TextCodec("prompts", WrittenIds(stated.vocab_size), stop_ids=stated.stop_ids)
    if stated.tokenizer is None or not reads_text(stated):
        raise not_of_texts(str(folder))
    tokenizer = _load(folder, stated, stated.tokenizer)
    source_tokenizer = _load(folder, stated, stated.source_tokenizer) if stated.source_tokenizer else None
    if stated.model is None:
        return TextCodec("texts", tokenizer, labels=stated.labels)
    reads: Literal["prompts", "sources"] = "prompts" if stated.encoder is None else "sources"
    return TextCodec(reads, tokenizer, source_tokenizer, stop_ids=stated.stop_ids)


def reads_text(manifest: Manifest) -> bool:
    """True if a bundle has a tokenizer, and generates text or has class names."""
    return manifest.tokenizer is not None and (manifest.model is not None or bool(manifest.labels))


def _load(folder: Path, manifest: Manifest, name: str) -> Tokenizer:
    stated = {file: digest for file, digest in manifest.files.items() if file.startswith(f"{name}/")}
    if stated != {f"{name}/{file}": digest for file, digest in hash_files(folder / name).items()}:
        raise BundleError(f"{folder / name} is not as it was written: its sha256 are not the manifest's")
    return load_tokenizer(folder / name)
