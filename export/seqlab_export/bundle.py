"""Export of a complete and verified bundle, all or nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seqlab_data.tokenizers import Tokenizer
from seqlab_export.capture.intermediate_form import IntermediateOutput
from seqlab_export.capture.plan import ExportPlan, plan_export
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.capture.weights import describe as describe_weights
from seqlab_export.capture.weights import precision_of
from seqlab_export.graphs import Exported, export_graphs
from seqlab_export.proof.golden import FILE_NAME as GOLDEN
from seqlab_export.proof.golden import write_golden
from seqlab_export.proof.intermediate import check_intermediate
from seqlab_export.runner.cases import Arrays
from seqlab_export.runner.manifest import Manifest, hash_files, load_manifest
from seqlab_export.runner.report import Report, ValidationLoss
from seqlab_export.runner.sessions import ProviderName
from seqlab_export.runner.texts import as_bytes
from seqlab_export.runner.texts import describe as describe_texts
from seqlab_export.runner.verify import verify_bundle


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
    target: TargetName = "portable",
    taps: Sequence[IntermediateOutput] = (),
    measure: Callable[[Path], ValidationLoss | None] | None = None,
) -> Report:
    """Writes a bundle, whose format is described in docs/bundle.md, to the folder `out`.

    The bundle is written to a temporary folder next to `out`, verified there with `provider`, and then renamed.

    Args:
        model: one of `seqlab.models.MODELS`; copied, not modified.
        tokenizer: tokenizer of the model's input, or of its target if source and target differ; None for a model that
            reads features, or ids that do not represent text.
        source_tokenizer: tokenizer of the source, if it differs from `tokenizer`.
        labels: class names, if the model has classes.
        seq_len: maximum sequence length in training.
        stop_ids: ids of the tokens that end generation; None = `decoding.text.default_stop_ids`.
        chooses_one: if True, the logits at a position define one categorical distribution, which is compared as well.
        run_id, commit: origin of the model, for the manifest.
        target: target that the graphs are built for; the module `capture.target` lists its requirements.
        taps: intermediate outputs of an additional debug graph; empty = no debug graph.
        measure: measures the validation loss of the proven bundle in a folder, for the report and the manifest.

    Returns:
        The verification report, in which every check passed.

    Raises:
        ValueError: `out` is not empty, the export is refused by `plan_export`, or the model cannot be captured.
        ParityError: the runtime's outputs differ from the model's.
    """
    check_new(out := Path(out))
    plan = plan_export(
        model,
        tokenizer,
        source_tokenizer=source_tokenizer,
        labels=labels,
        seq_len=seq_len,
        stop_ids=stop_ids,
        chooses_one=chooses_one,
        provider=provider,
        precision=precision,
        target=target,
        taps=taps,
        run_id=run_id,
        commit=commit,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as place:
        report = _write(plan, folder := Path(place) / "bundle")
        if plan.int8_products and not report.ok:  # One scale per row is too coarse if a few channels are far larger.
            report = _write(replace(plan, int8_products=False), folder := Path(place) / "in_blocks")
        if not report.ok:
            raise ParityError(report)
        if measure is not None and (found := measure(folder)) is not None:
            report.validation = found
            _with_loss(load_manifest(folder), found).save(folder)
        folder.replace(out)
    return report


def _write(plan: ExportPlan, folder: Path) -> Report:
    """Writes a bundle and verifies it."""
    folder.mkdir()
    exported = export_graphs(plan, folder)
    for place, tokenizer in plan.tokenizers.items():
        tokenizer.save(folder / place)
    write_golden(plan, folder, _declared(plan, exported, folder))
    _manifest(plan, exported, folder).save(folder)
    report = verify_bundle(folder, provider=plan.provider.name)
    if "taps" in plan.forms:
        report.checks += check_intermediate(plan, folder)
    return report


def _declared(plan: ExportPlan, exported: Exported, folder: Path) -> Arrays:
    """Golden-file entries with which manifest, weights, debug graph and tokenizers are compared."""
    stated = {"precision": precision_of(exported.weights.kinds, plan.precision), **plan.stated}
    weights = describe_weights(exported.weights.stored)
    arrays = {"model": as_bytes(json.dumps(stated)), **weights}
    files = hash_files(folder)
    if "taps" in plan.infos:
        arrays["taps/sha256"] = np.frombuffer(bytes.fromhex(files[plan.infos["taps"].file]), dtype=np.uint8)
    for place, tokenizer in plan.tokenizers.items():
        arrays |= describe_texts(place, tokenizer, files)
    return arrays


def _manifest(plan: ExportPlan, exported: Exported, folder: Path) -> Manifest:
    graphs, step = exported.graphs, exported.graphs.get("step")
    dims = {} if step is None else {given.name: given.dims for given in step.inputs}
    return Manifest(
        **plan.stated,
        precision=plan.precision,
        encoder=graphs.get("encoder"),
        model=graphs.get("model"),
        step=step,
        taps=graphs.get("taps"),
        guess=graphs.get("guess"),
        state=tuple(replace(entry, dims=dims[f"state_{entry.name}"]) for entry in plan.state),
        in_place=exported.in_place,
        tokenizer="tokenizer" if "tokenizer" in plan.tokenizers else None,
        source_tokenizer="source_tokenizer" if "source_tokenizer" in plan.tokenizers else None,
        golden=GOLDEN,
        files=hash_files(folder),
        provenance=plan.provenance,
    )


def _with_loss(manifest: Manifest, found: ValidationLoss) -> Manifest:
    values: dict[str, Any] = {
        "validation_loss": found.model,
        "bundle_validation_loss": found.bundle,
        "validation_loss_interval": found.half_width,
    }
    return replace(manifest, provenance=replace(manifest.provenance, **values))


def check_new(out: Path) -> None:
    """Raises ValueError if a new folder cannot be created at `out`."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one")
