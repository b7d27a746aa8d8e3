"""Texts in, texts out: the interface of a model, a run's or a bundle's, for every program.

`seqlab.open_text_model` opens a run; the package that exports bundles opens them. NumPy only.

B texts, S source length, T tokens, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from seqlab.config.text_options import GENERATE, TRANSLATE, Option, values
from seqlab.decoding.beam import BeamDecoder, beam_search
from seqlab.decoding.generate import Decoder, generate, padded_right
from seqlab.decoding.repetition import Repetition
from seqlab.decoding.sampling import Sampling
from seqlab.decoding.text import Rows, TextCodec

Answer = dict[str, str | float]
Scores = dict[str, list[float]]
"""Scores of each text, by the name of the output."""


class Class(NamedTuple):
    """The likeliest class of a text, or of one of its words."""

    label: str
    probability: float
    word: str | None = None


class TextModel(ABC):
    """A model that reads texts, and writes or says something of each; it refuses what other kinds do.

    Args:
        name: of the run or the bundle.

    Attributes:
        verb: of the `seqlab` command that asks it.
        options: what may be asked of it.
        outputs: the type of each value of an answer, by its name: the text that the answer's ids are, and scores.
    """

    verb: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    outputs: ClassVar[Mapping[str, type[str] | type[float]]]

    def __init__(self, name: str, codec: TextCodec) -> None:
        self.name = name
        self.codec = codec

    @property
    def example(self) -> str:
        """A text of a few tokens that it reads."""
        tokenizer = self.codec.source_tokenizer
        middle = tokenizer.vocab_size // 2
        return tokenizer.decode(range(middle, middle + 3))

    def encode(self, texts: Sequence[str]) -> Rows:
        """Tokens that it reads of each text; see `TextCodec.encode`."""
        return self.codec.encode(texts)

    def write(self, prompt: str, *, on_text: Callable[[str], None] | None = None, **options: Any) -> str:
        """Continues a prompt until the model ends the text.

        Args:
            on_text: called with each piece of new text as it is complete; the pieces join to what is returned.
            options: of `seqlab.config.text_options.GENERATE`.

        Raises:
            ValueError: as `generate`, or it continues no prompts.
        """
        self.refuse("generate")

    def translate(self, texts: Sequence[str], **options: Any) -> list[list[str]]:
        """Targets of each text, the best first, at most as many as beams.

        Args:
            options: of `seqlab.config.text_options.TRANSLATE`; one beam is greedy.

        Raises:
            ValueError: as `beam_search`, a source is longer than it reads, the prefix is as long as a target, or it
                reads no sources.
        """
        self.refuse("translate")

    def classify(self, text: str) -> list[Class]:
        """The likeliest class of a text, or of each of its words in turn.

        Raises:
            ValueError: as `encode`, or it knows no classes.
        """
        self.refuse("classify")

    def probabilities(self, text: str) -> NDArray[np.floating]:
        """Probabilities of the classes of a text, (C,), or of each of its words, (T, C); raises as `classify`."""
        self.refuse("classify")

    def refuse(self, verb: str) -> NoReturn:
        """Raises ValueError: a model of another kind does what is asked."""
        raise ValueError(f"`seqlab {verb}` is for another kind of model, {self.name} is for `seqlab {self.verb}`")

    def answer(self, texts: Sequence[str], options: Mapping[str, Any] | None = None) -> list[Answer]:
        """Answers of a server to each text, in order: `encode`, `run`, `TextCodec.decode`; raises as these."""
        rows, scores = self.run(self.encode(texts), options)
        columns = [self.codec.decode(rows), *scores.values()]
        return [dict(zip(self.outputs, given, strict=True)) for given in zip(*columns, strict=True)]

    def run(self, rows: Rows, options: Mapping[str, Any] | None = None) -> tuple[Rows, Scores]:
        """Output for each row of ids, as ids of tokens or of classes, and its scores.

        Args:
            rows: as `encode` gives them.
            options: by name; None, and one that is None, leave the default.

        Raises:
            ValueError: an option is unknown or out of range, or a row is not one that the model reads.
        """
        settings, vocab_size = self.settings(options or {}), self.codec.source_tokenizer.vocab_size
        for number, row in enumerate(rows):
            if not row:
                raise ValueError(f"text {number} has no tokens")
            if outside := [token for token in row if not 0 <= token < vocab_size]:
                raise ValueError(f"text {number} has token {outside[0]}, outside the vocabulary 0..{vocab_size - 1}")
        return self._run(rows, settings)

    @classmethod
    def settings(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options as decoding takes them, with defaults for those that are None or left out.

        Raises:
            ValueError: one is unknown, or out of its range.
        """
        return values(cls.options, options)

    @abstractmethod
    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        """Output for rows that were checked, with what `settings` gives."""


