"""The Python examples run, and what they print is so. (That of data: tests/cli/test_own_data.py.)"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from export.toys import Shared, run_bare
from repository.source_tree import ROOT, python_blocks
from seqlab.cli import main
from seqlab_export import open_text_model

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
