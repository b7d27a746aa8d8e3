"""The proof can fail: each defect, planted in a bundle that was good, is found by Python and C++."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

from export.planted import (
    Edit,
    edit_graph,
    failed,
    flip,
    pads_as_real,
    prove_less,
    proven,
    reading,
    rename,
    start_elsewhere,
    with_golden,
)
from runtime.conftest import Copy
from runtime.programs import refusal
from seqlab_export.runner.greedy import GreedyTrace, judge
from seqlab_export.runner.manifest import BundleError
from seqlab_export.runner.verify import verify_bundle

Spoil = Callable[[Path], object]


start_one_later = reading("start_one_later", "state_position", "later = Add (state_position, one)", one=1)

align_the_past_wrongly = reading(
    "keys_one_place_after_their_values",
    "state_0_k",
    """
    newest = Slice (state_0_k, last, end, time) older = Slice (state_0_k, zero, last, time)
    late_keys = Concat <axis = 2> (newest, older)
    """,
    zero=[0],
    last=[-1],
    end=[2**62],
    time=[2],
)

score_from_the_first_position = reading(
    "scored_from_the_first",
    "scored",
    "first = ReduceMin <keepdims = 1> (scored) from_first = Sub (scored, first)",
)


def swap_outputs(model: ModelProto) -> None:
    rename(model, {"new_state_0_k": "new_state_0_v", "new_state_0_v": "new_state_0_k"})


def forget_lengths(model: ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "GRU":
            node.input[4] = ""


def with_attribute(op_type: str, name: str, value: float) -> Edit:
    def edit(model: ModelProto) -> None:
        for node in model.graph.node:
            if node.op_type == op_type:
                kept = [attribute for attribute in node.attribute if attribute.name != name]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute(name, value)])

    edit.__name__ = f"{name}_of_{value}"
    return edit


def freeze_length(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 16


def give_another_output(model: ModelProto) -> None:
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[-1].name = "more"
    model.graph.node.append(helper.make_node("Identity", ["logits"], ["more"]))


WHOLE, STEP = {"prefill", "chunks", "long"}, {"step", "long"}
GRAPH_DEFECTS: list[tuple[str, str, Edit, set[str]]] = [
    ("attention", "model.onnx", pads_as_real("pad_mask"), WHOLE),
    ("attention", "step.onnx", pads_as_real("pad_mask"), STEP),
    ("attention", "model.onnx", pads_as_real("state_key_mask"), {"chunks", "long"}),
    ("attention", "step.onnx", start_one_later, STEP),
    ("attention", "model.onnx", start_one_later, WHOLE),
    ("attention", "model.onnx", align_the_past_wrongly, {"chunks", "long"}),
    ("attention", "step.onnx", align_the_past_wrongly, STEP),
    ("attention", "model.onnx", swap_outputs, WHOLE),
    ("attention", "model.onnx", with_attribute("Attention", "scale", 0.51), WHOLE),
    ("attention", "model.onnx", with_attribute("LayerNormalization", "epsilon", 2e-5), WHOLE),
    ("attention", "model.onnx", freeze_length, {"signature"}),
    ("gru", "model.onnx", give_another_output, {"signature"}),
    ("attention", "model.onnx", score_from_the_first_position, {"greedy"}),
    ("gru", "model.onnx", with_attribute("GRU", "linear_before_reset", 0), WHOLE),
    ("gru", "model.onnx", forget_lengths, WHOLE),
    ("gru", "step.onnx", pads_as_real("pad_mask"), STEP),
]
"""A bundle, the graph of it that is spoilt, how, and the kinds of checks that fail then."""


@pytest.mark.parametrize(
    ("name", "file", "edit", "expected"), GRAPH_DEFECTS, ids=lambda value: value.__name__ if callable(value) else None
)
def test_a_wrong_graph_is_found(copy: Copy, name: str, file: str, edit: Edit, expected: set[str]) -> None:
    folder = copy(name)
    edit_graph(folder, file, edit)
    assert failed(folder) == expected


def link_out(path: Path) -> None:
    outside = next(parent for parent in path.parents if parent.name == "bundle").with_name(path.name)
    path.rename(outside)
    path.symlink_to(outside)


def add(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("more")


def edit_manifest(path: Path) -> None:
    path.write_text(path.read_text().replace('"initial": 0.0', '"initial": 0.5'))


TOKENIZER, UNLISTED = "tokenizer/tokenizer.json", "the manifest does not list it"
DAMAGES: list[tuple[Spoil, list[str], str]] = [
    (flip, ["model.onnx", "step.onnx", "weights.bin", "golden.npz", TOKENIZER], "its sha256 is not the manifest's"),
    (Path.unlink, ["step.onnx", "weights.bin", TOKENIZER, "manifest.sha256"], "it is missing"),
    (link_out, ["weights.bin", TOKENIZER, "manifest.sha256"], "it is a link out of the bundle"),
    (edit_manifest, ["manifest.json"], "its sha256 is not the one in manifest.sha256"),
    (add, ["notes.txt", "tokenizer/more.json", "other/weights.bin"], UNLISTED),
    (lambda path: path.symlink_to("step.onnx"), ["link"], UNLISTED),
]


@pytest.mark.parametrize(
    ("spoil", "name", "note"), [(spoil, name, note) for spoil, names, note in DAMAGES for name in names]
)
def test_a_damaged_file_is_found(spoil: Spoil, name: str, note: str, copy: Copy) -> None:
    folder = copy("gru")
    spoil(folder / name)
    assert failed(folder) == {"files"}
    assert [(check.subject, check.note) for check in verify_bundle(folder).failures] == [(name, note)]
    assert f"{folder} is not as it was written: {name}: {note}" == refusal("info", folder)


@pytest.mark.parametrize(
    ("spoil", "python", "cpp"),
    [
        *(
            (lambda path, end=end: path.write_bytes(path.read_bytes()[:end]), " is not JSON", ": it is not JSON, at")
            for end in (0, 100, -3)
        ),
        (link_out, ": it is a link out of the bundle", ": it is a link out of the bundle"),
        (Path.unlink, "is not a bundle: it has no manifest.json", "is not a bundle: it has no manifest.json"),
    ],
)
def test_no_manifest_or_a_damaged_one_is_refused(spoil: Spoil, python: str, cpp: str, copy: Copy) -> None:
    folder = copy("gru")
    spoil(folder / "manifest.json")
    with pytest.raises(BundleError, match=python):
        verify_bundle(folder)
    assert cpp in refusal("verify", folder)


def test_a_wrong_start_of_the_state_is_found(copy: Copy) -> None:
    start_elsewhere(folder := copy("gru"))
    assert failed(folder) == {"prefill", "chunks", "step", "long"}


WRONG_GREEDY = {
    "logits": with_golden("greedy/logits", change=lambda logits: logits * (1 + 1e-5)),
    "token": with_golden("greedy/tokens", change=lambda tokens: tokens + (np.arange(tokens.size) == 20).reshape(2, -1)),
}
"""Changes of the greedy text of two prompts, whose limit is 4.8e-7."""


@pytest.mark.parametrize("spoil", WRONG_GREEDY.values(), ids=WRONG_GREEDY.keys())
def test_greedy_text_of_other_logits_or_tokens_is_found(spoil: Spoil, copy: Copy) -> None:
    spoil(folder := copy("gru"))
    assert failed(folder) == {"greedy"}


@pytest.mark.parametrize(("error", "passes"), [(0.249, False), (0.251, True)])
def test_another_greedy_token_passes_if_the_errors_of_the_logits_exceed_half_of_the_margin(
    error: float, passes: bool
) -> None:
    expected = GreedyTrace(np.array([[0]]), np.array([[[1.0, 0.5]]]))
    actual = GreedyTrace(np.array([[2]]), np.array([[[1.0 - error, 0.5 + error, 2.0]]]))
    [(errors, ok, note)] = judge(actual, expected, np.array([[[0, 1]]]))
    assert ok is passes and note.startswith("differs from token 0 on, where the float64 margin is 5.00e-01")
    np.testing.assert_allclose(errors, [[-error, error]])


def test_a_golden_file_that_proves_less_is_found(copy: Copy) -> None:
    prove_less(folder := copy("gru"))
    assert {check.subject for check in proven(folder).failures} == {f"batch {size}, length 17" for size in (1, 2, 9)}
