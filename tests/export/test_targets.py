"""Bundles for onnxruntime's own nodes and for CUDA graphs: what is in them, that it is the model, and that their proof
can fail. (`seqlab.attention.cache` of fixed capacity is one of the laws in tests/contracts.)"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from onnxscript import ir

from contracts.subjects import VOCAB_SIZE, randomized
from export.planted import copy_of, edit_graph, failed
from export.test_defects import start_one_later, with_attribute
from export.toys import TOKENIZER, Shared, graph, toy
from seqlab import attention as att
from seqlab.attention import Attention, GatedDeltaNet, LatentAttention
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import ALiBi, Learned, NoPositions, RoPE, XPos, YaRN
from seqlab.recurrence import GRU, LSTM, MLSTM, Mamba
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.target import TARGETS
from seqlab_export.graphs import _distinguish, _written_in_place
from seqlab_export.reports.conformance import measure_mixer
from seqlab_export.reports.torch_runtime import TorchRuntime
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.prove import Proof
from seqlab_export.runner.verify import load_golden

CAPACITY = 32
WIDE_HEADS = partial(Attention, num_heads=2, head_dim=16)
"""onnxruntime's node takes heads of a multiple of 16 channels."""
PROMPTS = [[1, 2, 3], [4], [5, 6, 0, 1, 2, 3, 4]]
FUSED = "com.microsoft.GroupQueryAttention"
slow = pytest.mark.slow


class Bundle(NamedTuple):
    model: DecoderLM
    folder: Path

    def nodes(self, file: str = "step.onnx") -> list[str]:
        """The operators of a graph and of the graphs inside it, with their domains."""
        nodes = ir.traversal.RecursiveGraphIterator(ir.load(self.folder / file).graph)
        return [f"{node.domain}.{node.op_type}".lstrip(".") for node in nodes]


Export = Callable[..., Bundle]


@pytest.fixture(scope="module", name="bundle")
def _bundle(tmp_path_factory: pytest.TempPathFactory) -> Export:
    def bundle(target: Any, mixer: Any, positions: Any = NoPositions, num_layers: int = 1, **options: Any) -> Bundle:
        model, folder = toy(mixer, positions, num_layers), tmp_path_factory.mktemp("target") / "bundle"
        export_bundle(model, TOKENIZER, folder, seq_len=CAPACITY, target=target, **options)
        return Bundle(model, folder)

    return bundle


@pytest.fixture(scope="module", name="fused")
def _fused(bundle: Export) -> Bundle:
    return bundle("ort", WIDE_HEADS, RoPE, 2)


@pytest.mark.parametrize("name", ["attention", "gru"])
def test_a_portable_bundle_has_standard_nodes_alone(name: str, shared: Shared) -> None:
    model, folder, _ = shared(name)
    assert not [
        node for file in ("model.onnx", "step.onnx") for node in Bundle(model, folder).nodes(file) if "." in node
    ]
    assert (load_manifest(folder).target, load_manifest(folder).in_place) == ("portable", ())


@pytest.mark.parametrize("file", ["model.onnx", "step.onnx"])
def test_a_cache_that_grows_is_copied_by_attention_alone(file: str, shared: Shared) -> None:
    outputs = ir.load(shared("attention").folder / file).graph.outputs
    caches = [output for output in outputs if str(output.name).endswith(("_k", "_v"))]
    producers = [output.producer() for output in caches]
    assert {node.op_type for node in producers if node is not None} == {"Attention"}
    assert len(caches) == 2 * len({id(node) for node in producers}) > 0


@slow
def test_fused_attention_writes_its_cache_in_place(fused: Bundle) -> None:
    assert fused.nodes().count(FUSED) == 2 and "Attention" not in fused.nodes()
    manifest = load_manifest(fused.folder)
    assert manifest.in_place == ("0_k", "0_v", "1_k", "1_v")
    assert (manifest.capacity, manifest.max_seq_len) == (CAPACITY, CAPACITY)
    assert "key_mask" not in [entry.name for entry in manifest.state]

    runner = BundleRunner(fused.folder)
    _, state = runner.prefill(np.array([[1, 2]]), np.ones((1, 2), dtype=np.bool_))
    before = state["state_0_k"].copy()
    _, new = runner.step(np.array([3]), state)
    assert new["state_0_k"] is state["state_0_k"]
    assert np.flatnonzero((new["state_0_k"] != before).any(axis=(0, 1, 3))).tolist() == [2]


