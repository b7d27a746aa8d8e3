"""Coverage of the proof: far positions, many rows, every token. Both runtimes refuse a defect that only shows there."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper

from contracts.subjects import randomized
from export.planted import (
    Edit,
    clamp_positions_at_300,
    edit_graph,
    failed,
    proven,
    read_in_place_of,
    scale_rows_past_the_fifth,
    shift_positions_from_64,
    stale_cache_past_300,
    with_channel_times,
    with_logits_times,
    with_logits_times_where,
    with_window,
)
from export.test_encoder_bundles import SOURCE, WRITING, exported
from export.toys import TOKENIZER, Export, Shared, export_toy, toy
from seqlab.attention import Attention, SlidingWindow
from seqlab.models import DecoderLM
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import Learned, RoPE
from seqlab_export.proof.golden import write_golden
from seqlab_export.runner.cases import batches, calls, cases, long_cases, one_call_lengths, passes
from seqlab_export.runner.manifest import load_manifest


@pytest.fixture(scope="module", name="far")
def _far(export: Export) -> Path:
    """A layer that attends to all, one to a window of 128."""
    return export([Attention, partial(Attention, pattern=partial(SlidingWindow, 128))], RoPE).folder


@pytest.fixture(name="copy")
def _copy(far: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(far, tmp_path / "bundle"))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.onnx", pytest.param("step.onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "edit",
    [
        shift_positions_from_64,
        clamp_positions_at_300,
        stale_cache_past_300,
        with_window(127),
        with_window(65),
        with_window(2**20),
    ],
    ids=lambda edit: edit.__name__,
)
def test_a_defect_at_far_positions_is_found(file: str, edit: Edit, copy: Path) -> None:
    edit_graph(copy, file, edit)
    assert failed(copy) == {"long"}


WRONG_SIZES = [
    ("model.onnx", with_logits_times_where(1, "Equal", 65), {"long"}),
    ("model.onnx", with_logits_times_where(1, "Greater", 128), {"long"}),
    ("model.onnx", with_logits_times_where(1, "Greater", 300), {"long"}),
    ("model.onnx", with_logits_times_where(1, "Equal", 1024), {"long"}),
    ("model.onnx", with_logits_times_where(0, "Equal", 3), {"prefill", "chunks"}),
    ("model.onnx", with_logits_times_where(0, "Equal", 10), {"prefill", "chunks"}),
    ("model.onnx", with_logits_times_where(0, "Equal", 33), {"prefill", "chunks"}),
    ("step.onnx", with_logits_times_where(0, "Equal", 4), {"step"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "edit", "expected"), WRONG_SIZES, ids=lambda value: getattr(value, "__name__", None))
def test_a_defect_at_one_length_or_batch_is_found(
    file: str, edit: Edit, expected: set[str], shared: Shared, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(shared("gru").folder, tmp_path / "bundle"))
    edit_graph(folder, file, edit)
    assert failed(folder) == expected


@pytest.mark.parametrize(
    "edit", [with_logits_times_where(1, "Equal", 100), with_logits_times_where(0, "Equal", 7)], ids=["100", "7"]
)
def test_a_length_or_batch_that_is_not_read_is_not_reached(edit: Edit, shared: Shared, tmp_path: Path) -> None:
    """docs/bundle.md says so in its table."""
    folder = Path(shutil.copytree(shared("gru").folder, tmp_path / "bundle"))
    edit_graph(folder, "model.onnx", edit)
    assert not failed(folder)


def test_lengths_of_one_call_stand_around_powers_of_two_and_the_longest() -> None:
    lengths = one_call_lengths(None)
    assert {15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024} <= {*lengths}
    assert one_call_lengths(300)[-3:] == [257, 299, 300] and one_call_lengths(1) == [1]
    assert one_call_lengths(300, first_call=200) == [255, 256, 257, 299, 300]


@pytest.mark.parametrize("size", [1, 3, 9, 10, 16, 33])
def test_each_place_of_a_batch_is_looked_at(size: int) -> None:
    read = np.concatenate(batches(10, size))
    looked_at = passes(10, size)
    assert {*np.concatenate(looked_at).tolist()} == {*range(len(read))}
    for places in looked_at:
        assert read[places].tolist() == [*range(10)]


@pytest.fixture(scope="module", name="of_a_source")
def _of_a_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer that reads a source and writes a target, and its debug twin."""
    folder = tmp_path_factory.mktemp("source") / "bundle"
    exported(randomized(WRITING["transformer"]()).float().eval(), folder, source_tokenizer=SOURCE, taps=["state"])
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_step_that_forgets_the_mask_of_its_source_is_found(of_a_source: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(of_a_source, tmp_path / "bundle"))
    [mask] = [entry.name for entry in load_manifest(folder).state if entry.name.endswith("memory_mask")]

    def forget(model: ModelProto) -> None:
        nodes = [helper.make_node("Not", [f"state_{mask}"], ["pads"])]
        nodes.append(helper.make_node("Or", [f"state_{mask}", "pads"], ["all_real"]))
        read_in_place_of(model, f"state_{mask}", nodes, "all_real")

    edit_graph(folder, "step.onnx", forget)
    assert failed(folder) == {"step", "long"}


