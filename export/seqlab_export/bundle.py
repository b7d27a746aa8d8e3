"""Export of a complete and verified bundle, all or nothing."""

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
from seqlab_export.runner.provider import ProviderName, provider_named
from seqlab_export.runner.report import Report
from seqlab_export.runner.texts import as_bytes
from seqlab_export.runner.texts import describe as describe_texts
from seqlab_export.runner.verify import verify_bundle

MIN_ONNXRUNTIME = "1.30"


class ParityError(ValueError):
    """An exported bundle does not match its model. `report` has the failed checks."""

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
    provider: ProviderName = "cpu",
    precision: Precision = "fp32",
    target: Target = "portable",
    taps: Sequence[Tap] = (),
) -> Report:
    """Writes a bundle, whose format is described in docs/bundle.md, to the folder `out`.

    The bundle is written to a temporary folder next to `out`, verified there with `provider`, and then renamed.

    Args:
        model: one of `seqlab.models.DECODERS` and `seqlab.models.ENCODERS`; copied, not modified.
        tokenizer: tokenizer of the model's input, or of its target if source and target differ; None for a model that
            reads features, or ids that do not represent text.
        source_tokenizer: tokenizer of the source, if it differs from `tokenizer`.
        labels: class names, if the model has classes.
        seq_len: maximum sequence length in training.
        stop_ids: ids of the tokens that end generation; None = `decoding.text.default_stop_ids`.
        chooses_one: if True, the logits at a position define one categorical distribution, which is compared as well.
        run_id, commit: origin of the model, for the manifest.
        target: target that the graphs are built for; the module `target` lists its requirements.
        taps: outputs of an additional debug graph; empty = no debug graph.

    Returns:
        The verification report, in which every check passed.

    Raises:
        ValueError: `out` is not empty, the provider or precision is unknown, the model is of an unsupported kind, does
            not match the tokenizer, or cannot be captured.
        ParityError: the runtime's outputs differ from the model's.
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
    device = provider_named(provider)
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
        as_int8 = precision == "int4" and target != "cuda-graph" and device.multiplies_int8
        report = write(folder, as_int8)
        if as_int8 and not report.ok:
            # If a few input channels are far larger than the others, one scale per row is too coarse for the rest.
            folder = Path(name) / "in_blocks"
            report = write(folder, as_int8=False)
        if not report.ok:
            raise ParityError(report)
        folder.replace(out)
    return report


def check_new(out: Path) -> None:
    """Raises ValueError if a new folder cannot be created at `out`."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one")


def _distinct(tokenizer: Tokenizer | None, source_tokenizer: Tokenizer | None) -> dict[str, Tokenizer]:
    """Tokenizers of a bundle, by folder; a tokenizer shared by both sides is stored once."""
    found = {} if tokenizer is None else {"tokenizer": tokenizer}
    if source_tokenizer is not None and (tokenizer is None or source_tokenizer.to_dict() != tokenizer.to_dict()):
        found["source_tokenizer"] = source_tokenizer
    return found
