"""Verbs that run a text model, from a run or a bundle: generate, translate, classify."""

from __future__ import annotations

import argparse
import codecs
import itertools
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from seqlab.cli.terminal import for_programs, shown
from seqlab.cli.verb import PROVIDER, RUN_OR_BUNDLE, TRUST, argument, text_arguments, verb, whole_number
from seqlab.config.text_options import GENERATE, TRANSLATE

if TYPE_CHECKING:
    from seqlab.decoding.text_model import TextModel

LINES_AT_ONCE = 64


@verb(
    "generate text from a prompt with a run or a bundle",
    RUN_OR_BUNDLE,
    argument(
        "--prompt",
        default="",
        metavar="TEXT",
        help="prompt text, or ids where there is no tokenizer; - reads standard input",
    ),
    *text_arguments(GENERATE),
    PROVIDER,
    TRUST,
)
def generate(options: argparse.Namespace) -> int:
    from seqlab.decoding.text_model import Generator

    chosen = _chosen(options, Generator)
    model = _text_model(options)
    prompt = options.prompt
    if prompt == "-":
        prompt = b"".join(_standard_input()).decode("utf-8", "surrogateescape")
    out = for_programs()
    model.write(prompt, on_text=partial(print, end="", flush=True, file=out), **chosen)
    print(file=out)
    if isinstance(model, Generator) and model.speculated is not None:
        tokens, passes = model.speculated
        print(f"{len(tokens)} tokens in {passes} passes over the model", file=sys.stderr)
    return 0


@verb(
    "translate each line of standard input",
    RUN_OR_BUNDLE,
    *text_arguments(TRANSLATE),
    argument(
        "--n-best", type=whole_number, metavar="N", help="print the N best outputs per line, each after the line number"
    ),
    PROVIDER,
    TRUST,
)
def translate(options: argparse.Namespace) -> int:
    from seqlab.decoding.text_model import Translator

    if options.n_best is not None and not 1 <= options.n_best <= options.beams:
        raise ValueError(f"--n-best must be from 1 to the number of beams, {options.beams}; got {options.n_best}")
    chosen = _chosen(options, Translator)
    model = _text_model(options)
    lines = _input_lines(model)
    numbers, out = itertools.count(1), for_programs()
    while texts := list(itertools.islice(lines, LINES_AT_ONCE)):
        for best, number in zip(model.translate(texts, **chosen), numbers, strict=False):
            if options.n_best is None:
                print(best[0], file=out)
            else:
                print("\n".join(f"{number}\t{text}" for text in best[: options.n_best]), file=out)
        out.flush()
    return 0


@verb("classify or tag each line of standard input", RUN_OR_BUNDLE, PROVIDER, TRUST)
def classify(options: argparse.Namespace) -> int:
    model = _text_model(options)
    for text in _input_lines(model):
        found = model.classify(text)
        if found[0].word is None:
            print(f"{found[0].label}\t{found[0].probability:.4f}", flush=True)
        else:
            words = "".join(f"{one.word}\t{shown(one.label)}\n" for one in found)
            print(words, flush=True, file=for_programs())
    return 0


def _text_model(options: argparse.Namespace) -> TextModel:
    """Opens the model, and refuses one for another verb before standard input is read."""
    if os.path.exists(os.path.join(options.target, "manifest.json")):
        from seqlab_export.runner import bundle_text_model as of_bundle

        model = of_bundle.open_text_model(options.target, provider=options.provider)
    else:
        from seqlab.trained import run_text_model as of_run

        model = of_run.open_text_model(options.target, trust=options.trust)
    if model.verb != options.verb:
        model.refuse(options.verb)
    return model


def _chosen(options: argparse.Namespace, kind: type[TextModel]) -> dict[str, Any]:
    """Options for a model, checked before the model is opened."""
    chosen = {option.name: getattr(options, option.name) for option in kind.options}
    kind.settings(chosen)
    return chosen


def _input_lines(model: TextModel) -> Iterator[str]:
    """Yields lines of standard input without line ends. A byte tokenizer accepts any bytes, see `Tokenizer.encode`.

    Raises:
        ValueError: a line is empty or not UTF-8.
    """
    from seqlab_data.tokenizers import ByteTokenizer

    errors = "surrogateescape" if isinstance(model.codec.source_tokenizer, ByteTokenizer) else "strict"
    for number, line in enumerate(_standard_input(), start=1):
        place = f"line {number} of the standard input"
        try:
            text = line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            wrong = f"the text is not UTF-8 at byte {error.start}; only a byte tokenizer takes any bytes"
            raise ValueError(f"{place}: {wrong}") from error
        if not text.strip():
            raise ValueError(f"{place} is empty; give one text a line")
        yield text.removesuffix("\n")


def _standard_input() -> Iterator[bytes]:
    """Yields lines of standard input, without byte-order mark and with CRLF replaced by LF. `StandardInput` in
    export/runtime and `asRead` in export/web do the same.

    Raises:
        ValueError: standard input is closed.
    """
    if sys.stdin is None:
        raise ValueError("standard input is closed; texts are read there")
    for number, line in enumerate(sys.stdin.buffer):
        text = line if number else line.removeprefix(codecs.BOM_UTF8)
        yield text.removesuffix(b"\r\n") + b"\n" if text.endswith(b"\r\n") else text


VERBS = (generate, translate, classify)
