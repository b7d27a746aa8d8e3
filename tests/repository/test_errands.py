"""Completeness of CONTRIBUTING's lists of files.

Each new thing is made in a copy of the tree, by a change of the listed files and by the listed commands alone, and
passes the tests that its section names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from repository.source_tree import ROOT, python_blocks

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = [
    *("platform", "datamodules", "export/seqlab_export", "export/runtime", "studies", "tests"),
    *("docs", "scripts", "examples"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml"),
]
PACKAGES = ("platform", "datamodules", "export", "studies")
NEW = Path(__file__).parent / "new"
Edit = dict[str, str]
"""Replacements, each of the first occurrence of a text, by that text."""


class Errand(NamedTuple):
    """A new thing.

    Attributes:
        name: name of its file.
        files: the whole text of a new file, or the edit of one.
        only: pytest's `-k`: the tests of the new thing, and those that count or list all.
    """

    name: str
    files: dict[str, str | Edit]
    only: str


def new(name: str) -> str:
    return (NEW / f"{name}.py").read_text(encoding="utf-8")


def exported(package: str, name: str) -> Edit:
    """Export of a class from the `__init__.py` of its room."""
    cls = name.capitalize()
    imports, names = f"\nfrom {package}.", "__all__ = ["
    return {imports: f"\nfrom {package}.{name} import {cls}{imports}", names: f'{names}\n    "{cls}",'}


FLOPS = """
    def flops(self, new: int, seen: int) -> int:
        return 0
