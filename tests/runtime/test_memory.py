"""Memory of a process that runs a bundle: one copy of the weights that its graphs share."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from export.planted import edit_graph, reseal
from runtime.conftest import Bundle, Copy
from runtime.programs import refusal, run

MATRICES, ROWS, COLUMNS = 8, 2048, 1024
MEGABYTES = MATRICES * ROWS * COLUMNS * 4 / 2**20


def widened(model: ModelProto, start: int) -> None:
    """Adds to the logits the means of their products with matrices that are stored from `start` on."""
    graph = model.graph
    [last] = [node for node in graph.node if "logits" in node.output]
    last.output[[*last.output].index("logits")] = "narrow"
    sizes = onnx.numpy_helper.from_array(np.array([1, COLUMNS]), "sizes")
    graph.initializer.extend([onnx.numpy_helper.from_array(np.array([1, 1]), "one_each"), sizes])
    graph.node.append(helper.make_node("ReduceMean", ["narrow"], ["mean"], keepdims=0))
    graph.node.append(helper.make_node("Reshape", ["mean", "one_each"], ["one"]))
    graph.node.append(helper.make_node("Expand", ["one", "sizes"], ["row"]))
    for number in range(MATRICES):
        length = ROWS * COLUMNS * 4
        matrix = TensorProto(name=f"wide_{number}", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS])
        matrix.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weights.bin", "offset": start + number * length, "length": length}.items():
            matrix.external_data.add(key=key, value=str(value))
        graph.initializer.append(matrix)
        graph.node.append(helper.make_node("Gemm", ["row", matrix.name], [f"product_{number}"], transB=1))
        graph.node.append(helper.make_node("ReduceMean", [f"product_{number}"], [f"mean_{number}"], keepdims=0))
    graph.node.append(helper.make_node("Sum", ["narrow", *(f"mean_{n}" for n in range(MATRICES))], ["logits"]))


@pytest.fixture(name="wide")
def _wide(copy: Copy) -> Path:
    folder = copy("gru")
    weights = folder / "weights.bin"
    start = -(-weights.stat().st_size // 64) * 64
    draw = np.random.default_rng(0)
    with weights.open("r+b") as file:
        file.seek(start)
        for _ in range(MATRICES):
            file.write(draw.standard_normal((ROWS, COLUMNS), dtype=np.float32).tobytes())
    for name in ("model.onnx", "step.onnx"):
        edit_graph(folder, name, partial(widened, start=start))
    return folder


def peak(folder: Path) -> float:
    """Peak memory of a short run, in MB."""
    options = ["--prompt-tokens", "2", "--new-tokens", "2", "--runs", "1", "--threads", "1"]
    done = run("bench", folder, "--json", *options)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["peak_memory_mb"])


def test_graphs_share_one_copy_of_their_weights(wide: Path, bundle: Bundle) -> None:
    """A second one, arranged for a product or as stored in the file, would be 1 more."""
    assert 0.9 < (peak(wide) - peak(bundle("gru"))) / MEGABYTES < 1.8


def test_weights_that_end_too_soon(wide: Path) -> None:
    weights = wide / "weights.bin"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    reseal(wide)
    assert "onnxruntime cannot load" in refusal("info", wide)
