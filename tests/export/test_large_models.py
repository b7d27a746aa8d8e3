"""A model of 100M weights: planted defects are found, and an export takes a bounded number of times its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from export.planted import Edit, copy_of, edit_graph, failed, with_logits_times_where
from export.test_defects import STEP, score_from_the_first_position, start_one_later
from once import once

pytestmark = pytest.mark.slow

EXPORT = """
import resource, sys
from functools import partial

import torch
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab_export import export_bundle

torch.manual_seed(0)
mixer = partial(Attention, num_heads=12, num_kv_heads=2)
model = DecoderLM(32_000, 1024, d_model=768, num_layers=12, mixer=mixer, tie_embeddings=True).eval()
weights = sum(weight.numel() for weight in model.parameters())
assert 90e6 < weights < 110e6, weights
export_bundle(model, None, sys.argv[1], seq_len=1024, target="ort")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / (4 * weights))
"""
MOST_MEMORY = 10.0
"""Peak memory of an export in the size of the weights, measured as 7.9. It holds states of 33 rows, which are larger
with more heads of keys."""


@pytest.fixture(name="large", scope="session")
def _large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The bundle, and the peak memory of its export in the size of the weights."""

    def export(folder: Path) -> tuple[Path, float]:
        done = subprocess.run([sys.executable, "-c", EXPORT, folder / "bundle"], stdout=subprocess.PIPE, check=True)
        return folder / "bundle", float(done.stdout)

    return once("large", export, tmp_path_factory)


def test_its_export_takes_bounded_memory(large: tuple[Path, float]) -> None:
    assert 1 < large[1] < MOST_MEMORY


@pytest.mark.parametrize(
    ("file", "edit", "expected"),
    [
        ("step.onnx", start_one_later, STEP),
        ("model.onnx", score_from_the_first_position, {"greedy"}),
        ("step.onnx", with_logits_times_where(0, "Equal", 33), {"step"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_graph_is_found(
    large: tuple[Path, float], file: str, edit: Edit, expected: set[str], tmp_path: Path
) -> None:
    edit_graph(folder := copy_of(large[0], tmp_path), file, edit)
    assert failed(folder) == expected
