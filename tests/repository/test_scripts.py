"""Pages that scripts make: the architecture, of what the imports say, the leaderboard, and the gallery."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from repository.source_tree import ROOT
from seqlab.config.configs import config_names
from seqlab_export.page.html import TEMPLATE


def test_the_architecture_is_of_these_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew by `python scripts/architecture.py > docs/architecture.md`; it fails where rooms import in a circle."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "scripts/architecture.py"), run_name="__main__")
    assert (ROOT / "docs/architecture.md").read_text(encoding="utf-8") == capsys.readouterr().out


@pytest.fixture(scope="module")
def leaderboard() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/leaderboard.py"))


def test_the_page_is_of_the_stored_numbers(leaderboard: dict[str, Any]) -> None:
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    for track in leaderboard["TRACKS"]:
        place = re.search(f"<!-- {track.name} -->\n(.*?)<!-- end of {track.name} -->\n", page, re.DOTALL)
        assert place is not None
        rows = json.loads(track.stored.read_text(encoding="utf-8")) if track.stored.exists() else {}
        if rows.keys() == track.models.keys():
            assert "\n".join(leaderboard["table"](track, rows)) in place[1]


def test_rows_are_ranked_by_their_seeds(leaderboard: dict[str, Any]) -> None:
    costs = {"num_flops": 2.4e6, "state_size": 256, "tokens_per_s": 1e4, "rates": {"0.004": 2.0, "0.008": 1.9}}
    rows = {
        "GRU": costs | {"lr": 0.008, "values": [1.90, 1.91, 1.92, 1.90, 1.91]},
        "RNN": costs | {"lr": 0.004, "values": [1.80, 1.95, 1.91, 1.90, 1.93]},
        "S4D": costs | {"lr": 0.006, "values": [1.70, 1.71, 1.70, 1.71, 1.72]},
    }
    shakespeare, recall, *_ = leaderboard["TRACKS"]
    table = leaderboard["table"](shakespeare, rows)
    assert [line.split(" | ")[:2] for line in table[2:]] == [["| 1", "S4D"], ["| 2-3", "RNN"], ["| 2-3", "GRU"]]
    assert "1.8980 ± 0.0721 | 0.0581 | 1.8000 1.9000 1.9100 1.9300 1.9500 | 0.004\\* | 2.4M" in table[3]
    assert "| 0.006 |" in table[2]
    best_first = [name for name, _, _ in leaderboard["ordered"](recall, rows)]
    assert best_first == ["GRU", "RNN", "S4D"], "more accuracy is better"


def test_the_rates_of_each_width_are_those_of_the_figure() -> None:
    """Made anew by `python benchmarks/mup.py docs`."""
    losses = json.loads((ROOT / "docs/mup.json").read_text(encoding="utf-8"))
    table = runpy.run_path(str(ROOT / "benchmarks/mup.py"))["table"](losses)
    page = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    assert table in page and "(mup.svg)" in page


@pytest.mark.slow
def test_a_model_is_fitted_at_its_best_rate_with_every_seed(
    leaderboard: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
    Path("text.txt").write_text("to be or not to be. " * 200)
    short = ("--data.path=text.txt", "--trainer.max_steps=4", "--trainer.val_check_interval=2", "--data.seq_len=16")
    small = leaderboard["TRACKS"][0]._replace(rates="1e-5,1e-3")
    found = leaderboard["measured"](small, "RNN", 2, *short)
    assert len(found["values"]) == 5 == len({*found["values"]}) and found["num_params"] == pytest.approx(
        410_000, rel=0.02
    )
    assert {"1e-05", "0.001"} < {*found["rates"]}, "the grid went on, since the best rate was at its end"
    assert min(found["rates"], key=found["rates"].__getitem__) == f"{found['lr']:g}"
    again = leaderboard["finished"](small.experiment, r"leaderboard-shakespeare-RNN-s\d")
    assert [run.name[-1] for run in again] == ["1", "2", "3", "4"]


@pytest.mark.slow
@pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web")
def test_models_of_the_gallery_have_a_page_and_the_index_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones that write; tests/cli/test_configs.py exports the others."""
    monkeypatch.chdir(tmp_path)
    gallery = runpy.run_path(str(ROOT / "scripts/gallery.py"))
    assert {model.config for model in gallery["MODELS"].values()} < {*config_names()}
    for name in gallery["MODELS"].keys() - {*gallery["WRITERS"]}:
        del gallery["MODELS"][name]
    small = ("--model.model.d_model=16", "--model.model.num_layers=1", "--data.seq_len=32")
    assert gallery["main"]([*small, "--trainer.max_steps=3", "--trainer.limit_val_batches=1"]) == 0
    index = Path("build/gallery/index.html").read_text(encoding="utf-8")
    pages = re.findall(r'href="([^"]+)"', index)
    assert pages == ["gru.html", "attention.html", "mamba.html", "compare.html"]
    for page in pages:
        text = Path("build/gallery", page).read_text(encoding="utf-8")
        assert text.count('data-path="manifest.json"') == (3 if page == "compare.html" else 1)
    with pytest.raises(SystemExit, match="build/gallery exists"):
        gallery["main"]([])
