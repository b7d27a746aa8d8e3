"""Proofs of small bundles on a CUDA device: each mixer, target and precision in Python and C++, and CUDA graphs.

python benchmarks/gpu_proofs.py export FOLDER             on any machine; many minutes
python benchmarks/gpu_proofs.py prove FOLDER RESULTS      on the device; writes one line of JSON for each bundle

Both continue where they were cut off. A line has the result of `seqlab verify` and `seqlab-run verify` with
`--provider cuda`, and for a step of fixed shapes the largest differences between a replayed CUDA graph, the plain
session and the CPU's. `--provider cpu` rehearses the proofs without a device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from peers.contest import BUILD

from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import RWKV7
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.reports.conformance import TOKENIZER, all_mixers, model_of
from seqlab_export.runner.report import Check, share
from seqlab_export.runner.sessions import PROVIDERS
from seqlab_export.runner.verify import verify_bundle

RUNTIME = Path(os.environ.get("SEQLAB_RUN", BUILD / "cpp" / "seqlab-run"))
CORE = ("Attention", "GRU", "LSTM", "GatedDeltaNet", "Mamba")
"""Mixers that are exported in every precision and target; the others in fp32."""
ROWS, STEPS = 3, 12
TYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(bool)": np.bool_
}  # fmt: skip


class Job(NamedTuple):
    mixer: str
    target: TargetName
    precision: Precision

    @property
    def folder(self) -> str:
        return "_".join(self).replace(", ", "-")


def jobs() -> Iterator[Job]:
    for mixer in all_mixers():
        for target in get_args(TargetName):
            for precision in get_args(Precision) if mixer in CORE else ("fp32",):
                yield Job(mixer, target, precision)


def export(job: Job, folder: Path) -> None:
    """Exports a bundle of one layer; a model that cannot be exported so leaves its reason in a file."""
    mixer = partial(RWKV7, head_dim=8) if job.mixer == "RWKV7" else all_mixers()[job.mixer]
    try:
        try:
            model = model_of(mixer, RoPE)
        except ValueError:
            model = model_of(mixer, NoPositions)
        options: Any = {"run_id": "", "commit": "", "seq_len": 32, "target": job.target, "precision": job.precision}
        export_bundle(model, TOKENIZER, folder / job.folder, **options)
    except ValueError as error:
        (folder / f"{job.folder}.txt").write_text(str(error))


def prove(folder: Path, provider: str) -> dict[str, Any]:
    """Results of the proofs of a bundle by name, or the sentence with which one failed."""
    found: dict[str, Any] = {"bundle": folder.name}
    measures: dict[str, Any] = {"python": in_python, "cpp": in_cpp, "graph": replayed}
    for name, measure in measures.items():
        try:
            found[name] = measure(folder, provider)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return found


def in_python(folder: Path, provider: Any) -> Any:
    return summary(verify_bundle(folder, provider=provider).checks)


def in_cpp(folder: Path, provider: str) -> Any:
    command = [str(RUNTIME), "verify", str(folder), "--provider", provider, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr.strip())
    return summary([Check(**check) for check in json.loads(done.stdout)["checks"]])


def summary(checks: Sequence[Check]) -> Any:
    """The largest share of a budget, and the first failure."""
    shares = [share(check) for check in checks if check.error is not None and check.limit]
    wrong = [f"{check.kind}, {check.subject}: {check.note}" for check in checks if not check.ok]
    return {"of limit": max(shares, default=None)} | ({"wrong": wrong[0]} if wrong else {})


def replayed(folder: Path, provider: str) -> Any:
    """Largest differences over some steps; None if a dimension of the step grows."""
    path = folder / "step.onnx"
    inputs = ort.InferenceSession(path).get_inputs() if path.is_file() else []
    if not inputs or {size for one in inputs for size in one.shape if isinstance(size, str)} - {"B", "M"}:
        return None
    on_cpu, plain = (stepped(path, PROVIDERS[name].execution) for name in ("cpu", provider))
    found = {"plain - cpu": float(np.abs(plain - on_cpu).max())}
    if provider != "cpu":
        (name, options), cpu = PROVIDERS[provider].execution
        graph = stepped(path, ((name, options | {"enable_cuda_graph": "1"}), cpu))
        found["graph - plain"] = float(np.abs(graph - plain).max())
    return found


def stepped(path: Path, execution: Any) -> NDArray[np.float64]:
    """Logits (STEPS, ROWS, 1, V) of steps whose inputs and outputs keep their places on the device."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    session = ort.InferenceSession(path, settings, providers=[*execution])
    device = "cpu" if len(execution) == 1 else "cuda"

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


def parts(found: dict[str, Any]) -> list[Any]:
    return [found[name] for name in ("python", "cpp", "graph") if found[name] is not None]


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("verb", choices=["export", "prove"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--provider", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        if given.verb == "export":
            done = {path.name.removesuffix(".txt") for path in given.folder.iterdir()}
            list(pool.map(partial(export, folder=given.folder), (job for job in jobs() if job.folder not in done)))
            return
        lines = given.results.read_text().splitlines() if given.results.exists() else []
        done = {json.loads(line)["bundle"] for line in lines}
        bundles = sorted(path for path in given.folder.iterdir() if path.is_dir() and path.name not in done)
        with given.results.open("a") as results:
            for one in as_completed([pool.submit(prove, bundle, given.provider) for bundle in bundles]):
                print(json.dumps(one.result()), file=results, flush=True)
    found = [json.loads(line) for line in given.results.read_text().splitlines()]
    wrong = [one["bundle"] for one in found if any(isinstance(part, str) or "wrong" in part for part in parts(one))]
    print(f"{len(found)} bundles, of which {len(wrong)} are not proven: {', '.join(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