@pytest.mark.slow
def test_a_head_that_is_a_little_wrong_in_the_step_alone_is_found(of_a_source: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(of_a_source, tmp_path / "bundle"))
    edit_graph(folder, "step.onnx", with_logits_times(1.0005))
    assert failed(folder) == {"step", "long"}


@pytest.mark.slow
def test_taps_of_another_layer_are_found(of_a_source: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(of_a_source, tmp_path / "bundle"))

    def swap(model: ModelProto) -> None:
        first, second, *_ = [output for output in model.graph.output if output.name.startswith("state.")]
        names = {first.name: second.name, second.name: first.name}
        for node in model.graph.node:
            for values in (node.input, node.output):
                values[:] = [names.get(value, value) for value in values]

    edit_graph(folder, "taps.onnx", swap)
    assert failed(folder) == {"twin"}


@pytest.mark.slow
def test_a_defect_in_rows_past_the_fifth_is_found(copy: Path) -> None:
    edit_graph(copy, "model.onnx", scale_rows_past_the_fifth)
    assert failed(copy) == {"prefill", "chunks"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file"), [("attention", "model.onnx"), ("gru", "step.onnx")])
def test_an_error_of_three_times_the_limit_is_found(name: str, file: str, shared: Shared, tmp_path: Path) -> None:
    """Keeps the limit from being loosened tenfold. The errors of a good bundle are under 5e-7."""
    folder = Path(shutil.copytree(shared(name).folder, tmp_path / "bundle"))
    edit_graph(folder, file, with_logits_times(1 + 1.5e-6))
    expected = {"model.onnx": {"prefill", "chunks", "long"}, "step.onnx": {"step"}}[file]
    report = proven(folder)
    assert {check.kind for check in report.failures} >= expected
    nearest = min(check.error / check.limit for check in report.failures if check.error and check.limit)
    assert 1 < nearest < 5


@pytest.fixture(scope="module", name="wide")
def _wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundle with the widest budget: sums have many terms."""
    folder = tmp_path_factory.mktemp("wide") / "bundle"
    block = partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=1024))
    model = DecoderLM(
        TOKENIZER.vocab_size, 8, d_model=512, num_layers=1, mixer=Attention, positions=Learned, block=block
    )
    export_toy(model.eval(), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("edit", [with_logits_times(1 + 2.5e-6), with_channel_times(1 + 6e-5, 512)])
def test_a_small_error_of_a_wide_model_is_found(edit: Edit, wide: Path, tmp_path: Path) -> None:
    """Each is about twice what may pass."""
    folder = Path(shutil.copytree(wide, tmp_path / "bundle"))
    edit_graph(folder, "model.onnx", edit)
    assert {check.kind for check in proven(folder).failures} >= {"prefill", "chunks"}


def test_long_texts_reach_the_models_limit_or_1024_positions() -> None:
    assert [name for name, _ in long_cases(None)] == [name for name, _ in long_cases(5000)] == ["length 1024"]
    assert [name for name, _ in long_cases(300)] == ["length 300"] and not [*long_cases(64)]
    for longest in (70, 300, 1024):
        [(_, pad_mask)] = long_cases(longest)
        for first_call in (7, 200):
            pieces = calls("long", pad_mask, first_call)
            assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
            assert pieces[0].start == 0 and pieces[-1].stop == longest and len(pieces) <= 25
            assert pad_mask[:, pieces[0]].sum(axis=1).min() >= min(first_call, pad_mask.sum(axis=1).min())
            assert first_call > 7 or sum(piece.stop - piece.start == 1 for piece in pieces) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size", [11, 1000, 2500])
def test_every_token_is_read(vocab_size: int, tmp_path: Path) -> None:
    model = toy(Attention, RoPE, 1)
    model.vocab_size = vocab_size
    model.embedding = torch.nn.Embedding(vocab_size, 16)
    write_golden(model.eval(), tmp_path / "golden.npz")
    with np.load(tmp_path / "golden.npz") as golden:
        masks = dict(cases(None)) | dict(long_cases(None))
        read = [golden[f"{case}/tokens"][mask] for case, mask in masks.items()]
    assert set(range(vocab_size)) == set(np.concatenate(read).tolist())
    assert read[0].max() == vocab_size - 1
