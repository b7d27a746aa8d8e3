"""Proves a bundle: hashes, names, shapes and values against its golden file. Needs no PyTorch.

R rows, T length.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from seqlab_export.compare import Arrays, calls, cases, groups, limit, relative_errors, rms, select
from seqlab_export.greedy import GreedyTrace, compare, trace
from seqlab_export.manifest import GraphInfo, find_damage, load_manifest
from seqlab_export.report import Check, Report
from seqlab_export.runner import PROVIDERS, BundleRunner, Provider, check_provider

BATCH_SIZES = (1, 2, 5)

FORMS = ("prefill", "chunks", "step")
"""How tokens are read; see `compare.calls`."""

_TYPES = {"bool": "tensor(bool)", "int64": "tensor(int64)", "float32": "tensor(float)"}


def verify_bundle(folder: Path | str, *, provider: Provider = "cpu") -> Report:
    """Checks a bundle on this machine and changes nothing in it.

    Each kind of check needs the ones before it to pass: the files are as they were hashed; the graphs declare the
    manifest's names, types and dimensions; every output, read at once, in chunks and by the token, is within the
    error budget of `compare.limit` of the float64 reference; greedy text is the reference's.

    Raises:
        ValueError: the folder is no bundle, its manifest is damaged, or the provider is not there.
    """
    folder = Path(folder)
    check_provider(provider)
    manifest = load_manifest(folder)
    report = Report(provider=provider, options=PROVIDERS[provider][0][1], onnxruntime=ort.__version__)
    damage = find_damage(folder, manifest)
    for name in manifest.files:
        report.checks.append(Check(kind="files", subject=name, ok=name not in damage, note=damage.get(name, "")))
    if damage:
        return report
    runner = BundleRunner(folder, provider=provider)
    report.checks += _check_signature(manifest.model, runner.model)
    report.checks += _check_signature(manifest.step, runner.step_model)
    if not report.ok:
        return report
    with np.load(folder / manifest.golden, allow_pickle=False) as file:
        golden = dict(file)
    for form in FORMS:
        report.checks += _check_values(runner, form, golden)
    if report.ok:
        report.checks += _check_greedy(runner, golden)
    return report


def _check_signature(info: GraphInfo, session: ort.InferenceSession) -> Iterator[Check]:
    """One check for each input and output."""
    declared = [*session.get_inputs(), *session.get_outputs()]
    found = {tensor.name: (tensor.type, list(tensor.shape)) for tensor in declared}
    expected = {tensor.name: (_TYPES[tensor.dtype], list(tensor.dims)) for tensor in (*info.inputs, *info.outputs)}
    for name in [*expected, *(name for name in found if name not in expected)]:
        ok = found.get(name) == expected.get(name)
        note = "" if ok else f"the graph has {found.get(name)}, the manifest {expected.get(name)}"
        yield Check(kind="signature", subject=f"{info.file} {name}", ok=ok, note=note)


def _check_values(runner: BundleRunner, form: str, golden: Arrays) -> Iterator[Check]:
    """One check for each cell (a batch size and a case) and group of outputs."""
    manifest = runner.manifest
    graph = manifest.model
    for batch_size, (case, pad_mask) in product(BATCH_SIZES, cases(manifest.traced_len, manifest.max_seq_len)):
        cell = f"batch {batch_size}, {case}"
        if f"{case}/tokens" not in golden:
            yield Check(kind=form, subject=cell, ok=False, note=f"{manifest.golden} does not have it")
            continue
        tokens = golden[f"{case}/tokens"].astype(np.int64)
        try:
            found = _read(runner, form, tokens, pad_mask, batch_size)
            actual = {output.name: select(found[output.name], output, pad_mask) for output in graph.outputs}
        except Exception as failure:
            yield Check(kind=form, subject=cell, ok=False, note=f"onnxruntime failed: {failure}")
            continue
        expected = {output.name: golden[f"{case}/{output.name}"] for output in graph.outputs}
        for group, names in groups(graph).items():
            torch_error = golden[f"{case}/torch/{group}"].item()
            yield _compare(form, f"{cell}, {group}", actual, expected, names, torch_error)


def _read(
    runner: BundleRunner, form: str, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], batch_size: int
) -> Arrays:
    """The outputs after reading tokens (R, T) from no state, so many rows at a time, by name."""
    pieces = calls(form, pad_mask, runner.manifest.first_call)
    batches = []
    for first in range(0, len(tokens), batch_size):
        rows = slice(first, first + batch_size)
        state = runner.init_state(len(tokens[rows]))
        logits = []
        for piece in pieces:
            part = (rows, piece)
            session = runner.step_model if form == "step" and piece.stop - piece.start == 1 else runner.model
            some, state = runner.run(session, tokens[part], pad_mask[part], state)
            logits.append(some)
        new_state = {f"new_{name}": entry for name, entry in state.items()}
        batches.append({"logits": np.concatenate(logits, axis=1), **new_state})
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _compare(form: str, subject: str, actual: Arrays, expected: Arrays, names: list[str], torch_error: float) -> Check:
    """The names are those of one of `compare.groups`."""
    shapes = [(actual[name].shape, expected[name].shape) for name in names]
    if any(ours != theirs for ours, theirs in shapes):
        note = f"the shapes and what they should be: {shapes}"
        return Check(kind=form, subject=subject, ok=False, note=note)
    errors = relative_errors(actual, expected, names)
    found = rms(errors)
    most = 0.0 if subject.endswith("counters") else limit(torch_error)
    return Check(
        kind=form,
        subject=subject,
        ok=found <= most,
        note="" if found <= most else f"RMS error {found:.2e}, more than {most:.2e}",
        error=found,
        torch_error=torch_error,
        limit=most,
        largest=float(np.abs(errors).max()),
    )


def _check_greedy(runner: BundleRunner, golden: Arrays) -> Iterator[Check]:
    """One check for each prompt."""
    expected = GreedyTrace(golden["greedy/tokens"].astype(np.int64), golden["greedy/logits"].astype(np.float64))
    prompts = [golden[f"greedy/prompt_{row}"].tolist() for row in range(len(expected.tokens))]
    actual = trace(runner, prompts, expected.tokens.shape[1])
    for row, (ok, note) in enumerate(compare(actual, expected)):
        yield Check(kind="greedy", subject=f"prompt {row}", ok=ok, note=note)
