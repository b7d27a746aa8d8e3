"""Runs a bundle with NumPy and onnxruntime alone (and sentencepiece, where the tokenizer is subword).

B batch, T tokens given, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from seqlab.decoding import FREE, GREEDY, Repetition, Sampling, generate_text
from seqlab_data.tokenizers import Tokenizer, load_tokenizer
from seqlab_export.manifest import BundleError, find_damage, load_manifest

State = dict[str, NDArray[np.generic]]
"""Graph inputs by name, `state_<name>`."""

Provider = Literal["cpu", "cuda"]

# The options are as onnxruntime takes them. TF32 is its default and not PyTorch's.
PROVIDERS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "cpu": [("CPUExecutionProvider", {})],
    "cuda": [("CUDAExecutionProvider", {"use_tf32": "0"}), ("CPUExecutionProvider", {})],
}


class BundleRunner:
    """A bundle as a decoder: `seqlab.decoding.generate` takes it.

    Args:
        folder: the bundle; nothing outside it is read.
        provider: "cpu" or "cuda".
        threads: how many; None = onnxruntime's choice, one a core.

    Raises:
        ValueError: the folder is not a whole bundle, onnxruntime is too old, or the provider is not there.
    """

    def __init__(self, folder: Path | str, *, provider: Provider = "cpu", threads: int | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = load_manifest(self.folder)
        for name, damage in find_damage(self.folder, self.manifest).items():
            raise BundleError(f"{self.folder} is not as it was written: {name}: {damage}")
        if _version(ort.__version__) < _version(self.manifest.min_onnxruntime):
            raise ValueError(
                f"this bundle needs onnxruntime {self.manifest.min_onnxruntime}, here is {ort.__version__}"
            )
        self.vocab_size = self.manifest.vocab_size
        self.max_seq_len = self.manifest.max_seq_len
        self.model = open_session(self.folder / self.manifest.model.file, provider, threads)
        self.step_model = open_session(self.folder / self.manifest.step.file, provider, threads)
        self._outputs = [output.name for output in self.manifest.model.outputs]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / self.manifest.tokenizer)

    def init_state(self, batch_size: int) -> State:
        """The state before the first token."""
        sizes = {"B": batch_size, "S": 0}
        state: State = {}
        for entry in self.manifest.state:
            shape = [sizes[dim] if isinstance(dim, str) else dim for dim in entry.dims]
            state[f"state_{entry.name}"] = np.full(shape, entry.initial, dtype=entry.dtype)
        return state

    def run(
        self, session: ort.InferenceSession, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], state: State
    ) -> tuple[NDArray[np.floating], State]:
        """Reads tokens (B, T) with `model`, or with `step_model` at T = 1: logits (B, T, V), and the new state."""
        logits, *new_state = session.run(self._outputs, {"tokens": tokens, "pad_mask": pad_mask, **state})
        return logits, dict(zip(state, new_state, strict=True))

    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], State]:
        """Reads left-padded tokens (B, T): logits (B, V) after the last, and the state."""
        logits, state = self.run(self.model, tokens, pad_mask, self.init_state(len(tokens)))
        return logits[:, -1], state

    def step(self, tokens: NDArray[np.int64], state: State) -> tuple[NDArray[np.floating], State]:
        """Reads one token a row, tokens (B,): logits (B, V), and the new state."""
        column = tokens[:, None]
        logits, new_state = self.run(self.step_model, column, np.ones(column.shape, dtype=np.bool_), state)
        return logits[:, 0], new_state

    def select(self, state: State, rows: NDArray[np.int64]) -> State:
        """The state of these rows, in this order."""
        return {name: entry[rows] for name, entry in state.items()}

    def generate_text(
        self,
        prompt: str,
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        repetition: Repetition = FREE,
        on_text: Callable[[str], None] | None = None,
    ) -> str:
        """What the model writes after `prompt`; see `seqlab.decoding.generate_text`."""
        return generate_text(
            self,
            self.tokenizer,
            prompt,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            repetition=repetition,
            on_text=on_text,
        )


def open_session(path: Path, provider: Provider, threads: int | None = None) -> ort.InferenceSession:
    """Loads an ONNX file.

    Raises:
        ValueError: the provider is unknown or not on this machine, or onnxruntime cannot load the file.
    """
    check_provider(provider)
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    # Threads that wait by spinning halve the speed where another program is busy.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        settings.intra_op_num_threads = threads
    try:
        session = ort.InferenceSession(path, settings, providers=PROVIDERS[provider])
    except Exception as error:
        raise ValueError(f"onnxruntime cannot load {path}: {error}") from error
    if session.get_providers()[0] != PROVIDERS[provider][0][0]:
        raise ValueError(f"onnxruntime found no device for provider {provider!r}; use another one")
    return session


def check_provider(provider: str) -> None:
    """Raises ValueError where the provider is unknown, or not in this onnxruntime. (A device may still be missing.)"""
    if provider not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, got {provider!r}")
    if PROVIDERS[provider][0][0] not in ort.get_available_providers():
        raise ValueError(f"this onnxruntime has no provider {provider!r}; use another one")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
