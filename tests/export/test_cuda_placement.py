"""Bundles for CUDA, whose nodes onnxruntime's CUDA provider places on the device, by its own library over stubs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from export.toys import TOKENIZER, toy
from once import once
from runtime.programs import refusal, run
from seqlab.attention import Attention
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.plan import ExportPlan, plan_export
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.graphs import export_graphs
from seqlab_export.reports import conformance
from seqlab_export.runner.graph_file import check_for_cuda

ROOT = Path(__file__).parents[2]
VERIFY = """
import sys
from pathlib import Path
from seqlab_export.runner.verify import verify_bundle
try:
    verify_bundle(Path(sys.argv[1]), provider="cuda")
except ValueError as error:
    print(error)
"""
_spec = importlib.util.spec_from_file_location("cuda_placement", ROOT / "benchmarks" / "cuda_placement.py")
assert _spec is not None and _spec.loader is not None
program: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

# torch's exporter uses what its own version deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of onnxruntime-gpu over stubs, built by one of the processes that run tests."""
    try:
        once("cuda-stubs", lambda _: program.fake_cuda(), tmp_path_factory)
        return program.fake_cuda()
    except OSError as missing:
        pytest.skip(f"not run: {missing}")


@pytest.mark.slow
@pytest.mark.parametrize("name", program.MODELS)
def test_a_device_computes_all_of_a_bundle_for_cuda(name: str, cuda: dict[str, str]) -> None:
    for job in program.jobs([name]):
        for graph in program.placed(job):
            if graph.name == "step":
                assert (graph.computed, graph.waits, graph.recorded) == ([], [], True), (job, graph)
            else:  # cuDNN's recurrences read lengths on the host, once a prompt
                assert graph.computed == [] and {*graph.waits} <= {"GRU", "LSTM", "RNN"}, (job, graph)


def planned(target: TargetName, precision: Precision) -> ExportPlan:
    """A plan, with provider cpu, of attention whose heads are wide enough for onnxruntime's node."""
    model = program.of_mixer("Attention")
    return plan_export(model, conformance.TOKENIZER, seq_len=32, target=target, precision=precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "precision", "operator"),
    [("ort", "fp32", "GroupQueryAttention"), ("portable", "int8", "MatMulInteger")],
)
def test_a_node_that_runs_on_a_cpu_is_found_and_refused(
    target: TargetName, precision: Precision, operator: str, cuda: dict[str, str], tmp_path: Path
) -> None:
    export_graphs(planned(target, precision), tmp_path)
    [step] = program.placements([tmp_path / "step.onnx"])
    assert step.computed == [operator] and operator in step.waits and not step.recorded
    with pytest.raises(ValueError, match=f"{operator}, which CUDA does not compute in {precision}; export the model"):
        check_for_cuda(tmp_path / "step.onnx", precision)


@pytest.mark.slow
def test_a_length_made_on_the_device_is_a_wait(cuda: dict[str, str], tmp_path: Path) -> None:
    export_graphs(planned("ort", "fp16"), tmp_path)
    [step] = program.placements([tmp_path / "step.onnx"])
    assert (step.computed, step.waits, step.recorded) == ([], ["GroupQueryAttention"], False)
    check_for_cuda(tmp_path / "step.onnx", "fp16")  # slower than it need be, but on the device


