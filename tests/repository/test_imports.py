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
from repository.source_tree import PACKAGES, all_imports, arrows_of_files, imports_when_loaded, python_files, within

SEQLAB, DATA, EXPORT, STUDIES = PACKAGES.values()
LAYERS = ("mixer.py", "batch.py", "attention", "positions", "recurrence", "nn", "models")
HEAVY = (
    *("torchmetrics", "torch", "numpy", "lightning", "mlflow", "onnx", "onnxruntime", "matplotlib"),
    *("jsonargparse", "rich"),
)


LAYER_FILES = [file for part in LAYERS for file in python_files(SEQLAB / part)]
PICKLES = ("pickle", "shelve", "marshal", "runpy")
SERVED = [path for folder in (EXPORT, DATA / "tokenizers", SEQLAB / "decoding") for path in python_files(folder)]
"""Files that read a bundle: on this machine, under MLflow's server and in Triton's repository."""


@pytest.mark.parametrize(
    ("paths", "found", "forbidden", "but"),
    [
        (python_files(SEQLAB), imports_when_loaded, ("seqlab_data", "seqlab_export"), ""),
        (python_files(SEQLAB) + python_files(DATA) + python_files(EXPORT), all_imports, ("seqlab_studies",), ""),
        (
            [path for path in python_files(STUDIES) if path.name != "book.py"],
            *(all_imports, ("seqlab_studies",), "seqlab_studies.lib"),
        ),
        (python_files(DATA), all_imports, ("seqlab", "seqlab_export"), "seqlab.batch"),
        (python_files(EXPORT), imports_when_loaded, ("seqlab_data",), "seqlab_data.tokenizers"),
        (python_files(SEQLAB / "callbacks"), all_imports, ("seqlab_export",), ""),
        (LAYER_FILES, all_imports, ("lightning", "pytorch_lightning", "torchmetrics", "mlflow"), ""),
        (python_files(EXPORT / "runner"), all_imports, ("torch", "lightning", "mlflow", "onnx", "onnxscript"), ""),
        (SERVED, all_imports, PICKLES, ""),
    ],
    ids=[
        "seqlab",
        "studies",
        "a study",
        "seqlab_data",
        "seqlab_export",
        "callbacks",
        "layers",
        "what runs a bundle",
        "what reads a bundle",
    ],
)
def test_imports_that_are_not_allowed(
    paths: list[Path], found: Callable[[Path], set[str]], forbidden: tuple[str, ...], but: str
) -> None:
    """Unless they are within what is allowed again."""
    assert paths
    imported = {path: [name for name in found(path) if within(name, *forbidden)] for path in paths}
    assert not {path: names for path, names in imported.items() if [n for n in names if not (but and within(n, but))]}


def _loaded_by(imports: str) -> set[str]:
    """The top-level packages in a fresh interpreter after it imports these."""
    code = f"import json, sys; {imports}; print(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


def test_a_former_name_of_the_contract_is_read() -> None:
    from seqlab import Entry, StateEntry

    assert Entry is StateEntry


def test_no_circle_of_imports() -> None:
    """Imports in functions count, those for type checking do not; test_scripts.py has the rooms."""
    arrows = arrows_of_files()
    assert len(arrows) > 200 and "seqlab.mixer" in arrows["seqlab.attention.softmax"]
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("package", [seqlab, seqlab_data, seqlab_export])
def test_the_public_face_is_there_and_described(package: ModuleType) -> None:
    assert package.__all__ and package.__doc__
    for name in package.__all__:
        assert getattr(package, name) is not None and re.search(rf"\b{name}\b", package.__doc__), name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'; it has "):
        package.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("imports", "loaded"),
    [
        ("import seqlab, seqlab_export", set()),
        ("from seqlab_export import open_text_model", {"numpy"}),
        (
            "import seqlab_data.tokenizers; from seqlab_export import open_bundle, open_text_model, verify_bundle",
            {"numpy", "onnxruntime"},
        ),
        ("import seqlab.models", {"torch", "numpy"}),
    ],
)
def test_what_an_import_loads(imports: str, loaded: set[str]) -> None:
    """A deployment machine has NumPy, onnxruntime and, for subword bundles, sentencepiece; models need no Lightning."""
    assert _loaded_by(imports) & set(HEAVY) <= loaded
    assert "torch" not in loaded or "torch" in _loaded_by(imports)


def test_help_is_quick() -> None:
    """In under one second of processor time, the best of three."""
    command = [str(Path(sys.executable).with_name("seqlab")), "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run.returncode == 0 and "fit" in run.stdout, run.stderr
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if seconds[-1] < 1.0:
            return
    pytest.fail(f"{seconds}")


RUNS_WHAT_IT_IS_TOLD = {"eval", "exec", "compile", "__import__", "import_module", "run_path", "system", "Popen"}


def test_what_reads_a_bundle_runs_nothing_by_name() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in SERVED]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {call.id for call in calls if isinstance(call, ast.Name)}
    # A method `compile` or `eval` is another thing.
    named |= {call.attr for call in calls if isinstance(call, ast.Attribute)} - {"compile", "eval"}
    assert not named & RUNS_WHAT_IT_IS_TOLD


SOURCE = """
from typing import TYPE_CHECKING
import a.b
from c import d
if TYPE_CHECKING:
    import typed
else:
    import untyped
try:
    import tried
except ImportError:
    import fallback
class Class:
    import in_class
    def method(self):
        import lazy
"""


def test_the_checks_see_what_they_must_see(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    loaded = {"typing.TYPE_CHECKING", "a.b", "c.d", "untyped", "tried", "fallback", "in_class"}
    assert imports_when_loaded(path) == loaded
    assert all_imports(path) == loaded | {"typed", "lazy"}
    path.write_text("from . import sibling")
    with pytest.raises(AssertionError, match="relative import"):
        all_imports(path)


def test_within_compares_whole_names() -> None:
    assert within("seqlab", "seqlab") and within("seqlab.batch.TokenBatch", "seqlab.batch")
    assert not within("seqlab_data.text", "seqlab") and not within("seqlab.batches", "seqlab.batch")
