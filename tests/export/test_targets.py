"""Bundles for onnxruntime's own nodes and for CUDA graphs: what is in them, that it is the model, and that their proof
can fail. (`seqlab.attention.cache` of fixed capacity is one of the laws in tests/contracts.)"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from onnxscript import ir

from contracts.subjects import VOCAB_SIZE, randomized
from export.planted import edit_graph, failed
from export.test_defects import start_one_later, with_attribute
from export.toys import TOKENIZER, Shared, toy
from seqlab.attention import (
    Attention,
    DeltaNet,
    GatedDeltaNet,
    LatentAttention,
    LinearAttention,
    Mamba2,
    OutputGate,
    QueryKeyNorm,
    Retention,
)
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import ALiBi, Learned, NoPositions, RoPE, XPos, YaRN
from seqlab.recurrence import GRU, LSTM, MLSTM, RWKV7, Mamba
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.target import check_flat
from seqlab_export.matrices.conformance import measure_mixer
from seqlab_export.matrices.torch_runtime import TorchRuntime
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.prove import Proof
from seqlab_export.runner.verify import load_golden

CAPACITY = 32
WIDE_HEADS = partial(Attention, num_heads=2, head_dim=16)
"""onnxruntime's node takes heads of a multiple of 16 channels."""
PROMPTS = [[1, 2, 3], [4], [5, 6, 0, 1, 2, 3, 4]]


class Bundle(NamedTuple):
    model: DecoderLM
    folder: Path

    def nodes(self, file: str) -> list[str]:
        """The operators of a graph and of the graphs inside it, with their domains."""
        model = ir.load(self.folder / file)
        return [
            f"{node.domain}.{node.op_type}".lstrip(".") for node in ir.traversal.RecursiveGraphIterator(model.graph)
        ]


Export = Callable[..., Bundle]


@pytest.fixture(scope="module", name="bundle")
def _bundle(tmp_path_factory: pytest.TempPathFactory) -> Export:
    def bundle(target: Any, mixer: Any, positions: Any = NoPositions, **options: Any) -> Bundle:
        model, folder = toy(mixer, positions), tmp_path_factory.mktemp("target") / "bundle"
        export_bundle(model, TOKENIZER, folder, run_id="", commit="", seq_len=CAPACITY, target=target, **options)
        return Bundle(model, folder)

    return bundle


@pytest.fixture(scope="module", name="fused")
def _fused(bundle: Export) -> Callable[[], Bundle]:
    return cache(partial(bundle, "ort", WIDE_HEADS, RoPE))


def test_a_portable_bundle_has_standard_nodes_alone(shared: Shared) -> None:
    for name in ("attention", "gru"):
        exported = shared(name)
        bundle = Bundle(exported.model, exported.folder)
        assert not [node for file in ("model.onnx", "step.onnx") for node in bundle.nodes(file) if "." in node]
        assert (load_manifest(bundle.folder).target, load_manifest(bundle.folder).in_place) == ("portable", ())


@pytest.mark.parametrize("file", ["model.onnx", "step.onnx"])
def test_a_cache_that_grows_is_copied_by_attention_alone(file: str, shared: Shared) -> None:
    outputs = ir.load(shared("attention").folder / file).graph.outputs
    caches = [output for output in outputs if str(output.name).endswith(("_k", "_v"))]
    producers = [output.producer() for output in caches]
    assert {node.op_type for node in producers if node is not None} == {"Attention"}
    assert len(caches) == 2 * len({id(node) for node in producers}) > 0


@pytest.mark.slow
def test_fused_attention_writes_its_cache_in_place(fused: Callable[[], Bundle]) -> None:
    bundle = fused()
    nodes = bundle.nodes("step.onnx")
    assert nodes.count("com.microsoft.GroupQueryAttention") == 2 and "Attention" not in nodes
    manifest = load_manifest(bundle.folder)
    assert manifest.in_place == ("0_k", "0_v", "1_k", "1_v")
    assert (manifest.capacity, manifest.max_seq_len) == (CAPACITY, CAPACITY)
    assert "key_mask" not in [entry.name for entry in manifest.state]

    runner = BundleRunner(bundle.folder)
    _, state = runner.prefill(np.array([[1, 2]]), np.ones((1, 2), dtype=np.bool_))
    before = state["state_0_k"].copy()
    _, new = runner.step(np.array([3]), state)
    assert new["state_0_k"] is state["state_0_k"]
    changed = np.flatnonzero((new["state_0_k"] != before).any(axis=(0, 1, 3)))
    assert changed.tolist() == [2]


