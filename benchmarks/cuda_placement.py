"""Placement of the nodes of exported graphs by onnxruntime's CUDA provider, without a GPU.

python benchmarks/cuda_placement.py [MODEL ...]       the table of docs/cuda.md; all models take a quarter of an hour

The CUDA provider of the installed onnxruntime-gpu is opened over stubs of CUDA's libraries, made in build/cuda:
`fake_cuda.c`, and functions that do nothing. It then places nodes and plans copies as on a GPU, and tells whether it
would record the graph with `enable_cuda_graph`. No kernel runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import onnxruntime

from seqlab.attention import Attention, Bidirectional
from seqlab.models import Classifier, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq, Tagger
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab_export.capture.plan import plan_export
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.graphs import export_graphs
from seqlab_export.reports.conformance import TOKENIZER, all_mixers, model_named, model_of

BUILD = Path(__file__).parents[1] / "build" / "cuda"
FAKES = Path(__file__).with_name("fake_cuda.c")
SIZES = {
    "Add", "Cast", "Concat", "Div", "Gather", "Mul", "Range", "Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze"
}  # fmt: skip
"""Operators with which onnxruntime computes sizes on the CPU, before the device needs them."""
CORE = ("Attention", "GRU", "GatedDeltaNet", "Mamba")
"""Mixers that are exported in other precisions than fp32 too."""

OPEN = """
import json, sys, tempfile
from pathlib import Path
import onnx, onnxruntime as ort

ort.set_default_logger_severity(4)

def session(path, options, **entries):
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    for name, value in entries.items():
        settings.add_session_config_entry("session." + name, value)
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        settings.optimized_model_filepath = folder + "/graph.onnx"
        opened = ort.InferenceSession(path, settings, providers=[("CUDAExecutionProvider", options),
                                                                 "CPUExecutionProvider"])
        if opened.get_providers()[0] != "CUDAExecutionProvider":
            raise SystemExit("onnxruntime-gpu opened no CUDA session over the stubs")
        return opened, onnx.load(folder + "/graph.onnx", load_external_data=False).graph.node

for path in sys.argv[1:]:
    found = {"path": path, "error": "", "on_cpu": [], "waits": [], "recorded": False}
    try:
        opened, nodes = session(path, {}, record_ep_graph_assignment_info="1",
                                optimized_model_external_initializers_file_name="weights.bin")
        parts = [part for part in opened.get_provider_graph_assignment_info() if part.ep_name[:3] == "CPU"]
        found["on_cpu"] = [node.op_type for part in parts for node in part.get_nodes()]
        copied = {output for node in nodes if node.op_type == "MemcpyToHost" for output in node.output}
        found["waits"] = sorted({node.op_type for node in nodes if copied & {*node.input}})
        session(path, {"enable_cuda_graph": "1"}, optimized_model_external_initializers_file_name="weights.bin")
        found["recorded"] = True
    except Exception as error:
        found["error"] = str(error)
    print(json.dumps(found))
"""


class Placement(NamedTuple):
    """Answer of the provider for a graph.

    Attributes:
        path: file of the graph.
        on_cpu: operators of the nodes that it leaves to the CPU.
        waits: operators that read on the host what the device has made, for which each call waits.
        recorded: True if it would record the graph as a CUDA graph.
        error: reason that it does not open the graph, or does not record it.
    """

    path: str
    on_cpu: list[str]
    waits: list[str]
    recorded: bool
    error: str

    @property
    def name(self) -> str:
        return Path(self.path).stem

    @property
    def computed(self) -> list[str]:
        """Operators that compute more than sizes on the CPU."""
        return sorted({*self.on_cpu} - SIZES)

    def cells(self) -> tuple[str, ...]:
        """Cells of the table; whether a CUDA graph records it is of interest for a step only."""
        step = ("yes" if self.recorded else f"no: {self.error}") if self.name == "step" else ""
        return self.name, ", ".join(self.computed) or "none", ", ".join(self.waits) or "none", step


@cache
def fake_cuda() -> dict[str, str]:
    """Environment variables with which the installed onnxruntime opens its CUDA provider over the stubs; makes these.

    Raises:
        OSError: `cc` or `nm` is missing, or this onnxruntime has no CUDA provider.
    """
    for tool in ("cc", "nm"):
        if shutil.which(tool) is None:
            raise OSError(f"there is no {tool} here")
    library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    if not library.exists():
        raise OSError("the installed onnxruntime has no CUDA provider")
    made = BUILD / f"{onnxruntime.__version__}-{hashlib.sha256(FAKES.read_bytes()).hexdigest()[:8]}"
    if not made.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            stubs = Path(folder) / "made"
            stubs.mkdir()
            _add_stubs(library, stubs)
            stubs.replace(made)
    return {"LD_LIBRARY_PATH": str(made)}


def _add_stubs(library: Path, folder: Path) -> None:
    """Compiles stubs of the libraries that onnxruntime's CUDA provider needs, into a folder."""
    needed = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    texts = {text.decode() for text in re.findall(rb"\0((?:cudnn|lib)[\w.]+)(?=\0)", library.read_bytes())}
    for name in filter(re.compile(r"lib(cuda|cudart|cublas|cublasLt|curand)\.so\.\d+").fullmatch, texts):
        _stub(folder / name, re.findall(rf"(\w+)@{name}\n", needed.stdout))
    # The driver's functions have no version; cuDNN is opened by its name, and its functions by theirs.
    _stub(folder / "libcuda.so.1", re.findall(r"\b(cu[A-Z]\w*)\n", needed.stdout))
    _stub(folder / "libcudnn.so", filter(re.compile("cudnn[A-Z].*").fullmatch, texts))