"""
REFERENCE = """def decay(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    def step(h: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        h = sigmoid(weights["decay"]) * h + linear(weights, "in_proj", x_t)
        return h, h

    return in_steps(step, 0.0, x, real)


"""
TEST_OF_MEDIAN = """
import torch
from torch import nn
from seqlab.batch import LabelledBatch
from seqlab.tasks import Median


class Zero(nn.Module):
    def forward(self, inputs, *, pad_mask):
        return inputs[:, 0]


def test_median_by_hand():
    inputs, targets = torch.zeros(2, 1, 1), torch.tensor([3.0, -4.0])
    total, count = Median(1, 1, model=lambda *_: Zero()).loss(LabelledBatch(inputs, inputs[..., 0] == 0, targets))
    assert (total, count) == (7, 2)
"""
TEST_OF_LATEST = """
import torch
from seqlab.models import Latest


def test_latest_by_hand():
    model, tokens = Latest(5, 2, 8, d_model=3), torch.tensor([[1, 2, 4]])
    torch.testing.assert_close(model(tokens), model.head(model.embedding(tokens[:, -1])))
"""
TEST_OF_DICE = """
from seqlab_studies.dice import Dice


def test_dice_by_hand():
    assert Dice().measure("smoke", 0, {}).values["six faces"] == 3.5
"""
KIND = '"median": (AddingDataModule(**few), partial(Median, model=of_rows))'
CONFIG = (ROOT / "platform/seqlab/configs/classify/bag-of-words.yaml").read_text(encoding="utf-8")
STATIC = 'Target("static", STANDARD, fixed_caches=True)'
ERRANDS = {
    "mixer": Errand(
        "decay",
        {
            "platform/seqlab/recurrence/decay.py": python_blocks("docs/guides/own-mixer.md")[0] + FLOPS,
            "platform/seqlab/recurrence/__init__.py": exported("seqlab.recurrence", "decay"),
            "tests/references/linear_recurrence.py": {"def min_gru(": f"{REFERENCE}def min_gru("},
            "tests/contracts/cases.py": {"MIXERS = [": 'MIXERS = [\n    _mixer("decay", rec.Decay, scans.decay),'},
        },
        "decay or every_ or recorded or matrix_is or built_file",
    ),
    "model": Errand(
        "latest",
        {
            "platform/seqlab/models/latest.py": new("latest"),
            "platform/seqlab/models/__init__.py": exported("seqlab.models", "latest")
            | {"MODELS = (": "MODELS = (Latest, "},
            "platform/seqlab/configs/classify/latest.yaml": CONFIG.replace("bag-of-words", "latest")
            .replace("BagOfWords", "Latest")
            .replace("    dropout: 0.3\n", ""),
            "tests/models/test_latest.py": TEST_OF_LATEST,
        },
        "latest or every_model or built_file",
    ),
    "task": Errand(
        "median",
        {
            "platform/seqlab/tasks/median.py": new("median"),
            "platform/seqlab/tasks/__init__.py": exported("seqlab.tasks", "median"),
            "tests/scale/kinds.py": {
                "    Regression,\n": "    Median,\n    Regression,\n",
                "KINDS = (": 'KINDS = (\n    "median",',
                '        "regression": (': f'        {KIND},\n        "regression": (',
            },
            "tests/tasks/test_median.py": TEST_OF_MEDIAN,
        },
        "median or every_task or user_may or built_file",
    ),
    "study": Errand(
        "dice",
        {
            "studies/seqlab_studies/dice.py": new("dice"),
            "tests/studies/test_dice.py": TEST_OF_DICE,
            "tests/studies/test_explanations.py": {},
            "docs/claims.md": {},
        },
        "dice or verdict or architecture",
    ),
    "export target": Errand(
        "static",
        {
            "export/seqlab_export/capture/target.py": {
                '"cuda-graph"]': '"cuda-graph", "static"]',
                ' = {\n    "portable"': f' = {{\n    "static": {STATIC},\n    "portable"',
            },
            "export/seqlab_export/graphs.py": {},
            "export/seqlab_export/runner/manifest_fields.json": {
                '"cuda-graph": ': '"static": "caches", "cuda-graph": '
            },
            "export/seqlab_export/runner/operators.json": {'"cuda-graph": ': '"static": [], "cuda-graph": '},
            "platform/seqlab/cli/bundle.py": {'"cuda-graph"]': '"cuda-graph", "static"]'},
            "docs/bundle.md": {"| `cuda-graph` |": "| `static` | as in `portable` | C keys |\n| `cuda-graph` |"},
            "tests/export/test_targets.py": {
                '("cuda-graph", Attention)': '("static", Attention), ("cuda-graph", Attention)'
            },
        },
        "static or schema",
    ),
    "manifest field": Errand(
        "language",
        {
            "export/seqlab_export/runner/manifest_fields.json": {
                '"labels": {"list"': '"language": {"text": {}},\n      "labels": {"list"'
            },
            "export/seqlab_export/runner/manifest.py": {"labels: tuple": "language: str\n    labels: tuple"},
            "export/seqlab_export/capture/plan.py": {'"labels": ': '"language": "en",\n            "labels": '},
            "docs/bundle.md": {"| `labels` |": "| `language` | the language of its texts |\n| `labels` |"},
            "tests/export/test_statements.py": {
                '("gru", "labels"': '("gru", "language", "de"),\n        ("gru", "labels"'
            },
            "export/runtime/tests/manifest_test.cc": {'"labels": [],': '"language": "en",\n"labels": [],'},
        },
        "language or schema",
    ),
}


def section(thing: str, name: str) -> tuple[list[str], list[str]]:
    """The files and the commands that CONTRIBUTING lists for a new thing of a name."""
    found = re.search(rf"^## Add an? {thing}\n(.*?)^## ", CONTRIBUTING, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    text = found[1].replace("NAME", name)
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE), re.findall(r"^\$ (.*)$", text, re.MULTILINE)


def made(tree: Path, files: dict[str, str | Edit]) -> None:
    """Makes the changes in a copy of the tree."""
    for name in COPIED:
        copy, ignored = tree / name, shutil.ignore_patterns("__pycache__", "mlruns")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy)
    if (unpacked := ROOT / "build" / "cpp-dependencies").exists():
        (tree / "build").mkdir()
        (tree / "build" / unpacked.name).symlink_to(unpacked)
    for name, change in files.items():
        path = tree / name
        if isinstance(change, str):
            assert not path.exists()
            path.write_text(change, encoding="utf-8")
            continue
        text = path.read_text(encoding="utf-8")
        for old, replaced in change.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, replaced, 1)
        path.write_text(text, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("thing", ERRANDS)
def test_the_listed_files_and_commands_are_enough(thing: str, tmp_path: Path) -> None:
    errand = ERRANDS[thing]
    files, commands = section(thing, errand.name)
    assert sorted(files) == sorted(errand.files) and commands
    made(tmp_path, errand.files)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MLFLOW_"))}
    environment["PYTHONPATH"] = os.pathsep.join(str(tmp_path / package) for package in PACKAGES)
    environment["PYTEST_ADDOPTS"] = f'-k "{errand.only}" -p no:cacheprovider'
    for command in commands:
        program, _, rest = command.partition(" ")
        typed = f"{sys.executable} {'-m seqlab ' if program == 'seqlab' else ''}{rest}"
        done = subprocess.run(typed, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