@slow
def test_fused_attention_writes_what_pytorch_writes(fused: Bundle) -> None:
    """Prompts of several lengths, to the end of the cache, which PyTorch may have too."""
    most = CAPACITY - max(map(len, PROMPTS)) + 1
    runner, model = BundleRunner(fused.folder), TorchDecoder(fused.model)
    assert generate(runner, PROMPTS, max_new_tokens=most) == generate(model, PROMPTS, max_new_tokens=most)
    with pytest.raises(ValueError, match=f"the model has {CAPACITY}; shorten the prompt"):
        generate(runner, PROMPTS, max_new_tokens=most + 1)
    runtime = TorchRuntime(fused.model, capacity=CAPACITY)
    proof = Proof(runtime, load_manifest(fused.folder), load_golden(fused.folder), batch_sizes=[5])
    checks = [*proof.values()]
    assert checks and all(check.ok for check in checks)


@slow
@pytest.mark.parametrize(
    "defect",
    [with_attribute("GroupQueryAttention", "scale", 0.3), start_one_later],
    ids=["another scale", "a position off by one"],
)
def test_a_defect_of_fused_attention_is_found(defect: Any, fused: Bundle, tmp_path: Path) -> None:
    folder = copy_of(fused.folder, tmp_path)
    edit_graph(folder, "step.onnx", defect)
    assert "step" in failed(folder)


@slow
def test_a_linear_recurrence_is_one_node_of_a_layer(bundle: Export) -> None:
    mixers = [
        *(att.LinearAttention, GatedDeltaNet, att.Retention, att.DeltaNet, att.KimiDeltaAttention, att.HGRN2),
        *(partial(att.Mamba2, head_dim=8), partial(att.Mamba3, d_state=8, head_dim=8), MLSTM),
    ]
    written = bundle("ort", mixers, num_layers=len(mixers))
    # The stabiliser of mLSTM is a running maximum, which ONNX has no operator for.
    for file, num_scans in (("model.onnx", 1), ("step.onnx", 0)):
        nodes = written.nodes(file)
        assert (nodes.count("com.microsoft.LinearAttention"), nodes.count("Scan")) == (len(mixers), num_scans)


@slow
@pytest.mark.parametrize(
    ("mixer", "positions", "options", "rotates"),
    [
        (WIDE_HEADS, ALiBi, {}, []),
        ([Attention, LatentAttention], RoPE, {"num_layers": 2}, []),
        (WIDE_HEADS, partial(RoPE, fraction=0.5), {}, [0]),  # of 8 channels
        (partial(WIDE_HEADS, head_dim=32), partial(RoPE, fraction=0.5), {}, [1]),
        (WIDE_HEADS, partial(RoPE, scaling=YaRN), {}, [1]),
        (WIDE_HEADS, XPos, {}, [0]),
        (partial(WIDE_HEADS, parts=[att.QueryKeyNorm, att.OutputGate]), RoPE, {}, [0]),
        (partial(WIDE_HEADS, num_kv_heads=1, bias=False), NoPositions, {"precision": "fp16"}, [0]),
        (partial(WIDE_HEADS, num_kv_heads=1), RoPE, {"precision": "int4"}, [1]),
    ],
)
def test_attention_is_fused_and_rotated_where_the_node_knows_how(
    mixer: Any, positions: Any, options: dict[str, Any], rotates: list[int], bundle: Export
) -> None:
    """No node has a bias of distances, narrow heads or latent keys."""
    nodes = onnx.load(bundle("ort", mixer, positions, **options).folder / "step.onnx").graph.node
    fused = [node.attribute for node in nodes if node.op_type == "GroupQueryAttention"]
    assert [one.i for attributes in fused for one in attributes if one.name == "do_rotary"] == rotates
    assert len(fused) == len(rotates)