@pytest.mark.slow
def test_fused_attention_writes_what_pytorch_writes(fused: Callable[[], Bundle]) -> None:
    """Prompts of several lengths, to the end of the cache."""
    most = CAPACITY - max(map(len, PROMPTS)) + 1
    runner = BundleRunner(fused().folder)
    assert generate(runner, PROMPTS, max_new_tokens=most) == generate(
        TorchDecoder(fused().model), PROMPTS, max_new_tokens=most
    )
    with pytest.raises(ValueError, match=f"the model has {CAPACITY}; shorten the prompt"):
        generate(runner, PROMPTS, max_new_tokens=most + 1)


@pytest.mark.slow
def test_pytorch_runs_with_the_same_cache(fused: Callable[[], Bundle]) -> None:
    bundle = fused()
    manifest, golden = load_manifest(bundle.folder), load_golden(bundle.folder)
    runtime = TorchRuntime(bundle.model, capacity=CAPACITY)
    checks = [*Proof(runtime, manifest, golden, batch_sizes=[5]).values()]
    assert checks and all(check.ok for check in checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "defect",
    [with_attribute("GroupQueryAttention", "scale", 0.3), start_one_later],
    ids=["another scale", "a position off by one"],
)
def test_a_defect_of_fused_attention_is_found(defect: Any, fused: Callable[[], Bundle], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fused().folder, tmp_path / "bundle"))
    edit_graph(folder, "step.onnx", defect)
    assert "step" in failed(folder)


