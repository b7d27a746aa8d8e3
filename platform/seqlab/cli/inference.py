"""The verbs of the `seqlab` command that use a trained model, of a run or of a bundle.

Each imports what it needs when it runs. A verb takes its parsed options and returns the exit code.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.decoding.translate import SourceReader
    from seqlab.trained.load import LoadedRun

LINES_AT_ONCE = 64


def generate(options: argparse.Namespace) -> int:
    from seqlab.decoding import Decoder, Repetition, Sampling, WrittenIds, generate_text

    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=options.seed,
    )
    repetition = Repetition(penalty=options.repetition_penalty, ngram=options.no_repeat_ngram)
    decoder: Decoder
    if _is_bundle(options.target):
        from seqlab_export.runner.graph_runner import BundleRunner

        decoder = runner = BundleRunner(Path(options.target), provider=options.provider)
        tokenizer = runner.tokenizer if runner.manifest.tokenizer else WrittenIds()
    else:
        from seqlab.decoding.torch_model import TorchDecoder
        from seqlab.models import DecoderLM
        from seqlab.trained.load import load_run

        loaded = load_run(options.target, trust=options.trust)
        _check_model(loaded, DecoderLM, "generate continues a prompt")
        decoder, tokenizer = TorchDecoder(loaded.model), loaded.tokenizer or WrittenIds()

    def show(piece: str) -> None:
        print(piece, end="", flush=True)

    generate_text(
        decoder,
        tokenizer,
        options.prompt,
        max_new_tokens=options.max_new_tokens,
        sampling=sampling,
        repetition=repetition,
        on_text=show,
    )
    print()
    return 0


def _is_bundle(target: str) -> bool:
    return (Path(target) / "manifest.json").is_file()


def translate(options: argparse.Namespace) -> int:
    from seqlab.decoding import Repetition
    from seqlab.decoding.translate import translate

    if options.n_best is not None and not 1 <= options.n_best <= options.beams:
        raise ValueError(f"--n-best must be from 1 to the number of beams, {options.beams}; got {options.n_best}")
    repetition = Repetition(penalty=options.repetition_penalty, ngram=options.no_repeat_ngram)
    reader = _source_reader(options)
    lines = _input_lines(reader.source_tokenizer)
    numbers = itertools.count(1)
    while texts := list(itertools.islice(lines, LINES_AT_ONCE)):
        written = translate(
            reader,
            texts,
            beams=options.beams,
            length_penalty=options.length_penalty,
            repetition=repetition,
            prefix=options.prefix,
        )
        for best, number in zip(written, numbers, strict=False):
            if options.n_best is None:
                print(best[0])
            else:
                print("\n".join(f"{number}\t{text}" for text in best[: options.n_best]))
        sys.stdout.flush()
    return 0


def _source_reader(options: argparse.Namespace) -> SourceReader:
    from seqlab.decoding.translate import SourceReader

    if _is_bundle(options.target):
        from seqlab_export.runner.graph_runner import BundleRunner

        runner = BundleRunner(Path(options.target), provider=options.provider)
        longest = runner.manifest.seq_len
        return SourceReader(runner.begin, runner.source_tokenizer, runner.tokenizer, longest)
    from seqlab.decoding.torch_model import TorchDecoder
    from seqlab.models import EncoderDecoder, RNNSeq2Seq
    from seqlab.trained.load import load_run

    loaded = load_run(options.target, trust=options.trust)
    _check_model(loaded, (EncoderDecoder, RNNSeq2Seq), "translate reads sources")
    begin = partial(TorchDecoder.begin, loaded.model)
    return SourceReader(begin, loaded.source_tokenizer, loaded.tokenizer, loaded.task.seq_len)


def classify(options: argparse.Namespace) -> int:
    tokenizer, probabilities, labels = _classifier(options)
    for text in _input_lines(tokenizer):
        found = probabilities(text)
        if found.ndim > 1:
            tagged = zip(text.split(), found.argmax(axis=-1).tolist(), strict=True)
            print("".join(f"{word}\t{labels[place]}\n" for word, place in tagged), flush=True)
        else:
            print(f"{labels[int(found.argmax())]}\t{found.max():.4f}", flush=True)
    return 0


def _input_lines(tokenizer: Any) -> Iterator[str]:
    """The lines of the standard input, without their ends. A byte tokenizer takes any bytes, see `Tokenizer.encode`.

    Raises:
        ValueError: one is empty, or not UTF-8.
    """
    from seqlab_data.tokenizers import ByteTokenizer

    errors = "surrogateescape" if isinstance(tokenizer, ByteTokenizer) else "strict"
    for number, line in enumerate(sys.stdin.buffer, start=1):
        place = f"line {number} of the standard input"
        try:
            text = line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            wrong = f"the text is not UTF-8 at byte {error.start}; only a byte tokenizer takes any bytes"
            raise ValueError(f"{place}: {wrong}") from error
        if not text.strip():
            raise ValueError(f"{place} is empty; give one text a line")
        yield text.rstrip("\r\n")


def _classifier(options: argparse.Namespace) -> tuple[Any, Callable[[str], Any], Sequence[str]]:
    """A tokenizer, what gives the probabilities of the classes of a text or of each of its words, and their names."""
    if _is_bundle(options.target):
        from seqlab_export.runner.graph_runner import Bundle

        bundle = Bundle(Path(options.target), provider=options.provider)
        if bundle.manifest.model is not None or not bundle.manifest.labels:
            raise ValueError(f"classify reads texts: it needs a bundle with classes, {options.target} has none")
        return bundle.tokenizer, bundle.probabilities, bundle.manifest.labels
    import torch

    from seqlab.models import BagOfWords, Classifier, Tagger
    from seqlab.trained.load import load_run

    loaded = load_run(options.target, trust=options.trust)
    _check_model(loaded, (BagOfWords, Classifier, Tagger), "classify reads texts")
    if loaded.tokenizer is None:
        raise ValueError("classify reads texts: it needs a run that was trained on some, this one reads features")

    @torch.inference_mode()
    def probabilities(text: str) -> Any:
        return loaded.model(torch.tensor([loaded.tokenizer.encode(text)])).softmax(dim=-1)[0].numpy()

    return loaded.tokenizer, probabilities, loaded.labels


def _check_model(loaded: LoadedRun, wanted: type | tuple[type, ...], what: str) -> None:
    """Raises ValueError where a run's model is of another kind than a verb is for."""
    if not isinstance(loaded.model, wanted):
        names = " or ".join(cls.__name__ for cls in (wanted if isinstance(wanted, tuple) else (wanted,)))
        raise ValueError(f"{what}: it needs the run of a {names}, this one is of a {type(loaded.model).__name__}")
