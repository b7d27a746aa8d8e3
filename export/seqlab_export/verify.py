"""Proves a bundle: hashes, names, shapes and values against its golden file. Needs no PyTorch.

R rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from seqlab_export.compare import Arrays, calls, cases, encoder_cases, groups, limit, relative_errors, rms, select
from seqlab_export.greedy import GreedyTrace, compare, trace
from seqlab_export.manifest import GraphInfo, find_damage, load_manifest
from seqlab_export.report import Check, Report
from seqlab_export.runner import PROVIDERS, Bundle, BundleRunner, Provider, check_provider

BATCH_SIZES = (1, 2, 5)

FORMS = ("prefill", "chunks", "step")
"""How tokens are read; see `compare.calls`."""

_TYPES = {"bool": "tensor(bool)", "int64": "tensor(int64)", "float32": "tensor(float)"}


def verify_bundle(folder: Path | str, *, provider: Provider = "cpu") -> Report:
    """Checks a bundle on this machine and changes nothing in it.

    Each kind of check needs the ones before it to pass: the files are as they were hashed; the graphs declare the
    manifest's names, types and dimensions; every output of the encoder, and of the decoder read at once, in chunks and
    by the token, is within the error budget of `compare.limit` of the float64 reference; greedy text is the
    reference's.

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
    bundle = Bundle(folder, provider=provider) if manifest.model is None else BundleRunner(folder, provider=provider)
    sessions = filter(None, (bundle.encoder, bundle.model, bundle.step_model))
    for graph, session in zip(manifest.graphs, sessions, strict=True):
        report.checks += _check_signature(graph, session)
    if not report.ok:
        return report
    with np.load(folder / manifest.golden, allow_pickle=False) as file:
        golden = dict(file)
    if manifest.encoder is not None:
        report.checks += _check_encoder(bundle, manifest.encoder, golden)
    if isinstance(bundle, BundleRunner) and manifest.model is not None:
        for form in FORMS:
            report.checks += _check_decoder(bundle, manifest.model, form, golden)
        if report.ok:
            report.checks += _check_greedy(bundle, golden)
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


def _check_encoder(bundle: Bundle, graph: GraphInfo, golden: Arrays) -> Iterator[Check]:
    for batch_size, (case, pad_mask) in product(BATCH_SIZES, encoder_cases(graph, bundle.manifest.max_source_len)):
        cell = f"batch {batch_size}, {case.removeprefix('encoder/')}"
        read = partial(_encode, bundle, golden, case, pad_mask)
        yield from _check_values("encoder", cell, graph, golden, case, pad_mask, read, batch_size)


def _encode(bundle: Bundle, golden: Arrays, case: str, pad_mask: NDArray[np.bool_], rows: slice) -> Arrays:
    return bundle.encode(golden[f"{case}/inputs"][rows], pad_mask[rows])


def _check_decoder(runner: BundleRunner, graph: GraphInfo, form: str, golden: Arrays) -> Iterator[Check]:
    for batch_size, (case, pad_mask) in product(BATCH_SIZES, cases(runner.manifest.max_seq_len)):
        read = partial(_decode, runner, form, golden, case, pad_mask)
        yield from _check_values(form, f"batch {batch_size}, {case}", graph, golden, case, pad_mask, read, batch_size)


def _decode(
    runner: BundleRunner, form: str, golden: Arrays, case: str, pad_mask: NDArray[np.bool_], rows: slice
) -> Arrays:
    """The outputs after reading these rows of a case's tokens, in one of `FORMS`, by name."""
    tokens = golden[f"{case}/tokens"].astype(np.int64)[rows]
    state = _started(runner, golden, case, rows).init_state(len(tokens))
    logits = []
    for piece in calls(form, pad_mask, runner.manifest.first_call):
        session = runner.step_model if form == "step" and piece.stop - piece.start == 1 else runner.model
        some, state = runner.run(session, tokens[:, piece], pad_mask[rows, piece], state)
        logits.append(some)
    return {"logits": np.concatenate(logits, axis=1)} | {f"new_{name}": entry for name, entry in state.items()}


def _started(runner: BundleRunner, golden: Arrays, case: str, rows: slice) -> BundleRunner:
    """The decoder that has read these rows of the source of a case, where it reads one."""
    if runner.encoder is None:
        return runner
    assert runner.manifest.encoder is not None
    source = str(golden[f"{case}/source"])
    masks = dict(encoder_cases(runner.manifest.encoder, runner.manifest.max_source_len))
    return runner.begin(golden[f"{source}/inputs"][rows], masks[source][rows])


def _check_values(
    kind: str,
    cell: str,
    graph: GraphInfo,
    golden: Arrays,
    case: str,
    pad_mask: NDArray[np.bool_],
    read: Callable[[slice], Arrays],
    batch_size: int,
) -> Iterator[Check]:
    """One check for each group of outputs of a cell: a case, read so many rows at a time."""
    if f"{case}/{graph.outputs[0].name}" not in golden:
        yield Check(kind=kind, subject=cell, ok=False, note="the golden file does not have it")
        return
    try:
        batches = [read(slice(first, first + batch_size)) for first in range(0, len(pad_mask), batch_size)]
        found = {output.name: np.concatenate([batch[output.name] for batch in batches]) for output in graph.outputs}
        actual = {output.name: select(found[output.name], output, pad_mask) for output in graph.outputs}
    except Exception as failure:
        yield Check(kind=kind, subject=cell, ok=False, note=f"onnxruntime failed: {failure}")
        return
    expected = {output.name: golden[f"{case}/{output.name}"] for output in graph.outputs}
    for group, names in groups(graph).items():
        torch_error = golden[f"{case}/torch/{group}"].item()
        yield _compare(kind, f"{cell}, {group}", actual, expected, names, torch_error)


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
    decoder = _started(runner, golden, "greedy", slice(len(prompts)))
    actual = trace(decoder, prompts, expected.tokens.shape[1])
    for row, (ok, note) in enumerate(compare(actual, expected)):
        yield Check(kind="greedy", subject=f"prompt {row}", ok=ok, note=note)