def _stub(library: Path, functions: Iterable[str]) -> None:
    """Compiles a library with these functions."""
    fakes = FAKES.read_text(encoding="utf-8")
    missing = [name for name in sorted(functions) if f"{name}(" not in fakes]
    source = fakes + "".join(f"int {name}(void) {{ return 0; }}\n" for name in missing)
    map_file = library.with_suffix(".map")
    map_file.write_text(f"{library.name} {{ global: *; }};\n")
    compiler = ["cc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    named = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script={map_file}"]
    subprocess.run([*compiler, *named], input=source, text=True, check=True)


def placements(graphs: Sequence[Path]) -> list[Placement]:
    """The placement of each graph."""
    environment = os.environ | fake_cuda()
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *map(str, graphs)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"onnxruntime ended with {done.returncode}: {done.stderr[-500:]}")
    return [Placement(**json.loads(line)) for line in done.stdout.splitlines()]


class Job(NamedTuple):
    model: str
    target: TargetName
    precision: Precision


def of_mixer(name: str) -> Any:
    """A model of one layer; the heads of attention are wide enough for onnxruntime's node."""
    return model_of(partial(Attention, num_heads=2), RoPE) if name == "Attention" else model_named(name)


def _reader(mixer: Any, positions: Any = NoPositions) -> Any:
    return partial(Encoder, d_model=32, num_layers=1, mixer=mixer, positions=positions)


_V, _BOTH = TOKENIZER.vocab_size, partial(Attention, num_heads=2, pattern=Bidirectional)
KINDS: dict[str, Callable[[], Any]] = {
    "Classifier, class token": lambda: Classifier(_V, 3, 40, encoder=_reader(_BOTH, Learned), pool="class"),
    "Classifier, last token": lambda: Classifier(_V, 3, 40, encoder=_reader(GRU), pool="last"),
    "Tagger, bidirectional LSTM": lambda: Tagger(_V, 3, 40, encoder=_reader(partial(LSTM, bidirectional=True))),
    "Tagger, bidirectional RNN": lambda: Tagger(_V, 3, 40, encoder=_reader(partial(RNN, bidirectional=True))),
    "MaskedLM": lambda: MaskedLM(_V, 40, encoder=_reader(_BOTH, Learned)),
    "EncoderDecoder": lambda: EncoderDecoder(_V, _V, 40, encoder=_reader(_BOTH, Learned), num_layers=1),
    "RNNSeq2Seq": lambda: RNNSeq2Seq(_V, _V, 40, d_model=32),
}
"""Models other than decoders of one mixer."""
MODELS = (*all_mixers(), *KINDS)


def jobs(names: Sequence[str]) -> Iterator[Job]:
    for name in names:
        for target in get_args(TargetName):
            others = name in (*CORE, *KINDS) and target == "cuda-graph"
            for precision in ("fp32", "fp16", "bf16", "int4") if others else ("fp32",):
                yield Job(name, target, precision)


def placed(job: Job) -> list[Placement]:
    """The placement of each graph of a bundle for CUDA."""
    model = KINDS[job.model]() if job.model in KINDS else of_mixer(job.model)
    plan = plan_export(model.eval(), TOKENIZER, seq_len=32, target=job.target, precision=job.precision)
    with tempfile.TemporaryDirectory() as folder:
        export_graphs(replace(plan, for_cuda=True, int8_products=False), Path(folder))
        return placements(sorted(Path(folder).glob("*.onnx")))


def main() -> None:
    print("| model | targets and precisions | graph | computed on the CPU | waited for | CUDA graph |")
    print("|---|---|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        alike: dict[tuple[str, ...], list[str]] = {}
        for job in jobs([name]):
            built = f"{job.target} {job.precision}"
            for graph in placed(job):
                alike.setdefault(graph.cells(), []).append(built)
        for cells, builds in alike.items():
            which = "all" if len(builds) == len([*jobs([name])]) else ", ".join(builds)
            print("|", " | ".join([name, which, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
