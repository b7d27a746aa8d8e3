"""Runner of a bundle's graphs with only NumPy and onnxruntime: arrays in, arrays out (`bundle_text_model` reads texts).

B batch, T tokens given, K positions scored, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from seqlab.files.phases import counted
from seqlab_export.runner.graph_file import check_for_cuda, check_graph
from seqlab_export.runner.manifest import BundleError, find_damage, load_manifest
from seqlab_export.runner.sessions import RUN_OPTIONS, ProviderName, provider_named, run_session

State = dict[str, NDArray[np.generic]]
"""Graph inputs by name, `state_<name>`."""


class Bundle:
    """A bundle's graphs and its manifest.

    Args:
        folder: folder of the bundle; nothing outside it is read.
        provider: "cpu" or "cuda".
        threads: number of threads; None = onnxruntime's default, one per core.

    Attributes:
        sessions: onnxruntime session of each graph in the bundle: "encoder", "model" and "step".

    Raises:
        ValueError: the folder is not a complete bundle, onnxruntime is too old, or the provider is unavailable.
    """

    def __init__(self, folder: Path | str, *, provider: ProviderName = "cpu", threads: int | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = load_manifest(self.folder)
        for name, damage in find_damage(self.folder, self.manifest).items():
            raise BundleError(f"{self.folder} is not as it was written: {name}: {damage}")
        if _version(ort.__version__) < _version(self.manifest.min_onnxruntime):
            raise ValueError(
                f"this bundle needs onnxruntime {self.manifest.min_onnxruntime}, here is {ort.__version__}"
            )

        graphs = {name: getattr(self.manifest, name) for name in ("encoder", "model", "step")}
        self._provider = provider_named(provider)
        self._session = partial(self._provider.open, threads=threads)
        present = {name: graph for name, graph in graphs.items() if graph}
        self.sessions = {name: self._open(graph.file) for name, graph in counted("loading graphs", present.items())}

    def _open(self, file: str) -> ort.InferenceSession:
        check_graph(self.folder / file, self.manifest.target)
        if not self._provider.on_cpu:
            check_for_cuda(self.folder / file, self.manifest.precision)
        return self._session(self.folder / file)

    def tap(self, **inputs: NDArray[np.generic]) -> dict[str, NDArray[Any]]:
        """Intermediate outputs of the model by name: attention weights (B, H, T, S) and hidden states (B, T, D).

        Args:
            inputs: inputs with the names in the manifest's `taps`.

        Raises:
            ValueError: the bundle was exported without taps, or the inputs do not match.
        """
        info = self.manifest.taps
        if info is None:
            raise ValueError(f"{self.folder} has no taps; export it with --taps attention,state")
        if [*inputs] != (names := [tensor.name for tensor in info.inputs]):
            raise ValueError(f"the taps of {self.folder} take {', '.join(names)}; got {', '.join(inputs) or 'nothing'}")
        outputs = [output.name for output in info.outputs]
        return run_session(self._debug_session, outputs, inputs)

    @cached_property
    def guess_session(self) -> ort.InferenceSession:
        """Session of the graph that guesses tokens, loaded when first used."""
        assert self.manifest.guess is not None
        return self._open(self.manifest.guess.file)

    @cached_property
    def _debug_session(self) -> ort.InferenceSession:
        assert self.manifest.taps is not None
        return self._open(self.manifest.taps.file)

    def encode(self, inputs: NDArray[np.generic], pad_mask: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The encoder's outputs by name, of tokens (B, T) or features (B, T, F) and pad_mask (B, T).

        Raises:
            ValueError: the bundle has no encoder, the input is invalid for it, or there is padding between real tokens.
        """
        info, longest = self.manifest.encoder, self.manifest.max_source_len
        if info is None:
            raise ValueError(f"{self.folder} is the bundle of a language model, which reads prompts")
        _check_padding(pad_mask)
        num_tokens = int(np.count_nonzero(pad_mask, axis=1).max(initial=0))
        if longest is not None and num_tokens > longest:
            raise ValueError(f"an input has {num_tokens} tokens, this bundle reads at most {longest}")
        names = [output.name for output in info.outputs]
        given, mask = info.inputs
        return run_session(
            self.sessions["encoder"], names, {given.name: inputs.astype(given.dtype), mask.name: pad_mask}
        )

    def probabilities(self, row: Sequence[int]) -> NDArray[np.float64]:
        """Class probabilities for a text's ids (T,): (C,), or (T, C) if each id is classified."""
        tokens = np.array([row], dtype=np.int64)  # (1, T)
        logits = self.encode(tokens, np.ones(tokens.shape, dtype=np.bool_))["logits"][0].astype(np.float64)
        powers: NDArray[np.float64] = np.exp(logits - logits.max(axis=-1, keepdims=True))
        powers /= powers.sum(axis=-1, keepdims=True)
        return powers