@pytest.fixture(scope="module")
def gru(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for CUDA of a recurrence, which needs cuDNN."""
    folder = tmp_path_factory.mktemp("gru") / "bundle"
    export_bundle(toy(GRU, NoPositions, 1), TOKENIZER, folder, seq_len=32, target="cuda-graph")
    return folder


@pytest.mark.slow
def test_the_cpp_runtime_runs_a_bundle_on_the_device_alone(cuda: dict[str, str], tmp_path: Path, gru: Path) -> None:
    """No kernel runs over the stubs, so that the first call's outputs are zeros and no proof succeeds. With
    SEQLAB_PROGRAMS=build/cpp-address-undefined, sanitizers watch it."""

    def exported(**options: Any) -> Path:
        folder = tmp_path / "-".join(options.values())
        export_bundle(toy(Attention, RoPE, 1), TOKENIZER, folder, seq_len=32, **options)
        return folder

    for bundle in (exported(target="cuda-graph"), gru):
        done = run("verify", bundle, "--provider", "cuda", **cuda)
        assert done.returncode == 1 and not done.stderr, done.stderr
        assert b"failed: " not in done.stdout and b"RMS error 1.00e+00" in done.stdout
        for most in ("1", "4096"):  # no memory for the weights, and none for what a call needs
            sentence = refusal("verify", bundle, "--provider", "cuda", **cuda, FAKE_CUDA_MOST=most)
            assert sentence == "there is not enough memory"
    of_cpu = exported(precision="int8")
    assert refusal("verify", of_cpu, "--provider", "cuda", **cuda) == (
        f"{of_cpu}/model.onnx has MatMulInteger, which CUDA does not compute in int8; export the model with --target "
        "cuda-graph, in a precision other than int8"
    )


@pytest.mark.slow
def test_steps_are_bound_recorded_and_replayed(cuda: dict[str, str], tmp_path: Path) -> None:
    """The calls of `gpu_proofs.py`; the stubs compute zeros, both recorded and not."""
    export_bundle(toy(GRU, NoPositions, 1), TOKENIZER, tmp_path / "gru", seq_len=32, target="cuda-graph")
    code = f"import gpu_proofs, pathlib; print(gpu_proofs.replayed(pathlib.Path({str(tmp_path / 'gru')!r}), 'cuda'))"
    path = os.pathsep.join([str(ROOT / "benchmarks"), *sys.path])
    environment = os.environ | cuda | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "{'steps bit-identical': 12}\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("libcudnn.so", "libcudnn.so: cannot open shared object file: No such file or directory"),
        ("libcuda.so.1", "libcuda.so.1: cannot open shared object file: No such file or directory"),
        ("libcublasLt.so.13", "libcublasLt.so.13: cannot open shared object file: No such file or directory"),
        ("a newer driver", "an error of the fake device"),
        ("memory", ""),
    ],
)
def test_what_a_machine_lacks_is_named(
    missing: str, reason: str, cuda: dict[str, str], tmp_path: Path, gru: Path
) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for library in Path(cuda["LD_LIBRARY_PATH"]).glob("*.so*"):
        if library.name != missing:
            (libraries / library.name).symlink_to(library)
    gpu = {"LD_LIBRARY_PATH": str(libraries), "FAKE_CUDA_MOST": "1" if missing == "memory" else str(2**40)}
    gpu |= {"FAKE_CUDA_FAILS": "35" if missing == "a newer driver" else "0"}
    python = [sys.executable, "-c", VERIFY, str(gru)]
    done = subprocess.run(python, env=os.environ | gpu, capture_output=True, text=True)
    in_cpp = refusal("verify", gru, "--provider", "cuda", **gpu)
    if reason:
        assert in_cpp == f'provider "cuda" cannot be loaded ({reason}); install it, or use another provider'
        assert "provider 'cuda' cannot be loaded (" in done.stdout and f"{reason}); install it" in done.stdout
        assert done.stdout.count(reason.partition(":")[0]) == 1
    else:
        assert in_cpp == "there is not enough memory"
        assert done.stdout == f"onnxruntime cannot load {gru}/model.onnx: there is not enough memory\n"
    assert not done.stderr


def test_a_bundle_for_cuda_has_the_nodes_of_a_device() -> None:
    with pytest.raises(ValueError, match="int8 is for a CPU: CUDA has no product of such rows; use fp16, bf16 or int4"):
        planned("cuda-graph", "int8")
    assert planned("cuda-graph", "int4").for_cuda and not planned("cuda-graph", "int4").int8_products
    assert planned("ort", "int4").int8_products and not planned("ort", "int4").for_cuda
