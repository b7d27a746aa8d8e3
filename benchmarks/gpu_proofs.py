"""Proofs of small bundles on a CUDA device: each mixer, target and precision in Python and C++, and CUDA graphs.

python benchmarks/gpu_proofs.py export FOLDER             on any machine; many minutes
python benchmarks/gpu_proofs.py prove FOLDER RESULTS      on the device; writes one line of JSON for each bundle

Both continue where they were cut off. A line has the largest share of an error budget in `seqlab verify` and in
`seqlab-run verify` with `--provider cuda`, and whether a CUDA graph of the step, where its shapes are fixed, replays
the plain session's logits. `--provider cpu` rehearses the proofs without a device. The exit code is 1 if a bundle is
not proven, or if there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from peers.contest import BUILD

from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName
from seqlab_export.reports.conformance import TOKENIZER, all_mixers, model_named
from seqlab_export.runner.report import Check, share
from seqlab_export.runner.sessions import PROVIDERS, Provider
from seqlab_export.runner.verify import verify_bundle

RUNTIME = Path(os.environ.get("SEQLAB_RUN", BUILD / "cpp" / "seqlab-run"))
CORE = ("Attention", "GRU", "LSTM", "GatedDeltaNet", "Mamba")
"""Mixers that are exported in every precision of CUDA's; the others in fp32."""
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
            precisions: list[Precision] = ["fp32", *(("fp16", "bf16") if mixer in CORE else ())]
            # Made on a CPU, quantised products are for CUDA with this target only.
            precisions += ["int4"] if mixer in CORE and target == "cuda-graph" else []
            for precision in precisions:
                yield Job(mixer, target, precision)


def export(job: Job, folder: Path) -> str:
    """Exports a bundle of one layer; returns the reason if it was refused, else nothing."""
    try:
        options: Any = {"run_id": "", "commit": "", "seq_len": 32, "target": job.target, "precision": job.precision}
        export_bundle(model_named(job.mixer), TOKENIZER, folder / job.folder, **options)
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


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
    """Bitwise comparison of a replayed CUDA graph with the plain session; None if a dimension of the step grows."""
    path, plain = folder / "step.onnx", PROVIDERS[provider]
    inputs = PROVIDERS["cpu"].open(path).get_inputs() if path.is_file() else []
    if not inputs or {size for one in inputs for size in one.shape if isinstance(size, str)} - {"B", "M"}:
        return None
    (name, options), *others = plain.execution
    recorded = {} if plain.on_cpu else {"enable_cuda_graph": "1"}
    graph = replace(plain, execution=((name, options | recorded), *others))
    expected, found = stepped(path, plain), stepped(path, graph)
    same = np.array_equal(found, expected, equal_nan=True)
    return {} if same else {"wrong": f"differs by {np.abs(found - expected).max()}"}


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


def is_proven(found: dict[str, Any]) -> bool:
    return not any(isinstance(part, str) or "wrong" in part for part in found.values() if part is not None)


def results_of(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each bundle without its name, by name."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {line.pop("bundle"): line for line in lines}


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
            done = {path.name for path in given.folder.iterdir()}
            missing = [job for job in jobs() if job.folder not in done]
            for job, reason in zip(missing, pool.map(partial(export, folder=given.folder), missing), strict=True):
                if reason:
                    print(f"{job.folder}: {reason}", flush=True)
            return
        done = {name for name, found in results_of(given.results).items() if is_proven(found)}
        bundles = sorted(path for path in given.folder.iterdir() if path.name not in done)
        with given.results.open("a") as results:
            for one in as_completed([pool.submit(prove, bundle, given.provider) for bundle in bundles]):
                print(json.dumps(one.result()), file=results, flush=True)
    found = results_of(given.results)
    wrong = [name for name in found if not is_proven(found[name])]
    print(f"{len(found)} bundles, of which {len(wrong)} are not proven: {', '.join(wrong)}")
    sys.exit(bool(wrong) or not found)


if __name__ == "__main__":
    main()