@slow
def test_a_step_for_cuda_graphs_is_flat_and_of_fixed_size(bundle: Export) -> None:
    mixers = [Attention, LatentAttention, GRU, LSTM, Mamba, GatedDeltaNet]
    written = bundle("cuda-graph", mixers, num_layers=len(mixers))
    assert not [node for node in written.nodes() if "." in node or node in ("If", "Loop", "Scan")]
    step = onnx.load(written.folder / "step.onnx", load_external_data=False).graph
    for value in (*step.input, *step.output):
        first, *others = value.type.tensor_type.shape.dim
        assert first.dim_param == "B" and all(dim.dim_value for dim in others), value.name


def test_a_step_with_a_graph_inside_is_refused() -> None:
    branches = """then_branch = a () => (float[B] y1) { y1 = Identity (x) },
        else_branch = b () => (float[B] y2) { y2 = Neg (x) }"""
    step = graph("bool c, float[B] x", "float[B] y", f"y = If (c) <{branches}>")
    with pytest.raises(ValueError, match="target cuda-graph needs a step without If, this model has it; use portable"):
        TARGETS["cuda-graph"].check_step(step)


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


@slow
@pytest.mark.parametrize(("target", "mixer"), [("portable", Attention), ("ort", WIDE_HEADS), ("cuda-graph", Attention)])
def test_a_pad_is_no_position_of_a_full_row(target: Any, mixer: Any, tmp_path: Path) -> None:
    """One row is full and gets pads, the other goes on: as if it stood alone."""
    model = randomized(DecoderLM(VOCAB_SIZE, 8, d_model=32, num_layers=1, mixer=mixer, positions=Learned)).float()
    export_bundle(model, TOKENIZER, tmp_path / "bundle", seq_len=8, target=target)
    runner = BundleRunner(tmp_path / "bundle")
    tokens = np.random.default_rng(0).integers(VOCAB_SIZE, size=(2, 8))
    mask = np.array([[True] * 8, [True] * 4 + [False] * 4])
    alone, of_alone = runner.read("model", tokens[1:, :4], mask[1:, :4], runner.init_state(1))
    both, state = runner.read("model", tokens, mask, runner.init_state(2))
    np.testing.assert_allclose(both[1:, :4], alone, atol=1e-5)
    calls: list[tuple[Literal["model", "step"], int]] = [("step", 1), ("model", 3)]
    for file, width in calls:
        now = np.array([[False] * width, [True] * width])
        given = tokens[:, :width]
        alone, of_alone = runner.read(file, given[1:], now[1:], of_alone)
        both, state = runner.read(file, given, now, state)
        np.testing.assert_allclose(both[1:], alone, atol=1e-5)
        assert state["state_position"].tolist() == [8, of_alone["state_position"][0]]
    one_more = np.array([[True], [False]])
    for file, _ in calls:
        with pytest.raises(ValueError, match="a text of 9 tokens is longer than the model reads, which is 8"):
            runner.read(file, tokens[:, :1], one_more, state)


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
    with pytest.raises(ValueError, match="positions reach 8 tokens, but the input reaches 9"):
        model(tokens[:, :1], full, pad_mask=mask[:, 4:5])


SCATTER = "new_state_k = ScatterElements <axis = 1> (state_k, places, more)"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"more = Add (new, new) {SCATTER}", ["k"]),
        (f"more = Add (state_k, new) {SCATTER}", ["k"]),
        (f"more = Add (new, new) {SCATTER} sum = Add (state_k, new_state_k)", []),
        (f"more = Add (new, new) old = Identity (state_k) {SCATTER.replace('state_k, p', 'old, p')}", []),
    ],
    ids=["no reader", "a reader before", "a reader after", "a copy"],
)
def test_an_entry_is_written_in_place_unless_its_old_value_is_read_afterwards(body: str, found: list[str]) -> None:
    inputs = "float[1, 4] state_k, int64[1, 4] places, float[1, 4] new"
    outputs = "float[1, 4] new_state_k" + (", float[1, 4] sum" if "sum" in body else "")
    made = graph(inputs, outputs, body)
    assert (_written_in_place(made, "ScatterElements"), _written_in_place(made, "Add")) == (found, [])


def test_a_result_whose_name_is_taken_is_renamed() -> None:
    made = graph("float[2] x", "float[2] y", "a = Identity (x) b = Identity (a) y = Identity (b)")
    first, second, _ = made.graph
    first.outputs[0].name, second.outputs[0].name = "x", "x"
    _distinguish(made)
    assert [node.outputs[0].name for node in made.graph] == ["x_", "x__", "y"]
