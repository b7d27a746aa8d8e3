"""Writes a bundle that is whole and proven, or nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

import seqlab
from seqlab.decoding.text import default_stop_ids
from seqlab.mixer import fix_capacity
from seqlab.models import DECODERS, ENCODERS, DecoderLM
from seqlab_data.tokenizers import Tokenizer
from seqlab_export.capture.graph_forms import longest_input
from seqlab_export.capture.precision import Precision, check_precision, in_dtype
from seqlab_export.capture.target import Target, capacity_of, check_capacity
from seqlab_export.capture.weights import check_weights, precision_of
from seqlab_export.capture.weights import describe as describe_weights
from seqlab_export.graphs import export_graphs
from seqlab_export.proof.golden import write_golden
from seqlab_export.proof.taps import Tap, check_taps
from seqlab_export.runner.manifest import Manifest, Provenance, hash_files
from seqlab_export.runner.report import Report
from seqlab_export.runner.sessions import Provider, check_provider
from seqlab_export.runner.texts import as_bytes
from seqlab_export.runner.texts import describe as describe_texts
from seqlab_export.runner.verify import verify_bundle

MIN_ONNXRUNTIME = "1.30"


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
    model: Any,
    tokenizer: Tokenizer | None,
    out: Path | str,
    *,
    run_id: str = "",
    commit: str = "",
    source_tokenizer: Tokenizer | None = None,
    labels: Sequence[str] = (),
    seq_len: int,
    stop_ids: Sequence[int] | None = None,
    chooses_one: bool = True,
    provider: Provider = "cpu",
    precision: Precision = "fp32",
    target: Target = "portable",
    taps: Sequence[Tap] = (),
) -> Report:
    """Writes a bundle to the folder `out`, which docs/bundle.md describes.

    It is written to a temporary folder beside `out`, verified there with `provider`, and then renamed.

    Args:
        model: one of `seqlab.models.DECODERS` and `seqlab.models.ENCODERS`; is copied, not changed.
        tokenizer: of what the model reads, or of two the target's; None where it reads features, or ids that stand for
            no text.
        source_tokenizer: the source's, where it is another.
        labels: the names of its classes, where it has some.
        seq_len: the longest sequence of its training.
        stop_ids: the tokens that end what it writes; None = `decoding.text.default_stop_ids`.
        chooses_one: whether its logits at a place are of one choice; of others no distribution is compared.
        run_id, commit: where the model comes from, for the manifest.
        target: what the graphs are made for; `target` says what that asks of the model.
        taps: what a debug twin beside them gives; none = there is no twin.

    Returns:
        The report of the verification, in which all is well.

    Raises:
        ValueError: `out` holds something, there is no such provider or precision, the model is of another kind, is not
            the tokenizer's, or cannot be captured.
        ParityError: the runtime does not compute what the model does.
    """
    out = Path(out)
    check_new(out)
    if not isinstance(model, DECODERS + ENCODERS):
        names = ", ".join(kind.__name__ for kind in DECODERS + ENCODERS)
        raise ValueError(f"a bundle is of one of {names}; this is a {type(model).__name__}")
    num_tokens = None if tokenizer is None else tokenizer.vocab_size
    of_ids = num_tokens is None and isinstance(model, DecoderLM)
    if isinstance(model, DECODERS) and not of_ids and num_tokens != model.vocab_size:
        has = f"{num_tokens or 'no'} tokens"
        raise ValueError(f"the tokenizer has {has} and the model {model.vocab_size}; they do not belong together")
    check_provider(provider)
    check_precision(precision)
    if taps and precision in ("int8", "int4"):
        raise ValueError(f"taps are of fp32, fp16 and bf16 bundles; this one is {precision}")
    model = deepcopy(model).cpu().float().eval()
    capacity = capacity_of(model, target, seq_len)
    if capacity is not None:
        model.max_seq_len = capacity
        fix_capacity(model, capacity)
    if target == "cuda-graph" and isinstance(model, DECODERS):
        check_capacity(model)
    stored = in_dtype(model, precision)
    tokenizers = _distinct(tokenizer, source_tokenizer)
    decodes = isinstance(model, DECODERS)
    if stop_ids is None:
        reads = "prompts" if isinstance(model, DecoderLM) else "sources"
        stop_ids = default_stop_ids(reads, tokenizer) if tokenizer is not None else ()

    def write(folder: Path, as_int8: bool) -> Report:
        folder.mkdir()
        exported = export_graphs(stored, folder, precision, target=target, taps=taps, as_int8=as_int8)
        check_weights(stored, exported.named)
        graphs = exported.graphs
        for place, some in tokenizers.items():
            some.save(folder / place)
        stated: dict[str, Any] = {
            "min_onnxruntime": MIN_ONNXRUNTIME,
            "target": target,
            "vocab_size": model.vocab_size if decodes else None,
            "max_seq_len": model.max_seq_len if decodes else None,
            "max_source_len": longest_input(model) if "encoder" in graphs else None,
            "seq_len": seq_len,
            "stop_ids": tuple(stop_ids) if decodes else (),
            "first_call": model.first_call if decodes else 1,
            "labels": tuple(labels),
        }
        of_model = json.dumps({"precision": precision_of(exported.kinds, precision), **stated})
        more = {"model": as_bytes(of_model), **describe_weights(exported.stored)}
        files = hash_files(folder)
        if "taps" in graphs:
            more["taps/sha256"] = np.frombuffer(bytes.fromhex(files[graphs["taps"].file]), dtype=np.uint8)
        for place, some in tokenizers.items():
            more |= describe_texts(place, some, files)
        write_golden(model, folder / "golden.npz", precision, tokenizer, more, distribution=chooses_one)
        Manifest(
            **stated,
            precision=precision,
            encoder=graphs.get("encoder"),
            model=graphs.get("model"),
            step=graphs.get("step"),
            taps=graphs.get("taps"),
            state=exported.state,
            in_place=exported.in_place,
            tokenizer="tokenizer" if "tokenizer" in tokenizers else None,
            source_tokenizer="source_tokenizer" if "source_tokenizer" in tokenizers else None,
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
        report = verify_bundle(folder, provider=provider)
        if taps:
            report.checks += check_taps(model, taps, folder, precision=precision, provider=provider)
        return report

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        folder = Path(name) / "bundle"
        # CUDA multiplies 4 bits itself, and has no product of int8 that takes its inputs as they come.
        as_int8 = precision == "int4" and target != "cuda-graph" and provider == "cpu"
        report = write(folder, as_int8)
        if as_int8 and not report.ok:
            # Where a few channels of an input are far larger than the others, a row's range is too coarse for these.
            folder = Path(name) / "in_blocks"
            report = write(folder, as_int8=False)
        if not report.ok:
            raise ParityError(report)
        folder.replace(out)
    return report


def check_new(out: Path) -> None:
    """Raises ValueError where something is in the way of a new folder."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one")


def _distinct(tokenizer: Tokenizer | None, source_tokenizer: Tokenizer | None) -> dict[str, Tokenizer]:
    """Tokenizers of a bundle, by their folders; one for both sides is stored once."""
    found = {} if tokenizer is None else {"tokenizer": tokenizer}
    if source_tokenizer is not None and (tokenizer is None or source_tokenizer.to_dict() != tokenizer.to_dict()):
        found["source_tokenizer"] = source_tokenizer
    return found
