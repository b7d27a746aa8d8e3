"""The cost of quantisation that an export prints: the validation loss of every kind of task, with an interval."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch import nn

from scale.kinds import KINDS, of_kind, write_files
from seqlab.batch import LabelledBatch
from seqlab.cli.bundle import _validation_loss
from seqlab_export.reports import validation_loss as module
from seqlab_export.reports.bundle_model import with_model
from seqlab_export.reports.validation_loss import validation_loss
from seqlab_export.runner.report import Report, ValidationLoss
from trainers import quiet_trainer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of Lightning


def perturbed(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    other = deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return other


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_files(folder := tmp_path_factory.mktemp("files"))
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_loss_of_a_validation(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, task = of_kind(name, files)
    task.eval()
    other = with_model(task, perturbed(task.model))
    monkeypatch.setattr(module, "BundleModel", lambda _, model: other.model)
    monkeypatch.setattr(module, "BATCHES", 1000)  # all of the split
    monkeypatch.setattr(module, "MOST_TARGETS", 10**9)
    found = validation_loss(task, data, Path())
    for each, loss in ((task, found.model), (other, found.bundle)):
        [expected] = quiet_trainer(files).validate(each, data, verbose=False)
        assert loss == pytest.approx(expected["val/loss"], rel=1e-5)


def test_the_interval_is_that_of_a_ratio_of_sums(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cochran 1977, "Sampling Techniques", equation 2.46: the standard error of a ratio of two sums over rows."""
    data, task = of_kind("language modelling", files)
    served, rows = perturbed(task.model), list[Any]()
    monkeypatch.setattr(module, "BundleModel", lambda _, model: served)
    losses = type(task).losses

    def kept(self: Any, batch: Any) -> Any:
        rows.append(losses(self, batch))
        return rows[-1]

    monkeypatch.setattr(type(task), "losses", kept)
    found = validation_loss(task.eval(), data, Path())
    changes = np.array(
        [[float((two - one).double().sum()), len(one)] for one, two in zip(rows[::2], rows[1::2], strict=True)]
    )
    ratio = changes[:, 0].sum() / changes[:, 1].sum()
    spread = (changes[:, 0] - ratio * changes[:, 1]).std(ddof=1) / changes[:, 1].mean() / np.sqrt(len(changes))
    assert found.bundle - found.model == pytest.approx(ratio) and found.rows == len(changes)
    assert found.half_width == pytest.approx(t.ppf(0.975, found.rows - 1) * spread, rel=0.1)


def test_a_large_model_reads_fewer_targets_from_every_part(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, task = of_kind("language modelling", files)
    monkeypatch.setattr(module, "BundleModel", lambda _, model: perturbed(model))
    whole = validation_loss(task.eval(), data, Path())
    weights = sum(weight.numel() for weight in task.model.parameters())
    monkeypatch.setattr(module, "MOST_WORK", weights)
    monkeypatch.setattr(module, "BATCHES", 2)
    batches, least = len(data.val_dataloader()), validation_loss(task, data, Path())
    assert least.rows == len(range(0, batches, batches // 2)) < whole.rows, "one of each batch that is read"


@pytest.mark.parametrize(
    ("weights", "targets", "rows"), [(1, 341, 4), (1, 342, 3), (2**24, 341, 4), (2**25, 255, 3), (2**25, 256, 2)]
)
def test_its_limits(weights: int, targets: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """2^14 targets of 16 batches, 1,024 of each; half as many for a model of 2^25 weights."""
    model = nn.Module()
    model.register_parameter("weight", nn.Parameter(torch.empty(weights, device="meta")))
    task = nn.Module()
    task.model, task.losses = model, lambda batch: torch.ones(batch.targets.numel())  # type: ignore[assignment]
    monkeypatch.setattr(module, "BundleModel", lambda _, model: model)
    batch = LabelledBatch(*[torch.zeros(5, targets)] * 3)
    data: Any = SimpleNamespace(prepare_data=lambda: None, setup=lambda _: None, val_dataloader=lambda: [batch] * 32)
    assert validation_loss(task, data, Path()).rows == 16 * rows


def test_a_split_without_two_rows_of_targets_has_no_interval(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, task = of_kind("classification", files)
    monkeypatch.setattr(module, "BundleModel", lambda _, model: model)
    batches = [batch for batch in _validation(data)][:1]
    for count in (0, 1):
        rows = [type(batch)(*(part if part is None else part[:count] for part in batch)) for batch in batches]
        monkeypatch.setattr(data, "val_dataloader", lambda rows=rows: rows)
        with pytest.raises(ValueError, match=f"the validation split has {count} rows with targets"):
            validation_loss(task, data, Path())
    with pytest.raises(ValueError, match="the run has no data"):
        validation_loss(task, None, Path())


def _validation(data: Any) -> Any:
    data.prepare_data()
    data.setup("validate")
    return data.val_dataloader()


@pytest.mark.parametrize(
    ("half_width", "said"), [(0.00012, "+0.001230 ± 0.000120"), (0.3, "+0.0012 ± 0.3000"), (0.0, "+0.0012 ± 0.0000")]
)
def test_the_change_has_the_digits_of_its_interval(half_width: float, said: str) -> None:
    found = Report("cpu", {}, "1.31", validation=ValidationLoss(2.0, 2.00123, half_width, 12345, 67))
    assert f"Validation loss 2.0000 before, 2.0012 after: {said} (12,345 targets in 67 rows)." in str(
        found.table().caption
    )


def test_an_export_without_its_data_says_that_the_loss_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def gone() -> None:
        raise FileNotFoundError("text.txt\nis gone")

    run: Any = SimpleNamespace(task=None, datamodule=SimpleNamespace(prepare_data=gone))
    assert _validation_loss(run, Path()) is None
    assert capsys.readouterr().err == "seqlab: the validation loss was not measured: text.txt is gone\n"
