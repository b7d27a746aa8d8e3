"""The parity matrix: every cell is measured or says why not, on runtimes that are right and on one that is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.subjects import randomized
from export.planted import copy_of, edit_graph
from export.test_graph_files import scan_without_end
from export.toys import Shared
from scale.kinds import KINDS, of_kind, write_files
from seqlab.cli import main
from seqlab_export.bundle import export_bundle
from seqlab_export.reports import parity
from seqlab_export.reports.bundle_model import BundleModel, score
from seqlab_export.reports.parity import SAME, Cell, parity_of_bundle, to_json
from seqlab_export.reports.parity_page import COLUMNS, to_markdown, to_row
from seqlab_export.reports.torch_runtime import TorchRuntime
from seqlab_export.runner import program
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.prove import Proof
from seqlab_export.runner.report import Check
from seqlab_export.runner.verify import load_golden


@pytest.fixture(name="no_runner")
def _no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a machine without a C++ compiler and without the output of `make web`."""
    monkeypatch.setattr(program, "BUILT", Path("no-such-program"))
    monkeypatch.setattr(parity, "WEB_PROOF", Path("no-such-program"))
    monkeypatch.setattr(shutil, "which", {"node": "node"}.get)
    monkeypatch.delenv("SEQLAB_RUN", raising=False)


@pytest.mark.parametrize(("letters", "kept"), [(199, 199), (200, 200), (201, 200)])
def test_an_error_in_a_cell_is_one_line_of_200_letters(letters: int, kept: int) -> None:
    assert parity._sentence(ValueError("a\n  b" + "c" * (letters - 3))) == "a b" + "c" * (kept - 3)


def test_a_runtime_that_gives_no_value_is_told_with_its_first_error() -> None:
    checks = [Check(kind="step", subject="a cell", ok=not note, note=note) for note in ("", "no f16", "no more")]
    with pytest.raises(ValueError, match=r"^no f16$"):
        parity._of_checks(checks)


@pytest.mark.usefixtures("no_runner")
def test_a_bundle_without_its_run_is_measured_by_onnxruntime_alone(shared: Shared) -> None:
    cells = {cell.runtime: cell for cell in parity_of_bundle("a name", shared("gru").folder, None)}
    found = cells.pop("onnxruntime CPU, Python")
    assert found.ok and not found.missing and found.greedy == SAME
    assert found.error is not None and found.limit is not None and found.kl is not None
    assert 0 < found.error < found.limit < 1e-5 and abs(found.kl) < 1e-10 and found.top1 == 1
    assert {cell.missing.split(":")[0] for cell in cells.values()} == {"not run"}
    assert cells["PyTorch eager"].missing == "not run: the run that this bundle is of is not in the tracking store"
    assert "make cpp" in cells["onnxruntime CPU, C++"].missing
    assert "make web" in cells["onnxruntime-web, wasm"].missing
    assert cells["onnxruntime-web, WebGPU"].missing == "not run: Chromium is not on PATH"


@pytest.mark.usefixtures("no_runner")
def test_the_command_shows_it_in_80_columns(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The measured runtimes form a table, one line each. The others follow, each with its reason on one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["verify", str(shared("gru").folder), "--all"]) == 0
    title, head, _, row, *missing = capsys.readouterr().out.splitlines()
    assert title == f"Parity of {shared('gru').folder.name} in fp32 with float64"
    assert head.split() == ["runtime", "error", "of", "limit", "largest", "KL", "KL", "p99", "top-1"]
    assert row.startswith("onnxruntime CPU, Python ") and max(map(len, (head, row))) <= 80
    assert "onnxruntime CUDA, Python: not run: no CUDA device" in missing


def test_each_runtime_ends_when_the_time_is_over(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(shared("gru").folder, tmp_path)
    edit_graph(folder, "model.onnx", scan_without_end)
    (program := tmp_path / "endless").write_text("#!/bin/sh\nexec sleep 100\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("SEQLAB_RUN", str(program))
    monkeypatch.setattr(parity, "WEB_PROOF", program)
    monkeypatch.setattr(parity, "WEBGPU_PROOF", program)
    monkeypatch.setattr(shutil, "which", {"node": str(program), "chromium": "chromium"}.get)
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "bundle", "--all", "--seconds=0.3", "--json"]) == 1
    cells = json.loads(capsys.readouterr().out)
    ended = [cell["runtime"] for cell in cells if "ok" in cell]
    assert ended == ["onnxruntime CPU, Python", "onnxruntime CPU, C++", "onnxruntime-web, wasm"]
    assert cells[-1]["missing"] == "not run: it did not end within 0.3 seconds on a GPU in software"
    assert main(["verify", "bundle", "--all", "--seconds=0"]) == 2
    assert "a proof may take more than 0 seconds, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_aotinductor_is_within_the_budget_where_it_compiles(shared: Shared) -> None:
    """The step reads what the sequence has written, which lies as the runtime left it."""
    model, folder, _ = shared("attention")
    runtime = TorchRuntime(model, compiled="ahead")
    checks = [*Proof(runtime, load_manifest(folder), load_golden(folder), batch_sizes=[5]).values()]
    assert {check.kind for check in checks} == {"prefill", "chunks", "step", "long"}
    assert all(check.ok for check in checks)
    with pytest.raises(ValueError, match=r"cannot be captured as model\.onnx"):
        TorchRuntime(shared("gru").model, compiled="ahead")


def test_divergence_is_that_of_the_distributions(shared: Shared) -> None:
    """Logits that can be checked by hand: the reference's odds are 3 to 1, the runtime's 1 to 1."""
    model, folder, _ = shared("gru")
    golden = load_golden(folder)
    golden |= {
        "whole/inputs": np.zeros((1, 1), dtype=np.int64),
        "whole/logits": np.log(np.array([[[0.75, 0.25, *[1e-300] * 9]]])),
    }

    class Even(TorchRuntime):
        def read(self, *args: Any) -> Any:
            return np.array([[[0.0, 0.0, *[-1e4] * 9]]]), {}

    kl, same = Proof(Even(model), load_manifest(folder), golden).divergence()
    np.testing.assert_allclose(kl, [0.75 * np.log(1.5) + 0.25 * np.log(0.5)], rtol=1e-6)
    assert same.tolist() == [True]


def test_pages_hold_every_cell() -> None:
    errors: dict[str, Any] = {"error": 3e-3, "own": 1e-3, "limit": 2e-3, "largest": 0.1}
    errors |= {"kl": 1e-5, "kl_p99": 2e-5, "top1": 0.995, "greedy": SAME, "scores": {"loss": 0.12345, "bleu": 31.0}}
    measured = Cell(model="m", precision="int8", runtime="r", ok=False, **errors)
    missing = Cell(model="m", precision="int8", runtime="s", missing="unsupported: because")
    row = {"model": "m", "precision": "int8", "runtime": "r", "error": "3.0e-03 FAILED", "of limit": "150%"}
    row |= {"largest": "1.0e-01", "KL": "1.0e-05", "KL p99": "2.0e-05", "top-1": "99.5%"}
    row |= {"greedy text": "the same", "test": "loss 0.1235, bleu 31"}
    assert dict(zip(COLUMNS, to_row(measured), strict=True)) == row
    page = to_markdown([measured, missing])
    assert "| m | int8 | r | 3.0e-03 FAILED |" in page and "| s | unsupported: because | m int8 |" in page
    assert to_json([missing]) == [
        {"model": "m", "precision": "int8", "runtime": "s", "missing": "unsupported: because"}
    ]


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