class Generator(TextModel):
    """Continues each prompt, independently of the others."""

    verb = "generate"
    options = GENERATE
    outputs: ClassVar = {"text": str}

    def __init__(self, name: str, codec: TextCodec, decoder: Decoder) -> None:
        super().__init__(name, codec)
        self.decoder = decoder

    def write(self, prompt: str, *, on_text: Callable[[str], None] | None = None, **options: Any) -> str:
        stream, rows = self.codec.tokenizer.stream_decoder(), self.encode([prompt])

        def show(row: int, token: int) -> None:
            if on_text is not None and (piece := stream.push(token)):
                on_text(piece)

        [tokens] = self._continue(rows, self.settings(options), show)
        if on_text is not None and (rest := stream.finish()):
            on_text(rest)
        return self.codec.tokenizer.decode(tokens)

    @classmethod
    def settings(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        chosen = values(cls.options, options)
        return {
            "max_new_tokens": chosen.pop("max_new_tokens"),
            "repetition": _take_repetition(chosen),
            "sampling": Sampling(**chosen),
        }

    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        return [tokens for row in rows for tokens in self._continue([row], settings)], {}

    def _continue(
        self, rows: Rows, settings: dict[str, Any], on_token: Callable[[int, int], None] | None = None
    ) -> Rows:
        return generate(self.decoder, rows, stop_ids=self.codec.stop_ids, on_token=on_token, **settings)


class Translator(TextModel):
    """Writes the target of each source.

    Args:
        begin: the decoder that has read source (B, S) int64, source_mask (B, S) bool.
        max_tokens: the most tokens of a target.
    """

    verb = "translate"
    options = TRANSLATE
    outputs: ClassVar = {"text": str}

    def __init__(
        self,
        name: str,
        codec: TextCodec,
        begin: Callable[[NDArray[np.int64], NDArray[np.bool_]], BeamDecoder],
        max_tokens: int,
    ) -> None:
        super().__init__(name, codec)
        self.begin = begin
        self.max_tokens = max_tokens

    def translate(self, texts: Sequence[str], **options: Any) -> list[list[str]]:
        found = self._targets(self.encode(texts), **self.settings(options))
        return [self.codec.decode(targets) for targets in found]

    @classmethod
    def settings(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        chosen = values(cls.options, options)
        return {"repetition": _take_repetition(chosen), **chosen}

    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        return [best for best, *_ in self._targets(rows, **settings)], {}

    def _targets(self, sources: Rows, *, prefix: str, **settings: Any) -> list[Rows]:
        """Tokens of the targets of each source, the best first."""
        if not sources:
            return []
        tokenizer = self.codec.tokenizer
        forced = tokenizer.encode(prefix) if prefix else []
        if len(forced) >= self.max_tokens:
            raise ValueError(f"the prefix has {len(forced)} tokens, a target at most {self.max_tokens}; shorten it")
        found = beam_search(
            self.begin(*padded_right(sources)),
            [[tokenizer.bos_id, *forced]] * len(sources),
            max_new_tokens=self.max_tokens - len(forced),
            stop_ids=self.codec.stop_ids,
            **settings,
        )
        return [[[*forced, *hypothesis.tokens] for hypothesis in hypotheses] for hypotheses in found]


class TextClassifier(TextModel):
    """Says the class of each text, and its probability.

    Args:
        of_row: the probabilities (C,) of the classes of a text's ids, or (T, C) of each id's.
    """

    verb = "classify"
    outputs: ClassVar = {"label": str, "probability": float}

    def __init__(self, name: str, codec: TextCodec, of_row: Callable[[list[int]], NDArray[np.floating]]) -> None:
        super().__init__(name, codec)
        self.of_row = of_row

    def probabilities(self, text: str) -> NDArray[np.floating]:
        return self.of_row(self.encode([text])[0])

    def classify(self, text: str) -> list[Class]:
        chances = self.probabilities(text)
        return [Class(self.codec.labels[int(chances.argmax())], float(chances.max()))]

    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        found = [self.of_row(row) for row in rows]
        scores = {"probability": [float(chances.max()) for chances in found]}
        return [[int(chances.argmax())] for chances in found], scores


class TextTagger(TextClassifier):
    """Says the tag of each word of a text; they are separated as words are, by a space."""

    outputs: ClassVar = {"tags": str}

    def classify(self, text: str) -> list[Class]:
        words = zip(text.split(), self.probabilities(text), strict=True)
        return [Class(self.codec.labels[int(chances.argmax())], float(chances.max()), word) for word, chances in words]

    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        return [self.of_row(row).argmax(axis=-1).tolist() for row in rows], {}


def not_of_texts(name: str) -> ValueError:
    """Error for a run or a bundle that is no `TextModel`."""
    return ValueError(
        f"{name} is not of texts: it has no tokenizer, or names no classes; generate continues a prompt, translate "
        "reads sources, classify reads texts"
    )


def _take_repetition(chosen: dict[str, Any]) -> Repetition:
    return Repetition(penalty=chosen.pop("repetition_penalty"), ngram=chosen.pop("no_repeat_ngram"))