class ArrayDecoder(ABC):
    """Decoder on NumPy arrays, with the interface of the decoding loop."""

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """The state before the first token."""

    @abstractmethod
    def run(self, graph: Literal["model", "step"], given: State, state: State) -> tuple[NDArray[np.floating], State]:
        """Runs a graph on a state and its other inputs, in their order in `read`; returns as `read`."""

    def read(
        self,
        graph: Literal["model", "step"],
        tokens: NDArray[np.int64],
        pad_mask: NDArray[np.bool_],
        state: State,
        scored: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.floating], State]:
        """Reads tokens (B, T), or (B, 1) with "step": logits (B, K, V) at the positions scored (K,), None = all T, and
        the new state, which may overwrite the old one.

        Raises:
            ValueError: there is padding between real tokens, or a text becomes longer than `max_seq_len`.
        """
        given: State = {"tokens": tokens, "pad_mask": pad_mask}
        if graph == "model":
            given["scored"] = np.arange(tokens.shape[1]) if scored is None else scored
        return self.run(graph, given, state)

    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], State]:
        """Reads left-padded tokens (B, T); returns the logits (B, V) after the last token, and the state."""
        last = np.array([tokens.shape[1] - 1])
        logits, state = self.read("model", tokens, pad_mask, self.init_state(len(tokens)), last)
        return logits[:, 0], state

    def logits(
        self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], scored: NDArray[np.int64]
    ) -> NDArray[np.floating]:
        """Logits (B, K, V) at the positions scored (K,) of tokens (B, T), padded where pad_mask (B, T) is False."""
        return self.read("model", tokens, pad_mask, self.init_state(len(tokens)), scored)[0]

    def step(self, tokens: NDArray[np.int64], state: State) -> tuple[NDArray[np.floating], State]:
        """Reads one token per row, tokens (B,); returns logits (B, V) and the new state."""
        column = tokens[:, None]
        logits, new_state = self.read("step", column, np.ones(column.shape, dtype=np.bool_), state)
        return logits[:, 0], new_state

    def select(self, state: State, rows: NDArray[np.int64]) -> State:
        """The state of these rows, in this order."""
        return {name: entry[rows] for name, entry in state.items()}


