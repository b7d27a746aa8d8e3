"""Bundles of toy models that the C++ runtime is to run as Python does, each made once, and both command lines."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contracts.subjects import randomized
from export.toys import TOKENIZER, TOYS, shared_toy, toy
from once import once
from runtime.programs import refusal, run
from seqlab.attention import AdditiveAttention, Attention, Mamba2, SlidingWindow
from seqlab.cli import main
from seqlab.models import BagOfWords, DecoderLM, Encoder, EncoderDecoder, Tagger
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.capture import plan

SOURCE = CharTokenizer("uvwxyz ")
WORDS = WordTokenizer("the cat sat on a mat .")
SEQ_LEN = 24

Bundle = Callable[[str], Path]
"""Called with the name of a bundle, which tests must not change; "reduced NAME" is a toy's with a reduced proof."""
Copy = Callable[[str], Path]
"""Called with the name of a bundle; a copy that the test may change."""
Seqlab = Callable[..., tuple[int, str, str]]
"""The command `seqlab` in this process: its code, output and error output."""


def _both_ways() -> partial[Encoder]:
    mixer = partial(GRU, bidirectional=True)
    return partial(Encoder, d_model=8, num_layers=1, mixer=mixer, positions=Learned)


def _translator(mixer: Any = AdditiveAttention) -> EncoderDecoder:
    sizes = (TOKENIZER.vocab_size, SOURCE.vocab_size, SEQ_LEN)
    return EncoderDecoder(*sizes, encoder=_both_ways(), num_layers=1, mixer=mixer, positions=Learned)


def _decoder() -> DecoderLM:
    """onnxruntime's own node takes heads of a multiple of 8 channels."""
    return toy(partial(Attention, num_heads=2), RoPE)


def _hybrid() -> DecoderLM:
    """A state of every kind: fixed, of a window, growing."""
    window = partial(Attention, num_heads=2, pattern=partial(SlidingWindow, window=3))
    return toy([partial(Mamba2, head_dim=4), window, partial(Attention, num_heads=2)], NoPositions, 3)


ATTENTIVE = partial(_translator, partial(Attention, num_heads=1))
PAIR = {"source_tokenizer": SOURCE}
MADE: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    **{precision: (_decoder, {"precision": precision}) for precision in ("fp16", "bf16", "int8", "int4")},
    "fused": (_decoder, {"target": "ort"}),
    "hybrid": (_hybrid, {}),
    "endless": (lambda: toy(GRU, NoPositions, 1), {"stop_ids": []}),
    "endless attention": (lambda: toy(Attention, RoPE, 1), {"stop_ids": []}),
    "translator": (_translator, PAIR),
    "attentive translator": (ATTENTIVE, PAIR),
    "fused translator": (ATTENTIVE, PAIR | {"target": "ort"}),
    "tagger": (
        lambda: Tagger(WORDS.vocab_size, 3, SEQ_LEN, encoder=_both_ways()),
        {"tokenizer": WORDS, "labels": ["O", "B-X", "I-X"]},
    ),
    "limited": (lambda: DecoderLM(TOKENIZER.vocab_size, 8, d_model=16, num_layers=1, positions=Learned), {}),
    "classifier": (lambda: BagOfWords(TOKENIZER.vocab_size, 3, SEQ_LEN, d_model=8), {"labels": ["x", "y", "z"]}),
}


def _exported(name: str, folder: Path) -> Path:
    make, options = MADE[name]
    told: dict[str, Any] = {"tokenizer": TOKENIZER, "run_id": "", "commit": "", "seq_len": SEQ_LEN}
    export_bundle(randomized(make()).float().eval(), out=folder, **told | options)
    return folder


@pytest.fixture(scope="session", name="bundle")
def _bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    def bundle(name: str) -> Path:
        with torch.random.fork_rng():  # the same weights, whichever test is the first
            torch.manual_seed(0)
            if name in TOYS:
                return shared_toy(name, tmp_path_factory).folder
            if name.startswith("reduced "):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(plan, "MOST_WEIGHTS", 0)
                    return shared_toy(name.removeprefix("reduced "), tmp_path_factory, kind="reduced").folder
            return once(f"runtime-{name}", lambda folder: _exported(name, folder / "bundle"), tmp_path_factory)

    return cache(bundle)


@pytest.fixture(name="copy")
def _copy(bundle: Bundle, tmp_path: Path) -> Copy:
    return lambda name: Path(shutil.copytree(bundle(name), tmp_path / "bundle"))


@pytest.fixture(name="seqlab")
def _seqlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Seqlab:
    def seqlab(*arguments: object, text: str | bytes = "") -> tuple[int, str, str]:
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code, said = main([*map(str, arguments)]), capsys.readouterr()
        return code, said.out, said.err

    return seqlab


class Both:
    """`seqlab` and `seqlab-run`, which must say the same."""

    def __init__(self, seqlab: Seqlab) -> None:
        self._seqlab = seqlab

    def say(self, *arguments: str | Path, text: str | bytes = "") -> str:
        """Their output."""
        done = run(*arguments, "--threads", "1", text=text)
        assert (done.returncode, done.stderr) == (0, b"")
        assert self._seqlab(*arguments, text=text) == (0, done.stdout.decode(), "")
        return done.stdout.decode()

    def refuse(self, *arguments: str | Path, text: str | bytes = "") -> str:
        """The sentence with which they refuse it."""
        said = refusal(*arguments, text=text)
        assert self._seqlab(*arguments, text=text) == (2, "", f"seqlab: {said}\n")
        return said


@pytest.fixture(name="both")
def _both(seqlab: Seqlab) -> Both:
    return Both(seqlab)
