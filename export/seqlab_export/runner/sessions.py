"""onnxruntime sessions on a provider, and a time limit for running them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import redirect_stdout
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import TIMEOUT_MAX, Thread
from typing import Any, Literal, TypeVar

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from seqlab_export.runner.cases import PROOF

PROOF_SECONDS = float(PROOF["seconds"])
"""Time limit of a verification, in seconds: an unverified graph might not terminate."""
ENDING_SECONDS = 2.0
"""Grace period, in seconds, for the node that is running when the time limit is reached."""
RUN_OPTIONS: ContextVar[ort.RunOptions | None] = ContextVar("RUN_OPTIONS", default=None)
"""Options for running graphs. A `TimeLimit` sets its own options, so that it can terminate the run."""

T = TypeVar("T")
Provider = Literal["cpu", "cuda", "cuda-tf32"]

# Options in onnxruntime's format. TF32 is on by default in onnxruntime, but not in PyTorch.
PROVIDERS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "cpu": [("CPUExecutionProvider", {})],
    "cuda": [("CUDAExecutionProvider", {"use_tf32": "0"}), ("CPUExecutionProvider", {})],
    "cuda-tf32": [("CUDAExecutionProvider", {"use_tf32": "1"}), ("CPUExecutionProvider", {})],
}


def open_session(path: Path, provider: Provider, threads: int | None = None) -> ort.InferenceSession:
    """Loads an ONNX file.

    Raises:
        ValueError: the provider is unknown or unavailable on this machine, or onnxruntime cannot load the file.
    """
    check_provider(provider)
    if provider != "cpu":
        _load_cuda(provider)
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.load_model_format", "ONNX")  # regardless of file name and content
    # Between two nodes, threads spin rather than sleep; a longer spin would take CPU time from other programs.
    settings.add_session_config_entry("session.intra_op.spin_duration_us", "50")
    if threads is not None:
        settings.intra_op_num_threads = threads
    try:
        session = ort.InferenceSession(path, settings, providers=PROVIDERS[provider])
    except Exception as error:
        raise ValueError(f"onnxruntime cannot load {path}: {error}") from error
    if session.get_providers()[0] != PROVIDERS[provider][0][0]:
        raise ValueError(f"onnxruntime found no device for provider {provider!r}; use another one")
    return session


def run_session(
    session: ort.InferenceSession, outputs: Sequence[str], inputs: Mapping[str, NDArray[np.generic]]
) -> dict[str, NDArray[Any]]:
    """Runs a graph and returns the outputs with these names.

    Raises:
        ValueError: onnxruntime cannot run the graph with these inputs.
    """
    try:
        return dict(zip(outputs, session.run(outputs, inputs, RUN_OPTIONS.get()), strict=True))
    except Exception as error:
        raise ValueError(f"onnxruntime cannot run this graph: {str(error).strip()}") from error


class TimeLimit:
    """Time limit for work on graphs, including loading.

    Raises:
        ValueError: `seconds` is not above 0.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"a proof may take more than 0 seconds, got {seconds:g}")
        self.seconds = seconds

    def run(self, work: Callable[[], T]) -> T:
        """Runs `work` in a separate thread, since onnxruntime can stop between two nodes but not within one.

        Raises:
            TimeoutError: the time limit was reached. A node that is still running is abandoned.
        """
        options = ort.RunOptions()
        options.log_severity_level = 4  # the timeout is reported below
        context, result = copy_context(), Future[T]()
        context.run(RUN_OPTIONS.set, options)

        def call() -> None:
            try:
                result.set_result(context.run(work))
            except BaseException as error:
                result.set_exception(error)

        Thread(target=call, daemon=True).start()
        if not wait([result], min(self.seconds, TIMEOUT_MAX)).done:
            options.terminate = True
            wait([result], ENDING_SECONDS)
            raise TimeoutError(f"it did not end within {self.seconds:g} seconds")
        return result.result()


def check_provider(provider: str) -> None:
    """Raises ValueError if the provider is unknown, or not in this onnxruntime. (A device may still be missing.)"""
    if provider not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, got {provider!r}")
    if PROVIDERS[provider][0][0] not in ort.get_available_providers():
        raise ValueError(f"this onnxruntime has no provider {provider!r}; use another one")


def _load_cuda(provider: Provider) -> None:
    """Loads CUDA's libraries from NVIDIA's wheels, unless already loaded (e.g. by PyTorch): onnxruntime knows their
    names but not their folders.

    Raises:
        ValueError: a library that onnxruntime needs is not on this machine.
    """
    said = io.StringIO()
    with redirect_stdout(said):
        ort.preload_dlls()
    failures = [line for line in said.getvalue().splitlines() if line.startswith("Failed to load ")]
    if failures:
        reason = failures[0].removeprefix("Failed to load ")
        raise ValueError(f"provider {provider!r} cannot be loaded ({reason}); install it, or use another provider")