class BundleRunner(Bundle, ArrayDecoder):
    """A bundle as a decoder for `seqlab.decoding.generate`.

    Raises:
        ValueError: as in `Bundle`, or the bundle has no decoder.
    """

    def __init__(self, folder: Path | str, *, provider: ProviderName = "cpu", threads: int | None = None) -> None:
        super().__init__(folder, provider=provider, threads=threads)
        graph, vocab_size = self.manifest.model, self.manifest.vocab_size
        if graph is None or vocab_size is None:
            raise ValueError(f"{self.folder} is the bundle of an encoder, which writes nothing; use `seqlab classify`")
        self.vocab_size = vocab_size
        self.max_seq_len = self.manifest.max_seq_len
        self._outputs = [output.name for output in graph.outputs]
        self._of_source = [f"state_{entry.name}" for entry in self.manifest.state if "N" in entry.dims]
        self._first: State | None = None

    def begin(self, source: NDArray[np.generic], source_mask: NDArray[np.bool_]) -> BundleRunner:
        """The decoder that has read source (B, M), source_mask (B, M)."""
        started = copy(self)
        started._first = self.encode(source, source_mask)
        return started

    def init_state(self, batch_size: int) -> State:
        """The state before the first token.

        Raises:
            ValueError: the state depends on a source, and none was read.
        """
        if self._first is not None:
            return self._first
        if self.manifest.encoder is not None:
            raise ValueError(f"{self.folder} writes what a source says; read one with `begin`, or `seqlab translate`")
        sizes = {"B": batch_size, "S": 0, "C": self.manifest.max_seq_len or 0}
        state: State = {}
        for entry in self.manifest.state:
            shape = [sizes[dim] if isinstance(dim, str) else dim for dim in entry.dims]
            assert entry.initial is not None
            # The system provides zeros when they are first touched.
            state[f"state_{entry.name}"] = np.zeros(shape, dtype=entry.dtype)
            if entry.initial != 0:
                state[f"state_{entry.name}"].fill(entry.initial)
        return state

    def run(self, graph: Literal["model", "step"], given: State, state: State) -> tuple[NDArray[np.floating], State]:
        _check_padding(given["pad_mask"])
        longest = int((state.get("state_position", 0) + np.count_nonzero(given["pad_mask"], axis=1)).max(initial=0))
        if self.max_seq_len is not None and longest > self.max_seq_len:
            raise ValueError(f"a text of {longest} tokens is longer than the model reads, which is {self.max_seq_len}")
        # A source's first state is that of later prompts too.
        if self.manifest.in_place and (graph == "step" or self.manifest.encoder is None):
            return self._run_in_place(graph, given | state, state)
        found = run_session(self.sessions[graph], self._outputs, given | state)
        new = {name.removeprefix("new_"): entry for name, entry in found.items()}
        return new.pop("logits"), state | new

    @property
    def num_ahead(self) -> int:
        """Number of tokens that the model guesses beyond the next."""
        guess = self.manifest.guess
        return 0 if guess is None else int(guess.outputs[-1].dims[-1])

    def guess(
        self, tokens: NDArray[np.int64], state: State | None, first: int
    ) -> tuple[NDArray[np.floating], NDArray[np.int64], State]:
        """Reads tokens and guesses further ones, as `seqlab.decoding.speculate.Guesser` says. The old state is kept."""
        assert self.manifest.guess is not None
        state = self.init_state(1) if state is None else state
        mask = np.ones(tokens.shape, dtype=np.bool_)
        given: State = {"tokens": tokens, "pad_mask": mask, "scored": np.arange(first, tokens.shape[1])}
        names = [output.name for output in self.manifest.guess.outputs]
        found = run_session(self.guess_session, names, given | state)
        guesses, logits = (found.pop(name)[0] for name in ("guesses", "logits"))  # (K, N), (K, V)
        return logits, guesses, state | {name.removeprefix("new_"): entry for name, entry in found.items()}

    def select(self, state: State, rows: NDArray[np.int64]) -> State:
        """The state of these rows, in this order. Consecutive rows of one source share its entries."""
        shared = {name: state[name] for name in self._of_source}
        taken = super().select({name: entry for name, entry in state.items() if name not in shared}, rows)
        if shared:
            before, num_sources = state["state_position"].shape[0], len(state[self._of_source[0]])
            sources = rows // (before // num_sources)
            beams = np.gcd.reduce([*np.flatnonzero(np.diff(sources)) + 1, len(rows)])
            sources = sources[::beams]
            if not np.array_equal(sources, np.arange(num_sources)):
                shared = super().select(shared, sources)
        return taken | shared

    def _run_in_place(self, graph: str, given: State, state: State) -> tuple[NDArray[np.floating], State]:
        binding = self.sessions[graph].io_binding()
        entries = {name: ort.OrtValue.ortvalue_from_numpy(entry) for name, entry in given.items()}
        for name, entry in entries.items():
            binding.bind_ortvalue_input(name, entry)
        stays = {f"new_state_{name}": f"state_{name}" for name in self.manifest.in_place}
        for name in self._outputs:
            if name in stays:
                binding.bind_ortvalue_output(name, entries[stays[name]])
            else:
                binding.bind_output(name)
        self.sessions[graph].run_with_iobinding(binding, RUN_OPTIONS.get())
        found = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        new = {name.removeprefix("new_"): entry.numpy() for name, entry in found.items() if name not in stays}
        return new.pop("logits"), state | new


def _check_padding(pad_mask: NDArray[np.generic]) -> None:
    """Raises ValueError if a row of pad_mask (B, T) has padding between real tokens."""
    real = pad_mask.astype(np.bool_)
    begins = np.count_nonzero(real[:, 1:] > real[:, :-1], axis=1) + real[:, 0]
    for row in np.flatnonzero(begins > 1):
        raise ValueError(
            f"row {row} of pad_mask has padding between real tokens; it may only stand before and after them"
        )


def open_bundle(folder: Path | str, *, provider: ProviderName = "cpu", threads: int | None = None) -> Bundle:
    """A `BundleRunner` if the bundle has a decoder, else a `Bundle`."""
    decodes = load_manifest(Path(folder)).model is not None
    return (BundleRunner if decodes else Bundle)(folder, provider=provider, threads=threads)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
