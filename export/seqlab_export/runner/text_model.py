"""Texts in, texts out: what a server needs of a bundle. NumPy and onnxruntime alone, as `runner`.

Each kind of bundle has its options, with defaults, and names its outputs: one value a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from seqlab.decoding import Repetition, Sampling, generate
from seqlab.decoding.text import stop_ids
from seqlab.decoding.translate import SourceReader, translate_tokens
from seqlab_export.runner.graph_runner import Bundle, BundleRunner, open_bundle
from seqlab_export.runner.manifest import Manifest
from seqlab_export.runner.sessions import Provider
from seqlab_export.runner.text_codec import Rows, TextCodec

Answer = dict[str, str | float]
Scores = dict[str, list[float]]
"""Of each text, by the name of the output."""


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Of what has only one answer."""


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """`repetition_penalty` above 1 avoids repetition; no sequence of `no_repeat_ngram` tokens is written twice."""

    repetition_penalty: float = 1.0
    no_repeat_ngram: int | None = None

    @property
    def repetition(self) -> Repetition:
        return Repetition(penalty=self.repetition_penalty, ngram=self.no_repeat_ngram)


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(WritingOptions):
    """Those of `seqlab generate`; see `seqlab.decoding.Sampling`."""

    max_new_tokens: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(WritingOptions):
    """Those of `seqlab translate`; see `seqlab.decoding.translate`."""

    beams: int = 1
    length_penalty: float = 1.0
    prefix: str = ""


class TextModel(ABC):
    """A bundle that reads texts and writes or says something of each.

    Attributes:
        Options: the dataclass of its options; each is an int, a float or a str, or None.
        outputs: the type of each value of an answer, by its name: the text that the answer's ids are, and scores.
    """

    Options: ClassVar[type[Any]] = NoOptions
    outputs: ClassVar[Mapping[str, type[str] | type[float]]]

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.codec = TextCodec(bundle.folder)

    @property
    def example(self) -> str:
        """A text of a few tokens that it reads."""
        tokenizer = self.codec.source_tokenizer
        middle = tokenizer.vocab_size // 2
        return tokenizer.decode(range(middle, middle + 3))

    @classmethod
    def option_types(cls) -> dict[str, type]:
        """int, float or str for each option, by its name."""
        hints = get_type_hints(cls.Options)
        return {name: next(iter(get_args(hint)), hint) for name, hint in hints.items()}

    def answer(self, texts: Sequence[str], options: Mapping[str, Any] | None = None) -> list[Answer]:
        """An answer for each text, in order: `TextCodec.encode`, `run`, `TextCodec.decode`.

        Raises:
            ValueError: as these do.
        """
        rows, scores = self.run(self.codec.encode(texts), options)
        columns = [self.codec.decode(rows), *scores.values()]
        return [dict(zip(self.outputs, values, strict=True)) for values in zip(*columns, strict=True)]

    def run(self, rows: Rows, options: Mapping[str, Any] | None = None) -> tuple[Rows, Scores]:
        """What it writes or says of each row of ids, as ids of tokens or of classes.

        Args:
            rows: as `TextCodec.encode` gives them.
            options: by the names of `Options`; None, and one that is None, leave the default.

        Raises:
            ValueError: an option is unknown or out of range, or a row is not one that the model reads.
        """
        given = {name: value for name, value in (options or {}).items() if value is not None}
        known = self.option_types()
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"there is no option {unknown[0]!r}; accepted: {', '.join(known) or 'none'}")
        vocab_size = self.codec.source_tokenizer.vocab_size
        for number, row in enumerate(rows):
            if not row:
                raise ValueError(f"text {number} has no tokens")
            if outside := [token for token in row if not 0 <= token < vocab_size]:
                raise ValueError(f"text {number} has token {outside[0]}, outside the vocabulary 0..{vocab_size - 1}")
        return self._run(rows, self.Options(**given))

    @abstractmethod
    def _run(self, rows: Rows, options: Any) -> tuple[Rows, Scores]: ...


class Generator(TextModel):
    """Continues each prompt as `seqlab generate` does, whatever the others are."""

    Options = GenerateOptions
    outputs: ClassVar = {"text": str}

    def __init__(self, runner: BundleRunner) -> None:
        super().__init__(runner)
        self.runner = runner

    def _run(self, rows: Rows, options: GenerateOptions) -> tuple[Rows, Scores]:
        sampling = Sampling(
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            seed=options.seed,
        )
        chosen: dict[str, Any] = {
            "max_new_tokens": options.max_new_tokens,
            "sampling": sampling,
            "repetition": options.repetition,
            "stop_ids": stop_ids(self.codec.tokenizer),
        }
        return [tokens for row in rows for tokens in generate(self.runner, [row], **chosen)], {}


class Translator(TextModel):
    """Writes the target of each source."""

    Options = TranslateOptions
    outputs: ClassVar = {"text": str}

    def __init__(self, runner: BundleRunner) -> None:
        super().__init__(runner)
        longest = runner.manifest.seq_len
        self.reader = SourceReader(runner.begin, self.codec.source_tokenizer, self.codec.tokenizer, longest)

    def _run(self, rows: Rows, options: TranslateOptions) -> tuple[Rows, Scores]:
        found = translate_tokens(
            self.reader,
            rows,
            beams=options.beams,
            length_penalty=options.length_penalty,
            repetition=options.repetition,
            prefix=options.prefix,
        )
        return [best for best, *_ in found], {}


class TextClassifier(TextModel):
    """Says the class of each text, and its probability."""

    outputs: ClassVar = {"label": str, "probability": float}

    def _run(self, rows: Rows, options: NoOptions) -> tuple[Rows, Scores]:
        found = [self.bundle.probabilities(row) for row in rows]
        scores = {"probability": [float(chances.max()) for chances in found]}
        return [[int(chances.argmax())] for chances in found], scores


class TextTagger(TextModel):
    """Says the tag of each word of a text; they are separated as words are, by a space."""

    outputs: ClassVar = {"tags": str}

    def _run(self, rows: Rows, options: NoOptions) -> tuple[Rows, Scores]:
        return [self.bundle.probabilities(row).argmax(axis=-1).tolist() for row in rows], {}


def reads_text(manifest: Manifest) -> bool:
    """Whether a bundle is that of a `TextModel`: not of features or ids, nor of an encoder without classes."""
    return manifest.tokenizer is not None and (manifest.model is not None or bool(manifest.labels))


def open_text_model(folder: Path | str, *, provider: Provider = "cpu") -> TextModel:
    """The text model of a bundle.

    Raises:
        ValueError: as `Bundle`, or the bundle is not one that `reads_text`.
    """
    bundle = open_bundle(folder, provider=provider)
    encoder = bundle.manifest.encoder
    if not reads_text(bundle.manifest):
        raise ValueError(f"{folder} is not of texts: it has no tokenizer, or names no classes")
    if isinstance(bundle, BundleRunner):
        return Generator(bundle) if encoder is None else Translator(bundle)
    assert encoder is not None
    each_word = len(encoder.outputs[0].dims) > 2
    return TextTagger(bundle) if each_word else TextClassifier(bundle)
