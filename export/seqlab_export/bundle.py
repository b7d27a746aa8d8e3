"""Writes a bundle that is whole and proven, or nothing."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Literal

import onnxruntime as ort  # type: ignore[import-untyped]
import torch

import seqlab
from seqlab.models import DecoderLM
from seqlab_data.tokenizers import Tokenizer
from seqlab_export.golden import write_golden
from seqlab_export.graphs import OPSET, describe_state, export_graphs, traced_len
from seqlab_export.manifest import Manifest, Provenance, hash_files
from seqlab_export.report import Report
from seqlab_export.runner import Provider, check_provider
from seqlab_export.verify import verify_bundle

MIN_ONNXRUNTIME = "1.30"

Precision = Literal["fp32", "fp16", "bf16"]


class ParityError(ValueError):
    """An exported bundle is not the model. `report` says where."""

    def __init__(self, report: Report) -> None:
        first = report.failures[0]
        super().__init__(
            f"the bundle was not written: {len(report.failures)} of {len(report.checks)} checks failed, the first "
            f"in {first.kind}, {first.subject}: {first.note}"
        )
        self.report = report


def export_bundle(
    model: DecoderLM,
    tokenizer: Tokenizer,
    out: Path | str,
    *,
    run_id: str,
    commit: str,
    provider: Provider = "cpu",
    precision: Precision = "fp32",
) -> Report:
    """Writes a bundle to the folder `out`, which docs/bundle.md describes.

    It is written to a temporary folder beside `out`, verified there with `provider`, and then renamed.

    Args:
        model: is copied, not changed.
        run_id, commit: where the model comes from, for the manifest.

    Returns:
        The report of the verification, in which all is well.

    Raises:
        ValueError: `out` holds something, no provider here runs this precision, or the model cannot be captured.
        ParityError: the runtime does not compute what the model does.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one")
    if tokenizer.vocab_size != model.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens and the model {model.vocab_size}; "
            "they do not belong together"
        )
    check_provider(provider)
    if precision != "fp32":
        raise ValueError(
            f"precision {precision} is refused: no provider here can prove it (onnxruntime's CPU provider does not "
            "load bf16 and computes fp16 in fp32, and bundles for CUDA are fp32 so far); use fp32"
        )
    model = deepcopy(model).cpu().float().eval()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        _write(model, tokenizer, folder, run_id=run_id, commit=commit, precision=precision)
        report = verify_bundle(folder, provider=provider)
        if not report.ok:
            raise ParityError(report)
        folder.replace(out)
    return report


def _write(
    model: DecoderLM, tokenizer: Tokenizer, folder: Path, *, run_id: str, commit: str, precision: Precision
) -> None:
    sequence, step = export_graphs(model, folder)
    write_golden(model, sequence, traced_len(model), folder / "golden.npz")
    tokenizer.save(folder / "tokenizer")
    Manifest(
        opset=OPSET,
        min_onnxruntime=MIN_ONNXRUNTIME,
        precision=precision,
        vocab_size=model.vocab_size,
        max_seq_len=model.max_seq_len,
        first_call=model.first_call,
        traced_len=traced_len(model),
        model=sequence,
        step=step,
        state=describe_state(model),
        tokenizer="tokenizer",
        golden="golden.npz",
        files=hash_files(folder),
        provenance=Provenance(
            run_id=run_id,
            commit=commit,
            seqlab=seqlab.__version__,
            torch=torch.__version__,
            onnxruntime=ort.__version__,
        ),
    ).save(folder)
