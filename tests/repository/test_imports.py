"""Rules of imports: between packages, and at run time."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import seqlab
import seqlab_data
import seqlab_export
from repository.source_tree import (
    PACKAGES,
    all_imports,
    arrows_of_files,
    arrows_of_rooms,
    imports_when_loaded,
    python_files,
    within,
)

SEQLAB, DATA, EXPORT = PACKAGES.values()
LAYERS = ("mixer.py", "batch.py", "attention", "positions", "recurrence", "nn", "models")
HEAVY = ("torch", "numpy", "lightning", "mlflow", "onnx", "onnxruntime", "matplotlib", "jsonargparse", "rich")


def _offences(paths: list[Path], found: Callable[[Path], set[str]], *forbidden: str, but: str = "") -> set[str]:
    """The imports of files that are within what is forbidden, unless they are within what is allowed again."""
    assert paths
    return {
        f"{path} imports {name}"
        for path in paths
        for name in found(path)
        if within(name, *forbidden) and not (but and within(name, but))
    }


def test_seqlab_loads_neither_of_the_others() -> None:
    assert not _offences(python_files(SEQLAB), imports_when_loaded, "seqlab_data", "seqlab_export")


def test_data_knows_the_batch_types_only() -> None:
    assert not _offences(python_files(DATA), all_imports, "seqlab", "seqlab_export", but="seqlab.batch")


def test_export_does_not_load_data_but_tokenizers() -> None:
    assert not _offences(python_files(EXPORT), imports_when_loaded, "seqlab_data", but="seqlab_data.tokenizers")


def test_layers_know_neither_lightning_nor_mlflow() -> None:
    files = [file for part in LAYERS for file in python_files(SEQLAB / part)]
    assert not _offences(files, all_imports, "lightning", "pytorch_lightning", "torchmetrics", "mlflow")


def _loaded_by(imports: str) -> set[str]:
    """The top-level packages in a fresh interpreter after it imports these."""
    code = f"import json, sys; {imports}; print(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


@pytest.mark.parametrize("of", ["files", "rooms"])
def test_no_circle_of_imports(of: str) -> None:
    """Imports in functions count; those for type checking do not."""
    arrows = arrows_of_files()
    assert len(arrows) > 200 and "seqlab.mixer" in arrows["seqlab.attention.softmax"]
    try:
        TopologicalSorter(arrows if of == "files" else arrows_of_rooms(arrows)).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of {of}: {' <- '.join(error.args[1])}")


def test_import_seqlab_is_light() -> None:
    assert not _loaded_by("import seqlab, seqlab_export") & set(HEAVY)


@pytest.mark.parametrize("package", [seqlab, seqlab_data, seqlab_export])
def test_the_public_face_is_there_and_described(package: ModuleType) -> None:
    assert package.__all__ and package.__doc__
    for name in package.__all__:
        assert getattr(package, name) is not None and re.search(rf"\b{name}\b", package.__doc__), name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'; it has "):
        package.nothing  # noqa: B018


def test_what_runs_a_bundle_names_no_torch() -> None:
    forbidden = ("torch", "lightning", "mlflow", "onnx", "onnxscript")
    assert not _offences(python_files(EXPORT / "runner"), all_imports, *forbidden)


def test_a_deployment_machine_needs_no_torch() -> None:
    """NumPy, onnxruntime and, for subword bundles, sentencepiece are all it has."""
    imports = "import seqlab_data.tokenizers; from seqlab_export import open_bundle, open_text_model, verify_bundle"
    assert not _loaded_by(imports) & (set(HEAVY) - {"numpy", "onnxruntime"})
    assert "onnxruntime" not in _loaded_by("from seqlab_export import open_text_model")


def test_models_load_neither_lightning_nor_mlflow() -> None:
    loaded = _loaded_by("import seqlab.models")
    assert "torch" in loaded
    assert not loaded & {"lightning", "mlflow", "torchmetrics"}


def test_help_is_quick() -> None:
    """In under one second of processor time, the best of three."""
    command = [str(Path(sys.executable).with_name("seqlab")), "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run.returncode == 0, run.stderr
        assert "fit" in run.stdout
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 1.0


RUNS_WHAT_IT_IS_TOLD = {"eval", "exec", "compile", "__import__", "import_module", "run_path", "system", "Popen"}


def _served_files() -> list[Path]:
    """Files that read a bundle: on this machine, under MLflow's server and in Triton's repository."""
    folders = (EXPORT, DATA / "tokenizers", SEQLAB / "decoding")
    return [path for folder in folders for path in python_files(folder)]


def test_what_reads_a_bundle_imports_and_runs_nothing_by_name() -> None:
    assert not _offences(_served_files(), all_imports, "pickle", "shelve", "marshal", "runpy")
    for path in _served_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        named = {call.id for call in calls if isinstance(call, ast.Name)}
        # A method `compile` or `eval` is another thing.
        named |= {call.attr for call in calls if isinstance(call, ast.Attribute)} - {"compile", "eval"}
        assert not named & RUNS_WHAT_IT_IS_TOLD, path
