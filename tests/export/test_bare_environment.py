"""A deployment machine: an environment of its own, with NumPy, onnxruntime, sentencepiece and this project alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from contracts.subjects import randomized
from export.test_encoder_bundles import D_MODEL, SEQ_LEN, C, exported
from repository.source_tree import ROOT
from seqlab.models import BagOfWords
from seqlab_data.tokenizers import SubwordTokenizer
from seqlab_export.runner.bundle_text_model import open_text_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch's exporter
]
TEXTS = ["abc", "fed a cab"]
PROGRAM = """
import json, sys
from importlib.metadata import distributions
from seqlab_export import open_text_model

answers = [open_text_model(folder).answer(json.loads(sys.argv[1])) for folder in sys.argv[2:]]
print(json.dumps([answers, sorted(found.name for found in distributions()), list(sys.modules)]))
"""


@pytest.fixture(scope="module", name="python")
def _python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {pin.name: str(pin.specifier) for pin in map(Requirement, filter(lambda line: line[0] != "#", lines))}
    needed = [f"numpy{pins['numpy']}", f"onnxruntime{pins['onnxruntime-gpu']}", f"sentencepiece{pins['sentencepiece']}"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *needed], check=True)
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    return python


def test_it_runs_every_kind_of_bundle_alike(python: Path, served: Callable[[str], Path], tmp_path: Path) -> None:
    tokenizer = SubwordTokenizer("abc fed a cab " * 50, vocab_size=275)
    exported(randomized(BagOfWords(275, C, SEQ_LEN, d_model=D_MODEL)), tmp_path / "subword", tokenizer=tokenizer)
    folders = [*map(served, ("generator", "translator", "classifier", "tagger")), tmp_path / "subword"]
    command: list[str | Path] = [python, "-I", "-c", PROGRAM, json.dumps(TEXTS), *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answers, installed, loaded = json.loads(done.stdout)
    assert "seqlab" in installed and not {"torch", "lightning", "mlflow", "onnx"} & {*installed, *loaded}
    assert "sentencepiece" in loaded
    assert answers == [open_text_model(folder).answer(TEXTS) for folder in folders]


def test_the_command_names_a_module_that_it_needs(python: Path, served: Callable[[str], Path], tmp_path: Path) -> None:
    command: list[str | Path] = [python.with_name("seqlab"), "verify", served("generator")]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    expected = "seqlab: this needs the Python module rich, which is not installed here\n"
    assert (done.returncode, done.stderr) == (2, expected)
