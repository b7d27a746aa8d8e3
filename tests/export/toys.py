"""Toy models, their tokenizer, what an exported one is, graphs written by hand, and a machine without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnxruntime as ort
import pytest
import torch
from onnxscript import ir

from contracts.subjects import VOCAB_SIZE, decoder_subject
from once import SEED, once
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.runner.report import Report

TOKENIZER = CharTokenizer("abcdef ")
assert TOKENIZER.vocab_size == VOCAB_SIZE


class Exported(NamedTuple):
    """A bundle, which tests must not change, with the model that it is of."""

    model: DecoderLM
    folder: Path
    report: Report


Export = Callable[..., Exported]
"""Called with a mixer (or a list), an encoding and `num_layers`."""

Shared = Callable[[str], Exported]
"""Called with a name of `TOYS`."""

TOYS: dict[str, tuple[Any, Any, int]] = {
    "attention": (Attention, RoPE, 0),
    "gru": (GRU, NoPositions, 5),
    "mamba": (Mamba, NoPositions, 0),
}
"""Mixers, encodings and seeds of decoders of one layer, which write something greedily."""


def toy(mixer: Any, positions: Any, num_layers: int = 2) -> DecoderLM:
    """A small decoder with telling weights."""
    model: DecoderLM = decoder_subject(mixer, positions, num_layers=num_layers).module.float()
    return model


def export_toy(model: DecoderLM, folder: Path) -> Exported:
    report = export_bundle(model, TOKENIZER, folder, run_id="a run", commit="a commit", seq_len=32)
    return Exported(model, folder, report)


def shared_toy(name: str, factory: pytest.TempPathFactory, kind: str = "toy") -> Exported:
    mixer, positions, seed = TOYS[name]

    def export(folder: Path) -> Exported:
        torch.manual_seed(SEED + seed)
        return export_toy(toy(mixer, positions, 1), folder / "bundle")

    return once(f"{kind}-{name}", export, factory)


def graph(inputs: str, outputs: str, body: str, **weights: Any) -> ir.Model:
    """A graph in ONNX's own notation, with these arrays as initializers."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> agraph ({inputs}) => ({outputs}) {{ {body} }}'
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True))


def results(model: ir.Model, optimized: Path | None = None, **inputs: Any) -> list[Any]:
    """Outputs of onnxruntime; `optimized` is a file for the graph that it runs."""
    settings = ort.SessionOptions()
    if optimized is not None:
        settings.optimized_model_filepath = str(optimized)
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return [*ort.InferenceSession(ir.to_proto(model).SerializeToString(), settings).run(None, inputs)]


BARE = """
import sys

class Blocker:
    ABSENT = {"torch", "lightning", "mlflow", "onnx", "onnxscript", "rich", "sentencepiece", "torchmetrics", "yaml"}
    ABSENT |= {"psutil"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.ABSENT:
            raise ModuleNotFoundError(f"a deployment machine has no {name}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_bare(program: str, *arguments: str | Path, cwd: Path, present: tuple[str, ...] = ()) -> str:
    """Output of a program in a Python without PyTorch, Lightning, ONNX and so on, but for these."""
    without = BARE + "".join(f"Blocker.ABSENT -= {{{name!r}}}\n" for name in present)
    warnings = [] if present else ["-W", "error"]
    command = [sys.executable, *warnings, "-c", without + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0 and (present or not done.stderr), done.stderr
    return done.stdout
