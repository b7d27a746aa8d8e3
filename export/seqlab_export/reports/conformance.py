"""Measurements of every mixer with every positional encoding: the laws, three precisions, and both ONNX graphs.

B batch, T length, D d_model.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqlab import attention, positions, recurrence
from seqlab.attention import Attention, AttentionPart, Causal, Pattern
from seqlab.laws import BOTH_WAYS, CAUSAL, LIMIT, Subject, WithMemory
from seqlab.laws.book import a_fixed_capacity_changes_nothing
from seqlab.mixer import Mixer, State
from seqlab.models import DecoderLM, Encoder, EncoderDecoder, Tagger
from seqlab.models.kind import kind_of
from seqlab.nn import Block, NoFeedForward
from seqlab.nn.padding import real_positions
from seqlab.positions import NoPositions, PositionalEncoding, RoPE
from seqlab.recurrence import GRU, RWKV7
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.runner.report import Report

CAPACITY = (
    "a capacity is for how many tokens a cache has room from the start: where `capacity` is set, what grows is "
    "declared with the dimension C in place of S; export to cuda-graph needs that, portable and ort do not "
    "(docs/contract.md)"
)
CHECKS = ("laws", "fp32", "bf16", "fp16", "ONNX full", "ONNX step")
D_MODEL, LENGTH, MAX_SEQ_LEN = 32, 37, 128
TOKENIZER = CharTokenizer("abcdefgh")

MixerFactory = Callable[[int, int], Mixer]
PositionsFactory = Callable[[int, int], PositionalEncoding]


class Cell(NamedTuple):
    """A measured relative error, or the reason it is unsupported. `failed` describes a failure, if any."""

    error: float | None = None
    unsupported: str | None = None
    failed: str | None = None

    def __str__(self) -> str:
        if self.unsupported is not None:
            return f"unsupported: {self.unsupported}"
        measured = [] if self.error is None else [f"{self.error:.1e}"]
        return ", ".join(measured + ([] if self.failed is None else [f"failed: {self.failed}"]))


class Float16OverflowError(ValueError):
    """A number is too large for float16."""


class ConformanceRow(NamedTuple):
    """One mixer with one encoding, and its cells by the names of `CHECKS`."""

    mixer: str
    positions: str
    cells: dict[str, Cell]


def all_mixers() -> dict[str, MixerFactory]:
    """Every mixer of the library by name, and attention with each pattern and each part."""
    named: dict[str, MixerFactory] = {}
    for room in (attention, recurrence):
        classes = [getattr(room, name) for name in room.__all__]
        for cls in classes:
            if isinstance(cls, type) and issubclass(cls, Mixer):
                named[cls.__name__] = cls
            elif issubclass(cls, Pattern) and cls not in (Pattern, Causal):
                named[f"Attention, {cls.__name__}"] = partial(Attention, pattern=cls)
            elif issubclass(cls, AttentionPart) and cls is not AttentionPart:
                named[f"Attention, {cls.__name__}"] = partial(Attention, parts=[cls])
    return dict(sorted(named.items()))


def all_positions() -> dict[str, PositionsFactory]:
    """Every positional encoding of the library by name."""
    classes = [getattr(positions, name) for name in positions.__all__]
    encodings = [cls for cls in classes if isinstance(cls, type) and issubclass(cls, PositionalEncoding)]
    return {cls.__name__: cls for cls in encodings if cls is not PositionalEncoding}


def conformance(mixers: dict[str, MixerFactory], encodings: dict[str, PositionsFactory]) -> Iterator[ConformanceRow]:
    """Measures each mixer with each encoding."""
    for (mixer_name, mixer), (name, encoding) in product(mixers.items(), encodings.items()):
        yield ConformanceRow(mixer_name, name, measure_mixer(mixer, encoding) | measure_onnx(mixer, encoding))


def measure_mixer(mixer: MixerFactory, encoding: PositionsFactory) -> dict[str, Cell]:
    """The cells that do not need an export."""
    try:
        probe = _Probe(mixer, encoding)
    except ValueError as error:
        return dict.fromkeys(CHECKS[:4], Cell(unsupported=str(error)))
    cells = {"laws": _laws(_subject(probe, mixer, encoding))}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        cells[name] = _cell(partial(_precision_error, probe, dtype))
    return cells


def measure_onnx(mixer: MixerFactory, encoding: PositionsFactory) -> dict[str, Cell]:
    """The cells of the two graphs."""
    try:
        model = model_of(mixer, encoding)
    except ValueError as error:
        return dict.fromkeys(CHECKS[4:], Cell(unsupported=str(error)))
    try:
        report = _parity(model)
    except Exception as error:
        return dict.fromkeys(CHECKS[4:], Cell(failed=_sentence(error)))
    if (kind := kind_of(model)) is not None and not kind.decodes:
        return {"ONNX full": _worst(report, "encoder", ()), "ONNX step": Cell(unsupported="it is not causal")}
    return {
        "ONNX full": _worst(report, "prefill", ("step",)),
        "ONNX step": _worst(report, "step", ("prefill", "chunks")),
    }


def _worst(report: Report, kind: str, others: tuple[str, ...]) -> Cell:
    """The largest error of a kind of check, and the first failure of any kind not in `others`."""
    errors = [check.error for check in report.checks if check.kind == kind and check.error is not None]
    wrong = [check.note for check in report.checks if not check.ok and check.kind not in others]
    return Cell(max(errors, default=None), failed=wrong[0] if wrong else None)


class _Probe(nn.Module):
    """A mixer on embeddings with positional encoding, in float64, with weights large enough to affect the outputs."""

    def __init__(self, mixer: MixerFactory, encoding: PositionsFactory) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.positions = encoding(D_MODEL, MAX_SEQ_LEN)
        self.mixer = mixer(D_MODEL, 0)
        self.mixer.attach_positions(self.positions)
        telling(self)
        self.double().eval()
        self.memory = torch.randn(2, 5, D_MODEL, dtype=torch.float64) if self.mixer.needs_memory else None

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        if self.memory is not None:
            state = self.mixer.init_state(len(x), self.memory.to(x.dtype))
        told = self.positions.embed(x, real_positions(None, pad_mask, x))
        return self.mixer(told, state, pad_mask=pad_mask)  # type: ignore[no-any-return]


def telling(module: nn.Module) -> None:
    """Draws the matrices of a module from N(0, 1/fan-in), so that mixing is not negligible next to skip paths."""
    for parameter in module.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[-1]))


def _inputs() -> Tensor:
    generator = torch.Generator("cpu").manual_seed(1)
    drawn = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64, generator=generator, device="cpu")
    return drawn.to(torch.get_default_device())


def _subject(probe: _Probe, mixer: MixerFactory, encoding: PositionsFactory) -> Subject:
    """Module on which the laws are checked: a decoder, which counts positions, or the mixer itself."""
    if probe.mixer.causal and not probe.mixer.needs_memory:
        size = TOKENIZER.vocab_size
        return Subject(model_of(mixer, encoding).double(), lambda batch, length: torch.randint(size, (batch, length)))
    module = WithMemory(probe.mixer) if probe.mixer.needs_memory else probe
    return Subject(module, lambda batch, length: torch.randn(batch, length, D_MODEL, dtype=torch.float64))


def _laws(subject: Subject) -> Cell:
    """The largest error of a law, and the laws that are broken."""
    torch.manual_seed(1)
    errors, broken = [0.0], []
    for law in CAUSAL if hasattr(subject.module, "init_state") else BOTH_WAYS:
        try:
            found = [error for _, error in law(subject, LENGTH)]
        except Exception as error:
            return Cell(failed=_sentence(error))
        errors += found
        if not all(error <= LIMIT for error in found):
            broken.append(law.__name__.replace("_", " "))
    largest = max(filter(math.isfinite, errors))
    told = f" ({CAPACITY})" if a_fixed_capacity_changes_nothing.__name__.replace("_", " ") in broken else ""
    return Cell(largest, failed=f"broken: {', '.join(broken)}{told}" if broken else None)


@torch.no_grad()
def _precision_error(probe: _Probe, dtype: torch.dtype) -> float:
    """Relative error of the outputs in `dtype`, against float64 on the same rounded weights and inputs."""
    try:
        low, _ = probe.to(dtype)(_inputs().to(dtype))
        expected, _ = probe.double()(_inputs().to(dtype).double())
    finally:
        probe.double()
    if not low.isfinite().all():
        found = f"overflows in {str(dtype).removeprefix('torch.')}"
        raise Float16OverflowError(found) if dtype == torch.float16 else ValueError(found)
    return _relative(low, expected)


def model_of(mixer: MixerFactory, encoding: PositionsFactory) -> nn.Module:
    """Model of one mixer-only layer: a decoder, a tagger if the mixer is not causal, or an encoder-decoder with a GRU
    encoder if it attends to a source."""
    torch.manual_seed(0)
    size, probe = TOKENIZER.vocab_size, mixer(D_MODEL, 0)
    layer: Any = {"mixer": mixer, "positions": encoding, "num_layers": 1, "block": partial(Block, ffn=NoFeedForward)}
    if probe.needs_memory:
        source = partial(Encoder, mixer=GRU, positions=NoPositions, d_model=D_MODEL, num_layers=1)
        model: nn.Module = EncoderDecoder(size, size, MAX_SEQ_LEN, encoder=source, **layer)
    elif probe.causal:
        model = DecoderLM(size, MAX_SEQ_LEN, d_model=D_MODEL, **layer)
    else:
        model = Tagger(size, size, MAX_SEQ_LEN, encoder=partial(Encoder, d_model=D_MODEL, **layer))
    telling(model)
    return model.eval()


def model_named(name: str) -> nn.Module:
    """`model_of` one of `all_mixers`, with rotary positions where the mixer takes them."""
    mixer = partial(RWKV7, head_dim=8) if name == "RWKV7" else all_mixers()[name]  # 64 channels by default
    try:
        return model_of(mixer, RoPE)
    except ValueError:
        return model_of(mixer, NoPositions)


def _parity(model: nn.Module) -> Report:
    """Verification report of the model's bundle."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return export_bundle(model, TOKENIZER, Path(folder) / "bundle", run_id="", commit="", seq_len=32)
        except ParityError as error:
            return error.report


def _relative(actual: Tensor, expected: Tensor) -> float:
    """The RMS of the difference over the RMS of the expected values."""
    return float((actual.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def _cell(measure: Callable[[], float]) -> Cell:
    """Cell of a measurement: any exception is a failure, except float16 overflow."""
    try:
        return Cell(measure())
    except Float16OverflowError as error:
        return Cell(unsupported=str(error))
    except Exception as error:
        return Cell(failed=_sentence(error))


def _sentence(error: BaseException) -> str:
    first: str = " ".join(str(error).split(". ")[0].split())
    return first[:400]
