"""Providers, which are devices and options of onnxruntime; sessions on them; and a time limit for running these."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import redirect_stdout
from contextvars import ContextVar, copy_context
from ctypes import CDLL
from dataclasses import dataclass
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
ProviderName = Literal["cpu", "cuda", "cuda-tf32"]

_CPU: tuple[str, dict[str, str]] = ("CPUExecutionProvider", {})
_CUDA = "CUDAExecutionProvider"
OF_DEVICE = re.compile(r"(?:dlopen failed for \S+ |CUDA failure \d+: )(libcudnn.*\S|.*?(?= *;))")
"""Reason, in onnxruntime's message, that the device cannot load a graph which another could."""


@dataclass(frozen=True)
class Provider:
    """A device, and onnxruntime's options for it.

    Attributes:
        name: name on the command line and in reports.
        execution: execution providers in onnxruntime's format; a node runs on the first one that supports it.
    """

    name: ProviderName
    execution: tuple[tuple[str, dict[str, str]], ...]

    @property
    def options(self) -> dict[str, str]:
        return self.execution[0][1]

    @property
    def on_cpu(self) -> bool:
        return self.execution[0] == _CPU

    def open(self, path: Path, threads: int | None = None) -> ort.InferenceSession:
        """Loads an ONNX file.

        Raises:
            ValueError: this machine has no such device or lacks a library for it, or onnxruntime cannot load the file.
        """
        settings = ort.SessionOptions()
        settings.log_severity_level = 4  # errors are raised
        settings.add_session_config_entry("session.load_model_format", "ONNX")  # regardless of file name and content
        # Between two nodes, threads spin rather than sleep; a longer spin would take CPU time from other programs.
        settings.add_session_config_entry("session.intra_op.spin_duration_us", "50")
        if threads is not None:
            settings.intra_op_num_threads = threads
        if not self.on_cpu:
            self._load_cuda()
        try:
            session = ort.InferenceSession(path, settings, providers=[*self.execution], enable_fallback=0)
        except Exception as error:
            if fault := OF_DEVICE.search(str(error)):
                raise self._cannot_load(fault[1]) from error
            raise ValueError(f"onnxruntime cannot load {path}: {_said(error)}") from error
        if session.get_providers()[0] != self.execution[0][0]:
            raise ValueError(f"onnxruntime found no device for provider {self.name!r}; use another one")
        return session

    def _load_cuda(self) -> None:
        """Loads CUDA's libraries from NVIDIA's wheels, unless already loaded (e.g. by PyTorch): onnxruntime knows their
        names but not their folders."""
        said = io.StringIO()
        with redirect_stdout(said):
            ort.preload_dlls()
        failures = [line for line in said.getvalue().splitlines() if line.startswith("Failed to load ")]
        if failures:
            reason = failures[0].removeprefix("Failed to load ")
            raise self._cannot_load(re.sub(r"^(\S+: )\1", r"\1", reason))  # the system repeats the library's name
        if sys.platform == "linux":
            try:
                CDLL("libcuda.so.1")
            except OSError as missing:
                raise self._cannot_load(f"the driver, {missing}") from missing

    def _cannot_load(self, reason: str) -> ValueError:
        return ValueError(f"provider {self.name!r} cannot be loaded ({reason}); install it, or use another provider")


# TF32 is on by default in onnxruntime, but not in PyTorch.
PROVIDERS: dict[str, Provider] = {
    "cpu": Provider("cpu", (_CPU,)),
    "cuda": Provider("cuda", ((_CUDA, {"use_tf32": "0"}), _CPU)),
    "cuda-tf32": Provider("cuda-tf32", ((_CUDA, {"use_tf32": "1"}), _CPU)),
}


def provider_named(name: str) -> Provider:
    """The provider with this name.

    Raises:
        ValueError: it is unknown, or not in this onnxruntime. (A device may still be missing.)
    """
    if name not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, got {name!r}")
    if PROVIDERS[name].execution[0][0] not in ort.get_available_providers():
        raise ValueError(f"this onnxruntime has no provider {name!r}; use another one")
    return PROVIDERS[name]


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
        raise ValueError(f"onnxruntime cannot run this graph: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Message of onnxruntime, or what it means for the user."""
    said = str(error).strip()
    return "there is not enough memory" if re.search("Failed to allocate memory|out of memory", said) else said


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
