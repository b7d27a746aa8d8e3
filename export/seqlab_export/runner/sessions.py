"""Opens ONNX files in onnxruntime, on a provider."""

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

PROOF_SECONDS = 3600.0
"""Longest time that a proof may take, in seconds: a graph that nobody has proven may never end."""
ENDING_SECONDS = 2.0
"""Grace for the node that is running when the time is over."""
RUN_OPTIONS: ContextVar[ort.RunOptions | None] = ContextVar("RUN_OPTIONS", default=None)
"""Options with which graphs are run. A `TimeLimit` sets its own, so that it can end them."""

T = TypeVar("T")
Provider = Literal["cpu", "cuda", "cuda-tf32"]

# The options are as onnxruntime takes them. TF32 is its default and not PyTorch's.
PROVIDERS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "cpu": [("CPUExecutionProvider", {})],
    "cuda": [("CUDAExecutionProvider", {"use_tf32": "0"}), ("CPUExecutionProvider", {})],
    "cuda-tf32": [("CUDAExecutionProvider", {"use_tf32": "1"}), ("CPUExecutionProvider", {})],
}


def open_session(path: Path, provider: Provider, threads: int | None = None) -> ort.InferenceSession:
    """Loads an ONNX file.

    Raises:
        ValueError: the provider is unknown or not on this machine, or onnxruntime cannot load the file.
    """
    check_provider(provider)
    if provider != "cpu":
        _load_cuda(provider)
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.load_model_format", "ONNX")  # whatever the file's name or beginning is
    # Between two nodes a thread spins rather than sleeps; for longer it would keep other programs from the processor.
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
    """The outputs of these names.

    Raises:
        ValueError: onnxruntime cannot run the graph with these inputs.
    """
    try:
        return dict(zip(outputs, session.run(outputs, inputs, RUN_OPTIONS.get()), strict=True))
    except Exception as error:
        raise ValueError(f"onnxruntime cannot run this graph: {str(error).strip()}") from error


class TimeLimit:
    """Time limit of work on graphs, loading included.

    Raises:
        ValueError: `seconds` is not above 0.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"a proof may take more than 0 seconds, got {seconds:g}")
        self.seconds = seconds

    def run(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread of its own, since onnxruntime stops between two nodes and never within one.

        Raises:
            TimeoutError: the time is over. A node that is still running is left behind.
        """
        options = ort.RunOptions()
        options.log_severity_level = 4  # what ends is told here
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
    """Raises ValueError where the provider is unknown, or not in this onnxruntime. (A device may still be missing.)"""
    if provider not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, got {provider!r}")
    if PROVIDERS[provider][0][0] not in ort.get_available_providers():
        raise ValueError(f"this onnxruntime has no provider {provider!r}; use another one")


def _load_cuda(provider: Provider) -> None:
    """Loads CUDA's libraries out of NVIDIA's wheels, where nothing else (PyTorch, say) has: onnxruntime names them and
    not their folders.

    Raises:
        ValueError: one that onnxruntime needs is not on this machine.
    """
    said = io.StringIO()
    with redirect_stdout(said):
        ort.preload_dlls()
    failures = [line for line in said.getvalue().splitlines() if line.startswith("Failed to load ")]
    if failures:
        reason = failures[0].removeprefix("Failed to load ")
        raise ValueError(f"provider {provider!r} cannot be loaded ({reason}); install it, or use another provider")
