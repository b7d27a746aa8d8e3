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
from seqlab.tracking.store import Store
from seqlab_export.page.html import TEMPLATE
from tracking.tiny import make_run

MODEL = "model.init_args.model.init_args"


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


def test_each_part_has_its_place_on_the_page(leaderboard: dict[str, Any]) -> None:
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    for track in leaderboard["tracks"](Path("input.txt")):
        assert f"<!-- {track.name} -->\n" in page and f"<!-- end of {track.name} -->\n" in page


def test_the_rates_of_each_width_are_those_of_the_figure() -> None:
    """Made anew by `python benchmarks/mup.py docs`."""
    losses = json.loads((ROOT / "docs/mup.json").read_text(encoding="utf-8"))
    table = runpy.run_path(str(ROOT / "benchmarks/mup.py"))["table"](losses)
    page = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    assert table in page and "(mup.svg)" in page


@pytest.mark.slow
def test_of_each_model_the_rate_that_is_best_in_validation_is_taken(
    leaderboard: dict[str, Any], tmp_path: Path
) -> None:
    store = Store(tmp_path)
    for mixer, rate, losses in (
        *(("GRU", "0.004", (1.9, 1.8)), ("GRU", "0.008", (1.7, 2.5))),
        *(("LSTM", "0.004", (1.6, 1.5)), ("LSTM", "0.008", (1.7, 1.6))),
    ):
        params = {
            "seed_everything": "0",
            "model.init_args.lr": rate,
            f"{MODEL}.mixer.class_path": f"seqlab.recurrence.{mixer}",
            f"{MODEL}.positions.class_path": "seqlab.positions.NoPositions",
        }
        points = {"val/loss": list(enumerate(losses)), "test/loss": [(2, losses[1])]}
        make_run(store, f"{mixer}-{rate}", points, experiment="leaderboard-some", params=params)
    track = leaderboard["Track"]("some", [], rates="0.004,0.008,0.016", store=store)
    chosen = {leaderboard["label"](run): run.params["model.init_args.lr"] for run in leaderboard["best"](track)}
    assert chosen == {"GRU": "0.008", "LSTM": "0.004"}


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
