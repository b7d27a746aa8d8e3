"""Proofs on a CUDA device: each mixer in PyTorch, and its bundles for each target in Python, in C++ and as CUDA graphs.

python benchmarks/gpu_proofs.py             on the device; exports what is missing first
python benchmarks/gpu_proofs.py --export    on any machine: the bundles only; many minutes

A mixer has its largest error in the laws in float64, and in three precisions against float64. A bundle has the largest
share of an error budget in `seqlab verify` and in `seqlab-run verify` with `--provider cuda`, and whether a CUDA graph
of the step, where its shapes are fixed, replays the plain session's logits, all inputs and outputs bound to the device.
A run goes on where the last one was cut off.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import onnxruntime as ort
import torch
from filelock import FileLock
from numpy.typing import NDArray
from peers.contest import BUILD, RUNTIME
from peers.results import Found, Key, Results, arguments

from seqlab.positions import NoPositions
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.reports.conformance import TOKENIZER, all_mixers, measure_mixer, model_named
from seqlab_export.runner.report import Check, share
from seqlab_export.runner.sessions import PROVIDERS, Provider
from seqlab_export.runner.verify import verify_bundle

CORE = (
    *("Attention", "Attention, SlidingWindow", "LatentAttention", "DifferentialAttention", "LinearAttention"),
    *("GatedDeltaNet", "GRU", "LSTM", "MinGRU", "Mamba", "Mamba2", "RWKV7"),
)
"""Mixers whose bundles for CUDA graphs are in every precision; all others are in fp32."""
ROWS, STEPS = 3, 12
TYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(bool)": np.bool_
}  # fmt: skip


class Job(NamedTuple):
    mixer: str
    target: TargetName
    precision: Precision

    @property
    def name(self) -> str:
        return " ".join(self)


def jobs() -> Iterator[Job]:
    """The core first."""
    for precision in get_args(Precision):
        yield from (Job(mixer, "cuda-graph", precision) for mixer in CORE)
    for mixer in all_mixers():
        yield from (Job(mixer, target, "fp32") for target in get_args(TargetName))


def export(job: Job, folder: Path) -> str:
    """Exports a bundle of one layer, unless it is there; returns the reason if there is none, else nothing."""
    bundle, refusal = folder / job.name, folder / f"{job.name}.txt"
    with FileLock(f"{bundle}.lock"):
        if not bundle.exists() and not refusal.exists():
            options: Any = {"run_id": "", "commit": "", "seq_len": 32, "target": job.target, "precision": job.precision}
            try:
                export_bundle(model_named(job.mixer), TOKENIZER, bundle, **options)
            except ValueError as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())}"
                refusal.write_text(said, encoding="utf-8")
    return refusal.read_text(encoding="utf-8") if refusal.exists() else ""


def proved(job: Job, folder: Path, measure: Callable[[Path, str], Found], provider: str) -> Found:
    reason = export(job, folder)
    if reason.startswith(ParityError.__name__):
        raise ValueError(reason)
    return {"refused": reason.removeprefix("ValueError: ")} if reason else measure(folder / job.name, provider)


def in_pytorch(mixer: str, device: str) -> Found:
    with torch.device(device):
        cells = measure_mixer(all_mixers()[mixer], NoPositions)
    if wrong := [f"{name}: {cell}" for name, cell in cells.items() if cell.failed]:
        raise ValueError("; ".join(wrong))
    return {name: str(cell) for name, cell in cells.items()}


def in_python(folder: Path, provider: Any) -> Found:
    return summary(verify_bundle(folder, provider=provider).checks)


def in_cpp(folder: Path, provider: str) -> Found:
    command = [str(RUNTIME), "verify", str(folder), "--provider", provider, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr.strip())
    return summary([Check(**check) for check in json.loads(done.stdout)["checks"]])


def summary(checks: Sequence[Check]) -> Found:
    """The largest share of a budget.

    Raises:
        ValueError: a check failed.
    """
    if wrong := [f"{check.kind}, {check.subject}: {check.note}" for check in checks if not check.ok]:
        raise ValueError(wrong[0])
    return {"of limit": max(share(check) for check in checks if check.error is not None and check.limit)}


def replayed(folder: Path, provider: str) -> Found:
    """Bitwise comparison of a replayed CUDA graph with the plain session; nothing if a dimension of the step grows."""
    path, plain = folder / "step.onnx", PROVIDERS[provider]
    inputs = PROVIDERS["cpu"].open(path).get_inputs() if path.is_file() else []
    if not inputs or {size for one in inputs for size in one.shape if isinstance(size, str)} - {"B", "M"}:
        return {}
    (name, options), *others = plain.execution
    recorded = {} if plain.on_cpu else {"enable_cuda_graph": "1"}
    graph = replace(plain, execution=((name, options | recorded), *others))
    expected, found = stepped(path, plain), stepped(path, graph)
    if not np.array_equal(found, expected, equal_nan=True):
        raise ValueError(f"differs by {np.abs(found - expected).max()}")
    return {"steps bit-identical": STEPS}


COLUMNS = {"Python": in_python, "C++": in_cpp, "CUDA graph": replayed}


def stepped(path: Path, provider: Provider) -> NDArray[np.float64]:
    """Logits (STEPS, ROWS, 1, V) of steps whose inputs and outputs keep their places on the device."""
    session, device = provider.open(path), "cpu" if provider.on_cpu else "cuda"

    def place(one: Any) -> ort.OrtValue:
        shape = [size if isinstance(size, int) else ROWS for size in one.shape]
        return ort.OrtValue.ortvalue_from_numpy(np.full(shape, one.type == "tensor(bool)", TYPES[one.type]), device, 0)

    inputs = {one.name: place(one) for one in session.get_inputs()}
    outputs = {one.name: place(one) for one in session.get_outputs()}
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    logits, dice = [], np.random.default_rng(0)
    for _ in range(STEPS):
        inputs["tokens"].update_inplace(dice.integers(TOKENIZER.vocab_size, size=(ROWS, 1)))
        session.run_with_iobinding(binding)
        logits.append(outputs["logits"].numpy().astype(np.float64))
        for name in inputs.keys() & {name.removeprefix("new_") for name in outputs}:
            inputs[name].update_inplace(outputs[f"new_{name}"].numpy())
    return np.stack(logits)


def tasks(wanted: Sequence[Job], folder: Path, device: str) -> dict[Key, Callable[[], Found]]:
    made: dict[Key, Callable[[], Found]] = {}
    for job in wanted:
        for column, measure in COLUMNS.items():
            made[job.name, column] = partial(proved, job, folder, measure, device)
    for mixer in dict.fromkeys(job.mixer for job in wanted):
        made[mixer, "PyTorch"] = partial(in_pytorch, mixer, device)
    return made


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--bundles", type=Path, default=BUILD / "gpu-check" / "bundles", help="folder of the bundles")
    parser.add_argument("--export", action="store_true", help="export the bundles, and prove nothing")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="number of processes")
    given = parser.parse_args()
    given.bundles.mkdir(parents=True, exist_ok=True)
    wanted = [Job("GRU", "cuda-graph", "fp32"), Job("GRU", "cuda-graph", "int8")] if given.rehearse else [*jobs()]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        if given.export:
            for job, reason in zip(wanted, pool.map(partial(export, folder=given.bundles), wanted), strict=True):
                print(f"{job.name}: {reason or 'exported'}", flush=True)
            return
        results = Results.of("proofs", given)
        results.run(tasks(wanted, given.bundles, results.device), pool.map)


if __name__ == "__main__":
    main()
