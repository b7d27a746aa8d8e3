"""A bundle runs without PyTorch, from its own folder alone, and writes the model's text; so do the Python examples."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from export.planted import copy_of
from export.toys import Shared, run_bare
from repository.source_tree import ROOT, python_blocks
from seqlab.cli import main
from seqlab.decoding import Sampling, generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.graph_runner import Bundle, BundleRunner
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.prove import Proof
from seqlab_export.runner.verify import load_golden, verify_bundle

PROGRAM = """
from seqlab_export import open_text_model, verify_bundle

pieces = []
model = open_text_model(sys.argv[1])
print(model.write("abc", max_new_tokens=20, seed=5, on_text=pieces.append), end="|")
print("".join(pieces), end="|")
print(verify_bundle(sys.argv[1]).ok, end="")
"""

SAMPLINGS = [Sampling(temperature=0.0), Sampling(seed=5), Sampling(temperature=0.7, top_k=5, top_p=0.9, seed=9)]
PROMPTS = [[4, 5, 6], [7], [8, 9, 10, 4, 5, 6, 7]]


def test_it_runs_where_only_numpy_and_onnxruntime_are(shared: Shared, tmp_path: Path) -> None:
    folder = copy_of(shared("attention").folder, tmp_path)
    text, pieces, ok = run_bare(PROGRAM, folder, cwd=tmp_path).split("|")
    assert text == pieces == open_text_model(folder).write("abc", max_new_tokens=20, seed=5)
    assert text and ok == "True"


def test_a_runtime_that_fails_proves_nothing(shared: Shared) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no kernel")

    folder = shared("gru").folder
    runtime: Any = SimpleNamespace(init_state=lambda _: {}, read=fail)
    checks = [*Proof(runtime, load_manifest(folder), load_golden(folder)).values()]
    assert checks and not any(check.ok for check in checks)
    assert {check.note for check in checks} == {"the runtime failed: no kernel"}


@pytest.mark.parametrize("name", ["attention", "gru"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "cut"])
def test_it_writes_what_the_model_writes(shared: Shared, name: str, sampling: Sampling) -> None:
    model, folder, _ = shared(name)
    expected = generate(TorchDecoder(model), PROMPTS, max_new_tokens=40, sampling=sampling)
    assert generate(BundleRunner(folder), PROMPTS, max_new_tokens=40, sampling=sampling) == expected


def test_a_damaged_bundle_or_an_old_onnxruntime_is_refused_before_it_runs(shared: Shared, tmp_path: Path) -> None:
    folder = copy_of(shared("gru").folder, tmp_path)
    replace(load_manifest(folder), min_onnxruntime="99.0").save(folder)
    with pytest.raises(ValueError, match=r"this bundle needs onnxruntime 99.0, here is"):
        BundleRunner(folder)
    with (folder / "weights.bin").open("r+b") as file:
        file.write(b"\x00\x01")
    with pytest.raises(ValueError, match=r"weights.bin: its sha256 is not the manifest's"):
        BundleRunner(folder)


def test_a_provider_that_is_not_there_is_refused(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared("gru").folder
    for run in (BundleRunner, verify_bundle):
        with pytest.raises(ValueError, match="provider must be one of cpu, cuda, cuda-tf32, got 'tpu'"):
            run(folder, provider="tpu")  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
            with pytest.raises(ValueError, match="this onnxruntime has no provider 'cuda'"):
                run(folder, provider="cuda")
        with monkeypatch.context() as patch:
            patch.setattr("onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider"])
            patch.setattr("onnxruntime.preload_dlls", lambda: print("Failed to load libcuda.so: no such file\nSee"))
            said = r"^provider 'cuda' cannot be loaded \(libcuda.so: no such file\); install it, or use another"
            with pytest.raises(ValueError, match=said):
                run(folder, provider="cuda")


def test_a_bundle_without_taps_says_how_to_have_some(shared: Shared) -> None:
    with pytest.raises(ValueError, match="has no taps; export it with --taps attention,state"):
        Bundle(shared("gru").folder).tap(tokens=np.zeros((1, 1)), pad_mask=np.ones((1, 1)))


EXAMPLES = ROOT / "examples" / "python"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
def test_a_mixer_of_ones_own_becomes_a_bundle_that_runs_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own_mixer, bundle = import_module("own_mixer"), tmp_path / "bundle"
    (in_guide,) = python_blocks("docs/guides/own-mixer.md")
    assert inspect.getsource(own_mixer.Decay) in in_guide
    own_mixer.main(str(bundle))
    said = capsys.readouterr().out
    assert said.count(": kept\n") == len(own_mixer.CAUSAL) and "all well: True" in said
    assert said.endswith(" brown fox jumps over the lazy dog. \n")

    program = "sys.argv[:] = sys.argv[1:]\nimport runpy\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    printed = run_bare(program, EXAMPLES / "run_bundle.py", bundle, "the ", cwd=tmp_path)
    proven, written, *_ = printed.splitlines()
    assert proven.startswith("proven: True, ")
    options: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0.8, "top_k": 40, "seed": 1}
    assert written == open_text_model(bundle).write("the ", **options)


@pytest.mark.parametrize("name", ["attention", "gru"])
@pytest.mark.parametrize("prompt", ["fed a cab", "", "d?\ufffdc\n"])
def test_onnxruntime_alone_writes_the_same(
    name: str, prompt: str, shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop that docs/bundle.md describes."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    folder = str(shared(name).folder)
    assert main(["generate", folder, "--prompt", prompt, "--temperature", "0"]) == 0
    expected = capsys.readouterr().out
    import_module("onnxruntime_loop").main(folder, prompt)
    assert capsys.readouterr().out == expected
    assert len(expected) > 1


def test_the_command_verifies_without_pytorch(shared: Shared, tmp_path: Path) -> None:
    program = "import sys; from seqlab.cli import main; sys.exit(main(sys.argv[1:]))"
    assert json.loads(run_bare(program, "verify", shared("attention").folder, "--json", cwd=tmp_path))["ok"]
