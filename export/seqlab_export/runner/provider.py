"""Providers: the devices on which onnxruntime runs a graph."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnxruntime as ort

ProviderName = Literal["cpu", "cuda", "cuda-tf32"]

_CPU: tuple[str, dict[str, str]] = ("CPUExecutionProvider", {})
_CUDA = "CUDAExecutionProvider"


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

    @property
    def multiplies_int8(self) -> bool:
        """True if it has an int8 product with dynamically quantised inputs; CUDA has only a 4-bit product."""
        return self.on_cpu

    def open(self, path: Path, settings: ort.SessionOptions) -> ort.InferenceSession:
        """Loads an ONNX file.

        Raises:
            ValueError: this machine has no such device or lacks a library for it, or onnxruntime cannot load the file.
        """
        if not self.on_cpu:
            self._load_cuda()
        try:
            session = ort.InferenceSession(path, settings, providers=[*self.execution])
        except Exception as error:
            raise ValueError(f"onnxruntime cannot load {path}: {error}") from error
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
            raise ValueError(f"provider {self.name!r} cannot be loaded ({reason}); install it, or use another provider")


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
