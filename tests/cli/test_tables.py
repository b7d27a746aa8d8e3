"""Sequences of numbers from the command line: frames are labelled, and data of another kind is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.conftest import Seqlab

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
ALONE = ["--trainer.logger=false", "--trainer.default_root_dir=."]


@pytest.mark.slow
def test_it_learns_what_each_frame_has_from_the_frame_after_it(
    tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    """Label k of a frame: the next frame's feature k is positive; the last frame has none."""
    draw = np.random.default_rng(1)
    inputs = [draw.normal(size=(draw.integers(2, 12), 3)) for _ in range(300)]
    targets = [np.append(some[1:] > 0, [[False] * 3], axis=0).astype(int).tolist() for some in inputs]
    parquet.write_table(pa.table({"x": [some.tolist() for some in inputs], "y": targets}), tmp_path / "x.parquet")
    seqlab = inside(tmp_path)
    data = [
        "--data.train=x.parquet",
        "--data.features=x",
        "--data.target=y",
        "--data.max_len=12",
        "--data.max_tokens=200",
    ]
    small = ["--model.model.encoder.d_model=32", "--model.model.encoder.num_layers=1", "--model.lr=1e-2"]
    done = seqlab("fit", "--config", "frames/bigru", *data, *small, "--trainer.max_epochs=25", *ALONE)
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab test \1", done.stdout)
    assert done.stderr.rstrip().endswith(" tokens/s")  # of the meter that the run has
    scores = seqlab("test", "--config", "frames/bigru", *data, *small, f"--ckpt_path={run}").stdout
    found = re.search(r"test/f1\W+([\d.]+)", scores)
    assert found is not None and float(found[1]) > 0.9  # a half of the labels hold
    proven = seqlab("export", run, "--out", "bundle").stdout
    assert "encoder" in proven and "likeliest" not in proven  # any of the labels may hold


@pytest.mark.slow
def test_other_targets_than_a_task_takes_are_refused(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    inputs = np.random.default_rng(0).normal(size=(60, 4, 2))
    for name, targets in (("classes", inputs[:, 0, 0] > 0), ("numbers", inputs[:, 0, 0]), ("frames", inputs > 0)):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, targets=targets)
    seqlab = inside(tmp_path)
    for config, name, message in (
        ("frames/bigru", "classes", "multi-label classification needs data that tells its num_labels, this tells none"),
        ("image/pixels-gru", "numbers", "classification needs data that tells its num_classes, this tells none"),
        ("synthetic/adding", "frames", "regression takes a number for each sequence, but this data has classes or"),
    ):
        data = ["--data=TableDataModule", f"--data.train={name}.npz", "--trainer.fast_dev_run=true"]
        assert message in seqlab("fit", "--config", config, *data, code=2).stderr
