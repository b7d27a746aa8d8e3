"""Compares a runtime with a golden file. Needs no PyTorch.

R rows, T tokens given, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.cases import (
    Arrays,
    calls,
    cases,
    encoder_cases,
    groups,
    limit,
    long_cases,
    numbers_of,
    relative_errors,
    rms,
    select,
    select_calls,
)
from seqlab_export.runner.golden_file import array_of
from seqlab_export.runner.greedy import GreedyTrace, judge, trace
from seqlab_export.runner.manifest import BundleError, GraphInfo, Manifest
from seqlab_export.runner.report import Check

BATCH_SIZES = (1, 2, 9)

FORMS = ("prefill", "chunks", "step", "long")
"""How tokens are read; see `cases.calls`."""


class Runtime(Protocol):
    """What computes a model's forms. `State` is as the runtime likes it, but for `arrays`."""

    def encode(self, inputs: NDArray[np.generic], pad_mask: NDArray[np.bool_], /) -> Arrays:
        """An encoder's outputs by their names in the graph, of inputs (B, T) or (B, T, F) and pad_mask (B, T)."""

    def begin(self, source: NDArray[np.generic], source_mask: NDArray[np.bool_], /) -> Runtime:
        """The decoder that has read source (B, M), source_mask (B, M)."""

    def init_state(self, batch_size: int, /) -> Mapping[str, Any]:
        """A decoder's state before the first token, by the names of its inputs."""

    def read(
        self, graph: Literal["model", "step"], tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], state: Any, /
    ) -> tuple[NDArray[np.floating], Mapping[str, NDArray[np.generic]]]:
        """tokens and pad_mask (B, T), T = 1 for "step", to logits (B, T, V) and the new state."""


