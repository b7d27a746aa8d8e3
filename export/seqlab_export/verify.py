"""Proves a bundle: hashes, names, shapes and values against its golden file. Needs no PyTorch.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from seqlab_export.compare import FORMS, Arrays, error, rms, select
from seqlab_export.greedy import GreedyTrace, compare, trace
from seqlab_export.manifest import GraphInfo, find_damage, load_manifest
from seqlab_export.report import Check, Report
from seqlab_export.runner import BundleRunner, Provider

_TYPES = {"bool": "tensor(bool)", "int64": "tensor(int64)", "float32": "tensor(float)"}


def verify_bundle(folder: Path | str, *, provider: Provider = "cpu") -> Report:
    """Checks a bundle on this machine and changes nothing in it.

    Each check but the last needs the ones before it: the files are as they were hashed; the graphs declare the
    manifest's names, types and dimensions; every output, read at once, in chunks and by the token, is as close to
    the float64 reference as DESIGN's error budget asks; greedy text is the reference's.

    Raises:
        ValueError: the folder is no bundle, its manifest is damaged, or the provider is not there.
    """
    folder = Path(folder)
    manifest = load_manifest(folder)
    report = Report(provider=provider, onnxruntime=ort.__version__)
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
        yield Check(kind="names and shapes", subject=f"{info.file} {name}", ok=ok, note=note)


def _check_values(runner: BundleRunner, form: str, golden: Arrays) -> Iterator[Check]:
    """One check for each cell and output."""
    for cell in [name.removesuffix("/pad_mask") for name in golden if name.endswith("/pad_mask")]:
        pad_mask = golden[f"{cell}/pad_mask"].astype(np.bool_)
        try:
            outputs = _read(runner, form, golden[f"{cell}/tokens"].astype(np.int64), pad_mask)
        except Exception as failure:
            yield Check(kind=form, subject=cell, ok=False, note=f"onnxruntime failed: {failure}")
            continue
        for info, output in zip(runner.manifest.model.outputs, outputs, strict=True):
            expected = golden[f"{cell}/{info.name}"]
            torch_error = golden.get(f"{cell}/{info.name}/{'step' if form == 'step' else 'prefill'}")
            subject = f"{cell}: {info.name}"
            yield _compare(form, subject, select(output, info, pad_mask), expected, torch_error)


def _read(
    runner: BundleRunner, form: str, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]
) -> list[NDArray[np.generic]]:
    """The outputs after reading tokens (B, T) from no state, in the order of the graph."""
    length = tokens.shape[1]
    width = {"prefill": length, "chunks": max(length // 2, 1), "step": 1}[form]
    session = runner.step_model if form == "step" else runner.model
    state = runner.init_state(len(tokens))
    logits = []
    for start in range(0, length, width):
        part = slice(start, start + width)
        some, state = runner.run(session, tokens[:, part], pad_mask[:, part], state)
        logits.append(some)
    return [np.concatenate(logits, axis=1), *state.values()]


def _compare(
    form: str,
    subject: str,
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    torch_error: NDArray[np.generic] | None,
) -> Check:
    if actual.shape != expected.shape:
        note = f"its shape is {actual.shape}, it should be {expected.shape}"
        return Check(kind=form, subject=subject, ok=False, note=note)
    if torch_error is None:
        equal = bool(np.array_equal(actual, expected))
        return Check(kind=form, subject=subject, ok=equal, note="" if equal else "its values differ")
    found = rms(error(actual, expected))
    limit = max(2 * float(torch_error), 4 * float(np.finfo(np.float32).eps) * rms(expected))
    ok = found <= limit
    return Check(
        kind=form,
        subject=subject,
        ok=ok,
        note="" if ok else f"its RMS error is {found:.2e}, at most {limit:.2e} is right",
        error=found,
        torch_error=float(torch_error),
        limit=limit,
        largest=float(np.abs(error(actual, expected)).max(initial=0.0)),
    )


def _check_greedy(runner: BundleRunner, golden: Arrays) -> Iterator[Check]:
    """One check for each prompt."""
    expected = GreedyTrace(golden["greedy/tokens"].astype(np.int64), golden["greedy/logits"].astype(np.float64))
    prompts = [golden[f"greedy/prompt_{row}"].tolist() for row in range(len(expected.tokens))]
    actual = trace(runner, prompts, expected.tokens.shape[1])
    for row, (ok, note) in enumerate(compare(actual, expected)):
        yield Check(kind="greedy", subject=f"prompt {row}", ok=ok, note=note)
