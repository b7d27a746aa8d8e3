"""Comparison of a runtime with a golden file. Does not need PyTorch.

R rows, T new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from seqlab.files.phases import counted
from seqlab_export.runner.cases import (
    PROOF,
    Arrays,
    batches,
    calls,
    cases,
    cells,
    encoder_cases,
    groups,
    limit,
    long_cases,
    numbers_of,
    numbers_of_call,
    one_call_lengths,
    passes,
    relative_errors,
    rms,
    scored_in_call,
    select,
    select_call,
    select_calls,
    select_outputs,
)
from seqlab_export.runner.divergence import divergence
from seqlab_export.runner.golden_file import array_of
from seqlab_export.runner.greedy import GreedyTrace, judge, trace
from seqlab_export.runner.manifest import BundleError, GraphInfo, Manifest
from seqlab_export.runner.report import Check

FORMS = tuple(PROOF["form_parts"])
"""Ways of dividing tokens into calls; see `cases.calls`."""


class Runtime(Protocol):
    """Runtime that computes a model's forms. Its states are opaque, except that `read` returns them as arrays."""

    def encode(self, inputs: NDArray[np.generic], pad_mask: NDArray[np.bool_], /) -> Arrays:
        """Outputs of an encoder by graph output name, for inputs (B, T) or (B, T, F) and pad_mask (B, T)."""

    def begin(self, source: NDArray[np.generic], source_mask: NDArray[np.bool_], /) -> Runtime:
        """The decoder that has read source (B, M), source_mask (B, M)."""

    def init_state(self, batch_size: int, /) -> Mapping[str, Any]:
        """A decoder's state before the first token, by graph input name."""

    def read(
        self,
        graph: Literal["model", "step"],
        tokens: NDArray[np.int64],
        pad_mask: NDArray[np.bool_],
        state: Any,
        scored: NDArray[np.int64] | None = None,
        /,
    ) -> tuple[NDArray[np.floating], Mapping[str, NDArray[np.generic]]]:
        """tokens and pad_mask (B, T), T = 1 for "step", to the logits (B, K, V) at the positions scored (K,), None =
        all, and the new state."""


