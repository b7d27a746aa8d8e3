"""A task scores a bundle as it scores the model, whatever the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.subjects import randomized
from scale.kinds import KINDS, of_kind, write_files
from seqlab_export.bundle import export_bundle
from seqlab_export.matrices.bundle_model import BundleModel, score

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("images", "masked")])
def test_a_bundle_has_the_scores_of_its_model(name: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    data, task = of_kind(name, tmp_path)
    randomized(task.model).float()
    export_bundle(
        task.model,
        getattr(data, "tokenizer", None),
        tmp_path / "bundle",
        source_tokenizer=getattr(data, "source_tokenizer", None),
        labels=getattr(data, "labels", ()),
        seq_len=task.seq_len,
        chooses_one=task.chooses_one,
    )
    expected = score(task, task.model, data)
    found = score(task, BundleModel(tmp_path / "bundle", task.model), data)
    assert expected and found == pytest.approx(expected, rel=1e-4, abs=1e-6)
