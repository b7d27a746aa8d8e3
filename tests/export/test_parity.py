"""A bundle computes what its model does, with every mixer and every encoding, in a precision for a target."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from contracts.cases import CAUSAL_PAIRS, MixerCase, PositionCase, pair_name
from export.toys import Export, Exported
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import Learned, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN, RWKV7
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TARGETS
from seqlab_export.reports import conformance
from tolerances import TOLERANCE, assert_close

Pair = tuple[MixerCase, PositionCase]
COVERED = {
    *("attention-multi-query", "attention-window", "attention-query-key-norm", "attention-sink"),
    *("attention-output-gate", "differential", "gru-stacked", "rnn", "min-gru-wide", "causal-conv", "retention-conv"),
    *("gated-linear-conv", "delta-net", "mamba2"),
    *("integer-concatenated", "binary-concatenated", "sinusoidal-concatenated"),
}
"""Mixers and encodings whose every part is one of another's."""
PAIRS = [
    (mixer, positions)
    for mixer, positions in CAUSAL_PAIRS
    if mixer.name == "attention-grouped" or positions.name == ("rope" if mixer.attends else "none")
    if not {mixer.name, positions.name} & COVERED
]
"""Each mixer with one encoding, one with each; docs/conformance.md measures all pairs."""


def check_another_shape(model: DecoderLM, folder: Path) -> None:
    """Compares onnxruntime with PyTorch for a batch and lengths that no proof has, from a non-empty state.

    Rows: unpadded, padded on the left, on the right, and all pad.
    """
    tokens, pad_mask = torch.randint(model.vocab_size, (4, 29)), torch.ones(4, 29, dtype=torch.bool)
    pad_mask[1, :20], pad_mask[2, 11:], pad_mask[3] = False, False, False
    with torch.no_grad():
        _, state = model(torch.randint(model.vocab_size, (4, 23)))
        logits, new_state = model(tokens, state, pad_mask=pad_mask)
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"tokens": tokens.numpy(), "pad_mask": pad_mask.numpy(), "scored": np.arange(29)[::-1]}
    feeds |= {f"state_{name}": entry.numpy() for name, entry in state.items()}
    names = ["logits", *(f"new_state_{name}" for name in new_state)]
    found = session.run(names, feeds)
    expected = [logits.numpy(), *(entry.numpy() for entry in new_state.values())]
    real = pad_mask.numpy()
    found[0], expected[0] = found[0][:, ::-1][real], expected[0][real]  # positions are scored in any order
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(torch.from_numpy(ours), torch.from_numpy(theirs), tolerance=TOLERANCE[torch.float32])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=pair_name)
def test_onnxruntime_computes_what_the_model_does(pair: Pair, export: Export) -> None:
    mixer, positions = pair
    exported = export(mixer.factory, positions.factory, num_layers=1)
    check_report(exported)
    check_declared(exported)
    check_another_shape(exported.model, exported.folder)


def check_report(exported: Exported) -> None:
    """Every batch size with every length, padded or not, in each way of reading."""
    assert exported.report.ok
    cells = {(check.kind, check.subject) for check in exported.report.checks}
    for kind in ("prefill", "chunks", "step"):
        for batch_size in (1, 2, 9):
            for length in (1, 2, 16, 17, 64):
                for padding in ["", ", padded"] if length > 1 else [""]:
                    for group in ("logits", "state", "counters"):
                        assert (kind, f"batch {batch_size}, length {length}{padding}, {group}") in cells
    assert {"files", "signature", "greedy"} <= {kind for kind, _ in cells}
    # Rounding is never nothing: a report of zeros would be one of nothing compared.
    measured = [check for check in exported.report.checks if check.error is not None]
    assert all(check.error and check.torch_error for check in measured if check.subject.endswith("logits"))


def check_declared(exported: Exported) -> None:
    """The files say what DESIGN says, with no length frozen and one signature for both graphs."""
    declared = []
    for name, length, scored, longer in (("model.onnx", "T", "K", "S+T"), ("step.onnx", 1, 1, "S+1")):
        graph = onnx.load(exported.folder / name, load_external_data=False).graph
        inputs, outputs = ([(v.name, *dims(v)) for v in values] for values in (graph.input, graph.output))
        assert inputs[:2] == [("tokens", "B", length), ("pad_mask", "B", length)]
        assert outputs[0] == ("logits", "B", scored, exported.model.vocab_size)
        if name == "model.onnx":
            assert inputs.pop() == ("scored", "K")
            graph.input.pop()
        state = [f"state_{entry}" for entry in exported.model.init_state(1)]
        assert [entry[0] for entry in inputs[2:]] == state
        assert outputs[1:] == [
            (f"new_{entry[0]}", *(longer if dim == "S" else dim for dim in entry[1:])) for entry in inputs[2:]
        ]
        declared.append((inputs[2:], [v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)]))
    assert declared[0] == declared[1]


def dims(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.slow
def test_a_stack_of_different_mixers(export: Export) -> None:
    exported = export([Attention, GRU, LSTM, RNN], Sinusoidal, num_layers=4)
    check_declared(exported)
    check_another_shape(exported.model, exported.folder)
    graph = onnx.load(exported.folder / "model.onnx", load_external_data=False).graph
    nodes = Counter(node.op_type for node in graph.node)
    assert [nodes[name] for name in ("Attention", "GRU", "LSTM", "RNN", "Loop", "Scan")] == [1, 1, 1, 1, 0, 0]


MIXERS = {name: mixer for name, mixer in conformance.all_mixers().items() if not name.startswith("Attention, ")}
MIXERS["RWKV7"] = partial(RWKV7, head_dim=conformance.D_MODEL // 2)
PRECISIONS, BUILT_FOR = get_args(Precision), [*TARGETS]


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_is_exported_in_every_precision_and_for_every_target(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one process, in any order: an export may leave something behind that the next one meets. Mixers take turns,
    so that each precision meets each target."""
    monkeypatch.setattr(conformance, "MAX_SEQ_LEN", 16)
    turn = [*MIXERS].index(name)
    for place in torch.randperm(len(PRECISIONS)).tolist():
        precision, target = PRECISIONS[place], BUILT_FOR[(turn + place) % len(BUILT_FOR)]
        model = conformance.model_of(MIXERS[name], Learned)
        options: dict[str, Any] = {"seq_len": 16, "precision": precision, "target": target}
        if (precision, target) == ("int8", "cuda-graph"):
            with pytest.raises(ValueError, match="int8 is for a CPU"):
                export_bundle(model, conformance.TOKENIZER, tmp_path / f"{place}", **options)
            continue
        report = export_bundle(model, conformance.TOKENIZER, tmp_path / f"{place}", **options)
        assert report.ok, (name, precision, target)
