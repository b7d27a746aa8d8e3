"""Text-level interface of a model, from a run or a bundle, for every program.

`seqlab.open_text_model` opens a run; the export package opens bundles. NumPy only.

B texts, S source length, T tokens, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from seqlab.config.text_options import GENERATE, TRANSLATE, TextOption, values
from seqlab.decoding.beam import BeamDecoder, beam_search
from seqlab.decoding.generate import Decoder, generate, padded_right
from seqlab.decoding.repetition import Repetition
from seqlab.decoding.sampling import Sampling
from seqlab.decoding.speculate import Guesser, Speculated, speculate
from seqlab.decoding.text import Rows, TextCodec

Answer = dict[str, str | float]
Scores = dict[str, list[float]]
"""One score per text, by output name."""


class Class(NamedTuple):
    """Likeliest class of a text, or of one of its words."""

    label: str
    probability: float
    word: str | None = None


class TextModel(ABC):
    """A model that reads texts, and generates or classifies. It refuses requests for another kind of model.

    Args:
        name: name of the run or the bundle.

    Attributes:
        verb: verb of the `seqlab` command that runs it.
        options: options of a request.
        outputs: type of each value of an answer, by name: first the decoded text, then the scores.
    """

    verb: ClassVar[str]
    options: ClassVar[tuple[TextOption, ...]] = ()
    outputs: ClassVar[Mapping[str, type[str] | type[float]]]

    def __init__(self, name: str, codec: TextCodec) -> None:
        self.name = name
        self.codec = codec

    @property
    def example(self) -> str:
        """A sample input of a few tokens."""
        tokenizer = self.codec.source_tokenizer
        middle = tokenizer.vocab_size // 2
        return tokenizer.decode(range(middle, middle + 3))

    def encode(self, texts: Sequence[str]) -> Rows:
        """Token ids of each text; see `TextCodec.encode`."""
        return self.codec.encode(texts)

    def write(self, prompt: str, *, on_text: Callable[[str], None] | None = None, **options: Any) -> str:
        """Continues a prompt until the model ends the text.

        Args:
            on_text: called with each piece of new text once it is complete; joined, the pieces are the result.
            options: options of `seqlab.config.text_options.GENERATE`.

        Raises:
            ValueError: invalid arguments as in `generate`, or the model does not continue prompts.
        """
        self.refuse("generate")

    def translate(self, texts: Sequence[str], **options: Any) -> list[list[str]]:
        """Targets of each text, best first, at most one per beam.

        Args:
            options: options of `seqlab.config.text_options.TRANSLATE`; one beam = greedy.

        Raises:
            ValueError: invalid arguments as in `beam_search`, a source exceeds the maximum length, the prefix leaves
                no room for a target, or the model does not translate.
        """
        self.refuse("translate")

    def classify(self, text: str) -> list[Class]:
        """Likeliest class of a text, or of each of its words in order.

        Raises:
            ValueError: invalid text as in `encode`, or the model does not classify.
        """
        self.refuse("classify")

    def probabilities(self, text: str) -> NDArray[np.floating]:
        """Class probabilities of a text, (C,), or of each of its words, (T, C); raises as `classify`."""
        self.refuse("classify")

    def refuse(self, verb: str) -> NoReturn:
        """Raises ValueError: the verb needs another kind of model."""
        raise ValueError(
            f"`seqlab {verb}` is for another kind of model; {self.name} is a model for `seqlab {self.verb}`"
        )

    def answer(self, texts: Sequence[str], options: Mapping[str, Any] | None = None) -> list[Answer]:
        """A server's answer to each text, in order: `encode`, `run`, then `TextCodec.decode`; raises as these do."""
        rows, scores = self.run(self.encode(texts), options)
        columns = [self.codec.decode(rows), *scores.values()]
        return [dict(zip(self.outputs, given, strict=True)) for given in zip(*columns, strict=True)]

    def run(self, rows: Rows, options: Mapping[str, Any] | None = None) -> tuple[Rows, Scores]:
        """Output for each row of ids, as token or class ids, and its scores.

        Args:
            rows: token ids as returned by `encode`.
            options: options by name; an option that is missing or None takes its default.

        Raises:
            ValueError: an option is unknown or out of range, or a row is not valid input for the model.
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
        """Keyword arguments for decoding, with defaults for options that are None or missing.

        Raises:
            ValueError: an option is unknown or out of range.
        """
        return values(cls.options, options)

    @abstractmethod
    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        """Output for validated rows, with the result of `settings`."""


class Generator(TextModel):
    """Continues each prompt independently.

    Attributes:
        speculated: the last text, and the passes over the model that it took; None = the model guesses no tokens.
    """

    speculated: Speculated | None = None
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
        told = {"stop_ids": self.codec.stop_ids, "on_token": on_token, **settings}
        if len(rows) > 1 or not getattr(self.decoder, "num_ahead", 0):
            return generate(self.decoder, rows, **told)
        self.speculated = speculate(cast(Guesser, self.decoder), rows[0], **told)
        return [self.speculated.tokens]


class Translator(TextModel):
    """Generates the target of each source.

    Args:
        begin: encodes source (B, S) int64 with source_mask (B, S) bool and returns a decoder.
        max_tokens: maximum target length in tokens.
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
        """Token ids of the targets of each source, best first."""
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
    """Predicts the class of each text, with its probability.

    Args:
        of_row: returns class probabilities for a list of ids: (C,) for the text, or (T, C) for each id.
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
    """Predicts the tag of each word of a text. Words, and the tags of an answer, are separated by spaces."""

    outputs: ClassVar = {"tags": str}

    def classify(self, text: str) -> list[Class]:
        words = zip(text.split(), self.probabilities(text), strict=True)
        return [Class(self.codec.labels[int(chances.argmax())], float(chances.max()), word) for word, chances in words]

    def _run(self, rows: Rows, settings: dict[str, Any]) -> tuple[Rows, Scores]:
        return [self.of_row(row).argmax(axis=-1).tolist() for row in rows], {}


def not_of_texts(name: str) -> ValueError:
    """Error for a run or a bundle that cannot be opened as a `TextModel`."""
    return ValueError(
        f"{name} does not read text: it has no tokenizer or no class names; generate, translate and classify need a "
        "model of text"
    )


def _take_repetition(chosen: dict[str, Any]) -> Repetition:
    return Repetition(penalty=chosen.pop("repetition_penalty"), ngram=chosen.pop("no_repeat_ngram"))
