"""The parity matrix: one model in every precision on every runtime, measured against float64 with one golden file.
`parity_page` formats it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from seqlab_export.bundle import ParityError
from seqlab_export.capture.precision import Precision
from seqlab_export.reports.bundle_model import BundleModel
from seqlab_export.reports.torch_runtime import Compiled, TorchRuntime
from seqlab_export.runner.graph_runner import open_bundle
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.program import find_onnxruntime, find_program
from seqlab_export.runner.prove import Proof, Runtime
from seqlab_export.runner.report import Check, share
from seqlab_export.runner.sessions import PROOF_SECONDS, PROVIDERS, ProviderName, TimeLimit
from seqlab_export.runner.verify import load_golden

WEB_PROOF = Path(__file__).parents[2] / "web" / "dist" / "tools" / "verify.js"
"""Verification program of the web runtime; exists only in a checkout of the repository."""
WEBGPU_PROOF = WEB_PROOF.with_name("webgpu.js")
"""The same in Chromium, on WebGPU."""
NOT_RUN = 3
"""Exit code of a verification program where a requirement is missing."""
WEBGPU_SECONDS = 900.0
"""Time limit of WebGPU, in seconds. SwiftShader runs it on the CPU, so taking longer is no defect of the bundle."""
SAME = "the same"
LONGEST = 2e6
"""Longest timeout, in seconds, that every system accepts."""


class NotRunError(Exception):
    """A requirement of a runtime is missing on this machine."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One runtime in one precision.

    Attributes:
        missing: reason that nothing was measured, "unsupported: ..." or "not run: ..."; else empty.
        ok: True if all errors are within their budgets and greedy text equals the reference's.
        error, own, limit, largest: of the check nearest to its budget, as in `report.Check`; own is `torch_error`.
        kl, kl_p99: mean and 99th percentile of the divergence in nats from float64's distribution of a token or class.
        top1: fraction of these positions with the same most likely token or class.
        greedy: first difference of greedy text, and the float64 margin there, or `SAME`; empty = no text generated.
        scores: scores of the run's task on its test split.
    """

    model: str
    precision: str
    runtime: str
    missing: str = ""
    ok: bool | None = None
    error: float | None = None
    own: float | None = None
    limit: float | None = None
    largest: float | None = None
    kl: float | None = None
    kl_p99: float | None = None
    top1: float | None = None
    greedy: str = ""
    scores: dict[str, float] | None = None


def parity_of_model(
    name: str,
    export: Callable[[Precision, Path], Any],
    model: Any,
    precisions: Sequence[Precision],
    score: Callable[[Any], dict[str, float]] | None = None,
) -> Iterator[Cell]:
    """The cells of a model.

    Args:
        export: function that exports the model's bundle in a precision to a folder.
        score: function that returns the task's scores of a model on its data.
    """
    for precision in precisions:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "bundle"
            try:
                export(precision, folder)
            except ValueError as error:
                kind, ok = ("failed", False) if isinstance(error, ParityError) else ("unsupported", None)
                yield Cell(model=name, precision=precision, runtime="every", missing=f"{kind}: {error}", ok=ok)
            else:
                for cell in parity_of_bundle(name, folder, model):
                    scored: dict[str, Any] = {"onnxruntime CPU, Python": BundleModel(folder, model)}
                    if precision == "fp32":
                        scored["PyTorch eager"] = model
                    scores = score(scored[cell.runtime]) if score and cell.runtime in scored and cell.ok else None
                    yield replace(cell, scores=scores)


def parity_of_bundle(name: str, folder: Path, model: Any | None, *, seconds: float = PROOF_SECONDS) -> Iterator[Cell]:
    """The cells of a bundle.

    Args:
        model: the bundle's model, in fp32 on the CPU; None = unavailable.
        seconds: time limit of a runtime for the bundle's graphs, in seconds; PyTorch has no time limit.

    Raises:
        ValueError: `seconds` is not above 0.
    """
    TimeLimit(seconds)
    precision: Any = load_manifest(folder).precision
    empty = Cell(model=name, precision=precision, runtime="")
    runtimes: dict[str, Callable[[], dict[str, Any]]] = {
        "PyTorch eager": partial(_torch, folder, model, precision, compiled=None),
        "PyTorch compiled": partial(_torch, folder, model, precision, compiled="jit"),
        "AOTInductor, C++ loader": partial(_torch, folder, model, precision, compiled="ahead"),
        "onnxruntime CPU, Python": partial(_onnxruntime, folder, seconds, "cpu"),
        "onnxruntime CPU, C++": partial(_cpp, folder, seconds, "cpu"),
        "onnxruntime CUDA, Python": partial(_onnxruntime, folder, seconds, "cuda"),
        "onnxruntime CUDA, TF32, Python": partial(_onnxruntime, folder, seconds, "cuda-tf32"),
        "onnxruntime CUDA, C++": partial(_cpp, folder, seconds, "cuda"),
        "onnxruntime-web, wasm": partial(_web, folder, seconds),
        "onnxruntime-web, WebGPU": partial(_webgpu, folder, seconds),
    }
    for runtime, measure in runtimes.items():
        try:
            yield replace(empty, runtime=runtime, **measure())
        except NotRunError as reason:
            yield replace(empty, runtime=runtime, missing=f"not run: {reason}")
        except TimeoutError as over:
            yield replace(empty, runtime=runtime, missing=f"failed: {over}", ok=False)
        except Exception as error:
            yield replace(empty, runtime=runtime, missing=f"unsupported: {_sentence(error)}")


def _torch(folder: Path, model: Any | None, precision: Precision, *, compiled: Compiled | None) -> dict[str, Any]:
    if precision in ("int8", "int4"):
        raise ValueError(f"PyTorch has no {precision} layers here; its error simulates them and is the budget")
    if model is None:
        raise NotRunError("the run that this bundle is of is not in the tracking store")
    # Each new shape may be recompiled, which takes seconds, so only one batch size is used.
    options: dict[str, Any] = {"batch_sizes": (5,), "forms": ("prefill", "step")} if compiled else {}
    capacity = load_manifest(folder).capacity
    return _measured(folder, TorchRuntime(model, precision, capacity=capacity, compiled=compiled), **options)


def _onnxruntime(folder: Path, seconds: float, provider: ProviderName) -> dict[str, Any]:
    _check_device(provider)
    return TimeLimit(seconds).run(lambda: _measured(folder, cast(Runtime, open_bundle(folder, provider=provider))))


def _measured(folder: Path, runtime: Runtime, **options: Any) -> dict[str, Any]:
    proof = Proof(runtime, load_manifest(folder), load_golden(folder), **options)
    checks = [*proof.values()]
    if proof.manifest.model is not None:
        checks += proof.greedy()
    return _of_checks(checks) | (proof.distribution() or {})


def _cpp(folder: Path, seconds: float, provider: ProviderName) -> dict[str, Any]:
    _check_device(provider)
    try:
        program = find_program()
    except FileNotFoundError as error:
        raise NotRunError(str(error)) from error
    options = ["--provider", provider, "--json", "--ort-lib", find_onnxruntime()]
    return _of_program([program, "verify", str(folder), *options], seconds)


def _web(folder: Path, seconds: float) -> dict[str, Any]:
    return _of_program([*_in_node(WEB_PROOF), str(folder)], seconds)


def _webgpu(folder: Path, seconds: float) -> dict[str, Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise NotRunError("Chromium is not on PATH")
    # A browser that is ended at the time limit may still write to its profile.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        try:
            command = [*_in_node(WEBGPU_PROOF), str(folder), chromium, profile]
            return _of_program(command, min(seconds, WEBGPU_SECONDS))
        except TimeoutError as over:
            raise NotRunError(f"{over} on a GPU in software") from None


def _in_node(program: Path) -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise NotRunError("Node is not on PATH")
    if not program.is_file():
        raise NotRunError("the web runtime is not built; `make web` makes export/web/dist, in a checkout")
    return [node, str(program)]


def _of_program(command: list[str], seconds: float) -> dict[str, Any]:
    """Values of a cell from a program that verifies a bundle and prints its report as JSON; it is killed at the time
    limit."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(seconds, LONGEST), check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"it did not end within {seconds:g} seconds") from None
    if done.returncode == NOT_RUN:
        raise NotRunError(done.stderr.strip())
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr.strip())
    report = json.loads(done.stdout)
    return _of_checks([Check(**check) for check in report["checks"]]) | (report["divergence"] or {})


def _of_checks(checks: list[Check]) -> dict[str, Any]:
    """Values of a cell that follow from its checks."""
    measured = [check for check in checks if check.error is not None and check.limit]
    if not measured:
        raise ValueError(next((check.note for check in checks if not check.ok), "nothing was measured"))
    nearest = max(measured, key=share)
    greedy = [check for check in checks if check.kind == "greedy"]
    return {
        "ok": all(check.ok for check in checks),
        "error": nearest.error,
        "own": nearest.torch_error,
        "limit": nearest.limit,
        "largest": max(check.largest or 0.0 for check in checks),
        "greedy": "; ".join(check.note for check in greedy if check.note) or (SAME if greedy else ""),
    }


def _check_device(provider: ProviderName) -> None:
    if not PROVIDERS[provider].on_cpu and not torch.cuda.is_available():
        raise NotRunError("no CUDA device")


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def to_json(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(cell).items() if value not in (None, "")} for cell in cells]