slow = pytest.mark.slow
FUSED = [
    LinearAttention,
    *(
        pytest.param(mixer, marks=slow)
        for mixer in (GatedDeltaNet, Retention, DeltaNet, partial(Mamba2, head_dim=8), MLSTM)
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("mixer", FUSED)
def test_a_linear_recurrence_is_one_node_of_a_layer(mixer: Any, bundle: Export) -> None:
    written = bundle("ort", mixer)
    for file in ("model.onnx", "step.onnx"):
        nodes = written.nodes(file)
        # The stabiliser of mLSTM is a running maximum, which ONNX has no operator for.
        num_scans = 2 if mixer is MLSTM and file == "model.onnx" else 0
        assert (nodes.count("com.microsoft.LinearAttention"), nodes.count("Scan")) == (2, num_scans)


@slow
@pytest.mark.parametrize(
    ("mixer", "positions"),
    [(WIDE_HEADS, ALiBi), (Attention, RoPE), (LatentAttention, RoPE), (partial(RWKV7, head_dim=8), NoPositions)],
    ids=["alibi", "narrow heads", "latent", "rwkv7"],
)
def test_what_has_no_node_is_exported_all_the_same(mixer: Any, positions: Any, bundle: Export) -> None:
    bundle("ort", mixer, positions)


@slow
@pytest.mark.parametrize(
    ("mixer", "positions", "rotates"),
    [
        (partial(WIDE_HEADS, bias=False), NoPositions, 0),
        (WIDE_HEADS, partial(RoPE, fraction=0.5), 0),
        (partial(WIDE_HEADS, head_dim=32), partial(RoPE, fraction=0.5), 1),
        (WIDE_HEADS, partial(RoPE, scaling=YaRN), 1),
        (WIDE_HEADS, XPos, 0),
        (partial(WIDE_HEADS, parts=[QueryKeyNorm, OutputGate]), RoPE, 0),
    ],
    ids=["no biases", "8 channels rotated", "16 of 32 channels rotated", "yarn", "xpos", "parts"],
)
def test_fused_attention_rotates_where_the_node_knows_how(
    mixer: Any, positions: Any, rotates: int, bundle: Export
) -> None:
    graph = onnx.load(bundle("ort", mixer, positions).folder / "step.onnx", load_external_data=False).graph
    found = [
        attribute.i
        for node in graph.node
        for attribute in node.attribute
        if (node.op_type, attribute.name) == ("GroupQueryAttention", "do_rotary")
    ]
    assert found == [rotates] * 2


@slow
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8", "int4"])
def test_fused_attention_in_other_precisions(precision: str, bundle: Export) -> None:
    nodes = bundle("ort", partial(WIDE_HEADS, num_kv_heads=1), RoPE, precision=precision).nodes("step.onnx")
    assert nodes.count("com.microsoft.GroupQueryAttention") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixer", [Attention, *(pytest.param(m, marks=slow) for m in (LatentAttention, GRU, LSTM, Mamba, GatedDeltaNet))]
)
def test_a_step_for_cuda_graphs_is_flat_and_of_fixed_size(mixer: Any, bundle: Export) -> None:
    written = bundle("cuda-graph", mixer)
    assert not [node for node in written.nodes("step.onnx") if "." in node or node in ("If", "Loop", "Scan")]
    graph = onnx.load(written.folder / "step.onnx", load_external_data=False).graph
    for value in (*graph.input, *graph.output):
        first, *others = value.type.tensor_type.shape.dim
        assert first.dim_param == "B" and all(dim.dim_value for dim in others), value.name


def test_a_step_with_a_graph_inside_is_refused() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 23]>
        agraph (bool c, float[B] x) => (float[B] y) {
            y = If (c) <
                then_branch = g1 () => (float[B] y1) { y1 = Identity (x) },
                else_branch = g2 () => (float[B] y2) { y2 = Neg (x) }
            >
        }
        """
    )
    with pytest.raises(ValueError, match="target cuda-graph needs a step without If, this model has it; use portable"):
        check_flat(ir.from_proto(model))


class Growing(Attention):
    """It knows no capacity: its cache grows, whatever the target."""

    capacity = property(lambda self: None, lambda self, value: None)


def test_a_state_that_grows_is_refused_for_cuda_graphs_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"key_mask of Growing has the dimension S.* declare it with C.*contract\.md"):
        export_bundle(toy(Growing, RoPE), TOKENIZER, tmp_path / "bundle", seq_len=CAPACITY, target="cuda-graph")
    assert not list(tmp_path.iterdir())
    said = str(measure_mixer(Growing, NoPositions)["laws"].failed)
    assert said.startswith("broken: a fixed capacity changes nothing (a capacity is for how many tokens")
    assert "export to cuda-graph needs that" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "mixer"),
    [("portable", Attention), ("ort", WIDE_HEADS), pytest.param("cuda-graph", Attention, marks=pytest.mark.slow)],
)
def test_a_pad_is_no_position_of_a_full_row(target: Any, mixer: Any, tmp_path: Path) -> None:
    """One row is full and gets pads, the other goes on: as if it stood alone."""
    torch.manual_seed(0)
    model = randomized(DecoderLM(VOCAB_SIZE, 8, d_model=32, num_layers=1, mixer=mixer, positions=Learned)).float()
    export_bundle(model, TOKENIZER, tmp_path / "bundle", seq_len=8, target=target)
    runner = BundleRunner(tmp_path / "bundle")
    tokens = np.random.default_rng(0).integers(VOCAB_SIZE, size=(2, 8))
    mask = np.array([[True] * 8, [True] * 4 + [False] * 4])
    alone, of_alone = runner.read("model", tokens[1:, :4], mask[1:, :4], runner.init_state(1))
    both, state = runner.read("model", tokens, mask, runner.init_state(2))
    np.testing.assert_allclose(both[1:, :4], alone, atol=1e-5)
    calls: list[tuple[Literal["model", "step"], int]] = [("step", 1), ("model", 3)]
    for graph, width in calls:
        now = np.array([[False] * width, [True] * width])
        given = tokens[:, :width]
        alone, of_alone = runner.read(graph, given[1:], now[1:], of_alone)
        both, state = runner.read(graph, given, now, state)
        np.testing.assert_allclose(both[1:], alone, atol=1e-5)
        assert state["state_position"].tolist() == [8, of_alone["state_position"][0]]
    one_more = np.array([[True], [False]])
    for graph, _ in calls:
        with pytest.raises(ValueError, match="a text of 9 tokens is longer than the model reads, which is 8"):
            runner.read(graph, tokens[:, :1], one_more, state)


def test_a_pad_is_no_position_in_pytorch() -> None:
    """Neither of a full row, nor of a call that is wider than the positions reach."""
    model = randomized(DecoderLM(VOCAB_SIZE, 8, d_model=32, num_layers=1, positions=Learned))
    tokens = torch.randint(VOCAB_SIZE, (2, 12))
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, :4] = False
    wide, full = model(tokens, pad_mask=mask)
    torch.testing.assert_close(wide[:, 4:], model(tokens[:, 4:])[0])
    _, still = model(tokens[:, :3], full, pad_mask=mask[:, :3])
    assert still["position"].tolist() == [8, 8]
    with pytest.raises(ValueError, match="positions reach 8 tokens, the input reaches 9"):
        model(tokens[:, :1], full, pad_mask=mask[:, 4:5])