class Proof:
    """The checks of a runtime against the golden file of a bundle, at these batch sizes and in these of `FORMS`."""

    def __init__(
        self,
        runtime: Runtime,
        manifest: Manifest,
        golden: Arrays,
        *,
        batch_sizes: Sequence[int] = BATCH_SIZES,
        forms: Sequence[str] = FORMS,
    ) -> None:
        self.runtime = runtime
        self.batch_sizes, self.forms = batch_sizes, forms
        self.manifest = manifest
        self.golden = golden
        encoder = manifest.encoder
        self.masks = {} if encoder is None else dict(encoder_cases(encoder, manifest.max_source_len))

    def values(self) -> Iterator[Check]:
        """One check for each group of outputs of each cell: a batch size and a case."""
        if self.manifest.encoder is not None:
            for batch_size, (case, pad_mask) in product(self.batch_sizes, self.masks.items()):
                cell = f"batch {batch_size}, {case.removeprefix('encoder/')}"
                yield from self._cell("encoder", cell, self.manifest.encoder, case, pad_mask, batch_size)
        if self.manifest.model is not None:
            for form, batch_size in product([form for form in self.forms if form != "long"], self.batch_sizes):
                for case, pad_mask in cases(self.manifest.max_seq_len):
                    cell = f"batch {batch_size}, {case}"
                    yield from self._cell(form, cell, self.manifest.model, case, pad_mask, batch_size)
            if "long" in self.forms:
                for case, pad_mask in long_cases(self.manifest.max_seq_len):
                    yield from self._cell("long", case, self.manifest.model, case, pad_mask, len(pad_mask))

    def greedy(self) -> Iterator[Check]:
        """One check for each prompt."""
        tokens = self._array("greedy/tokens", None, None).astype(np.int64)
        likeliest = self._array("greedy/likeliest", *tokens.shape, None)
        logits = self._array("greedy/logits", *likeliest.shape).astype(np.float64)
        known = likeliest.min() >= 0 and likeliest.max() < (self.manifest.vocab_size or 0)
        if likeliest.shape[2] < 2 or not known:
            raise BundleError("greedy/likeliest of the golden file holds no two tokens of the vocabulary")
        expected = GreedyTrace(tokens, logits)
        prompts = [self._array(f"greedy/prompt_{row}", None).tolist() for row in range(len(tokens))]
        decoder: Any = self._started("greedy", slice(len(prompts)))
        actual = trace(decoder, prompts, tokens.shape[1])
        for row, (ok, note) in enumerate(judge(actual, expected, likeliest)):
            yield Check(kind="greedy", subject=f"prompt {row}", ok=ok, note=note)

    def distribution(self) -> dict[str, float] | None:
        """Of `divergence`: mean `kl` and 99th percentile `kl_p99`, and the share `top1` of the same likeliest. None
        where the logits are of no one choice."""
        if "whole/logits" not in self.golden:
            return None
        kl, same = self.divergence()
        return {"kl": float(kl.mean()), "kl_p99": float(np.quantile(kl, 0.99)), "top1": float(same.mean())}

    def divergence(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """At each place where logits were kept whole, the Kullback-Leibler divergence in nats of the runtime's
        distribution from the reference's, and whether both have the same likeliest token or class."""
        inputs = self._array("whole/inputs", None, None)
        expected = self._array("whole/logits", len(inputs))
        pad_mask = np.ones(inputs.shape[:2], dtype=np.bool_)
        if self.manifest.model is None:
            logits = self.runtime.encode(inputs, pad_mask)["logits"]
        else:
            runtime = self._started("whole", slice(len(inputs)))
            tokens = inputs.astype(np.int64)
            logits, _ = runtime.read("model", tokens, pad_mask, runtime.init_state(len(tokens)))
        if logits.shape != expected.shape:
            raise BundleError(f"the logits have shape {logits.shape}, those of the golden file {expected.shape}")
        theirs, ours = _log_softmax(expected), _log_softmax(logits)
        kl = (np.exp(theirs) * (theirs - ours)).sum(axis=-1).ravel()
        return kl, (theirs.argmax(axis=-1) == ours.argmax(axis=-1)).ravel()

    def _cell(
        self, kind: str, cell: str, graph: GraphInfo, case: str, pad_mask: NDArray[np.bool_], batch_size: int
    ) -> Iterator[Check]:
        if f"{case}/{graph.outputs[0].name}" not in self.golden:
            yield Check(kind=kind, subject=cell, ok=False, note="the golden file does not have it")
            return
        read: Callable[..., Arrays] = self._encode if kind == "encoder" else self._decode
        try:
            batches = [
                read(kind, case, pad_mask, slice(first, min(first + batch_size, len(pad_mask))))
                for first in range(0, len(pad_mask), batch_size)
            ]
            found = {output.name: np.concatenate([batch[output.name] for batch in batches]) for output in graph.outputs}
            taken = [output for output in graph.outputs if kind != "long" or output.name != "logits"]
            actual = found | {
                output.name: select(found[output.name], output, pad_mask, numbers_of(output, graph)) for output in taken
            }
        except Exception as failure:
            yield Check(kind=kind, subject=cell, ok=False, note=f"the runtime failed: {failure}")
            return
        for group, names in groups(graph).items():
            yield self._check(kind, f"{cell}, {group}", actual, case, group, names)

    def _encode(self, kind: str, case: str, pad_mask: NDArray[np.bool_], rows: slice) -> Arrays:
        return self.runtime.encode(self._array(f"{case}/inputs", *pad_mask.shape)[rows], pad_mask[rows])

    def _decode(self, kind: str, case: str, pad_mask: NDArray[np.bool_], rows: slice) -> Arrays:
        """The outputs after reading these rows of a case's tokens, in one of `FORMS`, by name; of "long" of the logits
        what `select_calls` takes."""
        tokens = self._array(f"{case}/tokens", *pad_mask.shape).astype(np.int64)[rows]
        runtime = self._started(case, rows)
        state: Mapping[str, Any] = runtime.init_state(len(tokens))
        pieces = calls(kind, pad_mask, self.manifest.first_call)

        def read() -> Iterator[NDArray[np.floating]]:
            nonlocal state
            for piece in pieces:
                steps = kind in ("step", "long") and piece.stop - piece.start == 1
                logits, state = runtime.read(
                    "step" if steps else "model", tokens[:, piece], pad_mask[rows, piece], state
                )
                yield logits

        if kind == "long":
            assert self.manifest.model is not None
            logits = select_calls(read(), pieces, self.manifest.model, pad_mask[rows])
        else:
            logits = np.concatenate([*read()], axis=1)
        return {"logits": logits} | {f"new_{name}": entry for name, entry in state.items()}

    def _started(self, case: str, rows: slice) -> Runtime:
        """The decoder that has read these rows of the source of a case, where it reads one."""
        if not self.masks:
            return self.runtime
        source = str(self._array(f"{case}/source"))
        if source not in self.masks:
            raise BundleError(f"the golden file names a source {source!r}, which is no case")
        mask = self.masks[source]
        return self.runtime.begin(self._array(f"{source}/inputs", *mask.shape)[rows], mask[rows])

    def _array(self, name: str, *shape: int | None) -> NDArray[Any]:
        return array_of(self.golden, name, *shape)

    def _check(self, kind: str, subject: str, actual: Arrays, case: str, group: str, names: list[str]) -> Check:
        """The names are those of one of `cases.groups`."""
        expected = {name: self._array(f"{case}/{name}") for name in names}
        shapes = [(actual[name].shape, expected[name].shape) for name in names]
        if any(ours != theirs for ours, theirs in shapes):
            note = f"the shapes and what they should be: {shapes}"
            return Check(kind=kind, subject=subject, ok=False, note=note)
        torch_error = self._array(f"{case}/torch/{group}").item()
        most = 0.0 if group == "counters" else limit(torch_error, self.manifest.precision)
        return judged(kind, subject, relative_errors(actual, expected, names), torch_error, most)


def judged(kind: str, subject: str, errors: NDArray[np.float64], torch_error: float, most: float) -> Check:
    """Whether the RMS of relative errors is at most `most`, where PyTorch's own is `torch_error`."""
    found = rms(errors)
    ok = found <= most < np.inf
    why = f"RMS error {found:.2e}, more than {most:.2e}" if most < np.inf else "PyTorch's own error is not finite"
    return Check(
        kind=kind,
        subject=subject,
        ok=ok,
        note="" if ok else why,
        error=found,
        torch_error=torch_error,
        limit=most,
        largest=float(np.abs(errors).max()),
    )


def _log_softmax(logits: NDArray[np.generic]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
