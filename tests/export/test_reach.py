"""Coverage of the proof: far positions, many rows, every token. Both runtimes refuse a defect that only shows there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto

from contracts.subjects import randomized
from export import planted
from export.planted import Edit, copy_of, edit_graph, failed, proven
from export.test_encoder_bundles import SOURCE, WRITING, exported
from export.toys import TOKENIZER, Export, Shared, export_toy, toy
from once import once
from seqlab.attention import Attention, SlidingWindow
from seqlab.models import DecoderLM
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import Learned, RoPE
from seqlab_export.capture.plan import plan_export
from seqlab_export.proof.golden import write_golden
from seqlab_export.runner.cases import batches, calls, cases, long_cases, one_call_lengths, passes

slow = pytest.mark.slow
Copy = Callable[[str], Path]


def of_a_source(folder: Path) -> None:
    exported(randomized(WRITING["transformer"]()).float().eval(), folder, source_tokenizer=SOURCE, taps=["state"])


def wide(folder: Path) -> None:
    """The widest budget: sums have many terms."""
    block = partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=1024))
    options = {"d_model": 512, "num_layers": 1, "mixer": Attention, "positions": Learned, "block": block}
    export_toy(DecoderLM(TOKENIZER.vocab_size, 8, **options).eval(), folder)  # type: ignore[arg-type]


@pytest.fixture(scope="module", name="made")
def _made(export: Export, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    def made(name: str) -> Path:
        if name in ("attention", "gru"):
            return shared(name).folder
        if name == "far":  # one layer attends to all, one to a window of 128
            return export([Attention, partial(Attention, pattern=partial(SlidingWindow, 128))], RoPE).folder

        def write(folder: Path) -> Path:
            {"wide": wide, "of a source": of_a_source}[name](folder / "bundle")
            return folder / "bundle"

        return once(f"reach-{name}", write, tmp_path_factory)

    return cache(made)


@pytest.fixture(name="copy")
def _copy(made: Copy, tmp_path: Path) -> Copy:
    return lambda name: copy_of(made(name), tmp_path)


def forget_the_sources_mask(model: ModelProto) -> None:
    [mask] = [value.name for value in model.graph.input if value.name.endswith("memory_mask")]
    planted.pads_as_real(mask)(model)


def swap_states(model: ModelProto) -> None:
    first, second, *_ = [output.name for output in model.graph.output if output.name.startswith("state.")]
    planted.rename(model, {first: second, second: first})


WRONG_SIZES = [
    ("model.onnx", planted.with_logits_times_where(1, "Equal", 65), {"long"}),
    ("model.onnx", planted.with_logits_times_where(1, "Greater", 300), {"long"}),
    ("model.onnx", planted.with_logits_times_where(1, "Equal", 1024), {"long"}),
    ("model.onnx", planted.with_logits_times_where(0, "Equal", 3), {"prefill", "chunks"}),
    ("model.onnx", planted.with_logits_times_where(0, "Equal", 10), {"prefill", "chunks"}),
    ("model.onnx", planted.with_logits_times_where(0, "Equal", 33), {"prefill", "chunks"}),
    ("step.onnx", planted.with_logits_times_where(0, "Equal", 4), {"step"}),
]
FAR = [
    ("model.onnx", planted.shift_positions_from_64),
    ("step.onnx", planted.clamp_positions_at_300),
    ("model.onnx", planted.stale_cache_past_300),
    ("step.onnx", planted.stale_cache_past_300),
    *((file, planted.with_window(size)) for size in (127, 2**20) for file in ("model.onnx", "step.onnx")),
]
FOUND: list[tuple[str, str, Edit, set[str]]] = [
    *(("far", file, edit, {"long"}) for file, edit in FAR),
    *(("gru", *defect) for defect in WRONG_SIZES),
    ("far", "model.onnx", planted.scale_rows_past_the_fifth, {"prefill", "chunks"}),
    ("of a source", "step.onnx", forget_the_sources_mask, {"step", "long"}),
    ("of a source", "step.onnx", planted.with_output_times(1.0005), {"step", "long"}),
    ("of a source", "taps.onnx", swap_states, {"twin"}),
    # docs/bundle.md says in its table which lengths and batches are not read.
    ("gru", "model.onnx", planted.with_logits_times_where(1, "Equal", 100), set()),
    ("gru", "model.onnx", planted.with_logits_times_where(0, "Equal", 7), set()),
]


@pytest.mark.parametrize(
    ("name", "file", "edit", "expected"),
    [pytest.param(*case, marks=slow if case[-1] else []) for case in FOUND],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_reached_defect_is_found(name: str, file: str, edit: Edit, expected: set[str], copy: Copy) -> None:
    edit_graph(folder := copy(name), file, edit)
    assert failed(folder) == expected


@slow
@pytest.mark.parametrize(
    ("name", "file", "edit", "least", "most"),
    [
        # Keeps the limit from being loosened tenfold. The errors of a good bundle are under 5e-7.
        ("attention", "model.onnx", planted.with_output_times(1 + 1.5e-6), {"prefill", "chunks", "long"}, 5),
        ("gru", "step.onnx", planted.with_output_times(1 + 1.5e-6), {"step"}, 5),
        # Each is about twice what may pass.
        ("wide", "model.onnx", planted.with_output_times(1 + 2.5e-6), {"prefill", "chunks"}, np.inf),
        ("wide", "model.onnx", planted.with_channel_times(1 + 6e-5, 512), {"prefill", "chunks"}, np.inf),
    ],
)
def test_just_above_the_limit(name: str, file: str, edit: Edit, least: set[str], most: float, copy: Copy) -> None:
    edit_graph(folder := copy(name), file, edit)
    failures = proven(folder).failures
    assert {check.kind for check in failures} >= least
    assert 1 < min(check.error / check.limit for check in failures if check.error and check.limit) < most


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


@slow
@pytest.mark.parametrize("vocab_size", [11, 2500])
def test_every_token_is_read(vocab_size: int, tmp_path: Path) -> None:
    model = toy(Attention, RoPE, 1)
    model.vocab_size = vocab_size
    model.embedding = torch.nn.Embedding(vocab_size, 16)
    write_golden(plan_export(model, None, seq_len=32), tmp_path)
    with np.load(tmp_path / "golden.npz") as golden:
        masks = dict(cases(None)) | dict(long_cases(None))
        read = [golden[f"{case}/tokens"][mask] for case, mask in masks.items()]
    assert set(range(vocab_size)) == set(np.concatenate(read).tolist())
    assert read[0].max() == vocab_size - 1
