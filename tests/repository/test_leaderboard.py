"""The page of the leaderboard has a place for each part, and the models are those of their best learning rates."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from seqlab.tracking.store import Store
from tracking.tiny import make_run

ROOT = Path(__file__).parents[2]
MODEL = "model.init_args.model.init_args"


@pytest.fixture(scope="module")
def leaderboard() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/leaderboard.py"))


def test_each_part_has_its_place_on_the_page(leaderboard: dict[str, Any]) -> None:
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    for track in leaderboard["tracks"](Path("input.txt")):
        assert f"<!-- {track.name} -->\n" in page and f"<!-- end of {track.name} -->\n" in page


@pytest.mark.slow
def test_of_each_model_the_rate_that_is_best_in_validation_is_taken(
    leaderboard: dict[str, Any], tmp_path: Path
) -> None:
    store = Store(tmp_path)
    for mixer, rate, losses in (
        ("GRU", "0.004", (1.9, 1.8)),
        ("GRU", "0.008", (1.7, 2.5)),
        ("LSTM", "0.004", (1.6, 1.5)),
        ("LSTM", "0.008", (1.7, 1.6)),
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
