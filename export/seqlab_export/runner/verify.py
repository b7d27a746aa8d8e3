"""Verification of a bundle: hashes, names, shapes and values against its golden file. Does not need PyTorch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime as ort

from seqlab_export.runner.cases import Arrays
from seqlab_export.runner.golden_file import array_of, read_golden
from seqlab_export.runner.graph_runner import Bundle, open_bundle
from seqlab_export.runner.manifest import (
    FILE_NAME,
    BundleError,
    GraphInfo,
    Manifest,
    find_damage,
    load_manifest,
)
from seqlab_export.runner.prove import Proof, Runtime
from seqlab_export.runner.report import Check, Report
from seqlab_export.runner.sessions import PROOF_SECONDS, ProviderName, TimeLimit, provider_named
from seqlab_export.runner.sizes import WEIGHTS_NAME
from seqlab_export.runner.texts import check_texts

_TYPES = {"bool": "tensor(bool)", "int64": "tensor(int64)", "float16": "tensor(float16)", "float32": "tensor(float)"}


def verify_bundle(folder: Path | str, *, provider: ProviderName = "cpu", seconds: float = PROOF_SECONDS) -> Report:
    """Verifies a bundle on this machine, read-only.

    Each kind of check requires the previous ones to pass: the files match their hashes, and there are no other files;
    the manifest agrees with the model; the tokenizers encode and decode strings as at export; the weights are
    unchanged; the graphs declare the manifest's names, types and dimensions; every output of the encoder, and of the
    decoder in one call, in chunks and token by token, is within the error budget `cases.limit` of the float64
    reference; greedy text equals the reference's.

    Args:
        seconds: time limit for loading and running the graphs, in seconds.

    Raises:
        ValueError: the folder is not a bundle, its manifest is damaged, verification exceeds the time limit, or the
            provider is unavailable.
    """
    folder = Path(folder)
    options = provider_named(provider).options
    manifest = load_manifest(folder)
    report = Report(
        provider=provider,
        options=options,
        onnxruntime=ort.__version__,
        precision=manifest.precision,
    )
    damage = find_damage(folder, manifest)
    for name in manifest.files | damage:
        report.checks.append(Check(kind="files", subject=name, ok=name not in damage, note=damage.get(name, "")))
    if damage:
        return report
    golden = load_golden(folder)
    report.checks += [*_check_statements(folder, golden), *check_texts(folder, manifest, golden)]
    report.checks += [*_check_weights(folder, golden), *_check_debug_graph(manifest, golden)]
    if not report.ok:
        return report
    try:
        TimeLimit(seconds).run(lambda: _prove(folder, provider, manifest, golden, report))
    except TimeoutError as over:
        raise BundleError(f"the proof is given up: {over}") from over
    return report


def _prove(folder: Path, provider: ProviderName, manifest: Manifest, golden: Arrays, report: Report) -> None:
    bundle = open_bundle(folder, provider=provider)
    for graph, session in zip(manifest.graphs, bundle.sessions.values(), strict=True):
        report.checks += _check_signature(graph, session, manifest.max_seq_len)
    if not report.ok:
        return
    proof = Proof(cast(Runtime, bundle), manifest, golden)
    report.checks += proof.values()
    if report.ok and manifest.model is not None:
        report.checks += proof.greedy()
    if report.ok and manifest.guess is not None:
        report.checks += _check_guess(bundle, manifest, golden)
    if report.ok:
        report.divergence = proof.distribution()


def _check_guess(bundle: Bundle, manifest: Manifest, golden: Arrays) -> Iterator[Check]:
    """Checks of the graph that guesses tokens, read as `model` a row at a time: its guesses change no text."""
    assert manifest.guess is not None
    yield from _check_signature(manifest.guess, bundle.guess_session, manifest.max_seq_len)
    guessing = copy(bundle)
    guessing.sessions = {**bundle.sessions, "model": bundle.guess_session}
    proof = Proof(cast(Runtime, guessing), manifest, golden, batch_sizes=[1], forms=("prefill", "chunks"))
    for check in (*proof.values(), *proof.greedy()):
        yield replace(check, subject=f"{manifest.guess.file}, {check.subject}")


def load_golden(folder: Path) -> Arrays:
    """Arrays of a complete bundle's golden file, by their names in `golden.write_golden`."""
    return read_golden(folder / load_manifest(folder).golden)


def _check_statements(folder: Path, golden: Arrays) -> Iterator[Check]:
    """One check for each field of the manifest that is determined by the model."""
    manifest = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    try:
        stated = json.loads(array_of(golden, "model", None).tobytes())
    except RecursionError as error:
        raise BundleError(f"what the golden file states of the model is not JSON: {error}") from error
    if not isinstance(stated, dict):
        raise BundleError(f"the golden file states {stated!r} of the model")
    for name, value in sorted(stated.items()):
        note = f"the manifest says {manifest.get(name)!r}, the model {value!r}"
        ok = name in manifest and json.dumps(manifest[name]) == json.dumps(value)  # 1 is neither 1.0 nor true
        yield Check(kind="statements", subject=name, ok=ok, note="" if ok else note)


def _check_debug_graph(manifest: Manifest, golden: Arrays) -> Iterator[Check]:
    """Checks that the debug graph is the file that was compared with the model at export."""
    if manifest.taps is not None:
        file = manifest.taps.file
        ok = manifest.files[file] == array_of(golden, "taps/sha256", 32).tobytes().hex()
        yield Check(kind="twin", subject=file, ok=ok, note="" if ok else "it is not the file that was written")


def _check_weights(folder: Path, golden: Arrays) -> Iterator[Check]:
    """Checks that each tensor of `weights.bin` equals the model's: a defect in one row would affect few texts."""
    path = folder / WEIGHTS_NAME
    if not path.is_file() or not path.stat().st_size:
        return
    places = array_of(golden, "weights/places", None, 2).astype(np.int64)
    digests = array_of(golden, "weights/sha256", len(places), 32)
    note = ""
    with path.open("rb") as file:
        for (offset, length), digest in zip(places.tolist(), digests, strict=True):
            file.seek(offset)
            if hashlib.sha256(file.read(length)).digest() != digest.tobytes():
                note = note or f"bytes {offset} to {offset + length} are not the model's"
    yield Check(kind="weights", subject=WEIGHTS_NAME, ok=not note, note=note)


def _check_signature(info: GraphInfo, session: ort.InferenceSession, max_seq_len: int | None) -> Iterator[Check]:
    """One check for each input and output."""
    declared = [*session.get_inputs(), *session.get_outputs()]
    found = {tensor.name: (tensor.type, list(tensor.shape)) for tensor in declared}
    expected = {
        tensor.name: (_TYPES[tensor.dtype], tensor.shape(max_seq_len)) for tensor in (*info.inputs, *info.outputs)
    }
    for name in [*expected, *(name for name in found if name not in expected)]:
        ok = found.get(name) == expected.get(name)
        note = "" if ok else f"the graph has {found.get(name)}, the manifest {expected.get(name)}"
        yield Check(kind="signature", subject=f"{info.file} {name}", ok=ok, note=note)
