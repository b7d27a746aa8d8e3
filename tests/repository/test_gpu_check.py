"""`scripts/gpu_check.sh` on a machine without a device: what it says, and all of its parts at toy size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from repository.source_tree import ROOT
from runtime.programs import build

PARTS = ("training", "proofs", "decoding", "tests")
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
FLOAT8 = """
def convert_to_float8_training(model, *, module_filter_fn):
    assert any(module_filter_fn(part, name) for name, part in model.named_modules() if hasattr(part, "in_features"))
"""
"""Stand-in for torchao's module."""
Measurement = tuple[str, str, str]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device, so that it would run for minutes"),
]


def environment() -> dict[str, str]:
    """The environment of a user: without what pytest and commands run in this process have set."""
    unset = ("PYTEST", "SEQLAB_RE", "PYTHONSAFEPATH")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {name: value for name, value in os.environ.items() if not name.startswith(unset)} | {"PATH": path}


def run(*command: Path | str, **added: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=environment() | added, cwd=ROOT)


def test_what_cannot_run_says_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    done = run(SCRIPT)
    parts = [f"== {name}\nnot run: no CUDA device" for name in PARTS]
    assert done.stdout == "\n" + "\n\n".join([*parts, "ok, 4 parts not run"]) + "\n"
    assert done.returncode == 0 and done.stderr == ""

    (tmp_path / "broken-1.0-py3-none-any.whl").write_text("no wheel")
    done = run(SCRIPT, tmp_path)
    assert done.stdout.count("not run: no CUDA device") == 4
    assert done.returncode == 1 and done.stdout.endswith(f"\nnot complete: installing {tmp_path}\n")


@pytest.mark.parametrize("part", PARTS)
def test_a_benchmark_without_a_device_says_so(part: str) -> None:
    done = run(sys.executable, ROOT / "benchmarks" / f"gpu_{part}.py")
    assert (done.returncode, done.stdout) == (0, f"gpu_{part}: not run: no CUDA device\n")


def found(results: Path) -> Counter[Measurement]:
    """Number of results of each measurement, in the order of the first."""
    lines = [json.loads(line) for line in results.read_text().splitlines() if '"found"' in line]
    assert all(line["versions"]["torch"] and line["date"] for line in lines)
    return Counter((line["part"], line["row"], line["column"]) for line in lines)


def test_a_rehearsal_measures_each_part_once_and_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    results, bundles, site = tmp_path / "results.jsonl", tmp_path / "bundles", tmp_path / "site"
    command: list[Path | str] = [sys.executable, ROOT / "benchmarks/gpu_training.py", "--rehearse"]
    command += ["--results", results]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert training.stdout is not None
    said = [line for line, _ in zip(training.stdout, range(6), strict=False)]
    training.kill()
    training.communicate()
    assert "Attention, float8, compiled: not run: ModuleNotFoundError: No module named 'torchao'\n" in said
    first = found(results)
    assert 5 <= len(first) < 20
    with results.open("a") as file:
        file.write('{"part": "training", "ro')

    (site / "torchao").mkdir(parents=True)
    (site / "torchao" / "float8.py").write_text(FLOAT8)
    added = {
        "PYTHONPATH": str(site),
        "SEQLAB_REHEARSE": "1",
        "SEQLAB_RESULTS": str(results),
        "SEQLAB_BUNDLES": str(bundles),
        "SEQLAB_PROGRAMS": str(build("seqlab-run").parent),
    }
    done = run(SCRIPT, **added)
    assert done.returncode == 0 and done.stdout.endswith("\n\nok\n"), done.stdout + done.stderr
    measured = found(results)
    assert {*measured.values()} == {1} and {*first} < {*measured}
    assert {part for part, _, _ in measured} == {*PARTS}
    trained = [one for one in measured if one[0] == "training"]
    assert ("training", "Attention", "float8, compiled") in trained[-2:], "last are what failed and what was cut off"

    before = results.read_bytes()
    done = run(SCRIPT, **added)
    assert done.returncode == 0 and results.read_bytes() == before, done.stdout + done.stderr

    tables = run(sys.executable, ROOT / "benchmarks" / "gpu_results.py", results).stdout
    for part in PARTS:
        number = sum(one[0] == part for one in measured)
        assert f"## {part}: CPU, rehearsal, " in tables and f"; {number} of {number} measured\n" in tables
    assert "\n| GRU cuda-graph fp32 |  | " not in tables and "12 steps bit-identical" in tables