class Proof:
    """The checks of a runtime against the golden file of a bundle.

    Args:
        batch_sizes: batch sizes in which every case is read; None = those of `cells`.
        forms: subset of `FORMS`; "long" includes the texts of `one_call_lengths`, for encoders too.
    """

    def __init__(
        self,
        runtime: Runtime,
        manifest: Manifest,
        golden: Arrays,
        *,
        batch_sizes: Sequence[int] | None = None,
        forms: Sequence[str] = FORMS,
    ) -> None:
        self.runtime = runtime
        self.batch_sizes, self.forms = batch_sizes, forms
        self.manifest = manifest
        self.golden = golden
        encoder = manifest.encoder
        self.reduced = manifest.proof == "reduced"
        longest = manifest.max_source_len
        self.masks = {} if encoder is None else dict(encoder_cases(encoder, longest, reduced=self.reduced))

    def values(self) -> Iterator[Check]:
        """One check for each group of outputs in each cell: a batch size and a case, or a length read in one call."""
        encoder, model, longest = self.manifest.encoder, self.manifest.model, self.manifest.max_seq_len
        if encoder is not None:
            for batch_size, case in counted("proof: encoder", [*self._cells(self.masks, self.manifest.max_source_len)]):
                cell = f"batch {batch_size}, {case.removeprefix('encoder/')}"
                yield from self._cell("encoder", cell, encoder, case, self.masks[case], batch_size)
            if "long" in self.forms:
                lengths = one_call_lengths(self.manifest.max_source_len, reduced=self.reduced)
                yield from self._lengths("encoder", encoder, lengths)
        if model is not None:
            masks = dict(cases(longest, reduced=self.reduced))
            for form in [form for form in self.forms if form != "long"]:
                for batch_size, case in counted(f"proof: {form}", [*self._cells(masks, longest)]):
                    yield from self._cell(form, f"batch {batch_size}, {case}", model, case, masks[case], batch_size)
            if "long" in self.forms:
                for case, pad_mask in counted("proof: long texts", [*long_cases(longest, reduced=self.reduced)]):
                    yield from self._cell("long", case, model, case, pad_mask, len(pad_mask))
                lengths = one_call_lengths(longest, self.manifest.first_call, reduced=self.reduced)
                yield from self._lengths("long", model, lengths)

    def _cells(self, masks: Mapping[str, NDArray[np.bool_]], longest: int | None) -> Iterator[tuple[int, str]]:
        """Pairs of a batch size and a case that is read in it."""
        if self.batch_sizes is None:
            return cells(masks, longest, reduced=self.reduced)
        return product(self.batch_sizes, masks)

    def greedy(self) -> Iterator[Check]:
        """One check for each prompt: the logits of its tokens, and the tokens."""
        tokens = self._array("greedy/tokens", None, None).astype(np.int64)
        likeliest = self._array("greedy/likeliest", *tokens.shape, None)
        logits = self._array("greedy/logits", *likeliest.shape).astype(np.float64)
        if likeliest.shape[2] < 2 or likeliest.min() < 0 or likeliest.max() >= (self.manifest.vocab_size or 0):
            raise BundleError("greedy/likeliest of the golden file holds no two tokens of the vocabulary")
        expected = GreedyTrace(tokens, logits)
        prompts = [self._array(f"greedy/prompt_{row}", None).tolist() for row in range(len(tokens))]
        decoder: Any = self._started("greedy", np.arange(len(prompts)))
        actual = trace(decoder, prompts, tokens.shape[1])
        torch_error = self._torch_error("greedy", "logits")
        most = limit(torch_error, self.manifest.precision)
        for row, (errors, ok, note) in enumerate(judge(actual, expected, likeliest)):
            check = judged("greedy", f"prompt {row}", errors / (rms(logits) or 1.0), torch_error, most)
            yield replace(check, ok=check.ok and ok, note="; ".join(filter(None, (check.note, note))))

    def distribution(self) -> dict[str, float] | None:
        """Summary of `divergence`: mean `kl`, 99th percentile `kl_p99`, and the fraction `top1` of positions with the
        same most likely choice. None if the logits do not define one categorical distribution."""
        if "whole/logits" not in self.golden:
            return None
        kl, same = self.divergence()
        return {"kl": float(kl.mean()), "kl_p99": float(np.quantile(kl, 0.99)), "top1": float(same.mean())}

    def divergence(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The Kullback-Leibler divergence in nats of the runtime's distribution from the reference's, and whether both
        have the same most likely token or class, at each position where the golden file has all logits."""
        inputs = self._array("whole/inputs", None, None)
        expected = self._array("whole/logits", len(inputs))
        pad_mask = np.ones(inputs.shape[:2], dtype=np.bool_)
        if self.manifest.model is None:
            logits = self.runtime.encode(inputs, pad_mask)["logits"]
        else:
            runtime = self._started("whole", np.arange(len(inputs)))
            tokens = inputs.astype(np.int64)
            logits, _ = runtime.read("model", tokens, pad_mask, runtime.init_state(len(tokens)))
        if logits.shape != expected.shape:
            raise BundleError(f"the logits have shape {logits.shape}, those of the golden file {expected.shape}")
        return divergence(expected, logits)

    def _cell(
        self, kind: str, cell: str, graph: GraphInfo, case: str, pad_mask: NDArray[np.bool_], batch_size: int
    ) -> Iterator[Check]:
        if f"{case}/{graph.outputs[0].name}" not in self.golden:
            yield Check(kind=kind, subject=cell, ok=False, note="the golden file does not have it")
            return
        read: Callable[..., Arrays] = self._encode if kind == "encoder" else self._decode
        num_rows = len(pad_mask)
        try:
            found = [read(kind, case, pad_mask, rows) for rows in batches(num_rows, batch_size)]
            whole = {output.name: _joined([batch[output.name] for batch in found]) for output in graph.outputs}
            actual = [
                whole
                | {
                    output.name: select(whole[output.name][places], output, pad_mask, numbers_of(output, graph))
                    for output in graph.outputs
                    if kind != "long" or output.name != "logits"
                }
                for places in passes(num_rows, batch_size)
            ]
        except Exception as failure:
            yield Check(kind=kind, subject=cell, ok=False, note=f"the runtime failed: {failure}")
            return
        for group, names in groups(graph).items():
            yield self._check(kind, f"{cell}, {group}", actual, case, group, names)

    def _lengths(self, kind: str, graph: GraphInfo, lengths: list[int]) -> Iterator[Check]:
        """One check for each group of outputs and each length of a text that is read in one call. A decoder's state is
        judged by the logits of the following step."""
        case = "encoder/one call" if kind == "encoder" else "one call"
        judged_together = groups(graph) if kind == "encoder" else {"logits": ["logits"]}
        if f"{case}/{graph.outputs[0].name}" not in self.golden:
            yield Check(kind=kind, subject="in one call", ok=False, note="the golden file does not have it")
            return
        given = self._array(f"{case}/{'inputs' if kind == 'encoder' else 'tokens'}", 1, lengths[-1])
        names = [name for together in judged_together.values() for name in together]
        expected, begins = {name: self._array(f"{case}/{name}") for name in names}, dict.fromkeys(names, 0)
        for length in counted("proof: lengths in one call", lengths):
            subject = f"length {length} in one call"
            try:
                if kind == "encoder":
                    actual = self._encoded_in_one_call(given[:, :length], graph, len(lengths))
                else:
                    actual = self._decoded_in_one_call(given.astype(np.int64), length, len(lengths))
            except Exception as failure:
                yield Check(kind=kind, subject=subject, ok=False, note=f"the runtime failed: {failure}")
                return
            for group, together in judged_together.items():
                errors = []
                for name in together:
                    theirs = expected[name][begins[name] : begins[name] + actual[name].size]
                    begins[name] += actual[name].size
                    if theirs.shape != actual[name].shape:
                        raise BundleError(f"{case}/{name} of the golden file ends before its length {length}")
                    errors.append((actual[name].astype(np.float64) - theirs) / (rms(expected[name]) or 1.0))
                torch_error = self._torch_error(case, group)
                most = 0.0 if group == "counters" else limit(torch_error, self.manifest.precision)
                yield judged(kind, f"{subject}, {group}", np.concatenate(errors), torch_error, most)

    def _encoded_in_one_call(self, inputs: NDArray[np.generic], graph: GraphInfo, num_lengths: int) -> Arrays:
        pad_mask = np.ones(inputs.shape[:2], dtype=np.bool_)
        return select_outputs(self.runtime.encode(inputs, pad_mask), graph, pad_mask, num_lengths)

    def _decoded_in_one_call(self, tokens: NDArray[np.int64], length: int, num_lengths: int) -> Arrays:
        pad_mask, most = np.ones(tokens.shape, dtype=np.bool_), numbers_of_call(num_lengths)
        positions, places = scored_in_call(length, self.manifest.vocab_size or 0, most)
        runtime = self._started("one call", np.arange(1))
        text = tokens[:, :length], pad_mask[:, :length]
        logits, state = runtime.read("model", *text, runtime.init_state(1), positions)
        following: NDArray[np.floating] = logits[:, :0]
        if length < tokens.shape[1]:
            after = slice(length, length + 1)
            following, _ = runtime.read("step", tokens[:, after], pad_mask[:, after], state)
        return {"logits": select_call(logits, places, following, most)}

    def _encode(self, kind: str, case: str, pad_mask: NDArray[np.bool_], rows: NDArray[np.intp]) -> Arrays:
        return self.runtime.encode(self._array(f"{case}/inputs", *pad_mask.shape)[rows], pad_mask[rows])

    def _decode(self, kind: str, case: str, pad_mask: NDArray[np.bool_], rows: NDArray[np.intp]) -> Arrays:
        """Outputs by name after reading these rows of a case's tokens, in one of `FORMS`; for "long", the logits are
        reduced by `select_calls`."""
        tokens = self._array(f"{case}/tokens", *pad_mask.shape).astype(np.int64)[rows]
        runtime = self._started(case, rows)
        state: Mapping[str, Any] = runtime.init_state(len(tokens))
        pieces = calls(kind, pad_mask, self.manifest.first_call)

        def read() -> Iterator[NDArray[np.floating]]:
            nonlocal state
            for piece in pieces:
                steps = kind in ("step", "long") and piece.stop - piece.start == 1
                logits, state = runtime.read(
                    "step" if steps else "model", tokens[:, piece], pad_mask[rows][:, piece], state
                )
                yield logits

        if kind == "long":
            assert self.manifest.model is not None
            logits = select_calls(read(), pieces, self.manifest.model, pad_mask[rows])
        else:
            logits = np.concatenate([*read()], axis=1)
        return {"logits": logits} | {f"new_{name}": entry for name, entry in state.items()}

    def _started(self, case: str, rows: NDArray[np.intp]) -> Runtime:
        """The decoder after reading these rows of the case's source, if it has one."""
        if not self.masks:
            return self.runtime
        source = str(self.golden.get(f"{case}/source"))
        if source not in self.masks:
            raise BundleError(f"the golden file names a source {source!r}, which is no case")
        mask = self.masks[source]
        return self.runtime.begin(self._array(f"{source}/inputs", *mask.shape)[rows], mask[rows])

    def _array(self, name: str, *shape: int | None) -> NDArray[Any]:
        return array_of(self.golden, name, *shape)

    def _torch_error(self, case: str, group: str) -> float:
        numbers = self._array(f"{case}/torch/{group}").ravel()
        return float(numbers[0]) if numbers.size else float("nan")

    def _check(
        self, kind: str, subject: str, found: Sequence[Arrays], case: str, group: str, names: list[str]
    ) -> Check:
        """Check of one group of outputs; `names` are the outputs of that group in `cases.groups`."""
        expected = {name: self._array(f"{case}/{name}") for name in names}
        shapes = [(actual[name].shape, expected[name].shape) for actual in found for name in names]
        if any(ours != theirs for ours, theirs in shapes):
            return Check(kind=kind, subject=subject, ok=False, note=f"the shapes and what they should be: {shapes}")
        torch_error = self._torch_error(case, group)
        most = 0.0 if group == "counters" else limit(torch_error, self.manifest.precision)
        errors = np.concatenate([relative_errors(actual, expected, names) for actual in found])
        return judged(kind, subject, errors, torch_error, most)


def _joined(batches: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return batches[0] if len(batches) == 1 else np.concatenate(batches)


def judged(kind: str, subject: str, errors: NDArray[np.float64], torch_error: float, most: float) -> Check:
    """Check that the RMS of relative errors is at most `most`; `torch_error` is PyTorch's own error, for the report."""
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
