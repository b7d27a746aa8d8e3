"""The layout that the design fixes."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from repository.source_tree import PACKAGES, ROOT, python_files

SOURCES = ("platform", "datamodules", "export", "studies")
LONGEST_FILE = 320
FEWEST_WORDS = 3


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = [Requirement(text) for text in PROJECT["project"]["dependencies"]]


def test_source_roots_and_tests_are_no_packages_and_every_folder_of_code_is_one() -> None:
    """`platform/__init__.py` would shadow the standard library's module; a folder without one is left out of walks."""
    for root in SOURCES:
        assert (ROOT / root).is_dir() and not (ROOT / root / "__init__.py").exists()
    folders = {path.parent for package in PACKAGES.values() for path in python_files(package)}
    assert {*PACKAGES.values()} <= folders and not [path for path in folders if not (path / "__init__.py").is_file()]
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not [path for path in (ROOT / "tests").rglob("platform") if path.is_dir()]


def test_beside_the_rooms_stand_the_contract_and_the_batches_alone() -> None:
    assert {path.name for path in PACKAGES["seqlab"].glob("[!_]*.py")} == {"mixer.py", "batch.py"}


def test_files_are_short() -> None:
    suffixes = {".py", ".yaml", ".cc", ".h", ".cmake"}
    files = [path for root in SOURCES for path in (ROOT / root).rglob("*") if path.suffix in suffixes]
    files = [path for path in files if "build" not in path.parts]
    assert len(files) > 30
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in files}
    assert not {str(path): length for path, length in lengths.items() if length > LONGEST_FILE}


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """The strings below constants too."""
    wrong = re.compile(r"\s*(As|By|How|Of|So|That|Those|What|When|Where|Whether|Which|Who|Whose)\b")
    text_like_it = re.compile(rf"""["']{wrong.pattern}""")
    folders = (*PACKAGES.values(), *(ROOT / name for name in ("tests", "scripts", "benchmarks", "examples")))
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in python_files(folder)}
    found = []
    for path in (path for path, text in texts.items() if text_like_it.search(text)):
        for node in ast.walk(ast.parse(texts[path])):
            match node:
                case ast.Expr(ast.Constant(str(text))) if wrong.match(text):
                    found.append(f"{path}:{node.lineno}")
    assert len(texts) > 500 and not found


def test_docstrings_of_public_names_say_more_than_a_word_or_two() -> None:
    short = []
    for name in ("seqlab", "seqlab_data", "seqlab_export"):
        for path in python_files(PACKAGES[name]):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
                    hidden = getattr(node, "name", "").startswith("_")
                    if not hidden and len(text.split("\n\n")[0].split()) < FEWEST_WORDS:
                        short.append(f"{path}: {text}")
    assert not short


# What must be allowed, and what must not.
FLOORS = [
    ("lightning", ["2.6.6", "2.6.9"], ["2.6.3", "2.7.0"]),
    ("torch", ["2.11.0", "2.13.0"], ["2.10.0"]),
    ("torchmetrics", ["1.9.0"], []),
    ("onnx", ["1.21.0", "1.23.2"], ["1.20.1"]),
    ("onnxscript", ["0.7.1", "0.7.2"], ["0.7.0"]),
    ("mlflow", ["3.17.2", "3.18.1"], ["3.17.1", "3.18.0", "4.0.0"]),
    ("jsonargparse", ["4.53.0"], ["4.52.0", "5.0.0"]),
]


@pytest.mark.parametrize(("name", "allowed", "refused"), FLOORS, ids=[floor[0] for floor in FLOORS])
def test_dependency_floors(name: str, allowed: list[str], refused: list[str]) -> None:
    (requirement,) = [requirement for requirement in REQUIREMENTS if requirement.name == name]
    assert all(requirement.specifier.contains(version) for version in allowed)
    assert not any(requirement.specifier.contains(version) for version in refused)
    assert name != "jsonargparse" or requirement.extras == {"signatures"}


def test_one_onnxruntime_a_platform() -> None:
    """Two of them in one environment overwrite each other; the GPU build holds the CPU provider too."""
    runtimes = {r.name: r.marker for r in REQUIREMENTS if r.name.startswith("onnxruntime")}
    for system, expected in (("linux", "onnxruntime-gpu"), ("win32", "onnxruntime-gpu"), ("darwin", "onnxruntime")):
        chosen = [
            name for name, marker in runtimes.items() if marker is None or marker.evaluate({"sys_platform": system})
        ]
        assert chosen == [expected]


def test_the_constraints_pin_every_dependency_within_its_bounds() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    pins = {pin.name.lower().replace("_", "-"): str(pin.specifier) for pin in map(Requirement, lines)}
    assert pins["torch"] == "==2.13.0"
    for requirement in REQUIREMENTS:
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(pins[requirement.name.lower()].removeprefix("=="))


def test_runs_are_ignored() -> None:
    """Or the sdist would hold them."""
    assert {"/mlruns/*", "!/mlruns/README.md"} <= {*Path(ROOT / ".gitignore").read_text().splitlines()}
