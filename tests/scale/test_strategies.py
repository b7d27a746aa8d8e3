"""Whatever the strategy, what is trained is the same: two and four ranks against one process at the same global batch.

A plain run compares what one torchrun of two ranks has found (`scale.cases.PLAIN`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scale.fits import KINDS, fit

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
DRAWS = ("masked",)
"""Kinds whose ranks draw random numbers: one process would draw others."""
CLOSE = 1e-5


def assert_same(found: dict[str, Any], alone: dict[str, Any], tolerance: float = CLOSE) -> None:
    """The losses of all steps on every rank, the last weights, the scores and the tokens that were read."""
    assert len(alone["losses"][0]) > 3 and found["weights"].keys() == alone["weights"].keys()
    for losses in found["losses"]:
        assert losses == pytest.approx(alone["losses"][0], rel=tolerance, abs=tolerance)
    for name, weight in found["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=tolerance, abs=tolerance), name
    assert found["scores"] == pytest.approx(alone["scores"], rel=1e-4, abs=tolerance)
    assert found["num_tokens"] == alone["num_tokens"]


@pytest.mark.parametrize("kind", KINDS)
def test_fsdp2_trains_what_one_process_does(kind: str, plain: dict[str, Any], files: Path) -> None:
    found = plain[f"{kind}, fsdp2"]
    assert found["spread"]
    assert_same(found, plain[f"{kind}, ddp"] if kind in DRAWS else fit(files, kind, batches=2))


@pytest.mark.parametrize("kind", ["translation", "classification"])
def test_ddp_trains_what_one_process_does_with_unevenly_padded_rows(
    kind: str, plain: dict[str, Any], files: Path
) -> None:
    assert_same(plain[f"{kind}, ddp"], fit(files, kind, batches=2))


def test_every_row_is_seen_once_an_epoch(plain: dict[str, Any]) -> None:
    """Also where the last batch has a row for one rank alone."""
    for name, num_rows in {"translation, fsdp2": 41, "translation, ddp": 41, "frames, fsdp2": 41}.items():
        ranks = plain[name]["rows"]
        assert len(ranks) == 2 and sorted(ranks[0] + ranks[1]) == list(range(num_rows)), name


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_task_under_every_strategy(
    ranks: int, kind: str, strategy: str, request: pytest.FixtureRequest, files: Path
) -> None:
    found = request.getfixturevalue("all_of_two" if ranks == 2 else "all_of_four")
    alone = found[f"{kind}, ddp"] if kind in DRAWS else fit(files, kind, batches=ranks)
    assert_same(found[f"{kind}, {strategy}"], alone)
